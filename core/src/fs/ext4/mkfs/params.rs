//! From options and device size to the parameters of the file system: what mke2fs does before it touches the disk,
//! with the profile that Debian 12 ships in `/etc/mke2fs.conf`.

use super::options::{block_count, invalid, MkfsError, MkfsOptions};
use crate::format::ext4::features::{self, Feature};
use crate::format::ext4::SuperBlock;

/// Features that mke2fs lets `-O` change and that this mkfs lays out.
const SUPPORTED: &[Feature] = &[
    features::HAS_JOURNAL,
    features::RESIZE_INODE,
    features::DIR_INDEX,
    features::EXT_ATTR,
    features::SPARSE_SUPER2,
    features::FAST_COMMIT,
    features::STABLE_INODES,
    features::ORPHAN_FILE,
    features::FILETYPE,
    features::EXTENTS,
    features::META_BG,
    features::FLEX_BG,
    features::EA_INODE,
    features::BIT64,
    features::INLINE_DATA,
    features::CSUM_SEED,
    features::LARGEDIR,
    features::LARGE_FILE,
    features::HUGE_FILE,
    features::DIR_NLINK,
    features::EXTRA_ISIZE,
    features::SPARSE_SUPER,
    features::GDT_CSUM,
    features::BIGALLOC,
    features::METADATA_CSUM,
    features::PROJECT,
];

const BASE_FEATURES: &str = "sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr";
const EXT4_FEATURES: &str =
    "has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize";
const KIB: u64 = 1024;
/// `acl,user_xattr`
const DEFAULT_MOUNT_OPTS: u32 = 0x000C;

/// One `[fs_types]` entry of the profile.
#[derive(Clone, Copy)]
struct Profile {
    name: &'static str,
    block_size: Option<u32>,
    inode_ratio: Option<u64>,
}

const PROFILES: [Profile; 9] = [
    profile("small", Some(1024), Some(4096)),
    profile("floppy", Some(1024), Some(8192)),
    profile("big", None, Some(32768)),
    profile("huge", None, Some(65536)),
    profile("news", None, Some(4096)),
    profile("largefile", Some(4096), Some(1_048_576)),
    profile("largefile4", Some(4096), Some(4_194_304)),
    profile("hurd", Some(4096), None),
    profile("default", None, None),
];

const fn profile(name: &'static str, block_size: Option<u32>, inode_ratio: Option<u64>) -> Profile {
    Profile {
        name,
        block_size,
        inode_ratio,
    }
}

/// What `initialize` starts from.
#[derive(Clone, Debug)]
pub(super) struct Params {
    /// Template with features, block and cluster size, groups, counts asked for, RAID numbers.
    pub(super) sb: SuperBlock,
    /// Blocks of the device.
    pub(super) blocks: u64,
    /// Inodes asked for.
    pub(super) inodes: u64,
    /// Journal goal block from `-J location=` or packed_meta_blocks.
    pub(super) journal_goal: Option<u64>,
    /// Blocks of the orphan file asked for.
    pub(super) orphan_blocks: Option<u64>,
}

/// Works out the parameters for a device of `size` bytes.
pub(super) fn resolve(o: &MkfsOptions, size: u64) -> Result<Params, MkfsError> {
    let mut sb = SuperBlock::zeroed();
    sb.s_rev_level = 1;
    let types = profiles(o, size)?;
    let default_seed = set_features(o, &mut sb)?;
    if default_seed && !sb.has(features::METADATA_CSUM) {
        sb.set_feature(features::CSUM_SEED, false);
    }
    let block_size = o
        .block_size
        .or(types.iter().rev().find_map(|t| t.block_size))
        .unwrap_or(4096);
    sb.s_log_block_size = block_size.trailing_zeros() - 10;
    sb.s_default_mount_opts = DEFAULT_MOUNT_OPTS;
    let blocks = device_blocks(o, size, block_size);
    if blocks == 0 {
        return Err(MkfsError::TooSmall);
    }
    if blocks > u64::from(u32::MAX) {
        if !sb.has(features::BIT64) {
            return Err(invalid(format!(
                "size of {blocks} blocks is too big for 32 bits; add -O 64bit"
            )));
        }
        sb.set_feature(features::RESIZE_INODE, false);
    }
    sb.s_blocks_count = blocks;
    cluster_size(o, &mut sb, block_size)?;
    let ratio = o.inode_ratio.unwrap_or_else(|| {
        let r = types.iter().rev().find_map(|t| t.inode_ratio);
        r.unwrap_or(16384)
            .max(u64::from(block_size))
            .max(KIB << sb.s_log_cluster_size)
    });
    sizes(o, &mut sb, block_size)?;
    check_features(&mut sb)?;
    let inodes = inode_count(o, &sb, blocks, block_size, ratio)?;
    let percent = o.reserved_percent;
    sb.s_r_blocks_count = (percent * blocks as f64 / 100.0) as u64;
    if sb.has(features::SPARSE_SUPER2) {
        let n = o.extended.num_backup_sb;
        sb.s_backup_bgs = [u32::from(n >= 1), if n >= 2 { !0 } else { 0 }];
    }
    let journal_goal = match &o.journal_location {
        Some(v) => Some(block_count(v, block_size, "journal location")?),
        None => o.extended.packed_meta_blocks.then_some(0),
    };
    let orphan = o.extended.orphan_file_size.as_deref();
    let orphan_blocks = orphan
        .map(|v| block_count(v, block_size, "orphan file size"))
        .transpose()?;
    Ok(Params {
        sb,
        blocks,
        inodes,
        journal_goal,
        orphan_blocks,
    })
}

