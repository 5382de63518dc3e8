//! Linear directory blocks: search, insertion, deletion and the leaf split, on bytes alone (kernel
//! `fs/ext4/namei.c`: `search_dirblock`, `ext4_find_dest_de`, `ext4_insert_dentry`, `ext4_generic_delete_entry`,
//! `dx_make_map`, `dx_move_dirents`, `dx_pack_dirents`).
//!
//! Knows no inode, buffer or journal. `end` is always the byte after the last entry: the block size less the checksum
//! tail.

use crate::base::bytes;
use crate::format::ext4::dirent::{
    dir_rec_len, dirent_at, put_dirent, rec_len_to_disk, Dirent, DIR_TAIL_SIZE,
};
use crate::format::Corrupt;

/// Where `find_dest` found room, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dest {
    /// Room behind (or in) the entry at this offset.
    At(u32),
    /// The name is there already.
    Exists,
    /// No gap is large enough.
    Full,
}

/// First byte after the entries of a block of `len` bytes.
pub(crate) fn entries_end(len: usize, csum: bool) -> usize {
    if csum {
        len - DIR_TAIL_SIZE
    } else {
        len
    }
}

/// Header of the entry at `at`: inode number, `rec_len`, length of the name. The checks are those of `dirent_at`, in
/// one look at eight bytes; whatever is unusual is left to it.
#[inline]
fn header(area: &[u8], at: u32) -> Result<(u32, u32, usize), Corrupt> {
    let at_byte = at as usize;
    if let Some(Ok(raw)) = area.get(at_byte..at_byte + 8).map(<[u8; 8]>::try_from) {
        let raw = u64::from_le_bytes(raw);
        let rec_len = (raw >> 32) as u32 & 0xffff;
        let name_len = (raw >> 48) as usize & 0xff;
        let room = area.len() as u32 - at;
        let fits = rec_len == room || rec_len + 12 <= room;
        if fits && rec_len % 4 == 0 && rec_len >= dir_rec_len(name_len.max(1)) {
            return Ok((raw as u32, rec_len, name_len));
        }
    }
    let d = dirent_at(area, at)?;
    Ok((d.inode, d.rec_len, d.name.len()))
}

#[inline]
fn is_named(area: &[u8], at: u32, name_len: usize, name: &[u8]) -> bool {
    let start = at as usize + 8;
    name_len == name.len() && area.get(start..start + name_len) == Some(name)
}

/// The live entry called `name`; entries start at `start`.
pub(crate) fn search<'a>(
    block: &'a [u8],
    start: u32,
    end: usize,
    name: &[u8],
) -> Result<Option<Dirent<'a>>, Corrupt> {
    let area = block.get(..end).unwrap_or(block);
    let mut at = start;
    while (at as usize) < area.len() {
        let (inode, rec_len, name_len) = header(area, at)?;
        if inode != 0 && is_named(area, at, name_len, name) {
            return dirent_at(area, at).map(Some);
        }
        at += rec_len;
    }
    Ok(None)
}

/// First gap that holds an entry for `name`.
pub(crate) fn find_dest(
    block: &[u8],
    start: u32,
    end: usize,
    name: &[u8],
) -> Result<Dest, Corrupt> {
    let area = block.get(..end).unwrap_or(block);
    let need = dir_rec_len(name.len());
    let mut at = start;
    while (at as usize) < area.len() {
        let (inode, rec_len, name_len) = header(area, at)?;
        if inode != 0 && is_named(area, at, name_len, name) {
            return Ok(Dest::Exists);
        }
        let used = if inode == 0 { 0 } else { dir_rec_len(name_len) };
        if rec_len - used >= need {
            return Ok(Dest::At(at));
        }
        at += rec_len;
    }
    Ok(Dest::Full)
}

