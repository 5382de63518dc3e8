//! Files whose contents lie in the inode (kernel `fs/ext4/inline.c`).

use super::{Ext4, Inode};
use crate::fs::common::{FsError, FsResult};
use std::rc::Rc;

impl Ext4 {
    /// Moves inline contents to a block (kernel `ext4_convert_inline_data`).
    pub(super) async fn convert_inline_data(&self, _inode: &Rc<Inode>) -> FsResult<()> {
        Err(FsError::Unsupported("writing inline_data".to_owned()))
    }

    /// Cuts or extends inline contents (kernel `ext4_inline_data_truncate`).
    pub(super) async fn truncate_inline(&self, _inode: &Rc<Inode>, _size: u64) -> FsResult<()> {
        Err(FsError::Unsupported("truncating inline_data".to_owned()))
    }

    /// Reads inline contents.
    pub(super) fn read_inline(
        &self,
        _inode: &Inode,
        _pos: u64,
        _len: u64,
        _out: Option<&mut Vec<u8>>,
    ) -> FsResult<u64> {
        Err(FsError::Unsupported("reading inline_data".to_owned()))
    }
}
