//! The tree as the applications saw it: a plain in-memory file system fed with the calls that succeeded.
//!
//! It answers two questions at any instant: what did the application see, and what was it promised
//! (a returned fsync, fdatasync, sync or synchronous write). It knows nothing of blocks.

use crate::base::{Errno, Nanos};
use crate::workload::app_log::{AppOp, AppRecord};
use crate::workload::ops::{Op, Target};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Index of a node in [`ModelFs::nodes`].
pub type NodeId = usize;

/// Order of successful calls; 0 is "before the run".
pub type Seq = u64;

/// Where the bytes of a segment come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Zero (hole, truncate, fallocate).
    Zero,
    /// `content(seed, offset - shift)`.
    #[allow(missing_docs, reason = "see the variant")]
    Content { seed: u64, shift: i64 },
}

/// A run of bytes `start..end` of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First byte after it.
    pub end: u64,
    /// Its content.
    pub source: Source,
    /// The call that wrote it.
    pub seq: Seq,
}

/// What kind of thing a node is.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "plain kinds")]
pub enum NodeKind {
    Dir(BTreeMap<Vec<u8>, NodeId>),
    File(FileModel),
    Symlink(Vec<u8>),
    /// Fifo, device or socket.
    Special,
}

/// Content and history of a regular file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileModel {
    /// Length in bytes.
    pub size: u64,
    /// Current segments by start; gaps read as zero.
    pub segments: BTreeMap<u64, Segment>,
    /// Every change of content, oldest first.
    pub history: Vec<Change>,
    /// Sizes the file has had, with the call that set them.
    pub sizes: Vec<(Seq, u64)>,
    /// Only the size is followed: no segments, no history.
    size_only: bool,
}

/// A past change of file content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "see Segment")]
pub struct Change {
    pub seq: Seq,
    pub start: u64,
    pub end: u64,
    pub source: Source,
}

/// A node with the promises that hold for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Kind and content.
    pub kind: NodeKind,
    /// Names that lead to it.
    pub nlink: u32,
    /// All calls up to this one are promised durable for the content and size.
    pub promised: Seq,
    /// When the promise was made.
    pub promised_at: Nanos,
    /// Which call made the promise, for display.
    pub promised_by: &'static str,
    /// Last call that changed content, and when.
    pub changed: Seq,
    /// Time of that call's return.
    pub changed_at: Nanos,
    /// A sync of it failed: its changes since the last promise may be lost.
    pub told: bool,
    /// Bytes that writes with `O_DIRECT` were told are written, beyond any promise.
    pub acknowledged: u64,
}

/// An open descriptor.
#[derive(Clone, Copy, Debug)]
struct OpenFile {
    node: NodeId,
    /// `O_SYNC` or `O_DSYNC`: each write is a promise.
    sync: bool,
    /// `O_APPEND`: writes go to the end whatever their offset.
    append: bool,
}

/// The model.
#[derive(Clone, Debug)]
pub struct ModelFs {
    /// All nodes ever made; 0 is the root.
    pub nodes: Vec<Node>,
    fds: BTreeMap<u32, OpenFile>,
    /// New files follow their size only.
    size_only: bool,
    /// Names promised durable: every name present at that call.
    names_promised: BTreeSet<(NodeId, Vec<u8>)>,
    /// Every node that ever had a name, oldest first.
    name_history: BTreeMap<(NodeId, Vec<u8>), Vec<NodeId>>,
    seq: Seq,
    /// Calls applied.
    pub applied: u64,
    /// Calls that succeeded in the run but made no sense here; verdicts are then incomplete.
    pub unmatched: u64,
    /// Calls are applied that have not returned yet: they promise nothing.
    unreturned: bool,
    /// A call failed because of the disk: what a later `sync` returns says nothing of what was lost before.
    failing: bool,
}

const SYMLINK_DEPTH_MAX: u32 = 40;

impl Default for ModelFs {
    fn default() -> ModelFs {
        let mut fs = ModelFs {
            nodes: Vec::new(),
            fds: BTreeMap::new(),
            size_only: false,
            names_promised: BTreeSet::new(),
            name_history: BTreeMap::new(),
            seq: 0,
            applied: 0,
            unmatched: 0,
            unreturned: false,
            failing: false,
        };
        fs.node(NodeKind::Dir(BTreeMap::new()));
        fs
    }
}

