//! Orphans: inodes to delete or truncate at the next mount (kernel `orphan.c`), on the list that starts in the
//! superblock and runs through `i_dtime`, or in the orphan file.

use super::ext4_jbd2::OrphanSlot;
use super::{Ext4, Inode};
use crate::base::bytes::{le32, put_le32};
use crate::base::{bitmap, FsBlock, Ino, Lblk};
use crate::block::Role;
use crate::format::ext4::{features, orphan_file, CsumCtx};
use crate::fs::common::FsResult;
use crate::fs::jbd2::Handle;
use crate::mm::buffer::{Buffer, Trigger, TriggerArgs};
use crate::sim::sync::Mutex;
use crate::sim::{LockRank, Sim, WaitReason};
use crate::trace::{Category, Event};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Orphans of a mounted file system.
pub(crate) struct OrphanState {
    /// `s_orphan_lock`.
    lock: Mutex<()>,
    /// The list in memory, newest first (as on disk).
    list: RefCell<Vec<Rc<Inode>>>,
    /// Blocks of the orphan file, with their free entries.
    file: RefCell<Vec<(Rc<Buffer>, u32)>>,
    file_ino: Cell<(u32, u32)>,
    cleanup: Cell<bool>,
}

impl OrphanState {
    pub(crate) fn new(sim: &Sim) -> OrphanState {
        OrphanState {
            lock: Mutex::new(
                sim,
                LockRank::Orphan,
                WaitReason::Other("s_orphan_lock"),
                (),
            ),
            list: RefCell::default(),
            file: RefCell::default(),
            file_ino: Cell::new((0, 0)),
            cleanup: Cell::new(false),
        }
    }
}

fn orphan_block_csum(args: &TriggerArgs, b: &mut [u8]) {
    let ctx = CsumCtx {
        seed: args.seed,
        metadata_csum: true,
        ..CsumCtx::NONE
    };
    orphan_file::csum_set(&ctx, args.ino, args.generation, args.blocknr, b);
}

impl Ext4 {
    /// True while orphans are cleaned up at mount.
    pub(crate) fn in_orphan_cleanup(&self) -> bool {
        self.orphans.cleanup.get()
    }

    /// Notes that the inode is to be deleted or truncated should the machine stop (kernel `ext4_orphan_add`).
    pub async fn orphan_add(&self, h: &mut Handle, inode: &Rc<Inode>) -> FsResult<()> {
        if !h.is_journalled() || inode.orphan.get() != OrphanSlot::None {
            return Ok(());
        }
        if !self.orphans.file.borrow().is_empty() && self.orphan_file_add(h, inode).await? {
            return Ok(());
        }
        let sbh = Rc::clone(&self.sbh);
        self.get_write_access(h, &sbh).await?;
        let (bh, offset) = self.reserve_inode_write(h, inode).await?;
        let guard = self.orphans.lock.lock().await;
        let head = self.sb.borrow().s_last_orphan;
        let on_disk =
            inode.core.borrow().dtime != 0 && inode.core.borrow().dtime <= self.geo.inodes_count;
        // During cleanup the inode is on the list on disk already.
        let dirty = !(on_disk && self.in_orphan_cleanup());
        if dirty {
            inode.core.borrow_mut().dtime = head;
            self.sb.borrow_mut().s_last_orphan = inode.ino.0;
            self.encode_super();
        }
        inode.orphan.set(OrphanSlot::List);
        self.orphans.list.borrow_mut().insert(0, Rc::clone(inode));
        drop(guard);
        if dirty {
            self.dirty_metadata(h, None, &sbh).await?;
            self.mark_iloc_dirty(h, inode, &bh, offset).await?;
        }
        Ok(())
    }

    /// Takes the inode off (kernel `ext4_orphan_del`); without a handle only in memory.
    pub async fn orphan_del(&self, h: Option<&mut Handle>, inode: &Inode) -> FsResult<()> {
        match inode.orphan.get() {
            OrphanSlot::None => return Ok(()),
            OrphanSlot::File(block, entry) => {
                return self.orphan_file_del(h, inode, block, entry).await;
            }
            OrphanSlot::List => {}
        }
        let Some(h) = h.filter(|h| h.is_journalled()) else {
            self.orphans
                .list
                .borrow_mut()
                .retain(|i| i.ino != inode.ino);
            inode.orphan.set(OrphanSlot::None);
            return Ok(());
        };
        let reserved = self.reserve_inode_write(h, inode).await;
        let guard = self.orphans.lock.lock().await;
        let next = inode.core.borrow().dtime;
        let prev = {
            let mut list = self.orphans.list.borrow_mut();
            let at = list.iter().position(|i| i.ino == inode.ino);
            let prev = at.filter(|&i| i > 0).map(|i| Rc::clone(&list[i - 1]));
            if let Some(i) = at {
                list.remove(i);
            }
            prev
        };
        inode.orphan.set(OrphanSlot::None);
        let (bh, offset) = reserved?;
        if let Some(prev) = prev {
            let (pbh, poff) = self.reserve_inode_write(h, &prev).await?;
            prev.core.borrow_mut().dtime = next;
            self.mark_iloc_dirty(h, &prev, &pbh, poff).await?;
        } else {
            let sbh = Rc::clone(&self.sbh);
            self.get_write_access(h, &sbh).await?;
            self.sb.borrow_mut().s_last_orphan = next;
            self.encode_super();
            self.dirty_metadata(h, None, &sbh).await?;
        }
        inode.core.borrow_mut().dtime = 0;
        drop(guard);
        self.mark_iloc_dirty(h, inode, &bh, offset).await
    }

