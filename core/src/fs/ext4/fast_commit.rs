//! Fast commits: an fsync writes what changed since the last commit as records, usually one block
//! (kernel fs/ext4/fast_commit.c).
//!
//! Operations note under their handle which inodes, ranges and names they change; whatever records cannot express makes
//! the transaction *ineligible*, and fsync does a full commit then. A full commit makes all notes void.
//!
//! SIMPLIFIED: every rename is ineligible (the kernel records those of files).

use super::namei::FcName;
use super::{flag, Ext4, Inode, MapFlags, MapRequest, MappingKind};
use crate::base::{Ino, Lblk, Tid};
use crate::format::jbd2::fast_commit::{FcDentry, FcRecord};
use crate::fs::common::FsResult;
use crate::fs::jbd2::fast_commit::{FcBegin, FcWriter};
use crate::fs::jbd2::{Handle, Journal};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Longest extent, written and unwritten.
const EXT_MAX: u32 = 32_768;

/// Notes about an inode.
#[derive(Clone, Copy)]
struct Tracked {
    tid: Tid,
    /// First and last block whose mapping changed.
    range: Option<(u32, u32)>,
}

/// A changed name.
struct Named {
    tid: Tid,
    op: FcName,
    dentry: FcDentry,
}

/// Notes for the next fast commit (kernel `s_fc_*` of `ext4_sb_info`).
#[derive(Default)]
pub(crate) struct FcState {
    enabled: Cell<bool>,
    inodes: RefCell<BTreeMap<Ino, Tracked>>,
    names: RefCell<Vec<Named>>,
    ineligible: Cell<Option<Tid>>,
    /// Fast commits done.
    subtid: Cell<u64>,
}

impl Ext4 {
    /// Fast commits are used from now on.
    pub(crate) fn fc_enable(&self, on: bool) {
        self.fc.enabled.set(on);
    }

    fn fc_tid(&self, h: &Handle) -> Option<Tid> {
        h.tid().filter(|_| self.fc.enabled.get())
    }

    /// The inode changed (kernel `ext4_fc_track_inode`).
    pub(crate) fn fc_track_inode(&self, h: &Handle, inode: &Inode) {
        let Some(tid) = self.fc_tid(h) else { return };
        if inode.is_dir() || inode.ino.0 < self.geo.first_ino {
            return;
        }
        if self.should_journal_data(inode) && inode.is_reg() {
            self.fc_mark_ineligible(h);
            return;
        }
        let mut inodes = self.fc.inodes.borrow_mut();
        let t = inodes
            .entry(inode.ino)
            .or_insert(Tracked { tid, range: None });
        if t.tid != tid {
            *t = Tracked { tid, range: None };
        }
    }

    /// The mapping of blocks `first..=last` changed (kernel `ext4_fc_track_range`).
    pub(crate) fn fc_track_range(&self, h: &Handle, inode: &Inode, first: u32, last: u32) {
        if self.fc_tid(h).is_none() || inode.is_dir() {
            return;
        }
        if !inode.has_flag(flag::EXTENTS) && !inode.has_flag(flag::INLINE_DATA) {
            self.fc_mark_ineligible(h);
            return;
        }
        self.fc_track_inode(h, inode);
        if let Some(t) = self.fc.inodes.borrow_mut().get_mut(&inode.ino) {
            t.range = Some(match t.range {
                Some((a, b)) => (a.min(first), b.max(last)),
                None => (first, last),
            });
        }
    }

    /// A name changed (kernel `ext4_fc_track_create`, `_link`, `_unlink`).
    pub(crate) fn fc_track_name(&self, h: &Handle, op: FcName, dir: Ino, ino: Ino, name: &[u8]) {
        let Some(tid) = self.fc_tid(h) else { return };
        let dentry = FcDentry {
            parent_ino: dir.0,
            ino: ino.0,
            name: name.to_vec(),
        };
        self.fc.names.borrow_mut().push(Named { tid, op, dentry });
    }

    /// The inode is gone: it is not written, nor its creation (kernel `ext4_fc_del`).
    pub(crate) fn fc_del(&self, ino: Ino) {
        if self.fc.enabled.get() {
            self.fc.inodes.borrow_mut().remove(&ino);
            let stays = |n: &Named| n.op != FcName::Creat || n.dentry.ino != ino.0;
            self.fc.names.borrow_mut().retain(stays);
        }
    }

    /// Only a full commit covers what the handle does (kernel `ext4_fc_mark_ineligible`).
    pub(crate) fn fc_mark_ineligible(&self, h: &Handle) {
        let Some(tid) = self.fc_tid(h) else { return };
        let newest = self
            .fc
            .ineligible
            .get()
            .filter(|&t| Tid::gt(t, tid))
            .unwrap_or(tid);
        self.fc.ineligible.set(Some(newest));
    }

    /// Everything up to `tid` is durable (kernel `ext4_fc_cleanup`).
    pub(crate) fn fc_cleanup(&self, full: bool, tid: Tid) {
        if !self.fc.enabled.get() {
            return;
        }
        self.fc.inodes.borrow_mut().retain(|_, t| t.tid.gt(tid));
        self.fc.names.borrow_mut().retain(|n| n.tid.gt(tid));
        if full && self.fc.ineligible.get().is_some_and(|t| tid.geq(t)) {
            self.fc.ineligible.set(None);
        }
    }