impl ModelFs {
    /// The tree after all calls of `records` that had returned by `at`.
    pub fn at(records: &[AppRecord], at: Nanos) -> ModelFs {
        ModelFs::default().after(records, at)
    }

    /// The same without contents: names, sizes, promises. Many times faster where there are many writes.
    pub fn names_at(records: &[AppRecord], at: Nanos) -> ModelFs {
        let fs = ModelFs {
            size_only: true,
            ..ModelFs::default()
        };
        fs.after(records, at)
    }

    /// The same, and the calls that were running at `at` have had their effect; `None` if there were none. The disk
    /// may hold it already, but they have promised nothing yet.
    pub fn with_running(records: &[AppRecord], at: Nanos) -> Option<ModelFs> {
        let mut fs = ModelFs::at(records, at);
        fs.unreturned = true;
        for r in records.iter().take_while(|r| r.start <= at) {
            if r.end > at && r.err.is_none() {
                fs.apply(r);
            }
        }
        (fs.applied > ModelFs::returned(records, at)).then_some(fs)
    }

    /// Calls that had succeeded by `at`.
    pub fn returned(records: &[AppRecord], at: Nanos) -> u64 {
        let started = records.iter().take_while(|r| r.start <= at);
        started.filter(|r| r.end <= at && r.err.is_none()).count() as u64
    }

    fn after(mut self, records: &[AppRecord], at: Nanos) -> ModelFs {
        for r in records.iter().take_while(|r| r.start <= at) {
            if r.end > at {
                continue;
            }
            match r.err {
                None => self.apply(r),
                Some(e) => self.fail(r, e),
            }
        }
        self
    }

    /// A call that failed. After an error of the disk was reported, the changes that it was about are lost for good,
    /// and a later call that succeeds does not vouch for them.
    fn fail(&mut self, r: &AppRecord, errno: Errno) {
        if !matches!(
            errno,
            Errno::EIO | Errno::EROFS | Errno::ENOSPC | Errno::EUCLEAN
        ) {
            return;
        }
        self.failing |= errno != Errno::ENOSPC;
        let node = match &r.op {
            AppOp::Fsync { fd, .. } => self.fds.get(fd).map(|f| f.node),
            AppOp::Other(op) => match &**op {
                Op::Fsync { at } | Op::Fdatasync { at } => self.target(at).map(|f| f.node),
                _ => None,
            },
            _ => None,
        };
        if let Some(id) = node {
            self.nodes[id].told = true;
        }
    }

    fn node(&mut self, kind: NodeKind) -> NodeId {
        self.nodes.push(Node {
            kind,
            nlink: 1,
            promised: 0,
            promised_at: Nanos::ZERO,
            promised_by: "",
            changed: self.seq,
            changed_at: Nanos::ZERO,
            told: false,
            acknowledged: 0,
        });
        self.nodes.len() - 1
    }

    /// All paths with their nodes, in path order; the root is `/`.
    pub fn paths(&self) -> BTreeMap<Vec<u8>, NodeId> {
        let mut out = BTreeMap::new();
        let mut todo = vec![(b"/".to_vec(), 0)];
        while let Some((path, id)) = todo.pop() {
            if let NodeKind::Dir(entries) = &self.nodes[id].kind {
                for (name, child) in entries {
                    let mut p = path.clone();
                    if p.len() > 1 {
                        p.push(b'/');
                    }
                    p.extend_from_slice(name);
                    todo.push((p, *child));
                }
            }
            out.insert(path, id);
        }
        out
    }

    /// True if the name of `path` itself was promised (directory fsync, sync, or fsync of the new file).
    pub fn name_promised(&self, path: &[u8]) -> bool {
        let trimmed: Vec<u8> = path.iter().copied().skip_while(|b| *b == b'/').collect();
        if trimmed.is_empty() {
            return true;
        }
        match self.parent(&trimmed) {
            Some((dir, name)) => self.names_promised.contains(&(dir, name)),
            None => false,
        }
    }

