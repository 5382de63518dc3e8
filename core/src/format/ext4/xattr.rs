//! Extended attributes: `struct ext4_xattr_header`, `ext4_xattr_ibody_header`, `ext4_xattr_entry` of
//! `fs/ext4/xattr.h`, documented in `attributes.rst`.
//!
//! In the inode: magic, then entries; value offsets count from the first entry. In a block: a 32-byte header, then
//! entries sorted by index, name length and name; value offsets count from the block start. Values grow from the end.
//! Little-endian. Block checksum: crc32c(seed; le64 block number; block with the field zero).

use super::checksum::CsumCtx;
use crate::base::bytes;
use crate::base::checksum::crc32c;
use crate::format::cast;
use crate::format::{Corrupt, CorruptKind};

/// `h_magic`.
pub const EXT4_XATTR_MAGIC: u32 = 0xEA02_0000;
/// Most inodes that may share one block.
pub const EXT4_XATTR_REFCOUNT_MAX: u32 = 1024;
/// Bytes of the block header.
pub const XATTR_BLOCK_HEADER: usize = 32;
/// Bytes of the in-inode header.
pub const XATTR_IBODY_HEADER: usize = 4;
const ENTRY: usize = 16;
const CHECKSUM_AT: usize = 0x10;

/// Name index: `user.`
pub const EXT4_XATTR_INDEX_USER: u8 = 1;
/// Name index: `system.posix_acl_access`
pub const EXT4_XATTR_INDEX_POSIX_ACL_ACCESS: u8 = 2;
/// Name index: `system.posix_acl_default`
pub const EXT4_XATTR_INDEX_POSIX_ACL_DEFAULT: u8 = 3;
/// Name index: `trusted.`
pub const EXT4_XATTR_INDEX_TRUSTED: u8 = 4;
/// Name index: `security.`
pub const EXT4_XATTR_INDEX_SECURITY: u8 = 6;
/// Name index: `system.`
pub const EXT4_XATTR_INDEX_SYSTEM: u8 = 7;

const PREFIXES: [(u8, &str); 9] = [
    (EXT4_XATTR_INDEX_USER, "user."),
    (EXT4_XATTR_INDEX_POSIX_ACL_ACCESS, "system.posix_acl_access"),
    (
        EXT4_XATTR_INDEX_POSIX_ACL_DEFAULT,
        "system.posix_acl_default",
    ),
    (EXT4_XATTR_INDEX_TRUSTED, "trusted."),
    (EXT4_XATTR_INDEX_SECURITY, "security."),
    (EXT4_XATTR_INDEX_SYSTEM, "system."),
    (8, "system.richacl"),
    (9, "encryption."),
    (10, "hurd."),
];

/// Prefix of attribute names with `index`.
pub fn prefix(index: u8) -> Option<&'static str> {
    PREFIXES.iter().find(|p| p.0 == index).map(|p| p.1)
}

/// Index and remaining name of a full attribute name (`user.x` gives 1, `x`).
pub fn split_name(full: &[u8]) -> Option<(u8, &[u8])> {
    let exact = [2u8, 3]
        .into_iter()
        .find(|i| prefix(*i).map(str::as_bytes) == Some(full));
    if let Some(index) = exact {
        return Some((index, &[]));
    }
    [1u8, 4, 6, 7].into_iter().find_map(|i| {
        let name = full.strip_prefix(prefix(i)?.as_bytes())?;
        Some((i, name))
    })
}

/// One attribute, in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XattrEntry<'a> {
    /// Byte offset of the entry in its area or block.
    pub offset: u32,
    /// Name index.
    pub e_name_index: u8,
    /// Name without prefix.
    pub name: &'a [u8],
    /// Value offset as stored.
    pub e_value_offs: u16,
    /// Inode that holds the value, 0 if it is here.
    pub e_value_inum: u32,
    /// Bytes of the value.
    pub e_value_size: u32,
    /// Hash of name and value (0 in inodes written by old kernels).
    pub e_hash: u32,
    /// The value; empty if it is in an inode.
    pub value: &'a [u8],
}

impl XattrEntry<'_> {
    /// Prefix and name.
    pub fn full_name(&self) -> Vec<u8> {
        let mut n = prefix(self.e_name_index).unwrap_or("").as_bytes().to_vec();
        n.extend_from_slice(self.name);
        n
    }
}

