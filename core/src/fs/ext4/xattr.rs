//! Extended attributes of inodes (kernel `fs/ext4/xattr.c`): in the inode body first, then in a block that inodes
//! with the same attributes share.
//!
//! Locks: `xattr_sem` of the inode. Waits: block reads, journal access.

use super::xattr_area::{self as area, Change, Found, BLOCK_HEADER, IBODY_HEADER};
use super::{Ext4, Inode, InodeCore};
use crate::base::bytes::{le32, put_le32};
use crate::base::{Errno, FsBlock, Ino, Lblk};
use crate::block::Role;
use crate::format::ext4::{features, xattr};
use crate::format::{Corrupt, CorruptKind};
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::{Handle, HandleType};
use crate::mm::buffer::{Bh, Buffer};
use std::ops::Range;
use std::rc::Rc;

/// Bytes of inline contents that `i_block` holds (`EXT4_MIN_INLINE_DATA_SIZE`).
pub(crate) const INLINE_BODY: usize = 60;
/// Largest value of any attribute (`XATTR_SIZE_MAX`).
pub const XATTR_SIZE_MAX: usize = 65536;

/// When an attribute may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrFlag {
    /// Always.
    Any,
    /// Only if it is new.
    Create,
    /// Only if it is there.
    Replace,
}

impl InodeCore {
    /// Attribute area of the inode body; `None` if there is no room for one (`EXT4_INODE_HAS_XATTR_SPACE`).
    fn has_xattr_space(&self) -> bool {
        self.extra_isize != 0 && self.ibody.len() >= IBODY_HEADER + 4
    }

    fn has_ibody_xattrs(&self) -> bool {
        self.has_xattr_space() && le32(&self.ibody, 0) == area::MAGIC
    }

    pub(crate) fn ibody_find(
        &self,
        index: u8,
        name: &[u8],
    ) -> Result<Option<area::Entry<'_>>, Corrupt> {
        if !self.has_ibody_xattrs() {
            return Ok(None);
        }
        match area::find(&self.ibody[IBODY_HEADER..], 0, false, index, name)? {
            Found::Yes(e) => Ok(Some(e)),
            Found::No(_) => Ok(None),
        }
    }

    /// Sets or removes an attribute of the inode body (kernel `ext4_xattr_ibody_set`).
    pub(crate) fn ibody_set(
        &mut self,
        index: u8,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> FsResult<()> {
        if !self.has_xattr_space() {
            return Err(FsError::NoSpace);
        }
        if le32(&self.ibody, 0) != area::MAGIC {
            self.ibody[..].fill(0);
        }
        let change = Change {
            index,
            name,
            value,
            block: false,
        };
        let entries = &mut self.ibody[IBODY_HEADER..];
        area::set(entries, 0, &change)?;
        let magic = if le32(entries, 0) == 0 {
            0
        } else {
            area::MAGIC
        };
        put_le32(&mut self.ibody, 0, magic);
        Ok(())
    }

    /// Place of the value of `system.data` in `ibody`: inline contents past the first 60 bytes.
    pub(crate) fn inline_value(&self) -> Result<Range<usize>, Corrupt> {
        match self.ibody_find(xattr::EXT4_XATTR_INDEX_SYSTEM, b"data")? {
            Some(e) if e.value_size == 0 => Ok(0..0),
            Some(e) => {
                let start = IBODY_HEADER + e.value_offs;
                Ok(start..start + e.value_size)
            }
            None => Err(Corrupt::new(CorruptKind::InlineData {}, 0)),
        }
    }

    /// Stores, replaces or (with `None`) removes `system.data`.
    pub(crate) fn set_inline_value(&mut self, value: Option<&[u8]>) -> FsResult<()> {
        self.ibody_set(xattr::EXT4_XATTR_INDEX_SYSTEM, b"data", value)
    }

    /// Largest value that `system.data` could have (kernel `get_max_inline_xattr_value_size`).
    pub(crate) fn max_inline_value_size(&self) -> Result<usize, Corrupt> {
        if !self.has_xattr_space() {
            return Ok(0);
        }
        let entry = area::entry_len(4);
        if !self.has_ibody_xattrs() {
            let room = self.ibody.len() - IBODY_HEADER;
            return Ok(area::value_len(room.saturating_sub(entry + 4 + 3)));
        }
        let free = area::free(&self.ibody[IBODY_HEADER..], 0)?;
        if let Some(e) = self.ibody_find(xattr::EXT4_XATTR_INDEX_SYSTEM, b"data")? {
            return Ok(free + area::value_len(e.value_size));
        }
        match free.checked_sub(entry) {
            Some(left) if left > 3 => Ok(area::value_len(left - 3)),
            _ => Ok(0),
        }
    }
}

/// Value as found: in memory, or in an inode of its own.
enum Value {
    Bytes(Vec<u8>),
    InInode(Ino, usize),
}

