//! Extent trees: `struct ext4_extent_header`, `ext4_extent`, `ext4_extent_idx`, `ext4_extent_tail` of
//! `fs/ext4/ext4_extents.h`, documented in `ifork.rst`.
//!
//! A node is a 12-byte header and up to `eh_max` entries of 12 bytes: in `i_block` (4 entries, covered by the inode
//! checksum) or in a block, with a 4-byte crc32c tail after the last possible entry. Little-endian.

use super::checksum::CsumCtx;
use crate::base::bytes;
use crate::base::checksum::crc32c;
use crate::format::cast;
use crate::format::{Corrupt, CorruptKind};

/// `eh_magic`.
pub const EXT4_EXT_MAGIC: u16 = 0xF30A;
/// Bytes of header and of each entry.
pub const EXT4_EXTENT_SIZE: usize = 12;
/// Deepest legal tree (kernel `EXT4_MAX_EXTENT_DEPTH`).
pub const EXT4_MAX_EXTENT_DEPTH: u16 = 5;
/// Longest written extent, and the bias that marks unwritten ones.
pub const EXT_INIT_MAX_LEN: u16 = 32768;
/// Longest unwritten extent.
pub const EXT_UNWRITTEN_MAX_LEN: u16 = 32767;
/// Last logical block of any file (kernel `EXT_MAX_BLOCKS`).
pub const EXT_MAX_BLOCKS: u32 = 0xffff_ffff;

/// Header of an extent tree node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtentHeader {
    /// Entries in use.
    pub eh_entries: u16,
    /// Entries that fit.
    pub eh_max: u16,
    /// Levels below this node; 0 for a leaf.
    pub eh_depth: u16,
    /// Generation (unused by the kernel).
    pub eh_generation: u32,
}

/// A run of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// First logical block.
    pub lblk: u32,
    /// Blocks, 1..=32768 (32767 if unwritten).
    pub len: u16,
    /// Allocated but reads as zero.
    pub unwritten: bool,
    /// First physical block.
    pub pblk: u64,
}

/// An index entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtentIdx {
    /// First logical block that the child covers.
    pub lblk: u32,
    /// Block of the child node.
    pub leaf: u64,
}

impl ExtentHeader {
    /// Decodes and checks the header of the node `b` (60 bytes of `i_block`, or a block).
    pub fn decode(b: &[u8]) -> Result<ExtentHeader, Corrupt> {
        let bad = |kind, at| Err(Corrupt::new(kind, at));
        let found = bytes::le16(b, 0);
        if found != EXT4_EXT_MAGIC {
            return bad(CorruptKind::ExtentMagic { found }, 0);
        }
        let h = ExtentHeader {
            eh_entries: bytes::le16(b, 2),
            eh_max: bytes::le16(b, 4),
            eh_depth: bytes::le16(b, 6),
            eh_generation: bytes::le32(b, 8),
        };
        let room = cast::len32(b.len().saturating_sub(EXT4_EXTENT_SIZE) / EXT4_EXTENT_SIZE);
        if h.eh_max == 0 || u32::from(h.eh_max) > room {
            let kind = CorruptKind::ExtentMax {
                max: h.eh_max,
                room,
            };
            return bad(kind, 4);
        }
        if h.eh_entries > h.eh_max {
            let kind = CorruptKind::ExtentEntries {
                entries: h.eh_entries,
                max: h.eh_max,
            };
            return bad(kind, 2);
        }
        if h.eh_depth > EXT4_MAX_EXTENT_DEPTH {
            let kind = CorruptKind::ExtentDepth {
                depth: h.eh_depth,
                expected: EXT4_MAX_EXTENT_DEPTH,
            };
            return bad(kind, 6);
        }
        if h.eh_depth > 0 && h.eh_entries == 0 {
            return bad(CorruptKind::ExtentEmptyIndex {}, 2);
        }
        Ok(h)
    }

    /// Writes magic and header.
    pub fn encode(&self, b: &mut [u8]) {
        bytes::put_le16(b, 0, EXT4_EXT_MAGIC);
        bytes::put_le16(b, 2, self.eh_entries);
        bytes::put_le16(b, 4, self.eh_max);
        bytes::put_le16(b, 6, self.eh_depth);
        bytes::put_le32(b, 8, self.eh_generation);
    }
}

/// Byte offset of entry `i` of a node.
pub fn entry_offset(i: u16) -> usize {
    EXT4_EXTENT_SIZE.saturating_mul(usize::from(i).saturating_add(1))
}