    /// Nodes that `path` has led to, oldest first.
    pub fn earlier_nodes(&self, path: &[u8]) -> Vec<NodeId> {
        let key = self.parent(path);
        key.and_then(|k| self.name_history.get(&k))
            .cloned()
            .unwrap_or_default()
    }

    /// Applies one call that succeeded.
    pub fn apply(&mut self, r: &AppRecord) {
        self.seq += 1;
        self.applied += 1;
        let done = match &r.op {
            AppOp::Write {
                fd, offset, seed, ..
            } => (self.fds.get(fd).copied())
                .map(|file| self.write(file, *offset, u64::from(*seed), r)),
            AppOp::Read { .. } => Some(()),
            AppOp::Fsync { fd, datasync } => self.fds.get(fd).copied().map(|file| {
                let call = if *datasync { "fdatasync" } else { "fsync" };
                self.promise(file.node, r.end, call);
            }),
            AppOp::Open { fd, path, flags } => self.open(*fd, path, *flags, r.end),
            AppOp::Close { fd } => self.fds.remove(fd).map(|_| ()),
            AppOp::Other(op) => self.other(&Rc::clone(op), r),
        };
        if done.is_none() {
            self.unmatched += 1;
        }
    }

    fn open(
        &mut self,
        fd: u32,
        path: &[u8],
        flags: crate::workload::ops::OpenFlags,
        end: Nanos,
    ) -> Option<()> {
        let id = match self.lookup(path) {
            Some(id) => id,
            None if flags.creat => self.create(path)?,
            None => return None,
        };
        if flags.trunc && flags.write {
            self.truncate(id, 0, end);
        }
        let file = OpenFile {
            node: id,
            sync: flags.sync || flags.dsync,
            append: flags.append,
        };
        self.fds.insert(fd, file);
        Some(())
    }

    fn other(&mut self, op: &Op, r: &AppRecord) -> Option<()> {
        let end = r.end;
        match op {
            Op::Mkdir { path, .. } => self.add(path, NodeKind::Dir(BTreeMap::new())).map(|_| ()),
            Op::Create { path, .. } => self.create(path).map(|_| ()),
            Op::Symlink { target, path } => self
                .add(path, NodeKind::Symlink(target.clone()))
                .map(|_| ()),
            Op::Mknod { path, .. } => self.add(path, NodeKind::Special).map(|_| ()),
            Op::Rmdir { path } | Op::Unlink { path } => self.remove(path).map(|_| ()),
            Op::Link { old, new } => {
                let id = self.lookup_last(old, false)?;
                self.insert(new, id)?;
                self.nodes[id].nlink += 1;
                Some(())
            }
            Op::Rename { old, new, flags } => self.rename(old, new, *flags),
            Op::Pwrite {
                at, offset, seed, ..
            } => {
                let file = self.target(at)?;
                self.write(file, *offset, *seed, r);
                Some(())
            }
            Op::Append { at, seed, .. } => {
                let file = self.target(at)?;
                let size = self.file(file.node)?.size;
                self.write(file, size, *seed, r);
                Some(())
            }
            Op::Truncate { at, size } => {
                let id = self.target(at)?.node;
                self.truncate(id, *size, end);
                Some(())
            }
            Op::Fallocate {
                at,
                mode,
                offset,
                len,
            } => {
                let id = self.target(at)?.node;
                self.fallocate(id, *mode, *offset, *len, end)
            }
            Op::Fsync { at } | Op::Fdatasync { at } => {
                let id = self.target(at)?.node;
                self.promise(id, end, op.name());
                Some(())
            }
            Op::Sync | Op::Dropcaches => {
                self.promise_all(end);
                Some(())
            }
            _ => Some(()),
        }
    }

    fn target(&self, at: &Target) -> Option<OpenFile> {
        match at {
            Target::Path(p) => self.lookup(p).map(|node| OpenFile {
                node,
                sync: false,
                append: false,
            }),
            Target::Fd(fd) => self.fds.get(&(*fd as u32)).copied(),
        }
    }

