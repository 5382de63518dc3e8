//! Indexed directories (htrees): `struct dx_root`, `dx_node`, `dx_entry`, `dx_countlimit`, `dx_tail` of
//! `fs/ext4/namei.c`, documented in `directory.rst`.
//!
//! Block 0 of the directory is the root: entries "." and "..", then `dx_root_info`, then entries `{hash, block}` from
//! byte 32. Inner nodes have one fake entry over the block and entries from byte 8. Entry 0 holds `limit`/`count`
//! in place of its hash. With `metadata_csum` an 8-byte tail after the last *possible* entry holds
//! crc32c(seed; inode; generation; bytes through the last *used* entry; 4 reserved bytes of the tail; 4 zero bytes).

use super::checksum::CsumCtx;
use super::dirhash::{DX_HASH_SIPHASH, DX_HASH_TEA};
use crate::base::bytes;
use crate::base::checksum::crc32c;
use crate::format::cast;
use crate::format::{Corrupt, CorruptKind};

/// Byte offset of the root's entries.
pub const DX_ROOT_ENTRIES: usize = 0x20;
/// Byte offset of an inner node's entries.
pub const DX_NODE_ENTRIES: usize = 0x08;
const INFO_AT: usize = 0x18;
const ENTRY: usize = 8;

/// `struct dx_root_info`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DxRootInfo {
    /// Stored hash version: 0 legacy, 1 half MD4, 2 TEA, 6 SipHash.
    pub hash_version: u8,
    /// 8.
    pub info_length: u8,
    /// Levels of inner nodes between root and leaves.
    pub indirect_levels: u8,
    /// Must be 0 in bit 0.
    pub unused_flags: u8,
}

/// One entry of a root or inner node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DxEntry {
    /// Lowest hash in the child (0 for entry 0). Bit 0: the run of equal hashes goes on from the child before.
    pub hash: u32,
    /// Logical block of the child.
    pub block: u32,
}

impl DxRootInfo {
    /// Decodes and checks the root block's head; `large_dir` allows a third level.
    pub fn decode(b: &[u8], large_dir: bool) -> Result<DxRootInfo, Corrupt> {
        let bad = |kind, at| Err(Corrupt::new(kind, at));
        let dot_dot = bytes::le16(b, 0x10);
        let block = cast::len32(b.len());
        if bytes::le16(b, 4) != 12
            || u32::from(dot_dot) != block.saturating_sub(12)
            || bytes::le32(b, INFO_AT) != 0
        {
            return bad(CorruptKind::DxRoot {}, 0);
        }
        let r = DxRootInfo {
            hash_version: bytes::u8_at(b, 0x1C),
            info_length: bytes::u8_at(b, 0x1D),
            indirect_levels: bytes::u8_at(b, 0x1E),
            unused_flags: bytes::u8_at(b, 0x1F),
        };
        let version = r.hash_version;
        if version > DX_HASH_TEA && version != DX_HASH_SIPHASH {
            return bad(CorruptKind::DxHashVersion { version }, 0x1C);
        }
        if r.info_length != 8 {
            return bad(CorruptKind::DxInfoLength { len: r.info_length }, 0x1D);
        }
        if r.unused_flags & 1 != 0 {
            let flags = r.unused_flags;
            return bad(CorruptKind::DxUnusedFlags { flags }, 0x1F);
        }
        let (levels, max) = (r.indirect_levels, if large_dir { 2 } else { 1 });
        if levels > max {
            return bad(CorruptKind::DxLevels { levels, max }, 0x1E);
        }
        Ok(r)
    }

    /// Writes `dx_root_info`; the two directory entries before it are the caller's.
    pub fn encode(&self, b: &mut [u8]) {
        bytes::put_le32(b, INFO_AT, 0);
        bytes::put_u8(b, 0x1C, self.hash_version);
        bytes::put_u8(b, 0x1D, self.info_length);
        bytes::put_u8(b, 0x1E, self.indirect_levels);
        bytes::put_u8(b, 0x1F, self.unused_flags);
    }
}

/// Entries that fit in a root of `block_size` bytes (kernel `dx_root_limit`).
pub fn root_limit(block_size: u32, csum: bool) -> u16 {
    limit(block_size, DX_ROOT_ENTRIES, csum)
}

/// Entries that fit in an inner node (kernel `dx_node_limit`).
pub fn node_limit(block_size: u32, csum: bool) -> u16 {
    limit(block_size, DX_NODE_ENTRIES, csum)
}

fn limit(block_size: u32, at: usize, csum: bool) -> u16 {
    let tail = if csum { 8 } else { 0 };
    let room = cast::size(block_size)
        .saturating_sub(at)
        .saturating_sub(tail);
    cast::lo16(cast::len32(room / ENTRY))
}

/// Where the entries of `b` begin, from its first directory entries (kernel `get_dx_countlimit`).
pub fn entries_offset(b: &[u8]) -> Result<usize, Corrupt> {
    let block = cast::len32(b.len());
    let rec_len = super::dirent::rec_len_from_disk(bytes::le16(b, 4), block);
    if rec_len == block && bytes::le32(b, 0) == 0 {
        return Ok(DX_NODE_ENTRIES);
    }
    let dot_dot = u32::from(bytes::le16(b, 0x10));
    let root = rec_len == 12
        && dot_dot == block.saturating_sub(12)
        && bytes::le32(b, INFO_AT) == 0
        && bytes::u8_at(b, 0x1D) == 8;
    if root {
        Ok(DX_ROOT_ENTRIES)
    } else {
        Err(Corrupt::new(CorruptKind::DxNode {}, 0))
    }
}

/// `limit` of the node whose entries begin at `at`.
pub fn dx_limit(b: &[u8], at: usize) -> u16 {
    bytes::le16(b, at)
}

