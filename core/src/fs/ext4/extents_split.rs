//! Splitting extents, and turning unwritten ones into written ones (kernel `ext4_split_extent`,
//! `ext4_ext_convert_to_initialized`, `ext4_convert_unwritten_extents_endio`).

#![allow(
    clippy::unused_self,
    reason = "all operations are methods of the file system"
)]

use super::extents::{can_merge, ExtPath};
use super::extents_status::EsStatus;
use super::mballoc::MbFlags;
use super::{extent_node as node, Ext4, Inode};
use crate::base::{FsBlock, Lba};
use crate::block::{Bio, BioFlags, Role};
use crate::format::ext4::extent::Extent;
use crate::format::{Corrupt, CorruptKind};
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::Handle;

/// Remainders of up to this many KiB are zeroed instead of split off (kernel `s_extent_max_zeroout_kb`).
const EXTENT_MAX_ZEROOUT_KB: u32 = 32;

/// What becomes of the halves of a split (kernel `EXT4_EXT_*` split flags).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SplitFlags {
    /// Zeroing is allowed where there is no space to split.
    pub(crate) may_zeroout: bool,
    /// First half unwritten.
    pub(crate) unwrit1: bool,
    /// Second half unwritten.
    pub(crate) unwrit2: bool,
    /// Contents of the first half are valid.
    pub(crate) valid1: bool,
    /// Contents of the second half are valid.
    pub(crate) valid2: bool,
}

impl Ext4 {
    /// Zeroes the blocks of an extent on disk (kernel `ext4_ext_zeroout`).
    pub(crate) async fn ext_zeroout(&self, inode: &Inode, e: &Extent) -> FsResult<()> {
        self.issue_zeroout(inode, e.lblk, FsBlock(e.pblk), u32::from(e.len))
            .await
    }

    /// Writes zeroes to file blocks on disk and waits (kernel `ext4_issue_zeroout`).
    pub async fn issue_zeroout(
        &self,
        inode: &Inode,
        _lblk: u32,
        pblk: FsBlock,
        len: u32,
    ) -> FsResult<()> {
        let per = u64::from(self.geo.block_size / 512);
        let sectors = u64::from(len) * per;
        let bio = Bio::write_zeroes(Lba(pblk.0 * per), sectors as u32, Role::FileData)
            .flags(BioFlags::SYNC)
            .ino(inode.ino);
        self.queue.issue_zeroout(bio).await?;
        Ok(())
    }

    /// Splits the path's extent so that one begins at `split` (kernel `ext4_split_extent_at`). `nomerge`: the
    /// halves stay apart.
    pub(crate) async fn split_extent_at(
        &self,
        h: &mut Handle,
        inode: &Inode,
        mut path: ExtPath,
        split: u32,
        flags: SplitFlags,
        nomerge: bool,
    ) -> FsResult<()> {
        let ex = self.need_extent(inode, &path, split)?;
        self.ext_get_access(h, path.leaf()).await?;
        if split == ex.lblk {
            let whole = Extent {
                unwritten: flags.unwrit2,
                ..ex
            };
            self.put_extent(inode, &path, &whole);
            if !nomerge {
                let at = path.leaf().pos;
                self.try_to_merge(h, inode, &mut path, at).await?;
            }
            let l = path.leaf().clone();
            return self.ext_dirty(h, inode, &l).await;
        }
        let first_len = (split - ex.lblk) as u16;
        let first = Extent {
            len: first_len,
            unwritten: flags.unwrit1,
            ..ex
        };
        let second = Extent {
            lblk: split,
            len: ex.len - first_len,
            unwritten: flags.unwrit2,
            pblk: ex.pblk + u64::from(first_len),
        };
        self.put_extent(inode, &path, &first);
        let l = path.leaf().clone();
        self.ext_dirty(h, inode, &l).await?;
        let inserted = self
            .insert_extent(h, inode, path, second, (nomerge, MbFlags::USE_RESERVED))
            .await;
        match inserted {
            Err(FsError::NoSpace) => {
                self.split_failed(h, inode, ex, (first, second), flags)
                    .await
            }
            other => other,
        }
    }

    /// No block for a new node: zero what would have been split off, or put the extent back.
    async fn split_failed(
        &self,
        h: &mut Handle,
        inode: &Inode,
        ex: Extent,
        (first, second): (Extent, Extent),
        flags: SplitFlags,
    ) -> FsResult<()> {
        let path = self.find_extent(inode, ex.lblk).await?;
        self.ext_get_access(h, path.leaf()).await?;
        let mut res = Err(FsError::NoSpace);
        let mut back = ex;
        if flags.may_zeroout {
            let zero = if flags.valid1 {
                second
            } else if flags.valid2 {
                first
            } else {
                ex
            };
            self.ext_zeroout(inode, &zero).await?;
            back.unwritten = false;
            res = Ok(());
            let (lblk, len, pblk) = (ex.lblk, u32::from(ex.len), ex.pblk);
            inode
                .es
                .borrow_mut()
                .insert(lblk, len, pblk, EsStatus::Written);
        }
        self.put_extent(inode, &path, &back);
        let l = path.leaf().clone();
        self.ext_dirty(h, inode, &l).await?;
        res
    }