    /// Enters the inode in the orphan file; false if that is full.
    async fn orphan_file_add(&self, h: &mut Handle, inode: &Rc<Inode>) -> FsResult<bool> {
        let per = orphan_file::inodes_per_orphan_block(self.geo.block_size);
        let free = {
            let file = self.orphans.file.borrow();
            file.iter().position(|(_, free)| *free > 0)
        };
        let Some(block) = free else { return Ok(false) };
        let bh = Rc::clone(&self.orphans.file.borrow()[block].0);
        self.get_write_access(h, &bh).await?;
        let entry = bh.read(|b| (0..per).find(|&i| le32(b, i as usize * 4) == 0));
        let Some(entry) = entry else { return Ok(false) };
        self.orphans.file.borrow_mut()[block].1 -= 1;
        bh.modify(|b| put_le32(b, entry as usize * 4, inode.ino.0));
        self.orphan_block_trigger(&bh);
        inode.orphan.set(OrphanSlot::File(block as u32, entry));
        self.dirty_metadata(h, None, &bh).await?;
        Ok(true)
    }

    async fn orphan_file_del(
        &self,
        h: Option<&mut Handle>,
        inode: &Inode,
        block: u32,
        entry: u32,
    ) -> FsResult<()> {
        inode.orphan.set(OrphanSlot::None);
        let Some(h) = h.filter(|h| h.is_journalled()) else {
            return Ok(());
        };
        let bh = Rc::clone(&self.orphans.file.borrow()[block as usize].0);
        self.get_write_access(h, &bh).await?;
        bh.modify(|b| put_le32(b, entry as usize * 4, 0));
        self.orphan_block_trigger(&bh);
        self.orphans.file.borrow_mut()[block as usize].1 += 1;
        self.dirty_metadata(h, None, &bh).await
    }

    fn orphan_block_trigger(&self, bh: &Rc<Buffer>) {
        if self.geo.metadata_csum {
            let (ino, generation) = self.orphans.file_ino.get();
            bh.set_trigger(Trigger {
                run: orphan_block_csum,
                args: TriggerArgs {
                    seed: self.csum.seed,
                    blocknr: bh.blocknr.0,
                    ino,
                    generation,
                    ..TriggerArgs::default()
                },
            });
        }
    }

    /// Reads the orphan file (kernel `ext4_init_orphan_info`).
    pub(crate) async fn init_orphan_file(&self) -> FsResult<()> {
        let ino = self.sb.borrow().s_orphan_file_inum;
        if !self.geo.orphan_file || ino == 0 {
            return Ok(());
        }
        let inode = self.iget_special(Ino(ino)).await?;
        let generation = inode.core.borrow().generation;
        self.orphans.file_ino.set((ino, generation));
        let blocks = inode.end_lblk(self.geo.block_bits).0;
        let per = orphan_file::inodes_per_orphan_block(self.geo.block_size);
        let mut file = Vec::new();
        for lblk in 0..blocks {
            let Some(bh) = self.bread(None, &inode, Lblk(lblk), false).await? else {
                continue;
            };
            bh.set_role(Role::Orphan);
            let nr = bh.blocknr.0;
            let checked = bh.read(|b| {
                orphan_file::verify(&self.csum, ino, generation, nr, b)?;
                Ok((0..per).filter(|&i| le32(b, i as usize * 4) == 0).count() as u32)
            });
            let free = checked.map_err(|c: crate::format::Corrupt| self.corrupt(c.at(nr)))?;
            file.push((bh, free));
        }
        *self.orphans.file.borrow_mut() = file;
        self.iput(inode).await
    }

    /// True if the orphan file holds entries.
    pub(crate) fn orphan_file_empty(&self) -> bool {
        let per = orphan_file::inodes_per_orphan_block(self.geo.block_size);
        self.orphans
            .file
            .borrow()
            .iter()
            .all(|(_, free)| *free == per)
    }