    fn file(&mut self, id: NodeId) -> Option<&mut FileModel> {
        match &mut self.nodes[id].kind {
            NodeKind::File(f) => Some(f),
            _ => None,
        }
    }

    fn lookup(&self, path: &[u8]) -> Option<NodeId> {
        self.lookup_last(path, true)
    }

    fn lookup_last(&self, path: &[u8], follow: bool) -> Option<NodeId> {
        let mut budget = SYMLINK_DEPTH_MAX;
        self.walk(path, follow, &mut budget)
            .map(|trail| trail[trail.len() - 1])
    }

    /// Trail of nodes from the root to the object.
    fn walk(&self, path: &[u8], follow: bool, budget: &mut u32) -> Option<Vec<NodeId>> {
        let mut trail = vec![0];
        let mut rest: Vec<Vec<u8>> = components(path);
        rest.reverse();
        while let Some(name) = rest.pop() {
            if name == b".." {
                if trail.len() > 1 {
                    trail.pop();
                }
                continue;
            }
            let NodeKind::Dir(entries) = &self.nodes[*trail.last()?].kind else {
                return None;
            };
            let id = *entries.get(&name)?;
            match &self.nodes[id].kind {
                NodeKind::Symlink(t) if follow || !rest.is_empty() => {
                    *budget = budget.checked_sub(1)?;
                    if t.first() == Some(&b'/') {
                        trail.truncate(1);
                    }
                    rest.extend(components(t).into_iter().rev());
                }
                _ => trail.push(id),
            }
        }
        Some(trail)
    }

    fn parent(&self, path: &[u8]) -> Option<(NodeId, Vec<u8>)> {
        let mut parts = components(path);
        let name = parts.pop()?;
        let dir = parts.join(&b'/');
        Some((self.lookup(&dir)?, name))
    }

    fn insert(&mut self, path: &[u8], id: NodeId) -> Option<()> {
        let (dir, name) = self.parent(path)?;
        let NodeKind::Dir(entries) = &mut self.nodes[dir].kind else {
            return None;
        };
        entries.insert(name.clone(), id);
        self.name_history.entry((dir, name)).or_default().push(id);
        Some(())
    }

    fn add(&mut self, path: &[u8], kind: NodeKind) -> Option<NodeId> {
        let id = self.node(kind);
        self.insert(path, id)?;
        Some(id)
    }

    fn create(&mut self, path: &[u8]) -> Option<NodeId> {
        let file = FileModel {
            size_only: self.size_only,
            ..FileModel::default()
        };
        self.add(path, NodeKind::File(file))
    }

    fn remove(&mut self, path: &[u8]) -> Option<NodeId> {
        let (dir, name) = self.parent(path)?;
        let NodeKind::Dir(entries) = &mut self.nodes[dir].kind else {
            return None;
        };
        let id = entries.remove(&name)?;
        self.nodes[id].nlink = self.nodes[id].nlink.saturating_sub(1);
        self.names_promised.remove(&(dir, name));
        Some(id)
    }

    fn rename(&mut self, old: &[u8], new: &[u8], flags: u32) -> Option<()> {
        let from = self.lookup_last(old, false)?;
        if flags & 2 != 0 {
            let to = self.lookup_last(new, false)?;
            self.insert(old, to)?;
            return self.insert(new, from);
        }
        if self.lookup_last(new, false) == Some(from) {
            return Some(());
        }
        self.remove(old)?;
        if self.lookup_last(new, false).is_some() {
            self.remove(new)?;
        }
        self.nodes[from].nlink += 1;
        self.insert(new, from)?;
        if flags & 4 != 0 {
            self.add(old, NodeKind::Special)?;
        }
        Some(())
    }

    fn promise(&mut self, id: NodeId, at: Nanos, by: &'static str) {
        if self.unreturned || self.nodes[id].told {
            return;
        }
        let seq = self.seq;
        let n = &mut self.nodes[id];
        (n.promised, n.promised_at, n.promised_by) = (seq, at, by);
        // ext4 commits the creation together with the file: the names that lead here are durable too.
        let names: Vec<(NodeId, Vec<u8>)> = match &self.nodes[id].kind {
            NodeKind::Dir(entries) => entries.keys().map(|k| (id, k.clone())).collect(),
            _ => self.names_of(id),
        };
        self.names_promised.extend(names);
    }

