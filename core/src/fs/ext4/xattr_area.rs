//! Extended attributes in an area of bytes: the inode body or an attribute block (kernel `fs/ext4/xattr.c`:
//! `xattr_find_entry`, `ext4_xattr_set_entry`, `ext4_xattr_rehash`; documented in `attributes.rst`).
//!
//! Entries {name_len u8, name_index u8, value_offs le16, value_inum le32, value_size le32, hash le32, name, padding to
//! 4} grow up from `first`, values grow down from the end; value offsets count from the start of the area; four zero
//! bytes end the entries. Knows no inode or buffer.

use crate::base::bytes::{le16, le32, put_le16, put_le32, put_u8, u8_at};
use crate::base::Errno;
use crate::format::{Corrupt, CorruptKind};
use crate::fs::common::{FsError, FsResult};

/// Magic of both headers.
pub(crate) const MAGIC: u32 = 0xEA02_0000;
/// Bytes of the header of an attribute block.
pub(crate) const BLOCK_HEADER: usize = 32;
/// Bytes of the header in the inode body.
pub(crate) const IBODY_HEADER: usize = 4;
/// Most inodes that share an attribute block.
pub(crate) const REFCOUNT_MAX: u32 = 1024;

/// Bytes of an entry with a name of `name_len` bytes (`EXT4_XATTR_LEN`).
pub(crate) fn entry_len(name_len: usize) -> usize {
    (name_len + 16 + 3) & !3
}

/// Bytes a value takes (`EXT4_XATTR_SIZE`).
pub(crate) fn value_len(size: usize) -> usize {
    (size + 3) & !3
}

/// An entry in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// Offset in the area.
    pub at: usize,
    /// Name space.
    pub index: u8,
    /// Rest of the name.
    pub name: &'a [u8],
    /// Offset of the value.
    pub value_offs: usize,
    /// Inode that holds the value, or 0.
    pub value_inum: u32,
    /// Bytes of the value.
    pub value_size: usize,
    /// Hash of name and value.
    pub hash: u32,
}

impl Entry<'_> {
    fn len(&self) -> usize {
        entry_len(self.name.len())
    }

    fn in_area(&self) -> bool {
        self.value_inum == 0 && self.value_size != 0
    }
}

fn corrupt(kind: CorruptKind, at: usize) -> Corrupt {
    Corrupt::new(kind, at as u32)
}

/// All entries from `first` on, each checked; ends after the first error.
pub(crate) struct Entries<'a> {
    area: &'a [u8],
    at: usize,
    failed: bool,
}

/// Entries of `area`.
pub(crate) fn entries(area: &[u8], first: usize) -> Entries<'_> {
    Entries {
        area,
        at: first,
        failed: false,
    }
}

impl<'a> Entries<'a> {
    fn entry(&self) -> Result<Entry<'a>, CorruptKind> {
        let (area, at) = (self.area, self.at);
        let name_len = usize::from(u8_at(area, at));
        let next = at + entry_len(name_len);
        if next + 4 > area.len() {
            return Err(CorruptKind::XattrEntryOverrun {});
        }
        let entry = Entry {
            at,
            index: u8_at(area, at + 1),
            name: &area[at + 16..at + 16 + name_len],
            value_offs: usize::from(le16(area, at + 2)),
            value_inum: le32(area, at + 4),
            value_size: le32(area, at + 8) as usize,
            hash: le32(area, at + 12),
        };
        let end = entry.value_offs.saturating_add(value_len(entry.value_size));
        if entry.in_area() && end > area.len() {
            let (offset, size) = (entry.value_offs as u16, entry.value_size as u32);
            return Err(CorruptKind::XattrValue { offset, size });
        }
        Ok(entry)
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Corrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || le32(self.area, self.at) == 0 && self.at + 4 <= self.area.len() {
            return None;
        }
        let at = self.at;
        let entry = self.entry().map_err(|kind| corrupt(kind, at));
        match &entry {
            Ok(e) => self.at += e.len(),
            Err(_) => self.failed = true,
        }
        Some(entry)
    }
}

/// What a search gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// The entry.
    Yes(Entry<'a>),
    /// Not there; a new one belongs at this offset.
    No(usize),
}

/// Looks for {`index`, `name`}; in a `sorted` area a new entry's place keeps the order.
pub(crate) fn find<'a>(
    area: &'a [u8],
    first: usize,
    sorted: bool,
    index: u8,
    name: &[u8],
) -> Result<Found<'a>, Corrupt> {
    let mut end = first;
    for e in entries(area, first) {
        let e = e?;
        let order = (index, name.len(), name).cmp(&(e.index, e.name.len(), e.name));
        if order.is_eq() {
            return Ok(Found::Yes(e));
        }
        if sorted && order.is_lt() {
            return Ok(Found::No(e.at));
        }
        end = e.at + e.len();
    }
    Ok(Found::No(end))
}

/// The value of `e`, if it lies in the area.
pub(crate) fn value<'a>(area: &'a [u8], e: &Entry<'_>) -> &'a [u8] {
    if e.in_area() {
        area.get(e.value_offs..e.value_offs + e.value_size)
            .unwrap_or(&[])
    } else {
        &[]
    }
}