    fn put_extent(&self, inode: &Inode, path: &ExtPath, e: &Extent) {
        let l = path.leaf();
        self.node_mut(inode, l, |b| e.encode(b, l.pos));
    }

    /// The path's extent, which must cover `lblk`.
    fn need_extent(&self, inode: &Inode, path: &ExtPath, lblk: u32) -> FsResult<Extent> {
        match self.path_extent(inode, path) {
            Some(e) if lblk >= e.lblk && u64::from(lblk) < e.end() => Ok(e),
            _ => Err(self.corrupt(Corrupt::new(CorruptKind::ExtentLength { lblk }, 0))),
        }
    }

    /// Splits the extent that covers `lblk` so that `lblk..lblk + len` is an extent of its own (kernel
    /// `ext4_split_extent`).
    pub(crate) async fn split_extent(
        &self,
        h: &mut Handle,
        inode: &Inode,
        (lblk, len): (u32, u32),
        flags: SplitFlags,
        nomerge: bool,
    ) -> FsResult<()> {
        let path = self.find_extent(inode, lblk).await?;
        let ex = self.need_extent(inode, &path, lblk)?;
        let unwritten = ex.unwritten;
        let end = u64::from(lblk) + u64::from(len);
        if end < ex.end() {
            let f = SplitFlags {
                may_zeroout: flags.may_zeroout,
                unwrit1: unwritten,
                unwrit2: unwritten,
                valid1: flags.valid2,
                valid2: false,
            };
            self.split_extent_at(h, inode, path, end as u32, f, true)
                .await?;
        }
        let path = self.find_extent(inode, lblk).await?;
        let ex = self.need_extent(inode, &path, lblk)?;
        debug_assert!(lblk >= ex.lblk);
        let f = SplitFlags {
            unwrit1: ex.unwritten,
            valid1: false,
            ..flags
        };
        self.split_extent_at(h, inode, path, lblk, f, nomerge).await
    }

    /// First block past the end of the file, or past the range if that is later.
    fn eof_block(&self, inode: &Inode, end: u64) -> u64 {
        inode
            .size()
            .div_ceil(u64::from(self.geo.block_size))
            .max(end)
    }

    /// Splits an unwritten extent before I/O into the range, so that converting needs no new blocks (kernel
    /// `ext4_split_convert_extents`).
    pub(crate) async fn split_for_io(
        &self,
        h: &mut Handle,
        inode: &Inode,
        ex: Extent,
        (lblk, len): (u32, u32),
        to_unwritten: bool,
    ) -> FsResult<()> {
        let end = u64::from(lblk) + u64::from(len);
        let inside = ex.end() <= self.eof_block(inode, end);
        let flags = if to_unwritten {
            SplitFlags {
                unwrit2: true,
                valid1: true,
                ..SplitFlags::default()
            }
        } else {
            SplitFlags {
                may_zeroout: inside,
                unwrit2: true,
                valid2: true,
                ..SplitFlags::default()
            }
        };
        self.split_extent(h, inode, (lblk, len), flags, true).await
    }

    /// Marks a range written when its I/O has ended (kernel `ext4_convert_unwritten_extents_endio`).
    pub(crate) async fn convert_endio(
        &self,
        h: &mut Handle,
        inode: &Inode,
        ex: Extent,
        (lblk, len): (u32, u32),
    ) -> FsResult<()> {
        if ex.lblk != lblk || u32::from(ex.len) > len {
            self.split_for_io(h, inode, ex, (lblk, len), false).await?;
        }
        let mut path = self.find_extent(inode, lblk).await?;
        let ex = self.need_extent(inode, &path, lblk)?;
        self.ext_get_access(h, path.leaf()).await?;
        self.put_extent(
            inode,
            &path,
            &Extent {
                unwritten: false,
                ..ex
            },
        );
        let at = path.leaf().pos;
        self.try_to_merge(h, inode, &mut path, at).await?;
        let l = path.leaf().clone();
        self.ext_dirty(h, inode, &l).await
    }