    fn names_of(&self, id: NodeId) -> Vec<(NodeId, Vec<u8>)> {
        let mut out = Vec::new();
        for (dir, n) in self.nodes.iter().enumerate() {
            if let NodeKind::Dir(entries) = &n.kind {
                let here = entries.iter().filter(|(_, child)| **child == id);
                out.extend(here.map(|(name, _)| (dir, name.clone())));
            }
        }
        out
    }

    fn promise_all(&mut self, at: Nanos) {
        if self.unreturned || self.failing {
            return;
        }
        let seq = self.seq;
        for id in 0..self.nodes.len() {
            let n = &mut self.nodes[id];
            (n.promised, n.promised_at, n.promised_by) = (seq, at, "sync");
            if let NodeKind::Dir(entries) = &self.nodes[id].kind {
                let names: Vec<_> = entries.keys().map(|k| (id, k.clone())).collect();
                self.names_promised.extend(names);
            }
        }
    }

    fn touch(&mut self, id: NodeId, at: Nanos) {
        let seq = self.seq;
        let n = &mut self.nodes[id];
        (n.changed, n.changed_at) = (seq, at);
    }

    /// A write of `content(seed, offset..)`: at that offset, or at the end of a file opened with `O_APPEND`.
    fn write(&mut self, open: OpenFile, offset: u64, seed: u64, r: &AppRecord) {
        let seq = self.seq;
        let len = u64::from(r.bytes);
        self.touch(open.node, r.end);
        if let Some(f) = self.file(open.node) {
            let at = if open.append { f.size } else { offset };
            let shift = at as i64 - offset as i64;
            f.put(seq, at, at + len, Source::Content { seed, shift });
            if at + len > f.size {
                f.set_size(seq, at + len);
            }
        }
        if open.sync {
            self.promise(open.node, r.end, "synchronous write");
        }
    }

    fn truncate(&mut self, id: NodeId, size: u64, at: Nanos) {
        let seq = self.seq;
        self.touch(id, at);
        if let Some(f) = self.file(id) {
            if size < f.size {
                let old = f.size;
                f.put(seq, size, old, Source::Zero);
            }
            f.set_size(seq, size);
        }
    }

    fn fallocate(&mut self, id: NodeId, mode: u32, offset: u64, len: u64, at: Nanos) -> Option<()> {
        let seq = self.seq;
        self.touch(id, at);
        let f = self.file(id)?;
        let end = offset.checked_add(len)?;
        match mode & !1 {
            8 => f.shift(seq, end, -(len as i64)),
            0x20 => f.shift(seq, offset, len as i64),
            m => {
                if m & (2 | 0x10) != 0 {
                    f.put(seq, offset, end, Source::Zero);
                }
                if mode & 1 == 0 && end > f.size {
                    f.set_size(seq, end);
                }
            }
        }
        Some(())
    }
}

fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let parts = path
        .split(|b| *b == b'/')
        .filter(|p| !p.is_empty() && *p != b".");
    parts.map(<[u8]>::to_vec).collect()
}

impl FileModel {
    fn set_size(&mut self, seq: Seq, size: u64) {
        self.size = size;
        self.sizes.push((seq, size));
    }

    /// Replaces `start..end` in the current view and notes the change.
    fn put(&mut self, seq: Seq, start: u64, end: u64, source: Source) {
        if start >= end || self.size_only {
            return;
        }
        self.history.push(Change {
            seq,
            start,
            end,
            source,
        });
        self.place(start, end, Some(Segment { end, source, seq }));
    }

    fn place(&mut self, start: u64, end: u64, segment: Option<Segment>) {
        let before = self
            .segments
            .range(..start)
            .next_back()
            .map(|(k, v)| (*k, *v));
        if let Some((k, s)) = before {
            if s.end > start {
                self.segments.insert(k, Segment { end: start, ..s });
                if s.end > end {
                    self.segments.insert(end, s);
                }
            }
        }
        let inside: Vec<(u64, Segment)> = self
            .segments
            .range(start..end)
            .map(|(k, v)| (*k, *v))
            .collect();
        for (k, s) in inside {
            self.segments.remove(&k);
            if s.end > end {
                self.segments.insert(end, s);
            }
        }
        if let Some(s) = segment {
            self.segments.insert(start, s);
        }
    }

