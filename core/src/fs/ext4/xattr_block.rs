//! Attribute blocks (kernel `fs/ext4/xattr.c`: `ext4_xattr_block_set`, `ext4_xattr_release_block`, the mbcache):
//! changed in place while one inode owns the block, copied otherwise; equal blocks are shared.
//!
//! Invariants:
//! 1. `h_refcount` is the number of inodes whose `i_file_acl` names the block, at most 1,024.
//! 2. The cache maps hashes to blocks that may be shared; every hit is compared with the block's contents.

use super::xattr_area::{self as area, Change, BLOCK_HEADER, REFCOUNT_MAX};
use super::{Ext4, FreeFlags, Inode};
use crate::base::bytes::{le32, put_le32};
use crate::base::{FastMap, FsBlock};
use crate::block::Role;
use crate::format::ext4::{xattr, CsumCtx};
use crate::fs::common::FsResult;
use crate::fs::jbd2::Handle;
use crate::mm::buffer::{Bh, Buffer, Trigger, TriggerArgs};
use std::cell::RefCell;
use std::rc::Rc;

/// Attribute blocks by hash (kernel `mb_cache`).
#[derive(Default)]
pub(crate) struct BlockCache(RefCell<FastMap<u32, Vec<FsBlock>>>);

impl BlockCache {
    fn insert(&self, hash: u32, block: FsBlock) {
        let mut map = self.0.borrow_mut();
        let blocks = map.entry(hash).or_default();
        if !blocks.contains(&block) {
            blocks.push(block);
        }
    }

    fn remove(&self, hash: u32, block: FsBlock) {
        let mut map = self.0.borrow_mut();
        if let Some(blocks) = map.get_mut(&hash) {
            blocks.retain(|b| *b != block);
            if blocks.is_empty() {
                map.remove(&hash);
            }
        }
    }

    fn get(&self, hash: u32) -> Vec<FsBlock> {
        self.0.borrow().get(&hash).cloned().unwrap_or_default()
    }

    /// Forgets all (dropped caches).
    pub(crate) fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}

fn run_block(args: &TriggerArgs, b: &mut [u8]) {
    let ctx = CsumCtx {
        seed: args.seed,
        metadata_csum: true,
        ..CsumCtx::NONE
    };
    xattr::csum_set(&ctx, args.blocknr, b);
}

fn refcount(bh: &Buffer) -> u32 {
    bh.read(|b| le32(b, 4))
}

fn hash(bh: &Buffer) -> u32 {
    bh.read(|b| le32(b, 12))
}

impl Ext4 {
    async fn dirty_xattr_block(
        &self,
        h: &mut Handle,
        inode: &Inode,
        bh: &Rc<Buffer>,
    ) -> FsResult<()> {
        if self.csum.metadata_csum {
            let args = TriggerArgs {
                seed: self.csum.seed,
                blocknr: bh.blocknr.0,
                ..TriggerArgs::default()
            };
            bh.set_trigger(Trigger {
                run: run_block,
                args,
            });
        }
        bh.set(Bh::VERIFIED);
        self.dirty_metadata(h, Some(inode), bh).await
    }

    pub(crate) fn block_cache_insert(&self, bh: &Buffer) {
        let hash = hash(bh);
        if hash != 0 && self.opts.borrow().mbcache {
            self.ea_block_cache.insert(hash, bh.blocknr);
        }
    }

    /// A block with the same attributes as `wanted` and room for one more owner.
    async fn block_cache_find(&self, wanted: &[u8]) -> FsResult<Option<Rc<Buffer>>> {
        let hash = le32(wanted, 12);
        if hash == 0 {
            return Ok(None);
        }
        for block in self.ea_block_cache.get(hash) {
            let bh = self.buffers.bread(block, Role::Xattr).await?;
            let same = bh.read(|b| {
                le32(b, 0) == area::MAGIC
                    && le32(b, 4) < REFCOUNT_MAX
                    && area::same_entries(b, wanted)
            });
            if same {
                return Ok(Some(bh));
            }
        }
        Ok(None)
    }