    /// Makes transaction `tid` durable for an fsync, by records if that is possible (kernel `ext4_fc_commit`).
    pub(crate) async fn fc_commit(&self, j: &Rc<Journal>, tid: Tid) -> FsResult<()> {
        if !self.fc.enabled.get() {
            return j.complete_transaction(tid).await;
        }
        let subtid = self.fc.subtid.get();
        loop {
            match j.fc_begin_commit(tid).await {
                FcBegin::Go => break,
                FcBegin::No => return j.complete_transaction(tid).await,
                FcBegin::Already => {
                    let again = self.fc.subtid.get() <= subtid && tid.gt(j.commit_sequence());
                    if !again || j.is_aborted() {
                        return j.wait_commit(j.commit_sequence()).await;
                    }
                }
            }
        }
        let running = j.running_tid();
        let done = match running {
            Some(now) if self.fc.ineligible.get().is_none() => self.fc_perform(j, now).await,
            _ => Ok(false),
        };
        if let (Ok(true), Some(now)) = (&done, running) {
            self.fc.subtid.set(subtid + 1);
            self.fc_cleanup(false, now);
            j.fc_end_commit();
            return Ok(());
        }
        j.fc_end_commit();
        j.complete_transaction(tid).await
    }

    /// Writes all notes (kernel `ext4_fc_perform_commit`). False if the area is full.
    async fn fc_perform(&self, j: &Rc<Journal>, tid: Tid) -> FsResult<bool> {
        let inodes: Vec<(Ino, Tracked)> = {
            let inodes = self.fc.inodes.borrow();
            inodes.iter().map(|(i, t)| (*i, *t)).collect()
        };
        for (ino, _) in &inodes {
            let jinode = self
                .cached_inode(*ino)
                .and_then(|i| i.jinode.borrow().clone());
            if let Some(jinode) = jinode {
                j.fc_flush_inode_data(&jinode).await?;
            }
        }
        let mut w = j.fc_writer(tid);
        if j.fc_area_is_empty() {
            let head = FcRecord::Head {
                features: 0,
                tid: tid.0,
            };
            if !w.add(&head).await {
                return Ok(false);
            }
        }
        if !self.fc_write_names(&mut w, &inodes).await? {
            return Ok(false);
        }
        for (ino, t) in inodes {
            let ok = self.fc_write_range(&mut w, ino, t).await?
                && self.fc_write_inode(&mut w, ino).await?;
            if !ok {
                return Ok(false);
            }
        }
        w.finish().await
    }

    /// Names in the order in which they changed; a created inode goes before its name.
    async fn fc_write_names(&self, w: &mut FcWriter, inodes: &[(Ino, Tracked)]) -> FsResult<bool> {
        let names: Vec<(FcName, FcDentry)> = {
            let names = self.fc.names.borrow();
            names.iter().map(|n| (n.op, n.dentry.clone())).collect()
        };
        for (op, d) in names {
            let record = match op {
                FcName::Creat => {
                    let ino = Ino(d.ino);
                    let range = inodes.iter().find(|(i, _)| *i == ino);
                    if !self.fc_write_inode(w, ino).await? {
                        return Ok(false);
                    }
                    if let Some((_, t)) = range {
                        if !self.fc_write_range(w, ino, *t).await? {
                            return Ok(false);
                        }
                    }
                    FcRecord::Creat(d)
                }
                FcName::Link => FcRecord::Link(d),
                FcName::Unlink => FcRecord::Unlink(d),
            };
            if !w.add(&record).await {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// How the changed range maps now (kernel `ext4_fc_write_inode_data`).
    async fn fc_write_range(&self, w: &mut FcWriter, ino: Ino, t: Tracked) -> FsResult<bool> {
        let Some((first, last)) = t.range else {
            return Ok(true);
        };
        let Some(inode) = self
            .cached_inode(ino)
            .filter(|i| !i.has_flag(flag::INLINE_DATA))
        else {
            return Ok(true);
        };
        let mut at = first;
        while at <= last {
            let want = (last - at).saturating_add(1);
            let req = MapRequest {
                lblk: Lblk(at),
                len: want,
                flags: MapFlags::default(),
            };
            let m = self.map_blocks(None, &inode, req).await?;
            let len = m.len.clamp(1, want);
            let (len, record) = match m.kind {
                MappingKind::Mapped | MappingKind::Unwritten => {
                    let unwritten = m.kind == MappingKind::Unwritten;
                    let len = len.min(EXT_MAX - u32::from(unwritten));
                    let raw_len = len + if unwritten { EXT_MAX } else { 0 };
                    let record = FcRecord::AddRange {
                        ino: ino.0,
                        lblk: at,
                        raw_len: raw_len as u16,
                        pblk: m.pblk.0,
                    };
                    (len, record)
                }
                MappingKind::Hole | MappingKind::Delayed => {
                    let record = FcRecord::DelRange {
                        ino: ino.0,
                        lblk: at,
                        len,
                    };
                    (len, record)
                }
            };
            if !w.add(&record).await {
                return Ok(false);
            }
            match at.checked_add(len) {
                Some(next) => at = next,
                None => break,
            }
        }
        Ok(true)
    }

    /// The inode as in its table block (kernel `ext4_fc_write_inode`).
    async fn fc_write_inode(&self, w: &mut FcWriter, ino: Ino) -> FsResult<bool> {
        let (bh, offset) = self.get_inode_loc(ino, false).await?;
        let inline = self
            .cached_inode(ino)
            .is_some_and(|i| i.has_flag(flag::INLINE_DATA));
        let extra = |b: &[u8]| usize::from(crate::base::bytes::le16(b, offset + 0x80));
        let raw = bh.read(|b| {
            let len = match self.geo.inode_size as usize {
                size if inline || size <= 128 => size,
                size => (128 + extra(b)).min(size),
            };
            b.get(offset..offset + len).unwrap_or(&[]).to_vec()
        });
        Ok(w.add(&FcRecord::Inode { ino: ino.0, raw }).await)
    }
}