    /// Deletes or truncates every orphan of the last mount (kernel `ext4_orphan_cleanup`). Returns how many.
    pub(crate) async fn orphan_cleanup(&self) -> FsResult<u32> {
        let listed = self.sb.borrow().s_last_orphan != 0;
        if !listed && self.orphan_file_empty() {
            return Ok(0);
        }
        if self.sb.borrow().s_state & crate::format::ext4::superblock::EXT4_ERROR_FS != 0 {
            self.sb.borrow_mut().s_last_orphan = 0;
            return Ok(0);
        }
        self.orphans.cleanup.set(true);
        let done = self.cleanup_all().await;
        self.orphans.cleanup.set(false);
        done
    }

    async fn cleanup_all(&self) -> FsResult<u32> {
        let mut n = 0;
        loop {
            let head = self.sb.borrow().s_last_orphan;
            if head == 0 || n > self.geo.inodes_count {
                break;
            }
            let Ok(inode) = self.orphan_get(Ino(head)).await else {
                // Not a usable inode: the rest of the chain cannot be trusted.
                self.sb.borrow_mut().s_last_orphan = 0;
                break;
            };
            inode.orphan.set(OrphanSlot::List);
            self.orphans.list.borrow_mut().insert(0, Rc::clone(&inode));
            // A damaged orphan is noted in the superblock; the mount goes on, as in Linux.
            let _ = self.process_orphan(inode).await;
            if self.sb.borrow().s_last_orphan == head {
                self.sb.borrow_mut().s_last_orphan = 0;
                break;
            }
            n += 1;
        }
        n += self.cleanup_file().await?;
        Ok(n)
    }

    async fn cleanup_file(&self) -> FsResult<u32> {
        let entries: Vec<(u32, u32, u32)> = {
            let file = self.orphans.file.borrow();
            let per = orphan_file::inodes_per_orphan_block(self.geo.block_size);
            file.iter()
                .enumerate()
                .flat_map(|(k, (bh, _))| {
                    let bytes = bh.bytes();
                    (0..per)
                        .map(|i| (k as u32, i, le32(&bytes, i as usize * 4)))
                        .filter(|e| e.2 != 0)
                        .collect::<Vec<_>>()
                })
                .collect()
        };
        let mut n = 0;
        for (block, entry, ino) in entries {
            let Ok(inode) = self.orphan_get(Ino(ino)).await else {
                continue;
            };
            inode.orphan.set(OrphanSlot::File(block, entry));
            let _ = self.process_orphan(inode).await;
            n += 1;
        }
        Ok(n)
    }

    /// An orphan's inode (kernel `ext4_orphan_get`): must be in use in the bitmap.
    async fn orphan_get(&self, ino: Ino) -> FsResult<Rc<Inode>> {
        let group = self.geo.group_of_ino(ino).0;
        if ino.0 < self.geo.first_ino || ino.0 > self.geo.inodes_count {
            let kind = crate::format::CorruptKind::InodeNumber {
                ino: ino.0,
                max: self.geo.inodes_count,
            };
            return Err(crate::format::Corrupt::new(kind, 0xE8).into());
        }
        let bh = self.read_inode_bitmap(group).await?;
        if !bh.read(|b| bitmap::test(b, self.geo.index_of_ino(ino))) {
            return Err(crate::base::Errno::ENOENT.into());
        }
        self.iget_special(ino).await
    }

    async fn process_orphan(&self, inode: Rc<Inode>) -> FsResult<()> {
        let links = inode.core.borrow().nlink;
        let ino = inode.ino;
        self.sim
            .emit(Category::Recovery, || Event::OrphanProcessed {
                ino,
                truncated: u8::from(links > 0),
            });
        if links > 0 {
            self.truncate_inode(&inode).await?;
            if inode.orphan.get() != OrphanSlot::None {
                self.orphan_del(None, &inode).await?;
            }
        }
        self.iput(inode).await
    }

    /// True if the feature bit for a non-empty orphan file must be set while mounted.
    pub(crate) fn set_orphan_present(&self, on: bool) {
        if self.geo.orphan_file {
            self.sb
                .borrow_mut()
                .set_feature(features::ORPHAN_PRESENT, on);
        }
    }

    /// Forgets the orphan file's buffers (umount).
    pub(crate) fn release_orphans(&self) -> Vec<FsBlock> {
        let blocks = self
            .orphans
            .file
            .borrow()
            .iter()
            .map(|(b, _)| b.blocknr)
            .collect();
        self.orphans.file.borrow_mut().clear();
        self.orphans.list.borrow_mut().clear();
        blocks
    }
}