/// Entries that fit in a node of `len` bytes: 4 in `i_block`, 340 in 4 KiB (the checksum tail takes the rest).
pub fn max_entries(len: usize) -> u16 {
    cast::lo16(cast::len32(
        len.saturating_sub(EXT4_EXTENT_SIZE) / EXT4_EXTENT_SIZE,
    ))
}

impl Extent {
    /// Entry `i` of the leaf node `b`.
    pub fn decode(b: &[u8], i: u16) -> Extent {
        let at = entry_offset(i);
        let raw = bytes::le16(b, at.saturating_add(4));
        let unwritten = raw > EXT_INIT_MAX_LEN;
        Extent {
            lblk: bytes::le32(b, at),
            len: if unwritten {
                raw.saturating_sub(EXT_INIT_MAX_LEN)
            } else {
                raw
            },
            unwritten,
            pblk: cast::join32(
                u32::from(bytes::le16(b, at.saturating_add(6))),
                bytes::le32(b, at.saturating_add(8)),
            ),
        }
    }

    /// Stores this as entry `i` of the leaf node `b`.
    pub fn encode(&self, b: &mut [u8], i: u16) {
        let at = entry_offset(i);
        let raw = if self.unwritten {
            self.len.saturating_add(EXT_INIT_MAX_LEN)
        } else {
            self.len
        };
        bytes::put_le32(b, at, self.lblk);
        bytes::put_le16(b, at.saturating_add(4), raw);
        bytes::put_le16(b, at.saturating_add(6), cast::lo16(cast::hi32(self.pblk)));
        bytes::put_le32(b, at.saturating_add(8), cast::lo32(self.pblk));
    }

    /// First logical block after this extent (may be 2^32).
    pub fn end(&self) -> u64 {
        u64::from(self.lblk).saturating_add(u64::from(self.len))
    }

    /// Longest extent of this kind.
    pub fn max_len(unwritten: bool) -> u16 {
        if unwritten {
            EXT_UNWRITTEN_MAX_LEN
        } else {
            EXT_INIT_MAX_LEN
        }
    }
}

impl ExtentIdx {
    /// Entry `i` of the index node `b`.
    pub fn decode(b: &[u8], i: u16) -> ExtentIdx {
        let at = entry_offset(i);
        ExtentIdx {
            lblk: bytes::le32(b, at),
            leaf: cast::join32(
                u32::from(bytes::le16(b, at.saturating_add(8))),
                bytes::le32(b, at.saturating_add(4)),
            ),
        }
    }

    /// Stores this as entry `i` of the index node `b`; the unused last half word becomes 0.
    pub fn encode(&self, b: &mut [u8], i: u16) {
        let at = entry_offset(i);
        bytes::put_le32(b, at, self.lblk);
        bytes::put_le32(b, at.saturating_add(4), cast::lo32(self.leaf));
        bytes::put_le16(b, at.saturating_add(8), cast::lo16(cast::hi32(self.leaf)));
        bytes::put_le16(b, at.saturating_add(10), 0);
    }
}

/// A whole decoded node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtentNode {
    /// `eh_depth` 0.
    Leaf(Vec<Extent>),
    /// `eh_depth` above 0.
    Index(Vec<ExtentIdx>),
}

/// Decodes a node and checks what the kernel checks (`__ext4_ext_check`): depth, order, lengths, block bounds.
/// `depth` is the expected depth (`None` for a root), `blocks` the file system's first data block and size.
pub fn decode_node(
    b: &[u8],
    depth: Option<u16>,
    blocks: (u32, u64),
) -> Result<(ExtentHeader, ExtentNode), Corrupt> {
    let h = ExtentHeader::decode(b)?;
    if let Some(expected) = depth.filter(|d| *d != h.eh_depth) {
        let kind = CorruptKind::ExtentDepth {
            depth: h.eh_depth,
            expected,
        };
        return Err(Corrupt::new(kind, 6));
    }
    let node = if h.eh_depth == 0 {
        ExtentNode::Leaf(decode_leaf(b, h.eh_entries, blocks)?)
    } else {
        ExtentNode::Index(decode_index(b, h.eh_entries, blocks)?)
    };
    Ok((h, node))
}

