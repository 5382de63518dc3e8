//! Linear directory blocks: `struct ext4_dir_entry_2` and `ext4_dir_entry_tail` of `fs/ext4/ext4.h`,
//! documented in `directory.rst`.
//!
//! Entries of `{inode u32, rec_len u16, name_len u8, file_type u8, name}`, 4-byte aligned, little-endian, that fill
//! the block. With `metadata_csum` the last 12 bytes are a fake entry with file type 0xDE that holds
//! crc32c(seed; inode; generation; bytes before it).

use super::checksum::CsumCtx;
use crate::base::bytes;
use crate::base::checksum::crc32c;
use crate::format::cast;
use crate::format::{Corrupt, CorruptKind};

/// Longest name.
pub const EXT4_NAME_LEN: usize = 255;
/// Bytes of the checksum tail.
pub const DIR_TAIL_SIZE: usize = 12;
/// File type of the checksum tail.
pub const EXT4_FT_DIR_CSUM: u8 = 0xDE;

/// File type: unknown (no filetype feature).
pub const EXT4_FT_UNKNOWN: u8 = 0;
/// File type: regular file.
pub const EXT4_FT_REG_FILE: u8 = 1;
/// File type: directory.
pub const EXT4_FT_DIR: u8 = 2;
/// File type: character device.
pub const EXT4_FT_CHRDEV: u8 = 3;
/// File type: block device.
pub const EXT4_FT_BLKDEV: u8 = 4;
/// File type: FIFO.
pub const EXT4_FT_FIFO: u8 = 5;
/// File type: socket.
pub const EXT4_FT_SOCK: u8 = 6;
/// File type: symbolic link.
pub const EXT4_FT_SYMLINK: u8 = 7;

/// File type of a directory entry for `i_mode`.
pub fn file_type_of_mode(mode: u16) -> u8 {
    use super::inode;
    match mode & inode::S_IFMT {
        inode::S_IFREG => EXT4_FT_REG_FILE,
        inode::S_IFDIR => EXT4_FT_DIR,
        inode::S_IFCHR => EXT4_FT_CHRDEV,
        inode::S_IFBLK => EXT4_FT_BLKDEV,
        inode::S_IFIFO => EXT4_FT_FIFO,
        inode::S_IFSOCK => EXT4_FT_SOCK,
        inode::S_IFLNK => EXT4_FT_SYMLINK,
        _ => EXT4_FT_UNKNOWN,
    }
}

/// One directory entry in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirent<'a> {
    /// Byte offset in the block.
    pub offset: u32,
    /// Inode number, 0 for an unused entry.
    pub inode: u32,
    /// Bytes to the next entry (decoded: up to 65,536).
    pub rec_len: u32,
    /// `EXT4_FT_*`.
    pub file_type: u8,
    /// The name.
    pub name: &'a [u8],
}

impl Dirent<'_> {
    /// True for the checksum tail.
    pub fn is_tail(&self) -> bool {
        self.inode == 0
            && self.rec_len == 12
            && self.name.is_empty()
            && self.file_type == EXT4_FT_DIR_CSUM
    }
}

/// Bytes an entry with a name of `name_len` bytes needs (kernel `ext4_dir_rec_len`).
pub fn dir_rec_len(name_len: usize) -> u32 {
    cast::len32(name_len.saturating_add(11)) & !3
}

/// `rec_len` as stored: 65,536 is 65,535 (kernel `ext4_rec_len_to_disk`).
pub fn rec_len_to_disk(rec_len: u32) -> u16 {
    if rec_len >= 65536 {
        0xffff
    } else {
        cast::lo16(rec_len)
    }
}

/// Stored `rec_len` to bytes in a block of `block_size` (kernel `ext4_rec_len_from_disk`).
pub fn rec_len_from_disk(raw: u16, block_size: u32) -> u32 {
    if block_size >= 65536 && (raw == 0xffff || raw == 0) {
        return block_size;
    }
    u32::from(raw)
}