/// Puts an entry into the gap at `at`, which `find_dest` gave.
pub(crate) fn insert_at(
    block: &mut [u8],
    at: u32,
    ino: u32,
    file_type: u8,
    name: &[u8],
) -> Result<(), Corrupt> {
    let (used, rec_len, used_len) = {
        let d = dirent_at(block, at)?;
        (d.inode != 0, d.rec_len, dir_rec_len(d.name.len()))
    };
    if used {
        bytes::put_le16(block, at as usize + 4, rec_len_to_disk(used_len));
        put_dirent(
            block,
            at + used_len,
            ino,
            rec_len - used_len,
            name,
            file_type,
        );
    } else {
        put_dirent(block, at, ino, rec_len, name, file_type);
    }
    Ok(())
}

/// Removes the entry at `victim`: its space joins the entry before it, or it becomes unused where it is the first.
/// False if no entry starts there.
pub(crate) fn delete_at(
    block: &mut [u8],
    start: u32,
    end: usize,
    victim: u32,
) -> Result<bool, Corrupt> {
    let mut at = start;
    let mut previous: Option<(u32, u32)> = None;
    while (at as usize) < end.min(block.len()) {
        let rec_len = dirent_at(&block[..end], at)?.rec_len;
        if at != victim {
            previous = Some((at, rec_len));
            at += rec_len;
            continue;
        }
        let from = at as usize;
        if let Some((before, len)) = previous {
            bytes::put_le16(block, before as usize + 4, rec_len_to_disk(len + rec_len));
            block[from..from + rec_len as usize].fill(0);
        } else {
            bytes::put_le32(block, from, 0);
            block[from + 6..from + rec_len as usize].fill(0);
        }
        return Ok(true);
    }
    Ok(false)
}

/// Stores another inode number, and the file type if `file_type` is given, in the entry at `at`.
pub(crate) fn set_target(block: &mut [u8], at: u32, ino: u32, file_type: Option<u8>) {
    bytes::put_le32(block, at as usize, ino);
    if let Some(t) = file_type {
        bytes::put_u8(block, at as usize + 7, t);
    }
}

/// Makes the last entry, at `at`, reach `end`.
pub(crate) fn stretch_last(block: &mut [u8], at: u32, end: usize) {
    bytes::put_le16(block, at as usize + 4, rec_len_to_disk(end as u32 - at));
}

/// One entry of a leaf about to be split (kernel `struct dx_map_entry`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapEntry {
    /// Hash of the name.
    pub hash: u32,
    /// Byte offset in the leaf.
    pub at: u32,
    /// `rec_len`.
    pub size: u32,
}

/// Hashes of all live entries, sorted; the later of two with equal hash first, as the kernel's map is built.
pub(crate) fn make_map(
    block: &[u8],
    end: usize,
    mut hash: impl FnMut(&[u8]) -> u32,
) -> Result<Vec<MapEntry>, Corrupt> {
    let area = block.get(..end).unwrap_or(block);
    let mut map = Vec::with_capacity(128);
    let mut at = 0;
    while (at as usize) < area.len() {
        let d = dirent_at(area, at)?;
        if d.inode != 0 && !d.name.is_empty() {
            map.push(MapEntry {
                hash: hash(d.name),
                at,
                size: d.rec_len,
            });
        }
        at += d.rec_len;
    }
    map.reverse();
    map.sort_by_key(|m| m.hash);
    Ok(map)
}

/// Index in the map of the first entry that moves to the new leaf, so that neither is more than half full.
pub(crate) fn split_point(map: &[MapEntry], block_size: u32) -> usize {
    let mut size = 0;
    for (moved, m) in map.iter().rev().enumerate() {
        if size + m.size / 2 > block_size / 2 {
            return map.len() - moved;
        }
        size += m.size;
    }
    map.len() / 2
}

/// Copies the entries of `map` from `from` to the start of `to` and wipes them in `from`. Offset of the last one.
pub(crate) fn move_dirents(from: &mut [u8], to: &mut [u8], map: &[MapEntry]) -> u32 {
    let mut at = 0u32;
    let mut last = 0;
    for m in map {
        let src = m.at as usize;
        let need = dir_rec_len(usize::from(bytes::u8_at(from, src + 6))) as usize;
        let dst = at as usize;
        to[dst..dst + need].copy_from_slice(&from[src..src + need]);
        bytes::put_le16(to, dst + 4, need as u16);
        bytes::put_le32(from, src, 0);
        from[src + 6..src + m.size as usize].fill(0);
        last = at;
        at += need as u32;
    }
    last
}

