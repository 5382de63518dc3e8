//! The durability oracle: the tree after recovery against what applications saw and were promised.
//!
//! A promise is broken if something that a returned fsync, fdatasync, sync or synchronous write vouched for is gone.
//! Older contents of what nobody vouched for are not a fault; contents that the file never had are shown as such.

use super::model::{paint, FileModel, ModelFs, Node, NodeId, NodeKind, Seq, Source};
use crate::base::Nanos;
use crate::workload::app_log::AppRecord;
use std::collections::BTreeMap;

/// What a path is after recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "plain kinds")]
pub enum Kind {
    File,
    Dir,
    Symlink,
    Special,
}

/// One path after recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Kind.
    pub kind: Kind,
    /// Length in bytes.
    pub size: u64,
    /// Inode number.
    pub ino: u32,
    /// Target of a symlink.
    pub target: Vec<u8>,
    /// First block of the contents, for links into the map.
    pub first_block: Option<u64>,
}

/// The tree after recovery.
pub trait RecoveredTree {
    /// All paths below the root (`/` itself included), in any order.
    fn entries(&self) -> BTreeMap<Vec<u8>, Entry>;
    /// Reads at `offset` of a file by inode number; bytes past the end stay zero. The error says what is damaged.
    fn read(&self, ino: u32, offset: u64, out: &mut [u8]) -> Result<(), String>;
}

/// Verdict on one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Verdict {
    /// As the application saw it.
    Intact,
    /// An earlier state.
    Older,
    /// Cut short.
    Shorter,
    /// Zero bytes where there were contents.
    ZeroFilled,
    /// Bytes that this file never had.
    Stale,
    /// The name is gone.
    Missing,
    /// The structure is damaged.
    Damaged,
}

impl Verdict {
    /// All verdicts, best first.
    pub const ALL: [Verdict; 7] = [
        Verdict::Intact,
        Verdict::Older,
        Verdict::Shorter,
        Verdict::ZeroFilled,
        Verdict::Stale,
        Verdict::Missing,
        Verdict::Damaged,
    ];

    /// The words of the survivors table.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Intact => "intact",
            Verdict::Older => "older version",
            Verdict::Shorter => "shorter",
            Verdict::ZeroFilled => "zero-filled",
            Verdict::Stale => "stale data exposed",
            Verdict::Missing => "missing",
            Verdict::Damaged => "structure damaged",
        }
    }
}

/// One row of the survivors table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// Path.
    pub path: Vec<u8>,
    /// What the application saw.
    pub saw: String,
    /// What it was promised, empty if nothing.
    pub promise: String,
    /// What is there after recovery.
    pub after: String,
    /// Verdict.
    pub verdict: Verdict,
    /// Why, in one sentence.
    pub because: String,
    /// A block to look at.
    pub block: Option<u64>,
    /// True if a promise is broken.
    pub broken: bool,
}

/// The whole comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survivors {
    /// Rows: broken promises first, then by verdict from worst to best, then by path.
    pub rows: Vec<Survivor>,
    /// Files and directories with a promise.
    pub promises: u32,
    /// Promises that are broken.
    pub broken: u32,
    /// Rows by verdict, in the order of [`Verdict::ALL`].
    pub by_verdict: [u32; 7],
    /// Acknowledged bytes of files whose latest contents are not there, promised or not.
    pub lost_bytes: u64,
    /// False if not every byte could be compared (too many, or the record of calls is not complete).
    pub complete: bool,
}

/// Sectors compared byte by byte in one file before the rest is sampled.
const SECTORS_MAX: u64 = 16_384;
const SECTOR: u64 = 512;

/// Compares what applications had seen by `at` with the tree after recovery. A call that was running may have had its
/// effect or not: the kinder of the two readings counts.
pub fn judge_at(records: &[AppRecord], at: Nanos, tree: &impl RecoveredTree) -> Survivors {
    let without = judge(&ModelFs::at(records, at), tree);
    if without.broken == 0 {
        return without;
    }
    let Some(model) = ModelFs::with_running(records, at) else {
        return without;
    };
    // What a running call removes and is still there has not been removed: no excuse for its contents.
    let (saw, after) = (model.paths(), tree.entries());
    let stays =
        |r: &Survivor| r.broken && after.contains_key(&r.path) && !saw.contains_key(&r.path);
    if without.rows.iter().any(stays) {
        return without;
    }
    let with = judge(&model, tree);
    if with.broken < without.broken {
        with
    } else {
        without
    }
}