    /// Changes an attribute of the block and lets the inode name the block that results.
    pub(crate) async fn xattr_block_set(
        &self,
        h: &mut Handle,
        inode: &Inode,
        index: u8,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> FsResult<()> {
        let change = Change {
            index,
            name,
            value,
            block: true,
        };
        let old = self.xattr_block(inode).await?;
        if let Some(bh) = &old {
            self.get_write_access(h, bh).await?;
            if refcount(bh) == 1 {
                return self.xattr_change_in_place(h, inode, bh, &change).await;
            }
        }
        let mut wanted = match &old {
            Some(bh) => bh.bytes().to_vec(),
            None => vec![0; self.geo.block_size as usize],
        };
        if old.is_none() {
            area::init_block(&mut wanted);
        }
        put_le32(&mut wanted, 4, 1);
        area::set(&mut wanted, BLOCK_HEADER, &change)?;
        let new = self.xattr_home(h, inode, &wanted).await?;
        inode.core.borrow_mut().file_acl = new.map_or(0, |b| b.blocknr.0);
        if let Some(bh) = old {
            self.xattr_release_block(h, inode, &bh).await?;
        }
        Ok(())
    }

    async fn xattr_change_in_place(
        &self,
        h: &mut Handle,
        inode: &Inode,
        bh: &Rc<Buffer>,
        change: &Change<'_>,
    ) -> FsResult<()> {
        self.ea_block_cache.remove(hash(bh), bh.blocknr);
        let changed = bh.modify(|b| area::set(b, BLOCK_HEADER, change));
        if let Err(e) = changed {
            self.block_cache_insert(bh);
            return Err(e);
        }
        self.dirty_xattr_block(h, inode, bh).await?;
        if bh.read(|b| le32(b, BLOCK_HEADER)) == 0 {
            inode.core.borrow_mut().file_acl = 0;
            return self.xattr_release_block(h, inode, bh).await;
        }
        let wanted = bh.bytes();
        match self.block_cache_find(&wanted).await? {
            Some(other) => {
                self.xattr_share(h, inode, &other).await?;
                inode.core.borrow_mut().file_acl = other.blocknr.0;
                self.xattr_release_block(h, inode, bh).await
            }
            None => {
                self.block_cache_insert(bh);
                Ok(())
            }
        }
    }

    /// A block that holds `wanted`: an equal one that is shared, or a new one; `None` if there are no attributes.
    async fn xattr_home(
        &self,
        h: &mut Handle,
        inode: &Inode,
        wanted: &[u8],
    ) -> FsResult<Option<Rc<Buffer>>> {
        if le32(wanted, BLOCK_HEADER) == 0 {
            return Ok(None);
        }
        if let Some(bh) = self.block_cache_find(wanted).await? {
            self.xattr_share(h, inode, &bh).await?;
            return Ok(Some(bh));
        }
        let goal = FsBlock(self.geo.group_first_block(inode.block_group));
        let block = self.new_meta_blocks(h, inode, goal).await?;
        let bh = self.buffers.getblk(block);
        bh.set_role(Role::Xattr);
        self.get_create_access(h, &bh).await?;
        bh.set_payload(crate::base::Payload::Bytes(wanted.into()));
        bh.set(Bh::UPTODATE);
        self.block_cache_insert(&bh);
        self.dirty_xattr_block(h, inode, &bh).await?;
        Ok(Some(bh))
    }

    fn count_block(&self, inode: &Inode, more: bool) {
        let sectors = u64::from(self.geo.block_size) * u64::from(self.geo.cluster_ratio) / 512;
        let mut core = inode.core.borrow_mut();
        core.blocks = if more {
            core.blocks + sectors
        } else {
            core.blocks.saturating_sub(sectors)
        };
    }

    async fn xattr_share(&self, h: &mut Handle, inode: &Inode, bh: &Rc<Buffer>) -> FsResult<()> {
        self.get_write_access(h, bh).await?;
        self.count_block(inode, true);
        bh.modify(|b| put_le32(b, 4, le32(b, 4) + 1));
        self.dirty_xattr_block(h, inode, bh).await
    }

    /// One owner less; the last one frees the block.
    pub(crate) async fn xattr_release_block(
        &self,
        h: &mut Handle,
        inode: &Inode,
        bh: &Rc<Buffer>,
    ) -> FsResult<()> {
        self.get_write_access(h, bh).await?;
        let owners = refcount(bh);
        if owners > 1 {
            bh.modify(|b| put_le32(b, 4, owners - 1));
            self.dirty_xattr_block(h, inode, bh).await?;
            self.count_block(inode, false);
            return Ok(());
        }
        self.ea_block_cache.remove(hash(bh), bh.blocknr);
        let flags = FreeFlags::METADATA.with(FreeFlags::FORGET);
        self.free_blocks(h, inode, bh.blocknr, 1, flags).await
    }

    /// Gives up the attribute block of an inode that is being deleted (kernel `ext4_xattr_delete_inode`).
    pub(crate) async fn xattr_delete_inode(&self, h: &mut Handle, inode: &Inode) -> FsResult<()> {
        if let Some(bh) = self.xattr_block(inode).await? {
            self.xattr_release_block(h, inode, &bh).await?;
            inode.core.borrow_mut().file_acl = 0;
        }
        Ok(())
    }
}