/// `count` of the node whose entries begin at `at`.
pub fn dx_count(b: &[u8], at: usize) -> u16 {
    bytes::le16(b, at.saturating_add(2))
}

/// Stores `limit`.
pub fn set_dx_limit(b: &mut [u8], at: usize, limit: u16) {
    bytes::put_le16(b, at, limit);
}

/// Stores `count`.
pub fn set_dx_count(b: &mut [u8], at: usize, count: u16) {
    bytes::put_le16(b, at.saturating_add(2), count);
}

fn entry_at(at: usize, i: u16) -> usize {
    at.saturating_add(usize::from(i).saturating_mul(ENTRY))
}

/// Entry `i` of the node whose entries begin at `at`; the hash of entry 0 is 0.
pub fn dx_entry(b: &[u8], at: usize, i: u16) -> DxEntry {
    let e = entry_at(at, i);
    DxEntry {
        hash: if i == 0 { 0 } else { bytes::le32(b, e) },
        block: bytes::le32(b, e.saturating_add(4)) & 0x0fff_ffff,
    }
}

/// Stores entry `i`; of entry 0 only the block.
pub fn set_dx_entry(b: &mut [u8], at: usize, i: u16, entry: DxEntry) {
    let e = entry_at(at, i);
    if i != 0 {
        bytes::put_le32(b, e, entry.hash);
    }
    bytes::put_le32(b, e.saturating_add(4), entry.block);
}

/// Checks limit and count of a root or inner node and gives all its entries.
pub fn decode_entries(b: &[u8], at: usize, csum: bool) -> Result<Vec<DxEntry>, Corrupt> {
    let (count, found) = (dx_count(b, at), dx_limit(b, at));
    let expected = limit(cast::len32(b.len()), at, csum);
    if found != expected {
        let kind = CorruptKind::DxLimit {
            limit: found,
            expected,
        };
        return Err(Corrupt::new(kind, cast::len32(at)));
    }
    if count == 0 || count > found {
        let kind = CorruptKind::DxCount {
            count,
            limit: found,
        };
        return Err(Corrupt::new(kind, cast::len32(at.saturating_add(2))));
    }
    Ok((0..count).map(|i| dx_entry(b, at, i)).collect())
}

fn tail_at(b: &[u8], at: usize) -> usize {
    entry_at(at, dx_limit(b, at))
}

/// Checksum of the root or inner node `b` whose entries begin at `at`.
pub fn csum(ctx: &CsumCtx, ino: u32, generation: u32, b: &[u8], at: usize) -> u32 {
    let used = b.get(..entry_at(at, dx_count(b, at))).unwrap_or(b);
    let crc = crc32c(ctx.inode_seed(ino, generation), used);
    let reserved: [u8; 4] = bytes::array(b, tail_at(b, at));
    crc32c(crc32c(crc, &reserved), &[0; 4])
}

/// Stores the checksum of a root or inner node, if the file system has them.
pub fn csum_set(ctx: &CsumCtx, ino: u32, generation: u32, b: &mut [u8], at: usize) {
    if ctx.metadata_csum {
        let csum = csum(ctx, ino, generation, b, at);
        let tail = tail_at(b, at).saturating_add(4);
        bytes::put_le32(b, tail, csum);
    }
}

/// Checks the checksum of a root or inner node.
pub fn csum_verify(
    ctx: &CsumCtx,
    ino: u32,
    generation: u32,
    b: &[u8],
    at: usize,
) -> Result<(), Corrupt> {
    if !ctx.metadata_csum {
        return Ok(());
    }
    let tail = tail_at(b, at).saturating_add(4);
    let stored = bytes::le32(b, tail);
    let computed = csum(ctx, ino, generation, b, at);
    if stored == computed {
        return Ok(());
    }
    let kind = CorruptKind::DxChecksum {
        ino,
        stored,
        computed,
    };
    Err(Corrupt::new(kind, cast::len32(tail)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_the_kernels() {
        assert_eq!(root_limit(4096, false), 508);
        assert_eq!(root_limit(4096, true), 507);
        assert_eq!(node_limit(4096, false), 511);
        assert_eq!(node_limit(4096, true), 510);
    }

    #[test]
    fn entries_round_trip() {
        let mut b = vec![0u8; 1024];
        super::super::dirent::put_dirent(&mut b, 0, 2, 12, b".", 2);
        super::super::dirent::put_dirent(&mut b, 12, 2, 1012, b"..", 2);
        let r = DxRootInfo {
            hash_version: 1,
            info_length: 8,
            ..DxRootInfo::default()
        };
        r.encode(&mut b);
        let at = entries_offset(&b).unwrap();
        set_dx_limit(&mut b, at, root_limit(1024, true));
        set_dx_count(&mut b, at, 2);
        set_dx_entry(&mut b, at, 0, DxEntry { hash: 9, block: 1 });
        set_dx_entry(
            &mut b,
            at,
            1,
            DxEntry {
                hash: 0x8000_0000,
                block: 2,
            },
        );
        let want = [
            DxEntry { hash: 0, block: 1 },
            DxEntry {
                hash: 0x8000_0000,
                block: 2,
            },
        ];
        assert_eq!(decode_entries(&b, at, true).unwrap(), want);
        assert_eq!(DxRootInfo::decode(&b, false).unwrap(), r);
        let ctx = CsumCtx {
            metadata_csum: true,
            ..CsumCtx::NONE
        };
        csum_set(&ctx, 2, 0, &mut b, at);
        assert!(csum_verify(&ctx, 2, 0, &b, at).is_ok());
        b[0x28] ^= 1;
        assert!(csum_verify(&ctx, 2, 0, &b, at).is_err());
    }
}