/// Bytes of an entry with a name of `name_len` bytes (kernel `EXT4_XATTR_LEN`).
pub fn entry_len(name_len: usize) -> usize {
    name_len.saturating_add(ENTRY).saturating_add(3) & !3
}

/// Bytes a value takes (kernel `EXT4_XATTR_SIZE`).
pub fn value_len(size: usize) -> usize {
    size.saturating_add(3) & !3
}

/// Header of an attribute block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XattrHeader {
    /// Inodes that share the block.
    pub h_refcount: u32,
    /// 1.
    pub h_blocks: u32,
    /// Hash over all entries, 0 if the block must not be shared.
    pub h_hash: u32,
    /// Checksum of the block.
    pub h_checksum: u32,
}

impl XattrHeader {
    /// Decodes and checks the header of an attribute block.
    pub fn decode(b: &[u8]) -> Result<XattrHeader, Corrupt> {
        let bad = |kind, at| Err(Corrupt::new(kind, at));
        let found = bytes::le32(b, 0);
        if found != EXT4_XATTR_MAGIC {
            return bad(CorruptKind::XattrMagic { found }, 0);
        }
        let h = XattrHeader {
            h_refcount: bytes::le32(b, 4),
            h_blocks: bytes::le32(b, 8),
            h_hash: bytes::le32(b, 0x0C),
            h_checksum: bytes::le32(b, CHECKSUM_AT),
        };
        if h.h_blocks != 1 {
            return bad(CorruptKind::XattrBlocks { blocks: h.h_blocks }, 8);
        }
        let refcount = h.h_refcount;
        if refcount == 0 || refcount > EXT4_XATTR_REFCOUNT_MAX {
            return bad(CorruptKind::XattrRefcount { refcount }, 4);
        }
        Ok(h)
    }

    /// Writes magic and header fields; reserved words stay.
    pub fn encode(&self, b: &mut [u8]) {
        bytes::put_le32(b, 0, EXT4_XATTR_MAGIC);
        bytes::put_le32(b, 4, self.h_refcount);
        bytes::put_le32(b, 8, self.h_blocks);
        bytes::put_le32(b, 0x0C, self.h_hash);
        bytes::put_le32(b, CHECKSUM_AT, self.h_checksum);
    }
}

/// Entries of the in-inode area (from [`super::inode::xattr_area`]); none if the area has no magic.
pub fn ibody_entries(area: &[u8]) -> Result<Vec<XattrEntry<'_>>, Corrupt> {
    if bytes::le32(area, 0) != EXT4_XATTR_MAGIC {
        return Ok(Vec::new());
    }
    entries(area, XATTR_IBODY_HEADER, XATTR_IBODY_HEADER)
}

/// Entries of an attribute block, whose header the caller checks with [`XattrHeader::decode`].
pub fn block_entries(block: &[u8]) -> Result<Vec<XattrEntry<'_>>, Corrupt> {
    entries(block, XATTR_BLOCK_HEADER, 0)
}

fn entries(area: &[u8], first: usize, base: usize) -> Result<Vec<XattrEntry<'_>>, Corrupt> {
    let mut out = Vec::new();
    let mut at = first;
    loop {
        let bad = |kind| Err(Corrupt::new(kind, cast::len32(at)));
        if at.saturating_add(4) > area.len() {
            return bad(CorruptKind::XattrEntryOverrun {});
        }
        if bytes::le32(area, at) == 0 {
            break;
        }
        let name_len = usize::from(bytes::u8_at(area, at));
        let name_at = at.saturating_add(ENTRY);
        let next = at.saturating_add(entry_len(name_len));
        let Some(name) = area.get(name_at..name_at.saturating_add(name_len)) else {
            return bad(CorruptKind::XattrEntryOverrun {});
        };
        if next.saturating_add(4) > area.len() {
            return bad(CorruptKind::XattrEntryOverrun {});
        }
        let (offs, size) = (
            bytes::le16(area, at.saturating_add(2)),
            bytes::le32(area, at.saturating_add(8)),
        );
        let inum = bytes::le32(area, at.saturating_add(4));
        let start = base.saturating_add(usize::from(offs));
        let value = match area.get(start..start.saturating_add(cast::size(size))) {
            _ if inum != 0 || size == 0 => &[],
            Some(v) => v,
            None => return bad(CorruptKind::XattrValue { offset: offs, size }),
        };
        out.push(XattrEntry {
            offset: cast::len32(at),
            e_name_index: bytes::u8_at(area, at.saturating_add(1)),
            name,
            e_value_offs: offs,
            e_value_inum: inum,
            e_value_size: size,
            e_hash: bytes::le32(area, at.saturating_add(12)),
            value,
        });
        at = next;
    }
    let end = at.saturating_add(4);
    for e in &out {
        let start = base.saturating_add(usize::from(e.e_value_offs));
        if e.e_value_inum == 0 && e.e_value_size != 0 && start < end {
            let kind = CorruptKind::XattrValue {
                offset: e.e_value_offs,
                size: e.e_value_size,
            };
            return Err(Corrupt::new(kind, e.offset));
        }
    }
    Ok(out)
}