/// Moves the live entries together at the start of the block, in order. Offset of the last one.
pub(crate) fn pack_dirents(block: &mut [u8], end: usize) -> Result<u32, Corrupt> {
    let mut at = 0u32;
    let mut to = 0usize;
    let mut last = 0;
    while (at as usize) < end {
        let (live, rec_len, need) = {
            let d = dirent_at(&block[..end], at)?;
            let live = d.inode != 0 && !d.name.is_empty();
            (live, d.rec_len, dir_rec_len(d.name.len()) as usize)
        };
        if live {
            let src = at as usize;
            if src > to {
                block.copy_within(src..src + need, to);
            }
            bytes::put_le16(block, to + 4, need as u16);
            last = to as u32;
            to += need;
        }
        at += rec_len;
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::SplitMix64;
    use crate::format::ext4::dirent::live_entries;
    use std::collections::BTreeMap;

    fn empty(size: usize) -> Vec<u8> {
        let mut b = vec![0; size];
        put_dirent(&mut b, 0, 0, size as u32, b"", 0);
        b
    }

    fn names(b: &[u8]) -> BTreeMap<Vec<u8>, u32> {
        live_entries(b)
            .map(|d| d.unwrap())
            .map(|d| (d.name.to_vec(), d.inode))
            .collect()
    }

    #[test]
    fn random_inserts_and_deletes_match_a_map() {
        let mut r = SplitMix64::new(5);
        let mut b = empty(1024);
        let mut model: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        for step in 0..5000u32 {
            let len = 1 + (r.next_u64() % 40) as usize;
            let name = vec![b'a' + (r.next_u64() % 7) as u8; len];
            match search(&b, 0, 1024, &name).unwrap().map(|d| d.offset) {
                Some(at) => {
                    assert!(delete_at(&mut b, 0, 1024, at).unwrap());
                    assert!(model.remove(&name).is_some());
                }
                None => match find_dest(&b, 0, 1024, &name).unwrap() {
                    Dest::At(at) => {
                        insert_at(&mut b, at, step + 11, 1, &name).unwrap();
                        model.insert(name, step + 11);
                    }
                    other => assert_eq!(other, Dest::Full),
                },
            }
            assert_eq!(names(&b), model);
        }
    }

    #[test]
    fn a_split_keeps_every_entry() {
        let mut r = SplitMix64::new(9);
        for _ in 0..50 {
            let mut b = empty(1024);
            for i in 0u32.. {
                let name = vec![b'a' + (i % 26) as u8; 1 + (r.next_u64() % 60) as usize];
                match find_dest(&b, 0, 1024, &name).unwrap() {
                    Dest::At(at) => insert_at(&mut b, at, i + 11, 1, &name).unwrap(),
                    Dest::Exists => {}
                    Dest::Full => break,
                }
            }
            let before = names(&b);
            let hash = |n: &[u8]| n.len() as u32 * 77 % 64;
            let map = make_map(&b, 1024, hash).unwrap();
            assert!(map.windows(2).all(|w| w[0].hash <= w[1].hash));
            let split = split_point(&map, 1024);
            assert!(split > 0 && split < map.len());
            let mut to = vec![0u8; 1024];
            let last_to = move_dirents(&mut b, &mut to, &map[split..]);
            let last = pack_dirents(&mut b, 1024).unwrap();
            stretch_last(&mut b, last, 1024);
            stretch_last(&mut to, last_to, 1024);
            let mut after = names(&b);
            after.extend(names(&to));
            assert_eq!(after, before);
            assert!(names(&to).keys().all(|n| hash(n) >= map[split].hash));
        }
    }
}