fn found_value(bytes: &[u8], e: &area::Entry<'_>) -> Value {
    if e.value_inum == 0 {
        Value::Bytes(area::value(bytes, e).to_vec())
    } else {
        Value::InInode(Ino(e.value_inum), e.value_size)
    }
}

impl Ext4 {
    /// The attribute block of `inode`, checked; `None` if it has none.
    pub(crate) async fn xattr_block(&self, inode: &Inode) -> FsResult<Option<Rc<Buffer>>> {
        let block = inode.core.borrow().file_acl;
        if block == 0 {
            return Ok(None);
        }
        let bh = self.buffers.bread(FsBlock(block), Role::Xattr).await?;
        if !bh.test(Bh::VERIFIED) {
            bh.read(|b| -> Result<_, Corrupt> {
                xattr::csum_verify(&self.csum, block, b)?;
                area::check_block(b)
            })
            .map_err(|e| e.at(block))?;
            bh.set(Bh::VERIFIED);
        }
        self.block_cache_insert(&bh);
        Ok(Some(bh))
    }

    /// Value of an attribute; ENODATA if there is none.
    pub async fn xattr_get(&self, inode: &Inode, index: u8, name: &[u8]) -> FsResult<Vec<u8>> {
        let sem = inode.xattr_sem.read().await;
        let found = {
            let core = inode.core.borrow();
            let e = core.ibody_find(index, name)?;
            e.map(|e| found_value(&core.ibody[IBODY_HEADER..], &e))
        };
        let found = match found {
            Some(v) => Some(v),
            None => match self.xattr_block(inode).await? {
                Some(bh) => bh.read(|b| -> Result<_, Corrupt> {
                    Ok(match area::find(b, BLOCK_HEADER, true, index, name)? {
                        Found::Yes(e) => Some(found_value(b, &e)),
                        Found::No(_) => None,
                    })
                })?,
                None => None,
            },
        };
        drop(sem);
        match found.ok_or(area::NO_ATTR)? {
            Value::Bytes(v) => Ok(v),
            Value::InInode(ino, size) => self.ea_inode_value(ino, size).await,
        }
    }

    /// Value stored in an inode of its own (feature `ea_inode`).
    async fn ea_inode_value(&self, ino: Ino, size: usize) -> FsResult<Vec<u8>> {
        let inode = self.iget(ino).await?;
        let value = self.read_ea_inode(&inode, size).await;
        self.iput(inode).await?;
        value
    }

    async fn read_ea_inode(&self, inode: &Inode, size: usize) -> FsResult<Vec<u8>> {
        let bad = |offset: u16| {
            let size = size as u32;
            FsError::from(Corrupt::new(CorruptKind::XattrValue { offset, size }, 0))
        };
        if size > XATTR_SIZE_MAX || inode.size() != size as u64 {
            return Err(bad(0));
        }
        let mut out = Vec::with_capacity(size);
        let mut lblk = 0;
        while out.len() < size {
            let bh = self.bread(None, inode, Lblk(lblk), false).await?;
            let bh = bh.ok_or_else(|| bad(1))?;
            let n = (size - out.len()).min(bh.size());
            bh.read(|b| out.extend_from_slice(&b[..n]));
            lblk += 1;
        }
        Ok(out)
    }

    /// All attributes as (name index, rest of the name), those of the inode body first.
    pub async fn xattr_list(&self, inode: &Inode) -> FsResult<Vec<(u8, Vec<u8>)>> {
        let _sem = inode.xattr_sem.read().await;
        let mut out = Vec::new();
        {
            let core = inode.core.borrow();
            if core.has_ibody_xattrs() {
                for e in area::entries(&core.ibody[IBODY_HEADER..], 0) {
                    let e = e?;
                    out.push((e.index, e.name.to_vec()));
                }
            }
        }
        if let Some(bh) = self.xattr_block(inode).await? {
            bh.read(|b| -> Result<(), Corrupt> {
                for e in area::entries(b, BLOCK_HEADER) {
                    let e = e?;
                    out.push((e.index, e.name.to_vec()));
                }
                Ok(())
            })?;
        }
        Ok(out)
    }

    /// Sets, replaces or (without a value) removes an attribute, in a handle of its own.
    pub async fn xattr_set(
        &self,
        inode: &Inode,
        index: u8,
        name: &[u8],
        value: Option<&[u8]>,
        flag: XattrFlag,
    ) -> FsResult<()> {
        let mut retries = 0;
        loop {
            let credits = self.data_trans_blocks();
            let mut h = self.journal_start(HandleType::Xattr, credits).await?;
            let done = self
                .xattr_set_handle(&mut h, inode, index, name, value, flag)
                .await;
            match self.end_handle(h, done).await {
                Err(FsError::NoSpace) if self.should_retry_alloc(&mut retries).await => {}
                other => return other,
            }
        }
    }