/// Hash of one entry (kernel `ext4_xattr_hash_entry`; value in place).
pub fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    let hash = name
        .iter()
        .fold(0u32, |h, &b| (h << 5) ^ (h >> (32 - 5)) ^ u32::from(b));
    value_words_hash(hash, value)
}

/// The same with the name taken as signed chars, as some kernels wrote it.
pub fn entry_hash_signed(name: &[u8], value: &[u8]) -> u32 {
    let hash = name.iter().fold(0u32, |h, &b| {
        (h << 5) ^ (h >> (32 - 5)) ^ cast::signed_char(b)
    });
    value_words_hash(hash, value)
}

fn value_words_hash(hash: u32, value: &[u8]) -> u32 {
    (0..value.len().div_ceil(4)).fold(hash, |h, i| {
        let word: [u8; 4] = {
            let from = i.saturating_mul(4);
            bytes::array(&last_word(value, from), 0)
        };
        (h << 16) ^ (h >> 16) ^ u32::from_le_bytes(word)
    })
}

fn last_word(value: &[u8], from: usize) -> [u8; 4] {
    let mut w = [0u8; 4];
    for (d, s) in w.iter_mut().zip(value.iter().skip(from)) {
        *d = *s;
    }
    w
}

/// Hash of a block (kernel `ext4_xattr_rehash`): 0 as soon as one entry has hash 0.
pub fn block_hash<'a>(entries: impl IntoIterator<Item = &'a XattrEntry<'a>>) -> u32 {
    let mut hash = 0u32;
    for e in entries {
        if e.e_hash == 0 {
            return 0;
        }
        hash = (hash << 16) ^ (hash >> 16) ^ e.e_hash;
    }
    hash
}

/// An attribute to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xattr {
    /// Name index.
    pub index: u8,
    /// Name without prefix.
    pub name: Vec<u8>,
    /// Value.
    pub value: Vec<u8>,
}

/// Bytes that `attrs` need as entries, terminator and values, without any header.
pub fn space_needed(attrs: &[Xattr]) -> usize {
    attrs.iter().fold(4, |n, a| {
        n.saturating_add(entry_len(a.name.len()))
            .saturating_add(value_len(a.value.len()))
    })
}

/// Rewrites a whole in-inode area with `attrs` in the given order; false (and no change) if they do not fit.
/// Without attributes the area becomes zero.
pub fn encode_ibody(attrs: &[Xattr], area: &mut [u8]) -> bool {
    let need = space_needed(attrs).saturating_add(XATTR_IBODY_HEADER);
    if !attrs.is_empty() && need > area.len() {
        return false;
    }
    area.fill(0);
    if !attrs.is_empty() {
        bytes::put_le32(area, 0, EXT4_XATTR_MAGIC);
        put_entries(attrs, area, XATTR_IBODY_HEADER, XATTR_IBODY_HEADER);
    }
    true
}

/// Rewrites a whole attribute block with `attrs`, sorted here, and a header with `refcount`; false (and no change) if
/// they do not fit. The checksum is the caller's.
pub fn encode_block(attrs: &[Xattr], refcount: u32, block: &mut [u8]) -> bool {
    let need = space_needed(attrs).saturating_add(XATTR_BLOCK_HEADER);
    if need > block.len() {
        return false;
    }
    let mut sorted = attrs.to_vec();
    sorted.sort_by(|a, b| (a.index, a.name.len(), &a.name).cmp(&(b.index, b.name.len(), &b.name)));
    block.fill(0);
    put_entries(&sorted, block, XATTR_BLOCK_HEADER, 0);
    let h_hash = block_entries(block).map_or(0, |e| block_hash(&e));
    XattrHeader {
        h_refcount: refcount,
        h_blocks: 1,
        h_hash,
        h_checksum: 0,
    }
    .encode(block);
    true
}