/// What the area holds: lowest value offset, offset of the end mark.
fn bounds(area: &[u8], first: usize) -> Result<(usize, usize), Corrupt> {
    let (mut min_offs, mut last) = (area.len(), first);
    for e in entries(area, first) {
        let e = e?;
        if e.in_area() {
            min_offs = min_offs.min(e.value_offs);
        }
        last = e.at + e.len();
    }
    if min_offs < last + 4 {
        return Err(corrupt(CorruptKind::XattrEntryOverrun {}, last));
    }
    Ok((min_offs, last))
}

/// Bytes that are free for entries and values.
pub(crate) fn free(area: &[u8], first: usize) -> Result<usize, Corrupt> {
    let (min_offs, last) = bounds(area, first)?;
    Ok(min_offs - last - 4)
}

/// A change of one attribute; no `value` removes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change<'a> {
    /// Name space.
    pub index: u8,
    /// Rest of the name.
    pub name: &'a [u8],
    /// New value.
    pub value: Option<&'a [u8]>,
    /// The area is a block: entries are sorted and have hashes.
    pub block: bool,
}

/// Applies `c`. `ENOSPC` and no change if it does not fit.
pub(crate) fn set(area: &mut [u8], first: usize, c: &Change<'_>) -> FsResult<()> {
    let (mut min_offs, last) = bounds(area, first)?;
    let (here, old) = match find(area, first, c.block, c.index, c.name)? {
        Found::Yes(e) => (e.at, Some((e.in_area(), e.value_offs, e.value_size))),
        Found::No(at) => (at, None),
    };
    let old_len = match old {
        Some((true, _, size)) => value_len(size),
        _ => 0,
    };
    let size = entry_len(c.name.len());
    let Some(value) = c.value else {
        if old.is_some() {
            if let Some((true, offs, _)) = old {
                remove_value(area, first, min_offs, offs, old_len);
            }
            area.copy_within(here + size..last + 4, here);
            area[last + 4 - size..last + 4].fill(0);
            finish(area, c, None);
        }
        return Ok(());
    };
    let new_len = value_len(value.len());
    let mut room = min_offs - last - 4;
    if old.is_some() {
        room += size + old_len;
    }
    if room < size + new_len {
        return Err(FsError::NoSpace);
    }
    if let Some((true, offs, _)) = old {
        remove_value(area, first, min_offs, offs, old_len);
        min_offs += old_len;
    }
    if old.is_none() {
        area.copy_within(here..last + 4, here + size);
        area[here..here + size].fill(0);
        put_u8(area, here, c.name.len() as u8);
        put_u8(area, here + 1, c.index);
        area[here + 16..here + 16 + c.name.len()].copy_from_slice(c.name);
    }
    let offs = if new_len == 0 { 0 } else { min_offs - new_len };
    put_le16(area, here + 2, offs as u16);
    put_le32(area, here + 4, 0);
    put_le32(area, here + 8, value.len() as u32);
    if new_len != 0 {
        area[offs..offs + value.len()].copy_from_slice(value);
        area[offs + value.len()..offs + new_len].fill(0);
    }
    finish(area, c, Some(here));
    Ok(())
}

/// Closes the gap that the value at `offs` leaves.
fn remove_value(area: &mut [u8], first: usize, min_offs: usize, offs: usize, len: usize) {
    area.copy_within(min_offs..offs, min_offs + len);
    area[min_offs..min_offs + len].fill(0);
    let mut at = first;
    while at + 16 <= area.len() && le32(area, at) != 0 {
        let o = usize::from(le16(area, at + 2));
        if le32(area, at + 4) == 0 && le32(area, at + 8) != 0 && o < offs {
            put_le16(area, at + 2, (o + len) as u16);
        }
        at += entry_len(usize::from(u8_at(area, at)));
    }
}

fn finish(area: &mut [u8], c: &Change<'_>, here: Option<usize>) {
    if let Some(here) = here {
        let hash = if c.block { hash_of(area, here) } else { 0 };
        put_le32(area, here + 12, hash);
    }
    if c.block {
        let hash = block_hash(area);
        put_le32(area, 12, hash);
    }
}

fn hash_of(area: &[u8], at: usize) -> u32 {
    let name_len = usize::from(u8_at(area, at));
    let offs = usize::from(le16(area, at + 2));
    let len = value_len(le32(area, at + 8) as usize);
    let value = area.get(offs..offs + len).unwrap_or(&[]);
    hash_entry(area.get(at + 16..at + 16 + name_len).unwrap_or(&[]), value)
}

/// Hash of an entry: name bytes, then the value's 32-bit words (`ext4_xattr_hash_entry`).
pub(crate) fn hash_entry(name: &[u8], padded_value: &[u8]) -> u32 {
    let h = name
        .iter()
        .fold(0u32, |h, &b| h.rotate_left(5) ^ u32::from(b));
    padded_value
        .chunks_exact(4)
        .fold(h, |h, w| h.rotate_left(16) ^ le32(w, 0))
}