    /// Moves everything from `from` on by `by` bytes (collapse and insert range).
    fn shift(&mut self, seq: Seq, from: u64, by: i64) {
        let moved_to = from.saturating_add_signed(by);
        self.place(from, from, None);
        let tail: Vec<(u64, Segment)> = self.segments.split_off(&from).into_iter().collect();
        let split = self
            .segments
            .range(..from)
            .next_back()
            .map(|(k, s)| (*k, *s));
        let mut tail = tail;
        if let Some((k, s)) = split {
            if s.end > from {
                self.segments.insert(k, Segment { end: from, ..s });
                tail.insert(0, (from, s));
            }
        }
        let size = self.size.saturating_add_signed(by);
        let (lo, hi) = (moved_to.min(from), self.size.max(size));
        self.place(lo, hi, None);
        for (k, s) in tail {
            let source = match s.source {
                Source::Zero => Source::Zero,
                Source::Content { seed, shift } => Source::Content {
                    seed,
                    shift: shift + by,
                },
            };
            let start = k.saturating_add_signed(by);
            let end = s.end.saturating_add_signed(by);
            self.history.push(Change {
                seq,
                start,
                end,
                source,
            });
            self.segments.insert(start, Segment { end, source, seq });
        }
        self.set_size(seq, size);
    }

    /// The bytes `offset..offset + out.len()` as the application saw them.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        out.fill(0);
        let end = offset + out.len() as u64;
        let first = self
            .segments
            .range(..offset)
            .next_back()
            .map_or(offset, |(k, _)| *k);
        for (&start, s) in self.segments.range(first..end) {
            paint(start, s.end, s.source, offset, out);
        }
        let size = self.size;
        if end > size {
            let from = size.saturating_sub(offset).min(out.len() as u64) as usize;
            out[from..].fill(0);
        }
    }
}

