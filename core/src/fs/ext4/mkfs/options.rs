//! Options as mke2fs 1.47 spells them.

use crate::base::rng::SplitMix64;
use crate::base::Uuid;
use std::fmt;

/// Why no file system was made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MkfsError {
    /// An option or value that mke2fs knows and this mkfs does not implement.
    Unsupported(String),
    /// An option or value that mke2fs refuses too.
    Invalid(String),
    /// The device is too small for the file system's own structures.
    TooSmall,
    /// No room left for a structure, for example a journal that is too large.
    NoSpace(String),
}

impl fmt::Display for MkfsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MkfsError::Unsupported(what) => write!(f, "mkfs: `{what}` is not supported"),
            MkfsError::Invalid(what) => write!(f, "mkfs: {what}"),
            MkfsError::TooSmall => f.write_str("mkfs: device too small for this file system"),
            MkfsError::NoSpace(what) => write!(f, "mkfs: no room for {what}"),
        }
    }
}

impl std::error::Error for MkfsError {}

/// Parsed options; `None` and empty mean mke2fs's default.
#[derive(Clone, Debug, PartialEq)]
pub struct MkfsOptions {
    /// `-t`: ext2, ext3 or ext4.
    pub fs_type: String,
    /// `-T`: usage types.
    pub usage_types: Option<String>,
    /// `-b`: bytes per block.
    pub block_size: Option<u32>,
    /// `-C`: bytes per cluster.
    pub cluster_size: Option<u32>,
    /// `-I`: bytes per inode.
    pub inode_size: Option<u16>,
    /// `-i`: bytes of the file system per inode.
    pub inode_ratio: Option<u64>,
    /// `-N`: number of inodes.
    pub inodes: Option<u64>,
    /// `-g`: blocks per group (clusters with bigalloc).
    pub blocks_per_group: Option<u32>,
    /// `-G`: groups per flex group.
    pub flex_bg_size: Option<u32>,
    /// `-m`: percent of blocks reserved for the super-user.
    pub reserved_percent: f64,
    /// `-O`: feature edits in order.
    pub features: Vec<String>,
    /// `-j`: a journal.
    pub journal: bool,
    /// `-J size=`: MiB.
    pub journal_mib: Option<u32>,
    /// `-J fast_commit_size=`: KiB.
    pub fast_commit_kib: Option<u32>,
    /// `-J location=`: block (as spelled; unit depends on block size).
    pub journal_location: Option<String>,
    /// `-U`, or made from `seed`.
    pub uuid: Option<Uuid>,
    /// `-E hash_seed=`, or made from `seed`.
    pub hash_seed: Option<Uuid>,
    /// `-L`
    pub label: String,
    /// `-M`: last mounted directory.
    pub last_mounted: String,
    /// `-e`: 1 continue, 2 remount-ro, 3 panic.
    pub errors: Option<u16>,
    /// Everything else of `-E`.
    pub extended: Extended,
    /// Time of creation in seconds since 1970.
    pub now: u32,
    /// Source of a random UUID and hash seed.
    pub seed: u64,
    /// The device reads zeroes after a discard (an image file does, most block devices do not promise it).
    pub discard_zeroes: bool,
}

/// Extended options (`-E`).
#[derive(Clone, Debug, PartialEq)]
pub struct Extended {
    /// Leave inode tables to the kernel; `None` is the default (yes).
    pub lazy_itable_init: Option<bool>,
    /// Do not zero the journal.
    pub lazy_journal_init: bool,
    /// Discard the device first.
    pub discard: bool,
    /// Blocks of a RAID chunk.
    pub stride: u16,
    /// Blocks of a RAID stripe.
    pub stripe_width: u32,
    /// Largest size to grow to (as spelled).
    pub resize: Option<String>,
    /// Bitmaps and tables at the start of the device.
    pub packed_meta_blocks: bool,
    /// Backup superblocks of sparse_super2.
    pub num_backup_sb: u32,
    /// Bytes per descriptor.
    pub desc_size: Option<u16>,
    /// Owner of the root directory.
    pub root_owner: (u32, u32),
    /// Mode of the root directory.
    pub root_perms: Option<u16>,
    /// Mark as a test file system.
    pub test_fs: bool,
    /// Inode tables and journal are zero already.
    pub assume_storage_prezeroed: bool,
    /// Blocks of the orphan file (as spelled).
    pub orphan_file_size: Option<String>,
}

impl Default for Extended {
    fn default() -> Extended {
        Extended {
            lazy_itable_init: None,
            lazy_journal_init: false,
            discard: true,
            stride: 0,
            stripe_width: 0,
            resize: None,
            packed_meta_blocks: false,
            num_backup_sb: 2,
            desc_size: None,
            root_owner: (0, 0),
            root_perms: None,
            test_fs: false,
            assume_storage_prezeroed: false,
            orphan_file_size: None,
        }
    }
}