/// Hash of a block over the hashes of its entries; 0 if it must not be shared (`ext4_xattr_rehash`).
pub(crate) fn block_hash(block: &[u8]) -> u32 {
    let mut hash = 0u32;
    for e in entries(block, BLOCK_HEADER).flatten() {
        if e.hash == 0 {
            return 0;
        }
        hash = hash.rotate_left(16) ^ e.hash;
    }
    hash
}

/// A new attribute block with one reference.
pub(crate) fn init_block(block: &mut [u8]) {
    block.fill(0);
    put_le32(block, 0, MAGIC);
    put_le32(block, 4, 1);
    put_le32(block, 8, 1);
}

/// Header of a block: (reference count, hash).
pub(crate) fn check_block(block: &[u8]) -> Result<(u32, u32), Corrupt> {
    let found = le32(block, 0);
    if found != MAGIC {
        return Err(corrupt(CorruptKind::XattrMagic { found }, 0));
    }
    let blocks = le32(block, 8);
    if blocks != 1 {
        return Err(corrupt(CorruptKind::XattrBlocks { blocks }, 8));
    }
    bounds(block, BLOCK_HEADER)?;
    Ok((le32(block, 4), le32(block, 12)))
}

/// True if two blocks hold the same attributes (`ext4_xattr_cmp`).
pub(crate) fn same_entries(a: &[u8], b: &[u8]) -> bool {
    let (mut x, mut y) = (entries(a, BLOCK_HEADER), entries(b, BLOCK_HEADER));
    loop {
        match (x.next(), y.next()) {
            (None, None) => return true,
            (Some(Ok(p)), Some(Ok(q))) => {
                let same = (p.hash, p.index, p.name, p.value_size, p.value_inum)
                    == (q.hash, q.index, q.name, q.value_size, q.value_inum);
                if !same || value(a, &p) != value(b, &q) {
                    return false;
                }
            }
            _ => return false,
        }
    }
}

/// The error of a missing attribute.
pub(crate) const NO_ATTR: FsError = FsError::Errno(Errno::ENODATA);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::SplitMix64;
    use std::collections::BTreeMap;

    type Model = BTreeMap<(u8, Vec<u8>), Vec<u8>>;

    fn contents(area: &[u8], first: usize) -> Model {
        entries(area, first)
            .map(|e| e.unwrap())
            .map(|e| ((e.index, e.name.to_vec()), value(area, &e).to_vec()))
            .collect()
    }

    fn used(model: &Model) -> usize {
        model
            .iter()
            .map(|((_, n), v)| entry_len(n.len()) + value_len(v.len()))
            .sum()
    }

    fn random_changes(size: usize, block: bool) {
        let first = if block { BLOCK_HEADER } else { 0 };
        let mut area = vec![0u8; size];
        if block {
            init_block(&mut area);
        }
        let mut model = Model::new();
        let mut r = SplitMix64::new(size as u64);
        for _ in 0..4000 {
            let index = [1, 4, 6][(r.next_u64() % 3) as usize];
            let name = vec![b'k'; 1 + (r.next_u64() % 9) as usize];
            let len = (r.next_u64() % (size as u64 / 3)) as usize;
            let value_bytes = vec![(r.next_u64() & 255) as u8; len];
            let wanted = (r.next_u64() % 4 != 0).then_some(&value_bytes[..]);
            let change = Change {
                index,
                name: &name,
                value: wanted,
                block,
            };
            let key = (index, name.clone());
            let mut next = model.clone();
            match wanted {
                Some(v) => drop(next.insert(key, v.to_vec())),
                None => drop(next.remove(&key)),
            }
            let fits = used(&next) + first + 4 <= size;
            let done = set(&mut area, first, &change);
            assert_eq!(done.is_ok(), fits, "{done:?}");
            if fits {
                model = next;
            }
            assert_eq!(contents(&area, first), model);
            assert_eq!(free(&area, first).unwrap(), size - first - 4 - used(&model));
            if block {
                let names: Vec<_> = entries(&area, first)
                    .map(|e| e.unwrap())
                    .map(|e| (e.index, e.name.len()))
                    .collect();
                assert!(names.windows(2).all(|w| w[0] <= w[1]));
                check_block(&area).unwrap();
            }
        }
    }

    #[test]
    fn random_changes_match_a_map_in_the_inode() {
        random_changes(92, false);
        random_changes(348, false);
    }

    #[test]
    fn random_changes_match_a_map_in_a_block() {
        random_changes(1024, true);
        random_changes(4096, true);
    }

    #[test]
    fn damaged_areas_are_errors() {
        let mut r = SplitMix64::new(3);
        for _ in 0..20_000 {
            let mut area: Vec<u8> = (0..96).map(|_| (r.next_u64() & 31) as u8).collect();
            let change = Change {
                index: 1,
                name: b"a",
                value: Some(b"v"),
                block: false,
            };
            let _ = set(&mut area, 0, &change);
            let _ = free(&area, 0);
            assert!(entries(&area, 0).count() < 96);
        }
    }
}