/// Decodes and checks the entry at `offset` of `block` (kernel `__ext4_check_dir_entry`, without the inode bound).
pub fn dirent_at(block: &[u8], offset: u32) -> Result<Dirent<'_>, Corrupt> {
    let at = cast::size(offset);
    let len = cast::len32(block.len());
    let bad = |kind| Err(Corrupt::new(kind, offset));
    let room = len.saturating_sub(offset);
    let rec_len = rec_len_from_disk(bytes::le16(block, at.saturating_add(4)), len);
    let name_len = bytes::u8_at(block, at.saturating_add(6));
    if rec_len < 12 || rec_len % 4 != 0 {
        return bad(CorruptKind::DirentRecLen { rec_len });
    }
    if rec_len > room {
        return bad(CorruptKind::DirentOverrun { rec_len, room });
    }
    if rec_len < dir_rec_len(usize::from(name_len)) {
        return bad(CorruptKind::DirentNameLen { rec_len, name_len });
    }
    let left = room.saturating_sub(rec_len);
    if left > 0 && left < 12 {
        return bad(CorruptKind::DirentOverrun { rec_len, room });
    }
    let start = at.saturating_add(8);
    Ok(Dirent {
        offset,
        inode: bytes::le32(block, at),
        rec_len,
        file_type: bytes::u8_at(block, at.saturating_add(7)),
        name: block
            .get(start..start.saturating_add(usize::from(name_len)))
            .unwrap_or(&[]),
    })
}

/// All entries of a linear directory block, unused ones and the checksum tail included. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Dirents<'a> {
    block: &'a [u8],
    at: u32,
}

impl<'a> Dirents<'a> {
    /// Entries of a whole directory block.
    pub fn new(block: &'a [u8]) -> Dirents<'a> {
        Dirents { block, at: 0 }
    }

    /// Entries from byte `at` on (4 for the first part of an inline directory).
    pub fn from_offset(block: &'a [u8], at: u32) -> Dirents<'a> {
        Dirents { block, at }
    }
}

impl<'a> Iterator for Dirents<'a> {
    type Item = Result<Dirent<'a>, Corrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        let len = cast::len32(self.block.len());
        if self.at >= len {
            return None;
        }
        let entry = dirent_at(self.block, self.at);
        self.at = match &entry {
            Ok(d) => self.at.saturating_add(d.rec_len),
            Err(_) => len,
        };
        Some(entry)
    }
}

/// Entries in use: real names only (no unused entries, no tail).
pub fn live_entries(block: &[u8]) -> impl Iterator<Item = Result<Dirent<'_>, Corrupt>> {
    Dirents::new(block).filter(|d| !matches!(d, Ok(d) if d.inode == 0))
}

/// The entry called `name` in a linear block, if it is there.
pub fn find_entry<'a>(block: &'a [u8], name: &[u8]) -> Result<Option<Dirent<'a>>, Corrupt> {
    for d in live_entries(block) {
        let d = d?;
        if d.name == name {
            return Ok(Some(d));
        }
    }
    Ok(None)
}

/// Writes one entry at `offset` of `block`: header and name; bytes after the name stay.
pub fn put_dirent(
    block: &mut [u8],
    offset: u32,
    inode: u32,
    rec_len: u32,
    name: &[u8],
    file_type: u8,
) {
    let at = cast::size(offset);
    bytes::put_le32(block, at, inode);
    bytes::put_le16(block, at.saturating_add(4), rec_len_to_disk(rec_len));
    bytes::put_u8(
        block,
        at.saturating_add(6),
        cast::lo8(cast::len32(name.len().min(EXT4_NAME_LEN))),
    );
    bytes::put_u8(block, at.saturating_add(7), file_type);
    bytes::put_slice(block, at.saturating_add(8), name);
}