fn put_entries(attrs: &[Xattr], area: &mut [u8], first: usize, base: usize) {
    let (mut at, mut value_at) = (first, area.len());
    for a in attrs {
        let offs = if a.value.is_empty() {
            0
        } else {
            value_at = value_at.saturating_sub(value_len(a.value.len()));
            bytes::put_slice(area, value_at, &a.value);
            value_at.saturating_sub(base)
        };
        bytes::put_u8(area, at, cast::lo8(cast::len32(a.name.len())));
        bytes::put_u8(area, at.saturating_add(1), a.index);
        let offs = cast::lo16(cast::len32(offs));
        bytes::put_le16(area, at.saturating_add(2), offs);
        bytes::put_le32(area, at.saturating_add(4), 0);
        bytes::put_le32(area, at.saturating_add(8), cast::len32(a.value.len()));
        bytes::put_le32(area, at.saturating_add(12), entry_hash(&a.name, &a.value));
        bytes::put_slice(area, at.saturating_add(ENTRY), &a.name);
        at = at.saturating_add(entry_len(a.name.len()));
    }
}

/// Checksum of the attribute block `b` at block number `block`.
pub fn csum(ctx: &CsumCtx, block: u64, b: &[u8]) -> u32 {
    let crc = crc32c(ctx.seed, &block.to_le_bytes());
    let crc = crc32c(crc, b.get(..CHECKSUM_AT).unwrap_or(b));
    let rest = b.get(CHECKSUM_AT.saturating_add(4)..).unwrap_or(&[]);
    crc32c(crc32c(crc, &[0; 4]), rest)
}

/// Stores the checksum of an attribute block, if the file system has them.
pub fn csum_set(ctx: &CsumCtx, block: u64, b: &mut [u8]) {
    if ctx.metadata_csum {
        let csum = csum(ctx, block, b);
        bytes::put_le32(b, CHECKSUM_AT, csum);
    }
}

/// Checks the checksum of an attribute block.
pub fn csum_verify(ctx: &CsumCtx, block: u64, b: &[u8]) -> Result<(), Corrupt> {
    let (stored, computed) = (bytes::le32(b, CHECKSUM_AT), csum(ctx, block, b));
    if !ctx.metadata_csum || stored == computed {
        return Ok(());
    }
    let kind = CorruptKind::XattrChecksum { stored, computed };
    Err(Corrupt::new(kind, cast::len32(CHECKSUM_AT)).at(block))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(index: u8, name: &str, value: &[u8]) -> Xattr {
        Xattr {
            index,
            name: name.into(),
            value: value.into(),
        }
    }

    #[test]
    fn areas_round_trip() {
        let attrs = [
            attr(1, "b", b"value"),
            attr(1, "a", b""),
            attr(6, "selinux", &[7; 30]),
        ];
        let mut area = [0u8; 160];
        assert!(encode_ibody(&attrs, &mut area));
        let got = ibody_entries(&area).unwrap();
        assert_eq!(got.len(), 3);
        for (g, a) in got.iter().zip(&attrs) {
            assert_eq!((g.name, g.value), (&a.name[..], &a.value[..]));
        }
        assert_eq!(got[0].full_name(), b"user.b");
        assert_eq!(split_name(b"user.b"), Some((1, &b"b"[..])));
        assert_eq!(split_name(b"system.posix_acl_access"), Some((2, &b""[..])));
        assert!(!encode_ibody(&attrs, &mut [0u8; 96]));

        let mut block = vec![0u8; 1024];
        assert!(encode_block(&attrs, 1, &mut block));
        let names: Vec<_> = block_entries(&block)
            .unwrap()
            .iter()
            .map(|e| e.name.to_vec())
            .collect();
        assert_eq!(names, [b"a".to_vec(), b"b".to_vec(), b"selinux".to_vec()]);
        assert_eq!(XattrHeader::decode(&block).unwrap().h_refcount, 1);
    }

    #[test]
    fn values_may_not_overlap_entries() {
        let mut area = [0u8; 96];
        encode_ibody(&[attr(1, "b", b"value")], &mut area);
        bytes::put_le16(&mut area, 6, 2);
        let e = ibody_entries(&area).unwrap_err();
        assert!(matches!(e.kind, CorruptKind::XattrValue { .. }));
    }
}