/// Compares the model (what applications saw) with the tree after recovery.
pub fn judge(model: &ModelFs, tree: &impl RecoveredTree) -> Survivors {
    let after = tree.entries();
    let saw = model.paths();
    let mut out = Survivors {
        complete: model.unmatched == 0,
        ..Survivors::default()
    };
    for (path, &id) in &saw {
        if path.as_slice() == b"/" {
            continue;
        }
        let node = &model.nodes[id];
        let promised = node.promised > 0 && model.name_promised(path);
        let row = match after.get(path) {
            None => missing(path, node, promised),
            Some(e) => present(&mut out, model, path, id, e, tree, promised),
        };
        out.promises += u32::from(promised);
        out.broken += u32::from(row.broken);
        out.by_verdict[row.verdict as usize] += 1;
        out.rows.push(row);
    }
    for (path, e) in &after {
        let made_by_mkfs = path.as_slice() == b"/" || path.starts_with(b"/lost+found");
        if !made_by_mkfs && !saw.contains_key(path) {
            out.by_verdict[Verdict::Older as usize] += 1;
            out.rows.push(Survivor {
                path: path.clone(),
                saw: "not there any more".into(),
                promise: String::new(),
                after: describe(e),
                verdict: Verdict::Older,
                because: "its removal was not committed yet".into(),
                block: e.first_block,
                broken: false,
            });
        }
    }
    out.rows
        .sort_by(|a, b| (b.broken, b.verdict, &a.path).cmp(&(a.broken, a.verdict, &b.path)));
    out
}

fn describe(e: &Entry) -> String {
    match e.kind {
        Kind::File => format!("{} bytes", e.size),
        Kind::Dir => "directory".into(),
        Kind::Symlink => format!("link to {}", String::from_utf8_lossy(&e.target)),
        Kind::Special => "special file".into(),
    }
}

fn describe_node(node: &Node) -> String {
    match &node.kind {
        NodeKind::File(f) => format!("{} bytes", f.size),
        NodeKind::Dir(_) => "directory".into(),
        NodeKind::Symlink(t) => format!("link to {}", String::from_utf8_lossy(t)),
        NodeKind::Special => "special file".into(),
    }
}

fn promise_text(node: &Node, promised: bool) -> String {
    if promised {
        format!(
            "{} at {:.3} s",
            node.promised_by,
            node.promised_at.as_secs_f64()
        )
    } else {
        String::new()
    }
}

fn missing(path: &[u8], node: &Node, promised: bool) -> Survivor {
    Survivor {
        path: path.to_vec(),
        saw: describe_node(node),
        promise: promise_text(node, promised),
        after: "no such name".into(),
        verdict: Verdict::Missing,
        because: match promised {
            true => "a call that vouched for it had returned".into(),
            false => "no transaction with this name was committed".into(),
        },
        block: None,
        broken: promised,
    }
}

fn present(
    out: &mut Survivors,
    model: &ModelFs,
    path: &[u8],
    id: NodeId,
    e: &Entry,
    tree: &impl RecoveredTree,
    promised: bool,
) -> Survivor {
    let node = &model.nodes[id];
    let mut row = Survivor {
        path: path.to_vec(),
        saw: describe_node(node),
        promise: promise_text(node, promised),
        after: describe(e),
        verdict: Verdict::Intact,
        because: String::new(),
        block: e.first_block,
        broken: false,
    };
    let floor = if promised { node.promised } else { 0 };
    match (&node.kind, e.kind) {
        (NodeKind::File(f), Kind::File) => {
            let c = compare(f, e, tree, floor);
            let c = if c.foreign() {
                another_version(model, path, id, e, tree).unwrap_or(c)
            } else {
                c
            };
            out.complete &= c.complete;
            out.lost_bytes += c.lost_bytes;
            row.verdict = c.verdict;
            row.broken = promised && (c.below_floor || c.verdict >= Verdict::Stale);
            row.because = c.because(row.broken);
        }
        (NodeKind::Dir(_), Kind::Dir) | (NodeKind::Special, Kind::Special) => {}
        (NodeKind::Symlink(t), Kind::Symlink) if *t == e.target => {}
        _ => {
            row.verdict = Verdict::Older;
            row.broken = promised;
            row.because = "the name still leads to what was there before".into();
        }
    }
    row
}