impl Default for MkfsOptions {
    /// `mke2fs -t ext4` on a block device.
    fn default() -> MkfsOptions {
        MkfsOptions {
            fs_type: "ext4".to_string(),
            usage_types: None,
            block_size: None,
            cluster_size: None,
            inode_size: None,
            inode_ratio: None,
            inodes: None,
            blocks_per_group: None,
            flex_bg_size: None,
            reserved_percent: 5.0,
            features: Vec::new(),
            journal: false,
            journal_mib: None,
            fast_commit_kib: None,
            journal_location: None,
            uuid: None,
            hash_seed: None,
            label: String::new(),
            last_mounted: String::new(),
            errors: None,
            extended: Extended::default(),
            now: 0,
            seed: 0,
            discard_zeroes: false,
        }
    }
}

impl MkfsOptions {
    /// Parses an option string, split at blanks; quotes keep blanks together.
    pub fn parse(text: &str) -> Result<MkfsOptions, MkfsError> {
        MkfsOptions::parse_args(&split_words(text))
    }

    /// Parses an argument list without program name, device and size.
    pub fn parse_args(args: &[String]) -> Result<MkfsOptions, MkfsError> {
        let mut opts = MkfsOptions::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let Some(mut flags) = arg.strip_prefix('-').filter(|f| !f.is_empty()) else {
                return Err(invalid(format!("`{arg}` is not an option")));
            };
            while let Some(flag) = flags.chars().next() {
                flags = &flags[flag.len_utf8()..];
                if "cjnqvDFSVK".contains(flag) {
                    opts.set_flag(flag)?;
                    continue;
                }
                let value = if flags.is_empty() {
                    args.next().map(String::as_str)
                } else {
                    Some(flags)
                };
                let value = value.ok_or_else(|| invalid(format!("-{flag} needs a value")))?;
                opts.set_value(flag, value)?;
                break;
            }
        }
        Ok(opts)
    }

    fn set_flag(&mut self, flag: char) -> Result<(), MkfsError> {
        match flag {
            'j' => self.journal = true,
            'K' => self.extended.discard = false,
            'q' | 'v' | 'F' | 'D' => {}
            _ => return Err(MkfsError::Unsupported(format!("-{flag}"))),
        }
        Ok(())
    }

    fn set_value(&mut self, flag: char, v: &str) -> Result<(), MkfsError> {
        match flag {
            'b' => self.block_size = Some(block_size(v)?),
            'C' => self.cluster_size = Some(number(v, "cluster size", bytes(v))?),
            'I' => self.inode_size = Some(number(v, "inode size", plain(v))?),
            'i' => self.inode_ratio = Some(inode_ratio(v)?),
            'N' => self.inodes = Some(number(v, "inode count", plain(v))?),
            'g' => self.blocks_per_group = Some(number(v, "blocks per group", plain(v))?),
            'G' => self.flex_bg_size = Some(flex_bg_size(v)?),
            'm' => self.reserved_percent = reserved_percent(v)?,
            'O' => self.features.push(v.to_string()),
            'U' => self.set_uuid(v)?,
            'L' => self.label = v.to_string(),
            'M' => self.last_mounted = v.to_string(),
            't' => match v {
                "ext2" | "ext3" | "ext4" => self.fs_type = v.to_string(),
                _ => return Err(MkfsError::Unsupported(format!("-t {v}"))),
            },
            'T' => self.usage_types = Some(v.to_string()),
            'e' => {
                self.errors = Some(match v {
                    "continue" => 1,
                    "remount-ro" => 2,
                    "panic" => 3,
                    _ => return Err(invalid(format!("bad error behavior `{v}`"))),
                });
            }
            'r' if v == "1" => {}
            'o' if v.eq_ignore_ascii_case("linux") => {}
            'J' => split_list(v).try_for_each(|(k, a)| self.set_journal(k, a))?,
            'E' | 'R' => split_list(v).try_for_each(|(k, a)| self.set_extended(k, a))?,
            'r' | 'o' | 'l' | 'd' | 's' | 'z' => {
                return Err(MkfsError::Unsupported(format!("-{flag} {v}")));
            }
            _ => return Err(invalid(format!("-{flag} is not an option of mke2fs"))),
        }
        Ok(())
    }

    fn set_uuid(&mut self, v: &str) -> Result<(), MkfsError> {
        self.uuid = match v.to_ascii_lowercase().as_str() {
            "null" | "clear" => Some(Uuid([0; 16])),
            "random" | "time" => None,
            text => Some(text.parse().map_err(invalid)?),
        };
        Ok(())
    }

    fn set_journal(&mut self, key: &str, arg: Option<&str>) -> Result<(), MkfsError> {
        let need = || arg.ok_or_else(|| invalid(format!("-J {key} needs a value")));
        match key {
            "size" => {
                self.journal_mib = Some(number(need()?, "journal size", plain(need()?))?);
            }
            "fast_commit_size" => {
                let size = number(need()?, "fast commit size", plain(need()?))?;
                self.fast_commit_kib = Some(size);
            }
            "location" => self.journal_location = Some(need()?.to_string()),
            "device" | "v1_superblock" => {
                return Err(MkfsError::Unsupported(format!("-J {key}")));
            }
            _ => return Err(invalid(format!("bad journal option `{key}`"))),
        }
        Ok(())
    }

    fn set_extended(&mut self, key: &str, arg: Option<&str>) -> Result<(), MkfsError> {
        let need = || arg.ok_or_else(|| invalid(format!("-E {key} needs a value")));
        let switch = || match arg {
            None => Ok(true),
            Some(v) => number::<u32>(v, key, plain(v)).map(|n| n != 0),
        };
        let e = &mut self.extended;
        match key {
            "lazy_itable_init" => e.lazy_itable_init = Some(switch()?),
            "lazy_journal_init" => e.lazy_journal_init = switch()?,
            "discard" => e.discard = true,
            "nodiscard" => e.discard = false,
            "hash_seed" => self.hash_seed = Some(need()?.parse().map_err(invalid)?),
            "stride" => e.stride = number(need()?, key, plain(need()?))?,
            "stripe-width" | "stripe_width" => {
                e.stripe_width = number(need()?, key, plain(need()?))?;
            }
            "resize" => e.resize = Some(need()?.to_string()),
            "packed_meta_blocks" => e.packed_meta_blocks = switch()?,
            "num_backup_sb" => {
                e.num_backup_sb = number(need()?, key, plain(need()?).filter(|n| *n <= 2))?;
            }
            "desc_size" | "desc-size" => e.desc_size = Some(desc_size(need()?)?),
            "root_owner" => e.root_owner = root_owner(arg)?,
            "root_perms" => {
                let perms = u16::from_str_radix(need()?, 8);
                e.root_perms = Some(perms.map_err(|_| invalid(format!("bad -E {key}")))?);
            }
            "test_fs" => e.test_fs = true,
            "assume_storage_prezeroed" => e.assume_storage_prezeroed = switch()?,
            "orphan_file_size" => e.orphan_file_size = Some(need()?.to_string()),
            "revision" if arg == Some("1") => {}
            "no_copy_xattrs" => {}
            "offset"
            | "mmp_update_interval"
            | "quotatype"
            | "encoding"
            | "encoding_flags"
            | "revision"
            | "android_sparse"
            | "root_selinux" => {
                return Err(MkfsError::Unsupported(format!("-E {key}")));
            }
            _ => return Err(invalid(format!("bad extended option `{key}`"))),
        }
        Ok(())
    }

    /// The UUID: given or random (version 4).
    pub(super) fn uuid_or_random(&self) -> Uuid {
        self.uuid
            .unwrap_or_else(|| random_uuid(self.seed, "mkfs.uuid"))
    }

    /// The hash seed: given or random.
    pub(super) fn hash_seed_or_random(&self) -> Uuid {
        match self.hash_seed {
            Some(u) if u.0 != [0; 16] => u,
            _ => random_uuid(self.seed, "mkfs.hash_seed"),
        }
    }
}