    /// Marks a written range unwritten (kernel `convert_initialized_extent`, for zero range).
    pub(crate) async fn convert_to_unwritten(
        &self,
        h: &mut Handle,
        inode: &Inode,
        ex: Extent,
        (lblk, len): (u32, u32),
    ) -> FsResult<u32> {
        let len = len.min(u32::from(Extent::max_len(true)));
        if ex.lblk != lblk || u32::from(ex.len) > len {
            self.split_for_io(h, inode, ex, (lblk, len), true).await?;
        }
        let mut path = self.find_extent(inode, lblk).await?;
        let ex = self.need_extent(inode, &path, lblk)?;
        self.ext_get_access(h, path.leaf()).await?;
        self.put_extent(
            inode,
            &path,
            &Extent {
                unwritten: true,
                ..ex
            },
        );
        let at = path.leaf().pos;
        self.try_to_merge(h, inode, &mut path, at).await?;
        let l = path.leaf().clone();
        self.ext_dirty(h, inode, &l).await?;
        Ok(len.min((ex.end() - u64::from(lblk)) as u32))
    }

    /// Makes a range of an unwritten extent written, now (kernel `ext4_ext_convert_to_initialized`): moves it to a
    /// written neighbour, or splits, or zeroes a small rest. Returns the blocks written from `lblk` on.
    pub(crate) async fn convert_to_initialized(
        &self,
        h: &mut Handle,
        inode: &Inode,
        ex: Extent,
        (lblk, len): (u32, u32),
        nomerge: bool,
    ) -> FsResult<u32> {
        let path = self.find_extent(inode, lblk).await?;
        let len = len.min((ex.end() - u64::from(lblk)) as u32);
        if len < u32::from(ex.len)
            && self
                .shift_to_neighbour(h, inode, &path, ex, (lblk, len))
                .await?
        {
            return Ok(len);
        }
        let end = u64::from(lblk) + u64::from(len);
        let may_zeroout = ex.end() <= self.eof_block(inode, end);
        let max = if may_zeroout {
            EXTENT_MAX_ZEROOUT_KB >> (self.geo.block_bits - 10)
        } else {
            0
        };
        let (mut at, mut n) = (lblk, len);
        let rest = (ex.end() - u64::from(lblk)) as u32;
        if max > 0 && rest > n {
            if rest <= max {
                let zero = part(&ex, lblk + n, rest - n);
                self.ext_zeroout(inode, &zero).await?;
                n = rest;
            }
            if at - ex.lblk + n < max {
                if at != ex.lblk {
                    self.ext_zeroout(inode, &part(&ex, ex.lblk, at - ex.lblk))
                        .await?;
                }
                n += at - ex.lblk;
                at = ex.lblk;
            }
        }
        let flags = SplitFlags {
            may_zeroout,
            ..SplitFlags::default()
        };
        self.split_extent(h, inode, (at, n), flags, nomerge).await?;
        if (at, n) != (lblk, len) {
            let pblk = ex.pblk + u64::from(at - ex.lblk);
            inode.es.borrow_mut().insert(at, n, pblk, EsStatus::Written);
        }
        Ok(len)
    }

    /// Moves the range at an end of an unwritten extent to the written neighbour there, if that continues it.
    async fn shift_to_neighbour(
        &self,
        h: &mut Handle,
        inode: &Inode,
        path: &ExtPath,
        ex: Extent,
        (lblk, len): (u32, u32),
    ) -> FsResult<bool> {
        let l = path.leaf();
        let at = l.pos;
        let n = len as u16;
        let moved = part(&ex, lblk, len);
        let neighbour = self.node(inode, l, |b| {
            if lblk == ex.lblk && at > 0 {
                Some((at - 1, Extent::decode(b, at - 1)))
            } else if u64::from(lblk) + u64::from(len) == ex.end() && at + 1 < node::entries(b) {
                Some((at + 1, Extent::decode(b, at + 1)))
            } else {
                None
            }
        });
        let Some((i, near)) = neighbour else {
            return Ok(false);
        };
        let (grown, rest) = if i < at {
            if !can_merge(&near, &moved) {
                return Ok(false);
            }
            let rest = Extent {
                lblk: ex.lblk + len,
                len: ex.len - n,
                pblk: ex.pblk + u64::from(len),
                unwritten: true,
            };
            (
                Extent {
                    len: near.len + n,
                    ..near
                },
                rest,
            )
        } else {
            if !can_merge(&moved, &near) {
                return Ok(false);
            }
            let grown = Extent {
                lblk,
                len: near.len + n,
                pblk: moved.pblk,
                unwritten: false,
            };
            (
                grown,
                Extent {
                    len: ex.len - n,
                    ..ex
                },
            )
        };
        self.ext_get_access(h, l).await?;
        self.node_mut(inode, l, |b| {
            grown.encode(b, i);
            rest.encode(b, at);
        });
        self.ext_dirty(h, inode, l).await?;
        Ok(true)
    }
}

/// The part of `ex` at `lblk`, as a written extent.
fn part(ex: &Extent, lblk: u32, len: u32) -> Extent {
    Extent {
        lblk,
        len: len as u16,
        unwritten: false,
        pblk: ex.pblk + u64::from(lblk - ex.lblk),
    }
}
