//! Nodes of a directory's htree on bytes alone (kernel `fs/ext4/namei.c`: `struct dx_root`, `struct dx_node`,
//! `struct dx_entry`, documented in `directory.rst`).
//!
//! A node has `count` entries of {le32 hash, le32 block}; the hash of the first is taken by {le16 limit, le16 count}.
//! The root has 32 bytes before its entries, other nodes 8.

use crate::base::bytes::{le16, le32, put_le16, put_le32, put_u8, u8_at};
use crate::format::ext4::dirent::{dir_rec_len, rec_len_to_disk};
use crate::format::{Corrupt, CorruptKind};

/// Offset of the entries in the root.
pub(crate) const ROOT_ENTRIES: usize = 32;
/// Offset of the entries in other nodes.
pub(crate) const NODE_ENTRIES: usize = 8;
const INFO: usize = 24;
const TAIL: usize = 8;

/// Most entries of a node of `size` bytes whose entries start at `base`.
pub(crate) fn limit_of(size: usize, base: usize, csum: bool) -> u16 {
    ((size - base - if csum { TAIL } else { 0 }) / 8) as u16
}

/// Limit stored in the node.
pub(crate) fn limit(node: &[u8], base: usize) -> u16 {
    le16(node, base)
}

/// Number of entries.
pub(crate) fn count(node: &[u8], base: usize) -> u16 {
    le16(node, base + 2)
}

/// Hash of entry `i`; 0 for the first, which has none.
pub(crate) fn hash(node: &[u8], base: usize, i: u16) -> u32 {
    if i == 0 {
        0
    } else {
        le32(node, base + usize::from(i) * 8)
    }
}

/// Block of entry `i`.
pub(crate) fn block(node: &[u8], base: usize, i: u16) -> u32 {
    le32(node, base + usize::from(i) * 8 + 4) & 0x0fff_ffff
}

/// Stores the number of entries.
pub(crate) fn set_count(node: &mut [u8], base: usize, n: u16) {
    put_le16(node, base + 2, n);
}

/// Stores the limit.
pub(crate) fn set_limit(node: &mut [u8], base: usize, n: u16) {
    put_le16(node, base, n);
}

/// Stores the block of entry `i`.
pub(crate) fn set_block(node: &mut [u8], base: usize, i: u16, block: u32) {
    put_le32(node, base + usize::from(i) * 8 + 4, block);
}

/// Index of the last entry whose hash is at most `hash`.
pub(crate) fn find(node: &[u8], base: usize, wanted: u32) -> u16 {
    let (mut low, mut high) = (1, count(node, base));
    while low < high {
        let mid = low + (high - low) / 2;
        if hash(node, base, mid) > wanted {
            high = mid;
        } else {
            low = mid + 1;
        }
    }
    low - 1
}

/// Inserts {`hash`, `block`} after entry `after`; there is room.
pub(crate) fn insert_after(node: &mut [u8], base: usize, after: u16, hash: u32, block: u32) {
    let n = count(node, base);
    let at = base + usize::from(after + 1) * 8;
    let end = base + usize::from(n) * 8;
    node.copy_within(at..end, at + 8);
    put_le32(node, at, hash);
    put_le32(node, at + 4, block);
    set_count(node, base, n + 1);
}

/// Checks limit and count of a node against what its size allows.
pub(crate) fn check(node: &[u8], base: usize, csum: bool) -> Result<(), Corrupt> {
    let (limit, count) = (limit(node, base), count(node, base));
    let expected = limit_of(node.len(), base, csum);
    let bad = |kind| Err(Corrupt::new(kind, base as u32));
    if limit != expected {
        return bad(CorruptKind::DxLimit { limit, expected });
    }
    if count == 0 || count > limit {
        return bad(CorruptKind::DxCount { count, limit });
    }
    Ok(())
}

/// What the root says about the whole tree (kernel `struct dx_root_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RootInfo {
    /// 0 legacy, 1 half MD4, 2 TEA.
    pub hash_version: u8,
    /// Index levels below the root.
    pub indirect_levels: u8,
}