    /// The same under a handle of the caller (kernel `ext4_xattr_set_handle`).
    pub(crate) async fn xattr_set_handle(
        &self,
        h: &mut Handle,
        inode: &Inode,
        index: u8,
        name: &[u8],
        value: Option<&[u8]>,
        flag: XattrFlag,
    ) -> FsResult<()> {
        if name.len() > 255 {
            return Err(FsError::Errno(Errno::ERANGE));
        }
        self.fc_mark_ineligible(h);
        let _sem = inode.xattr_sem.write().await;
        let Some((in_body, in_block)) = self.xattr_where(inode, index, name, value).await? else {
            return match flag {
                XattrFlag::Create => Err(FsError::Errno(Errno::EEXIST)),
                _ => Ok(()),
            };
        };
        let exists = in_body || in_block.is_some();
        if !exists && (flag == XattrFlag::Replace || value.is_none()) {
            return if flag == XattrFlag::Replace {
                Err(area::NO_ATTR)
            } else {
                Ok(())
            };
        }
        if exists && flag == XattrFlag::Create {
            return Err(FsError::Errno(Errno::EEXIST));
        }
        match value {
            None if in_body => inode.core.borrow_mut().ibody_set(index, name, None)?,
            None => self.xattr_block_set(h, inode, index, name, None).await?,
            Some(_) => {
                let in_block = in_block.is_some();
                self.xattr_place(h, inode, (index, name, value), in_body, in_block)
                    .await?;
            }
        }
        self.xattr_update_super_block(h).await?;
        self.inode_set_ctime_current(inode);
        self.inc_iversion(inode);
        let xattrs = inode.core.borrow().has_ibody_xattrs();
        inode.set_state(super::state::XATTR, xattrs);
        self.mark_inode_dirty(h, inode).await
    }

    /// Where the attribute is now: in the body, in this block. `None` if it has that very value.
    async fn xattr_where(
        &self,
        inode: &Inode,
        index: u8,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> FsResult<Option<(bool, Option<Rc<Buffer>>)>> {
        let same = |bytes: &[u8], e: &area::Entry<'_>| {
            e.value_inum == 0 && value.is_some_and(|v| v == area::value(bytes, e))
        };
        {
            let core = inode.core.borrow();
            if let Some(e) = core.ibody_find(index, name)? {
                refuse_ea_inode(&e)?;
                if same(&core.ibody[IBODY_HEADER..], &e) {
                    return Ok(None);
                }
                return Ok(Some((true, None)));
            }
        }
        let Some(bh) = self.xattr_block(inode).await? else {
            return Ok(Some((false, None)));
        };
        let found = bh.read(|b| -> FsResult<Option<bool>> {
            match area::find(b, BLOCK_HEADER, true, index, name)? {
                Found::Yes(e) => {
                    refuse_ea_inode(&e)?;
                    Ok(Some(same(b, &e)))
                }
                Found::No(_) => Ok(None),
            }
        })?;
        Ok(match found {
            Some(true) => None,
            Some(false) => Some((false, Some(bh))),
            None => Some((false, None)),
        })
    }

    /// Stores a value in the body, or in the block if it does not fit there.
    async fn xattr_place(
        &self,
        h: &mut Handle,
        inode: &Inode,
        (index, name, value): (u8, &[u8], Option<&[u8]>),
        in_body: bool,
        in_block: bool,
    ) -> FsResult<()> {
        let done = inode.core.borrow_mut().ibody_set(index, name, value);
        match done {
            Ok(()) if in_block => self.xattr_block_set(h, inode, index, name, None).await,
            Err(FsError::NoSpace) => {
                self.xattr_block_set(h, inode, index, name, value).await?;
                if in_body {
                    inode.core.borrow_mut().ibody_set(index, name, None)?;
                }
                Ok(())
            }
            other => other,
        }
    }

    /// Notes in the superblock that attributes exist.
    async fn xattr_update_super_block(&self, h: &mut Handle) -> FsResult<()> {
        if self.sb.borrow().has(features::EXT_ATTR) {
            return Ok(());
        }
        let sbh = Rc::clone(&self.sbh);
        self.get_write_access(h, &sbh).await?;
        self.sb.borrow_mut().set_feature(features::EXT_ATTR, true);
        self.encode_super();
        self.dirty_metadata(h, None, &sbh).await
    }
}

/// SIMPLIFIED: attributes whose value is in an inode of its own (`ea_inode`) are read, not changed.
fn refuse_ea_inode(e: &area::Entry<'_>) -> FsResult<()> {
    if e.value_inum == 0 {
        Ok(())
    } else {
        Err(FsError::Unsupported(
            "changing an ea_inode attribute".into(),
        ))
    }
}