/// After an uncommitted rename the name still leads to the file that was there before.
fn another_version(
    model: &ModelFs,
    path: &[u8],
    id: NodeId,
    e: &Entry,
    tree: &impl RecoveredTree,
) -> Option<Comparison> {
    let earlier = model.earlier_nodes(path);
    earlier
        .into_iter()
        .rev()
        .filter(|n| *n != id)
        .find_map(|n| match &model.nodes[n].kind {
            NodeKind::File(f) => {
                let c = compare(f, e, tree, 0);
                (!c.foreign()).then_some(Comparison {
                    verdict: Verdict::Older,
                    ..c
                })
            }
            _ => None,
        })
}

/// Outcome of comparing one file.
#[derive(Clone, Debug)]
struct Comparison {
    verdict: Verdict,
    /// Something older than the promise was found.
    below_floor: bool,
    lost_bytes: u64,
    damage: Option<String>,
    complete: bool,
}

impl Comparison {
    fn foreign(&self) -> bool {
        self.verdict == Verdict::Stale
    }

    fn because(&self, broken: bool) -> String {
        if let Some(d) = &self.damage {
            return d.clone();
        }
        let text = match (self.verdict, broken) {
            (Verdict::Intact, _) => "everything that was written is there",
            (_, true) => "a call that vouched for it had returned",
            (Verdict::Older, _) => "the newest contents had not reached the medium or the journal",
            (Verdict::Shorter, _) => "the new size was not committed; no call had vouched for it",
            (Verdict::ZeroFilled, _) => "blocks were allocated but their contents were not written",
            (Verdict::Stale, _) => "blocks were allocated, and hold what was on the medium before",
            _ => "",
        };
        text.to_string()
    }
}

fn compare(f: &FileModel, e: &Entry, tree: &impl RecoveredTree, floor: Seq) -> Comparison {
    let mut c = Comparison {
        verdict: Verdict::Intact,
        below_floor: false,
        lost_bytes: 0,
        damage: None,
        complete: true,
    };
    let promised_size = f
        .sizes
        .iter()
        .rev()
        .find(|s| s.0 <= floor)
        .map_or(0, |s| s.1);
    let sizes_since = f.sizes.iter().filter(|s| s.0 > floor).map(|s| s.1);
    let least = sizes_since.chain([promised_size]).min().unwrap_or(0);
    if e.size < f.size {
        c.verdict = Verdict::Shorter;
        c.lost_bytes += f.size - e.size;
        c.below_floor |= floor > 0 && e.size < least;
    } else if e.size > f.size {
        c.verdict = Verdict::Older;
        let known = f.sizes.iter().any(|s| s.1 == e.size && s.0 >= floor);
        c.below_floor |= floor > 0 && !known && e.size != promised_size;
    }
    let end = e.size.min(f.size);
    let sectors = end.div_ceil(SECTOR);
    let step = sectors.div_ceil(SECTORS_MAX).max(1);
    c.complete = step == 1;
    let mut at = 0;
    let mut got = [0u8; 4096];
    let mut want = [0u8; 4096];
    while at < end {
        let len = (end - at).min(4096) as usize;
        if let Err(damage) = tree.read(e.ino, at, &mut got[..len]) {
            c.verdict = Verdict::Damaged;
            c.damage = Some(damage);
            return c;
        }
        f.read(at, &mut want[..len]);
        if got[..len] != want[..len] {
            page(f, at, &got[..len], &want[..len], floor, &mut c);
        }
        at += 4096 * step.div_ceil(8).max(1);
    }
    c
}

