//! Regular files whose contents lie in the inode (kernel `fs/ext4/inline.c`): read as they are, and moved to a block
//! by the first change.
//!
//! SIMPLIFIED: new files never become inline, and a write to an inline file moves it to a block even where the new
//! contents would fit in the inode.

use super::xattr::INLINE_BODY;
use super::{Ext4, Inode, MapFlags, MapRequest};
use crate::base::Lblk;
use crate::block::{BioFlags, Role};
use crate::fs::common::FsResult;
use crate::fs::jbd2::{Handle, HandleType};
use crate::mm::buffer::{Bh, Buffer};
use std::rc::Rc;

impl Ext4 {
    /// The contents of an inline file: 60 bytes of `i_block`, then the value of `system.data`.
    fn inline_contents(&self, inode: &Inode) -> Vec<u8> {
        let core = inode.core.borrow();
        let mut all = core.i_block[..INLINE_BODY].to_vec();
        if let Ok(value) = core.inline_value() {
            all.extend_from_slice(&core.ibody[value]);
        }
        // A size that the inode cannot hold is damage; it must not become an allocation.
        let size = core.size.min(u64::from(self.geo.block_size)) as usize;
        all.resize(size, 0);
        all
    }

    /// Moves inline contents to a block of their own, which is on disk on return
    /// (kernel `ext4_convert_inline_data`).
    pub(super) async fn convert_inline_data(&self, inode: &Rc<Inode>) -> FsResult<()> {
        let contents = self.inline_contents(inode);
        let saved = inode.core.borrow().clone();
        let credits = self.chunk_trans_blocks(inode, 1) + 3;
        let mut h = self.journal_start(HandleType::Inode, credits).await?;
        let mut res = self.move_inline(&mut h, inode, &contents).await;
        if res.is_err() {
            *inode.core.borrow_mut() = saved;
            let restored = self.mark_inode_dirty(&mut h, inode).await;
            res = res.and_then(|b| restored.map(|()| b));
        }
        self.journal_stop(h).await?;
        let Some(bh) = res? else { return Ok(()) };
        // The page cache reads the block from its home.
        self.force_commit().await?;
        self.buffers.sync_dirty(&bh, BioFlags::NONE).await?;
        let home = bh.blocknr;
        drop(bh);
        self.buffers.forget(home);
        Ok(())
    }

    async fn move_inline(
        &self,
        h: &mut Handle,
        inode: &Rc<Inode>,
        contents: &[u8],
    ) -> FsResult<Option<Rc<Buffer>>> {
        self.destroy_inline_data(h, inode).await?;
        if contents.is_empty() {
            self.mark_inode_dirty(h, inode).await?;
            return Ok(None);
        }
        let request = MapRequest {
            lblk: Lblk(0),
            len: 1,
            flags: MapFlags::CREATE,
        };
        let m = self.map_blocks(Some(h), inode, request).await?;
        let bh = self.buffers.getblk(m.pblk);
        bh.set_role(Role::FileData);
        self.get_create_access(h, &bh).await?;
        bh.modify(|b| {
            let n = contents.len().min(b.len());
            b.fill(0);
            b[..n].copy_from_slice(&contents[..n]);
        });
        bh.set(Bh::UPTODATE);
        self.dirty_metadata(h, None, &bh).await?;
        self.mark_inode_dirty(h, inode).await?;
        Ok(Some(bh))
    }

    /// Reads inline contents.
    pub(super) fn read_inline(
        &self,
        inode: &Inode,
        pos: u64,
        len: u64,
        out: Option<&mut Vec<u8>>,
    ) -> u64 {
        let all = self.inline_contents(inode);
        let from = (pos as usize).min(all.len());
        let to = from + (len as usize).min(all.len() - from);
        if let Some(v) = out {
            v.extend_from_slice(&all[from..to]);
        }
        (to - from) as u64
    }
}