fn random_uuid(seed: u64, name: &str) -> Uuid {
    let mut rng = SplitMix64::named(seed, name);
    let mut b = [0; 16];
    b[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
    b[8..].copy_from_slice(&rng.next_u64().to_le_bytes());
    b[6] = (b[6] & 0x0f) | 0x40;
    b[8] = (b[8] & 0x3f) | 0x80;
    Uuid(b)
}

pub(super) fn invalid(what: impl Into<String>) -> MkfsError {
    MkfsError::Invalid(what.into())
}

fn split_words(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in text.chars() {
        match quote {
            Some(q) if c == q => quote = None,
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => out.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    out.extend(word);
    out
}

fn split_list(v: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    v.split(',')
        .filter(|t| !t.is_empty())
        .map(|t| match t.split_once('=') {
            Some((k, a)) => (k, Some(a)),
            None => (t, None),
        })
}

fn plain(v: &str) -> Option<u64> {
    match v.strip_prefix("0x").or(v.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => v.parse().ok(),
    }
}

/// A number with an optional unit, in bytes (mke2fs `parse_num_blocks` without block size).
fn bytes(v: &str) -> Option<u64> {
    let digits = v.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &v[digits.len()..] {
        "" => 0,
        "s" => 9,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        _ => return None,
    };
    plain(digits)?.checked_mul(1 << shift)
}

/// A number of blocks; with a unit, that many bytes in blocks (mke2fs `parse_num_blocks`).
pub(super) fn block_count(v: &str, block_size: u32, what: &str) -> Result<u64, MkfsError> {
    let bad = || invalid(format!("`{v}` is not a valid {what}"));
    if let Some(n) = plain(v) {
        return Ok(n);
    }
    Ok(bytes(v).ok_or_else(bad)? / u64::from(block_size))
}

fn number<T: TryFrom<u64>>(v: &str, what: &str, parsed: Option<u64>) -> Result<T, MkfsError> {
    parsed
        .and_then(|n| T::try_from(n).ok())
        .ok_or_else(|| invalid(format!("`{v}` is not a valid {what}")))
}

fn block_size(v: &str) -> Result<u32, MkfsError> {
    let n: u32 = number(v, "block size", bytes(v))?;
    match n {
        1024 | 2048 | 4096 => Ok(n),
        8192 | 16384 | 32768 | 65536 => Err(MkfsError::Unsupported(format!("-b {v}"))),
        _ => Err(invalid(format!(
            "`{v}` is not a valid block size (1024, 2048, 4096)"
        ))),
    }
}

fn inode_ratio(v: &str) -> Result<u64, MkfsError> {
    let n = number(v, "inode ratio", bytes(v))?;
    if (1024..=65536 * 1024).contains(&n) {
        Ok(n)
    } else {
        Err(invalid(format!(
            "inode ratio {v} is not in 1024..=67108864"
        )))
    }
}

fn flex_bg_size(v: &str) -> Result<u32, MkfsError> {
    let n: u32 = number(v, "flex_bg size", plain(v))?;
    if n.is_power_of_two() {
        Ok(n)
    } else {
        Err(invalid(format!("flex_bg size {v} is not a power of 2")))
    }
}

fn reserved_percent(v: &str) -> Result<f64, MkfsError> {
    match v.parse::<f64>() {
        Ok(p) if (0.0..=50.0).contains(&p) => Ok(p),
        _ => Err(invalid(format!(
            "reserved blocks percent `{v}` is not in 0..=50"
        ))),
    }
}

fn desc_size(v: &str) -> Result<u16, MkfsError> {
    let n: u16 = number(v, "desc_size", plain(v))?;
    if n.is_power_of_two() && (64..=1024).contains(&n) {
        Ok(n)
    } else {
        Err(invalid(format!(
            "desc_size {v} is not a power of 2 in 64..=1024"
        )))
    }
}

fn root_owner(arg: Option<&str>) -> Result<(u32, u32), MkfsError> {
    let Some(v) = arg else { return Ok((0, 0)) };
    let parsed = v
        .split_once(':')
        .and_then(|(u, g)| Some((u.parse().ok()?, g.parse().ok()?)));
    parsed.ok_or_else(|| invalid(format!("bad root_owner `{v}`, write it as uid:gid")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_as_mke2fs_spells_them() {
        let o = MkfsOptions::parse(
            "-q -F -t ext4 -b 4k -I256 -E lazy_itable_init=0,nodiscard,stride=16 -O ^has_journal,inline_data \
             -J size=64 -m 0.5 -L 'a label' -U 6b6c6162-0000-4000-8000-000000000001",
        )
        .unwrap();
        assert_eq!((o.block_size, o.inode_size), (Some(4096), Some(256)));
        assert_eq!(o.extended.lazy_itable_init, Some(false));
        assert!(!o.extended.discard);
        assert_eq!((o.extended.stride, o.journal_mib), (16, Some(64)));
        assert_eq!(o.features, ["^has_journal,inline_data"]);
        assert_eq!(o.label, "a label");
    }

    #[test]
    fn refusals_name_the_option() {
        for (text, name) in [
            ("-E quotatype=usrquota", "-E quotatype"),
            ("-c", "-c"),
            ("-b 8192", "-b 8192"),
            ("-d dir", "-d"),
            ("-J device=/dev/sdb", "-J device"),
        ] {
            let e = MkfsOptions::parse(text).unwrap_err();
            assert!(
                matches!(&e, MkfsError::Unsupported(s) if s.contains(name)),
                "{e}"
            );
        }
        assert!(matches!(
            MkfsOptions::parse("-b 3000"),
            Err(MkfsError::Invalid(_))
        ));
        assert!(matches!(
            MkfsOptions::parse("-E bogus"),
            Err(MkfsError::Invalid(_))
        ));
        assert!(matches!(
            MkfsOptions::parse("image"),
            Err(MkfsError::Invalid(_))
        ));
    }
}