fn decode_leaf(b: &[u8], entries: u16, blocks: (u32, u64)) -> Result<Vec<Extent>, Corrupt> {
    let mut out = Vec::with_capacity(usize::from(entries));
    let mut previous_end = 0u64;
    for i in 0..entries {
        let e = Extent::decode(b, i);
        let at = cast::len32(entry_offset(i));
        let lblk = e.lblk;
        if e.len == 0 || e.end() > u64::from(EXT_MAX_BLOCKS) {
            return Err(Corrupt::new(CorruptKind::ExtentLength { lblk }, at));
        }
        if u64::from(lblk) < previous_end {
            let kind = CorruptKind::ExtentOrder { lblk, previous_end };
            return Err(Corrupt::new(kind, at));
        }
        if !in_bounds(e.pblk, u64::from(e.len), blocks) {
            let kind = CorruptKind::ExtentBounds {
                lblk,
                pblk: e.pblk,
                len: u32::from(e.len),
            };
            return Err(Corrupt::new(kind, at));
        }
        previous_end = e.end();
        out.push(e);
    }
    Ok(out)
}

fn decode_index(b: &[u8], entries: u16, blocks: (u32, u64)) -> Result<Vec<ExtentIdx>, Corrupt> {
    let mut out = Vec::with_capacity(usize::from(entries));
    let mut previous_end = 0u64;
    for i in 0..entries {
        let e = ExtentIdx::decode(b, i);
        let at = cast::len32(entry_offset(i));
        let lblk = e.lblk;
        if u64::from(lblk) < previous_end {
            let kind = CorruptKind::ExtentOrder { lblk, previous_end };
            return Err(Corrupt::new(kind, at));
        }
        if !in_bounds(e.leaf, 1, blocks) {
            let kind = CorruptKind::ExtentBounds {
                lblk,
                pblk: e.leaf,
                len: 1,
            };
            return Err(Corrupt::new(kind, at));
        }
        previous_end = u64::from(lblk).saturating_add(1);
        out.push(e);
    }
    Ok(out)
}

fn in_bounds(pblk: u64, len: u64, (first, count): (u32, u64)) -> bool {
    pblk > u64::from(first) && pblk.saturating_add(len) <= count
}

fn tail_offset(b: &[u8]) -> usize {
    entry_offset(bytes::le16(b, 4))
}

/// Checksum of the extent block `b` of an inode: header through the last possible entry.
pub fn csum(ctx: &CsumCtx, ino: u32, generation: u32, b: &[u8]) -> u32 {
    crc32c(
        ctx.inode_seed(ino, generation),
        b.get(..tail_offset(b)).unwrap_or(b),
    )
}

/// Stores the tail checksum of the extent block `b` if the file system has them.
pub fn csum_set(ctx: &CsumCtx, ino: u32, generation: u32, b: &mut [u8]) {
    if ctx.metadata_csum {
        let csum = csum(ctx, ino, generation, b);
        let at = tail_offset(b);
        bytes::put_le32(b, at, csum);
    }
}

/// Checks the tail checksum of the extent block `b`.
pub fn csum_verify(ctx: &CsumCtx, ino: u32, generation: u32, b: &[u8]) -> Result<(), Corrupt> {
    if !ctx.metadata_csum {
        return Ok(());
    }
    let stored = bytes::le32(b, tail_offset(b));
    let computed = csum(ctx, ino, generation, b);
    if stored == computed {
        return Ok(());
    }
    let kind = CorruptKind::ExtentChecksum {
        ino,
        stored,
        computed,
    };
    Err(Corrupt::new(kind, cast::len32(tail_offset(b))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip() {
        let mut b = [0u8; 60];
        ExtentHeader {
            eh_entries: 2,
            eh_max: 4,
            eh_depth: 0,
            eh_generation: 7,
        }
        .encode(&mut b);
        let a = Extent {
            lblk: 0,
            len: 32768,
            unwritten: false,
            pblk: 0xabcd_1234_5678,
        };
        let c = Extent {
            lblk: 40000,
            len: 32767,
            unwritten: true,
            pblk: 99,
        };
        a.encode(&mut b, 0);
        c.encode(&mut b, 1);
        let (_, node) = decode_node(&b, Some(0), (0, 1 << 48)).unwrap();
        assert_eq!(node, ExtentNode::Leaf(vec![a, c]));
        let e = decode_node(&b, Some(0), (0, 1 << 20)).unwrap_err();
        assert_eq!(e.offset, 12);
        assert!(matches!(e.kind, CorruptKind::ExtentBounds { .. }));
        assert_eq!(max_entries(60), 4);
        assert_eq!(max_entries(4096), 340);
    }
}