/// Reads and checks the root's header; `max_levels` is 2, or 3 with `large_dir`.
pub(crate) fn root_info(root: &[u8], max_levels: u8) -> Result<RootInfo, Corrupt> {
    let version = u8_at(root, INFO + 4);
    let len = u8_at(root, INFO + 5);
    let levels = u8_at(root, INFO + 6);
    let flags = u8_at(root, INFO + 7);
    let bad = |kind| Err(Corrupt::new(kind, INFO as u32));
    if version > 2 {
        return bad(CorruptKind::DxHashVersion { version });
    }
    if flags & 1 != 0 {
        return bad(CorruptKind::DxUnusedFlags { flags });
    }
    if levels >= max_levels {
        let max = max_levels - 1;
        return bad(CorruptKind::DxLevels { levels, max });
    }
    if len != 8 {
        return bad(CorruptKind::DxInfoLength { len });
    }
    Ok(RootInfo {
        hash_version: version,
        indirect_levels: levels,
    })
}

/// One more level below the root.
pub(crate) fn add_level(root: &mut [u8]) {
    let levels = u8_at(root, INFO + 6);
    put_u8(root, INFO + 6, levels + 1);
}

/// Turns block 0 of a linear directory, whose `.` and `..` stay, into the root with one entry for block 1.
pub(crate) fn init_root(root: &mut [u8], hash_version: u8, csum: bool) {
    let size = root.len();
    let dotdot = size as u32 - dir_rec_len(1);
    put_le16(root, 12 + 4, rec_len_to_disk(dotdot));
    root[INFO..].fill(0);
    put_u8(root, INFO + 4, hash_version);
    put_u8(root, INFO + 5, 8);
    set_limit(root, ROOT_ENTRIES, limit_of(size, ROOT_ENTRIES, csum));
    set_count(root, ROOT_ENTRIES, 1);
    set_block(root, ROOT_ENTRIES, 0, 1);
}

/// Makes an empty node: a fake entry that covers the block.
pub(crate) fn init_node(node: &mut [u8], csum: bool) {
    let size = node.len();
    node[..NODE_ENTRIES].fill(0);
    put_le16(node, 4, rec_len_to_disk(size as u32));
    set_limit(node, NODE_ENTRIES, limit_of(size, NODE_ENTRIES, csum));
}

/// Copies entries `from..from + n` of `src` to the start of `dst`, leaving the limit of `dst` alone.
pub(crate) fn copy_entries(
    src: &[u8],
    src_base: usize,
    from: u16,
    n: u16,
    dst: &mut [u8],
    dst_base: usize,
) {
    let at = src_base + usize::from(from) * 8;
    let len = usize::from(n) * 8;
    let limit = limit(dst, dst_base);
    dst[dst_base..dst_base + len].copy_from_slice(&src[at..at + len]);
    set_limit(dst, dst_base, limit);
    set_count(dst, dst_base, n);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_finds_the_covering_entry() {
        let mut node = vec![0u8; 1024];
        init_node(&mut node, true);
        set_count(&mut node, NODE_ENTRIES, 1);
        set_block(&mut node, NODE_ENTRIES, 0, 1);
        assert_eq!(limit(&node, NODE_ENTRIES), 126);
        for i in (1..=50u32).rev() {
            insert_after(&mut node, NODE_ENTRIES, 0, i * 10, i + 1);
        }
        check(&node, NODE_ENTRIES, true).unwrap();
        assert_eq!(count(&node, NODE_ENTRIES), 51);
        for h in 0..600 {
            let i = find(&node, NODE_ENTRIES, h);
            assert_eq!(u32::from(i), (h / 10).min(50), "hash {h}");
            assert_eq!(block(&node, NODE_ENTRIES, i), u32::from(i) + 1);
        }
        let mut other = vec![0u8; 1024];
        init_node(&mut other, true);
        copy_entries(&node, NODE_ENTRIES, 20, 31, &mut other, NODE_ENTRIES);
        assert_eq!(count(&other, NODE_ENTRIES), 31);
        assert_eq!(block(&other, NODE_ENTRIES, 0), 21);
        assert_eq!(limit(&other, NODE_ENTRIES), 126);
    }
}