/// Writes the part of a segment `start..end` that falls into `offset..` of `out`.
pub fn paint(start: u64, end: u64, source: Source, offset: u64, out: &mut [u8]) {
    let lo = start.max(offset);
    let hi = end.min(offset + out.len() as u64);
    if lo >= hi {
        return;
    }
    let dst = &mut out[(lo - offset) as usize..(hi - offset) as usize];
    match source {
        Source::Zero => dst.fill(0),
        Source::Content { seed, shift } => {
            crate::base::payload::content(seed, lo.saturating_add_signed(-shift), dst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::payload::content;
    use crate::base::rng::SplitMix64;
    use crate::workload::ops::Script;

    fn run(text: &str) -> ModelFs {
        play(text).0
    }

    fn play(text: &str) -> (ModelFs, Vec<AppRecord>) {
        let script = Script::parse(text).unwrap();
        let mut fs = ModelFs::default();
        let mut records = Vec::new();
        for (i, s) in script.ops.iter().enumerate() {
            let bytes = match &s.op {
                Op::Pwrite { len, .. } | Op::Append { len, .. } => *len as u32,
                _ => 0,
            };
            let t = Nanos::from_ms(i as u64);
            let op = match &s.op {
                Op::Open {
                    fd, path, flags, ..
                } => AppOp::Open {
                    fd: *fd as u32,
                    path: path.clone().into(),
                    flags: *flags,
                },
                Op::Close { fd } => AppOp::Close { fd: *fd as u32 },
                op => AppOp::Other(Rc::new(op.clone())),
            };
            let record = AppRecord {
                start: t,
                end: t,
                err: None,
                bytes,
                op,
            };
            fs.apply(&record);
            records.push(record);
        }
        assert_eq!(fs.unmatched, 0);
        (fs, records)
    }

    #[test]
    fn names_follow_links_and_renames() {
        let fs = run("mkdir a\ncreate a/f\nsymlink a s\nlink s/f g\nrename a/f b\nunlink g\n");
        let paths: Vec<String> = fs
            .paths()
            .keys()
            .map(|p| String::from_utf8_lossy(p).into_owned())
            .collect();
        assert_eq!(paths, ["/", "/a", "/b", "/s"]);
        let id = fs.lookup(b"b").unwrap();
        assert_eq!(fs.nodes[id].nlink, 1);
    }

    #[test]
    fn names_without_contents_agree_in_all_but_contents() {
        let text = "create a\npwrite a 0 4096 1\nfsync a\nmkdir d\nrename a d/b\nfallocate d/b insert 0 4096\n\
                    truncate d/b 5000\nsymlink b d/l\nfallocate d/b alloc 0 9000\n";
        let (full, records) = play(text);
        let names = ModelFs::names_at(&records, Nanos::MAX);
        assert_eq!(full.paths(), names.paths());
        let id = names.lookup(b"d/b").unwrap();
        let (mut a, b) = (full.nodes[id].clone(), &names.nodes[id]);
        let (NodeKind::File(f), NodeKind::File(g)) = (&mut a.kind, &b.kind) else {
            panic!("not files");
        };
        assert!(!f.history.is_empty() && g.history.is_empty() && g.segments.is_empty());
        assert_eq!((f.size, &f.sizes), (9000, &g.sizes));
        assert_eq!((a.promised, a.changed), (b.promised, b.changed));
    }

    #[test]
    fn promises_cover_content_and_name() {
        let fs = run("create a\npwrite a 0 4096 1\nfsync a\npwrite a 4096 10 2\ncreate b\n");
        let (a, b) = (fs.lookup(b"a").unwrap(), fs.lookup(b"b").unwrap());
        assert_eq!((fs.nodes[a].promised, fs.nodes[a].changed), (3, 4));
        assert_eq!(fs.nodes[b].promised, 0);
        assert!(fs.name_promised(b"/a") && !fs.name_promised(b"/b"));
        let fs = run("create b\nsync\nrename b c\n");
        assert!(!fs.name_promised(b"/c"));
    }

    #[test]
    fn content_agrees_with_a_byte_vector() {
        let mut rng = SplitMix64::new(5);
        let mut fs = run("create f\n");
        let id = fs.lookup(b"f").unwrap();
        let mut bytes: Vec<u8> = Vec::new();
        for i in 0..400u64 {
            fs.seq += 1;
            let (off, len) = (rng.below(3000), 1 + rng.below(900));
            let t = Nanos::ZERO;
            match rng.below(5) {
                0 => {
                    fs.truncate(id, off, t);
                    bytes.resize(off as usize, 0);
                }
                1 => {
                    fs.fallocate(id, 3, off, len, t);
                    let size = bytes.len() as u64;
                    let (a, b) = (off.min(size), (off + len).min(size));
                    bytes[a as usize..b as usize].fill(0);
                }
                2 if off + len < bytes.len() as u64 => {
                    fs.fallocate(id, 8, off, len, t);
                    bytes.drain(off as usize..(off + len) as usize);
                }
                3 if off < bytes.len() as u64 => {
                    fs.fallocate(id, 0x20, off, len, t);
                    let hole = vec![0; len as usize];
                    bytes.splice(off as usize..off as usize, hole);
                }
                _ => {
                    let append = rng.below(3) == 0;
                    let at = if append { bytes.len() as u64 } else { off };
                    let (node, sync) = (id, false);
                    let record = AppRecord {
                        start: t,
                        end: t,
                        err: None,
                        bytes: len as u32,
                        op: AppOp::Close { fd: 0 },
                    };
                    fs.write(OpenFile { node, sync, append }, off, i, &record);
                    if bytes.len() < (at + len) as usize {
                        bytes.resize((at + len) as usize, 0);
                    }
                    content(i, off, &mut bytes[at as usize..(at + len) as usize]);
                }
            }
            let f = fs.file(id).unwrap();
            assert_eq!(f.size, bytes.len() as u64, "step {i}");
            let mut got = vec![0; bytes.len()];
            f.read(0, &mut got);
            assert!(got == bytes, "step {i}");
        }
    }
}