/// Writes the checksum tail at the end of `block` (kernel `ext4_initialize_dirent_tail`); the sum itself is 0.
pub fn init_tail(block: &mut [u8]) {
    let at = block.len().saturating_sub(DIR_TAIL_SIZE);
    bytes::put_le32(block, at, 0);
    bytes::put_le16(block, at.saturating_add(4), 12);
    bytes::put_u8(block, at.saturating_add(6), 0);
    bytes::put_u8(block, at.saturating_add(7), EXT4_FT_DIR_CSUM);
    bytes::put_le32(block, at.saturating_add(8), 0);
}

/// True if `block` ends in a checksum tail.
pub fn has_tail(block: &[u8]) -> bool {
    let at = block.len().saturating_sub(DIR_TAIL_SIZE);
    block.len() >= DIR_TAIL_SIZE
        && bytes::le32(block, at) == 0
        && bytes::le16(block, at.saturating_add(4)) == 12
        && bytes::le16(block, at.saturating_add(6)) == u16::from_le_bytes([0, EXT4_FT_DIR_CSUM])
}

/// Checksum of the directory block `block`: everything before its tail.
pub fn csum(ctx: &CsumCtx, ino: u32, generation: u32, block: &[u8]) -> u32 {
    let end = block.len().saturating_sub(DIR_TAIL_SIZE);
    crc32c(
        ctx.inode_seed(ino, generation),
        block.get(..end).unwrap_or(block),
    )
}

/// Stores the checksum in the tail, if the file system has them and there is a tail.
pub fn csum_set(ctx: &CsumCtx, ino: u32, generation: u32, block: &mut [u8]) {
    if ctx.metadata_csum && has_tail(block) {
        let csum = csum(ctx, ino, generation, block);
        let at = block.len().saturating_sub(4);
        bytes::put_le32(block, at, csum);
    }
}

/// Checks tail and checksum of a linear directory block.
pub fn csum_verify(ctx: &CsumCtx, ino: u32, generation: u32, block: &[u8]) -> Result<(), Corrupt> {
    if !ctx.metadata_csum {
        return Ok(());
    }
    let at = block.len().saturating_sub(DIR_TAIL_SIZE);
    if !has_tail(block) {
        return Err(Corrupt::new(CorruptKind::DirTail {}, cast::len32(at)));
    }
    let stored = bytes::le32(block, block.len().saturating_sub(4));
    let computed = csum(ctx, ino, generation, block);
    if stored == computed {
        return Ok(());
    }
    let kind = CorruptKind::DirChecksum {
        ino,
        stored,
        computed,
    };
    Err(Corrupt::new(kind, cast::len32(at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_checks_and_finds() {
        let mut b = vec![0u8; 1024];
        put_dirent(&mut b, 0, 2, 12, b".", EXT4_FT_DIR);
        put_dirent(&mut b, 12, 2, 12, b"..", EXT4_FT_DIR);
        put_dirent(&mut b, 24, 11, 1024 - 24 - 12, b"lost+found", EXT4_FT_DIR);
        init_tail(&mut b);
        let all: Vec<_> = Dirents::new(&b).map(|d| d.unwrap()).collect();
        assert_eq!(all.len(), 4);
        assert!(all[3].is_tail() && has_tail(&b));
        assert_eq!(
            find_entry(&b, b"lost+found").unwrap().map(|d| d.inode),
            Some(11)
        );
        assert_eq!(find_entry(&b, b"x").unwrap(), None);
        bytes::put_le16(&mut b, 16, 10);
        assert_eq!(
            Dirents::new(&b).nth(1).unwrap().unwrap_err().kind,
            CorruptKind::DirentRecLen { rec_len: 10 }
        );
        assert_eq!(Dirents::new(&b).count(), 2);
    }

    #[test]
    fn rec_len_of_names() {
        assert_eq!([1, 4, 5, 255].map(dir_rec_len), [12, 12, 16, 264]);
        assert_eq!(rec_len_from_disk(0xffff, 65536), 65536);
        assert_eq!(rec_len_to_disk(65536), 0xffff);
    }
}