/// Profile entries that apply, least specific first.
fn profiles(o: &MkfsOptions, size: u64) -> Result<Vec<Profile>, MkfsError> {
    // mke2fs measures the device in blocks of -b, or of 1 KiB, before it knows the final block size.
    let unit = u64::from(o.block_size.unwrap_or(1024));
    let (blocks, meg) = (size / unit, (1 << 20) / unit);
    let by_size = if blocks < 3 * meg {
        "floppy"
    } else if blocks < 512 * meg {
        "small"
    } else if blocks < 4 * 1024 * 1024 * meg {
        "default"
    } else if blocks < 16 * 1024 * 1024 * meg {
        "big"
    } else {
        "huge"
    };
    let names = o.usage_types.as_deref().unwrap_or(by_size);
    names
        .split(',')
        .filter(|n| !n.is_empty())
        .map(|n| {
            let p = PROFILES.iter().find(|p| p.name == n).copied();
            p.ok_or_else(|| MkfsError::Unsupported(format!("-T {n}")))
        })
        .collect()
}

fn device_blocks(o: &MkfsOptions, size: u64, block_size: u32) -> u64 {
    let unit = u64::from(o.block_size.unwrap_or(1024));
    let per_page = (4096 / unit).max(1);
    let blocks = size / unit / per_page * per_page;
    blocks * unit / u64::from(block_size)
}

/// Applies base, type and `-O` features; true if metadata_csum_seed was on before `-O`.
fn set_features(o: &MkfsOptions, sb: &mut SuperBlock) -> Result<bool, MkfsError> {
    edit_features(sb, BASE_FEATURES)?;
    match o.fs_type.as_str() {
        "ext3" => edit_features(sb, "has_journal")?,
        "ext4" => edit_features(sb, EXT4_FEATURES)?,
        _ => {}
    }
    let default_seed = sb.has(features::CSUM_SEED);
    for edit in &o.features {
        edit_features(sb, edit)?;
    }
    if o.journal || o.journal_mib.is_some_and(|n| n > 0) {
        sb.set_feature(features::HAS_JOURNAL, true);
    }
    if sb.has(features::ORPHAN_FILE) && !sb.has(features::HAS_JOURNAL) {
        return Err(invalid("cannot set orphan_file without has_journal"));
    }
    Ok(default_seed)
}

fn edit_features(sb: &mut SuperBlock, edits: &str) -> Result<(), MkfsError> {
    for word in edits.split([',', ' ']).filter(|w| !w.is_empty()) {
        if word == "none" {
            sb.s_feature_compat = 0;
            sb.s_feature_incompat = 0;
            sb.s_feature_ro_compat = 0;
            continue;
        }
        let (on, name) = match word.strip_prefix(['^', '-']) {
            Some(name) => (false, name),
            None => (true, word.strip_prefix('+').unwrap_or(word)),
        };
        let f = features::by_name(name)
            .ok_or_else(|| invalid(format!("invalid filesystem option set: {name}")))?;
        if on && !SUPPORTED.contains(&f) {
            return Err(MkfsError::Unsupported(format!("-O {name}")));
        }
        sb.set_feature(f, on);
    }
    Ok(())
}

fn cluster_size(o: &MkfsOptions, sb: &mut SuperBlock, block_size: u32) -> Result<(), MkfsError> {
    if !sb.has(features::BIGALLOC) {
        if o.cluster_size.is_some() {
            return Err(invalid("specifying a cluster size requires bigalloc"));
        }
        sb.s_log_cluster_size = sb.s_log_block_size;
        return Ok(());
    }
    let size = o.cluster_size.unwrap_or(block_size * 16);
    if !size.is_power_of_two() || size < block_size || size > 512 << 20 {
        return Err(invalid(format!("invalid cluster size {size}")));
    }
    sb.s_log_cluster_size = size.trailing_zeros() - 10;
    Ok(())
}

