//! Inline data: content in `i_block` and in the value of the in-inode attribute `system.data`
//! (`fs/ext4/inline.c`, `ifork.rst`). Not covered by own checksums: the inode's covers it.
//!
//! A file's first 60 bytes are `i_block`, the rest is the attribute's value. A directory's `i_block` begins with the
//! parent's inode number, then holds entries up to byte 60; the value holds further entries. There is no "." and "..".

use super::dirent::{Dirent, Dirents};
use super::inode::I_BLOCK_SIZE;
use super::xattr::{self, EXT4_XATTR_INDEX_SYSTEM};
use crate::base::bytes;
use crate::format::{Corrupt, CorruptKind};

/// Bytes of the parent's inode number at the start of an inline directory.
pub const EXT4_INLINE_DOTDOT_SIZE: usize = 4;

/// Value of `system.data` in the in-inode xattr area; an error if it is missing.
pub fn system_data(area: &[u8]) -> Result<&[u8], Corrupt> {
    xattr::ibody_entries(area)?
        .into_iter()
        .find(|e| {
            e.e_name_index == EXT4_XATTR_INDEX_SYSTEM && e.name == b"data" && e.e_value_inum == 0
        })
        .map(|e| e.value)
        .ok_or(Corrupt::new(CorruptKind::InlineData {}, 0))
}

/// The content of an inline file or symlink of `size` bytes.
pub fn content(i_block: &[u8; 60], value: &[u8], size: u64) -> Result<Vec<u8>, Corrupt> {
    let have = I_BLOCK_SIZE.saturating_add(value.len());
    match usize::try_from(size) {
        Ok(n) if n <= have => Ok(i_block.iter().chain(value).take(n).copied().collect()),
        _ => Err(Corrupt::new(CorruptKind::InlineData {}, 4)),
    }
}

/// Parent of an inline directory.
pub fn parent(i_block: &[u8; 60]) -> u32 {
    bytes::le32(i_block, 0)
}

/// Entries of an inline directory. Offsets are within `i_block` or within the value.
pub fn dir_entries<'a>(
    i_block: &'a [u8; 60],
    value: &'a [u8],
) -> impl Iterator<Item = Result<Dirent<'a>, Corrupt>> {
    Dirents::from_offset(i_block, 4).chain(Dirents::new(value))
}