/// Judges one page that differs, sector by sector.
fn page(f: &FileModel, at: u64, got: &[u8], want: &[u8], floor: Seq, c: &mut Comparison) {
    for (i, (g, w)) in got.chunks(512).zip(want.chunks(512)).enumerate() {
        if g == w {
            continue;
        }
        let offset = at + i as u64 * SECTOR;
        c.lost_bytes += g.len() as u64;
        let (verdict, version) = match version_of(f, offset, g) {
            Some(0) if g.iter().all(|b| *b == 0) => (Verdict::ZeroFilled, 0),
            Some(version) => (Verdict::Older, version),
            None => (Verdict::Stale, 0),
        };
        c.verdict = c.verdict.max(verdict);
        c.below_floor |= version < latest_promised(f, offset, g.len() as u64, floor);
    }
}

/// Newest change up to `floor` that touches the range; 0 if none.
fn latest_promised(f: &FileModel, offset: u64, len: u64, floor: Seq) -> Seq {
    let touching = f
        .history
        .iter()
        .rev()
        .filter(|h| h.start < offset + len && h.end > offset);
    touching.map(|h| h.seq).find(|s| *s <= floor).unwrap_or(0)
}

/// The newest version of the range that has these bytes: the call after which it looked so, 0 for "before any".
fn version_of(f: &FileModel, offset: u64, got: &[u8]) -> Option<Seq> {
    let len = got.len() as u64;
    let touching: Vec<_> = f
        .history
        .iter()
        .filter(|h| h.start < offset + len && h.end > offset)
        .collect();
    let mut bytes = vec![0u8; got.len()];
    let mut found = (bytes == got).then_some(0);
    for h in touching {
        paint(h.start, h.end, h.source, offset, &mut bytes);
        if bytes == got {
            found = Some(h.seq);
        }
        // A file that grew over a page again reads zero where nothing was written since.
        if found.is_none() && matches!(h.source, Source::Content { .. }) {
            let mut alone = vec![0u8; got.len()];
            paint(h.start, h.end, h.source, offset, &mut alone);
            if alone == got {
                found = Some(h.seq);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::payload::content;
    use crate::workload::app_log::AppOp;
    use crate::workload::ops::{Op, Script};
    use std::rc::Rc;

    #[derive(Default)]
    struct Fake {
        files: BTreeMap<Vec<u8>, Vec<u8>>,
    }

    impl RecoveredTree for Fake {
        fn entries(&self) -> BTreeMap<Vec<u8>, Entry> {
            let entry = |i: usize, kind, size| Entry {
                kind,
                size,
                ino: i as u32,
                target: vec![],
                first_block: None,
            };
            let files = self.files.iter().enumerate();
            let mut all: BTreeMap<_, _> = files
                .map(|(i, (p, b))| (p.clone(), entry(i, Kind::File, b.len() as u64)))
                .collect();
            all.insert(b"/".to_vec(), entry(999, Kind::Dir, 4096));
            all
        }

        fn read(&self, ino: u32, offset: u64, out: &mut [u8]) -> Result<(), String> {
            let b = self
                .files
                .values()
                .nth(ino as usize)
                .ok_or("no such inode")?;
            let from = &b[(offset as usize).min(b.len())..];
            let n = from.len().min(out.len());
            out[..n].copy_from_slice(&from[..n]);
            out[n..].fill(0);
            Ok(())
        }
    }

    /// The calls of a script, one each millisecond.
    fn calls(text: &str) -> Vec<AppRecord> {
        let script = Script::parse(text).unwrap().ops.into_iter().enumerate();
        let call = |(i, s): (usize, crate::workload::ops::ScriptOp)| {
            let t = Nanos::from_ms(i as u64);
            AppRecord {
                start: t,
                end: t,
                err: None,
                bytes: match &s.op {
                    Op::Pwrite { len, .. } => *len as u32,
                    _ => 0,
                },
                op: AppOp::Other(Rc::new(s.op)),
            }
        };
        script.map(call).collect()
    }

    fn model(text: &str) -> ModelFs {
        ModelFs::at(&calls(text), Nanos::MAX)
    }

    #[test]
    fn a_running_call_may_have_happened_or_not() {
        let mut records = calls("create a\npwrite a 0 700 1\nsync\nunlink a\nsync");
        for r in &mut records[3..] {
            r.end = Nanos::MAX;
        }
        let at = Nanos::from_secs(1);
        let with = Fake {
            files: BTreeMap::from([(b"/a".to_vec(), bytes(1, 700))]),
        };
        assert_eq!(judge_at(&records, at, &with).broken, 0);
        assert_eq!(judge_at(&records, at, &Fake::default()).broken, 0);
        let cut = Fake {
            files: BTreeMap::from([(b"/a".to_vec(), bytes(1, 600))]),
        };
        assert_eq!(judge_at(&records, at, &cut).broken, 1);
        // Once unlink has not begun, the file must be there.
        records.truncate(3);
        assert_eq!(judge_at(&records, at, &Fake::default()).broken, 1);
    }

    fn bytes(seed: u64, len: usize) -> Vec<u8> {
        let mut v = vec![0; len];
        content(seed, 0, &mut v);
        v
    }

    fn check(text: &str, files: &[(&str, Vec<u8>)], expect: &[(&str, Verdict, bool)]) {
        let files = files
            .iter()
            .map(|(p, b)| (p.as_bytes().to_vec(), b.clone()))
            .collect();
        let s = judge(&model(text), &Fake { files });
        let mut got: Vec<(String, Verdict, bool)> = s
            .rows
            .iter()
            .map(|r| {
                (
                    String::from_utf8_lossy(&r.path).into_owned(),
                    r.verdict,
                    r.broken,
                )
            })
            .collect();
        got.sort();
        let mut expect: Vec<_> = expect
            .iter()
            .map(|(p, v, b)| ((*p).to_string(), *v, *b))
            .collect();
        expect.sort();
        assert_eq!(got, expect, "{:?}", s.rows);
        assert_eq!(s.broken as usize, expect.iter().filter(|e| e.2).count());
    }

    const WRITTEN: &str =
        "create a\npwrite a 0 4096 1\nfsync a\npwrite a 0 4096 2\ncreate b\npwrite b 0 100 3\n";

    #[test]
    fn newest_and_promised_versions_are_both_fine() {
        let (a, b) = (
            ("/a", Verdict::Intact, false),
            ("/b", Verdict::Missing, false),
        );
        check(WRITTEN, &[("/a", bytes(2, 4096))], &[a, b]);
        check(
            WRITTEN,
            &[("/a", bytes(1, 4096))],
            &[("/a", Verdict::Older, false), b],
        );
        let torn: Vec<u8> = [&bytes(1, 4096)[..512], &bytes(2, 4096)[512..]].concat();
        check(
            WRITTEN,
            &[("/a", torn)],
            &[("/a", Verdict::Older, false), b],
        );
    }

    #[test]
    fn losing_what_was_promised_is_broken() {
        let b = ("/b", Verdict::Missing, false);
        check(WRITTEN, &[], &[("/a", Verdict::Missing, true), b]);
        check(
            WRITTEN,
            &[("/a", vec![0; 4096])],
            &[("/a", Verdict::ZeroFilled, true), b],
        );
        check(
            WRITTEN,
            &[("/a", vec![7; 4096])],
            &[("/a", Verdict::Stale, true), b],
        );
        check(
            WRITTEN,
            &[("/a", bytes(1, 100))],
            &[("/a", Verdict::Shorter, true), b],
        );
    }

    #[test]
    fn nothing_promised_can_be_short_zero_or_stale() {
        let text = "create b\npwrite b 0 4096 3\n";
        check(text, &[("/b", vec![])], &[("/b", Verdict::Shorter, false)]);
        check(
            text,
            &[("/b", vec![0; 4096])],
            &[("/b", Verdict::ZeroFilled, false)],
        );
        check(
            text,
            &[("/b", vec![9; 4096])],
            &[("/b", Verdict::Stale, false)],
        );
    }

    #[test]
    fn a_rename_that_was_not_committed_leaves_the_old_file() {
        let text = "create a\npwrite a 0 4096 1\nsync\ncreate t\npwrite t 0 4096 2\nrename t a\n";
        check(
            text,
            &[("/a", bytes(2, 4096))],
            &[("/a", Verdict::Intact, false)],
        );
        check(
            text,
            &[("/a", bytes(1, 4096)), ("/t", vec![])],
            &[("/a", Verdict::Older, false), ("/t", Verdict::Older, false)],
        );
    }
}