/// Inode, descriptor, group and flex group sizes, and `-E resize`.
fn sizes(o: &MkfsOptions, sb: &mut SuperBlock, block_size: u32) -> Result<(), MkfsError> {
    if sb.has(features::BIT64) {
        if !sb.has(features::EXTENTS) {
            return Err(invalid("extents must be enabled for a 64-bit filesystem"));
        }
        sb.s_desc_size = o.extended.desc_size.unwrap_or(64);
    } else if o.extended.desc_size.is_some() {
        return Err(invalid("desc_size requires -O 64bit"));
    }
    sb.s_raid_stride = o.extended.stride;
    sb.s_raid_stripe_width = o.extended.stripe_width;
    if let Some(blocks) = o.blocks_per_group {
        if blocks % 8 != 0 || blocks < 256 || blocks > 8 * block_size {
            return Err(invalid(format!(
                "blocks per group count {blocks} out of range"
            )));
        }
        sb.s_blocks_per_group = blocks;
    }
    if let Some(v) = &o.extended.resize {
        resize_limit(sb, v, block_size)?;
    }
    if sb.has(features::BIGALLOC) {
        sb.s_clusters_per_group = sb.s_blocks_per_group;
        sb.s_blocks_per_group = 0;
    }
    if sb.has(features::FLEX_BG) {
        sb.s_log_groups_per_flex = o.flex_bg_size.unwrap_or(16).trailing_zeros() as u8;
    } else if o.flex_bg_size.is_some() {
        return Err(invalid(
            "flex_bg not enabled, so flex_bg size may not be specified",
        ));
    }
    let inode_size = o.inode_size.unwrap_or(256);
    if !(128..=block_size).contains(&u32::from(inode_size)) || !inode_size.is_power_of_two() {
        return Err(invalid(format!(
            "invalid inode size {inode_size} (min 128/max {block_size})"
        )));
    }
    sb.s_inode_size = inode_size;
    Ok(())
}

fn resize_limit(sb: &mut SuperBlock, v: &str, block_size: u32) -> Result<(), MkfsError> {
    let limit = block_count(v, block_size, "resize parameter")?;
    if limit <= sb.s_blocks_count {
        return Err(invalid(
            "the resize maximum must be greater than the filesystem size",
        ));
    }
    let per_group = match sb.s_blocks_per_group {
        0 => u64::from(block_size) * 8,
        n => u64::from(n),
    };
    let per_block = u64::from(sb.descs_per_block());
    let have = sb.s_blocks_count.div_ceil(per_group).div_ceil(per_block);
    let want = limit.div_ceil(per_group).div_ceil(per_block);
    let reserved = want.saturating_sub(have).min(u64::from(block_size / 4));
    if reserved > 0 {
        sb.set_feature(features::RESIZE_INODE, true);
        sb.s_reserved_gdt_blocks = reserved as u16;
    }
    Ok(())
}

fn check_features(sb: &mut SuperBlock) -> Result<(), MkfsError> {
    if sb.has(features::METADATA_CSUM) {
        sb.set_feature(features::GDT_CSUM, false);
    }
    let has = |f| sb.has(f);
    if has(features::BIGALLOC) && !has(features::EXTENTS) {
        return Err(invalid(
            "can't support bigalloc feature without extents feature",
        ));
    }
    if has(features::META_BG) && has(features::RESIZE_INODE) {
        return Err(invalid(
            "the resize_inode and meta_bg features are not compatible",
        ));
    }
    let sparse = has(features::SPARSE_SUPER);
    if has(features::RESIZE_INODE) && !sparse {
        return Err(invalid(
            "reserved online resize blocks not supported on non-sparse filesystem",
        ));
    }
    if has(features::INLINE_DATA) && sb.s_inode_size == 128 {
        return Err(invalid("128 byte inodes are too small for inline data"));
    }
    if has(features::PROJECT) && sb.s_inode_size == 128 {
        return Err(invalid("128 byte inodes are too small for project quota"));
    }
    if has(features::CSUM_SEED) && !has(features::METADATA_CSUM) {
        return Err(invalid(
            "the metadata_csum_seed feature requires the metadata_csum feature",
        ));
    }
    Ok(())
}

fn inode_count(
    o: &MkfsOptions,
    sb: &SuperBlock,
    blocks: u64,
    block_size: u32,
    ratio: u64,
) -> Result<u64, MkfsError> {
    let max = u64::from(u32::MAX);
    let bytes = blocks * u64::from(block_size);
    let count = match o.inodes.filter(|n| *n > 0) {
        Some(n) if n > max => return Err(invalid(format!("too many inodes ({n})"))),
        Some(n) => n,
        None if bytes / ratio > max && sb.has(features::BIT64) => max,
        None if bytes / ratio > max => return Err(invalid("too many inodes, raise inode ratio?")),
        None => bytes / ratio,
    };
    let inode_size = u64::from(sb.s_inode_size);
    if count * inode_size >= bytes {
        return Err(invalid(format!(
            "inode_size ({inode_size}) * inodes_count ({count}) too big for a filesystem with {blocks} blocks"
        )));
    }
    Ok(count)
}
