//! The file tree with durability badges.

use super::committed::Committed;
use super::view::TreeRow;
use super::Session;
use crate::base::Nanos;
use crate::block::Store;
use crate::experiment::model::{ModelFs, Node, NodeKind};
use crate::experiment::oracle::{Entry, Kind, RecoveredTree};
use crate::experiment::recover::DiskTree;
use crate::fs::ext4::reader::Reader;
use crate::observe::disk::durability;
use crate::workload::app_log::AppLog;
use crate::workload::ops::percent_encode;

/// Rows shown.
const ROWS_MAX: usize = 2_000;

impl Session {
    /// What applications see at the instant, each path with its weakest durability.
    pub(super) fn tree(&self, app: &AppLog, at: Nanos) -> Vec<TreeRow> {
        let model = ModelFs::names_at(app.records(), at);
        let committed = Committed::of(&self.observer);
        let disk = DiskTree::open(&committed);
        let on_disk = disk
            .as_ref()
            .map(RecoveredTree::entries)
            .unwrap_or_default();
        let reader = Reader::open(&committed).ok();
        let in_log = |e: &Entry| {
            let place = reader.as_ref().and_then(|r| r.inode_place(e.ino));
            let layout = &self.observer.layout;
            place.is_some_and(|(block, at)| {
                let offset = block * u64::from(layout.block_size()) + u64::from(at);
                committed.is_newer(offset, usize::from(layout.sb.s_inode_size))
            })
        };
        let mut rows = Vec::new();
        let known = model.paths();
        for (path, &id) in known.iter().take(ROWS_MAX) {
            let node = &model.nodes[id];
            let (kind, size) = match &node.kind {
                NodeKind::Dir(_) => ("d", 0),
                NodeKind::File(f) => ("-", f.size),
                NodeKind::Symlink(t) => ("l", t.len() as u64),
                NodeKind::Special => ("s", 0),
            };
            let entry = on_disk.get(path);
            let promised = node.promised > 0 && model.name_promised(path);
            let place = match entry {
                Some(e) if in_log(e) => Place::Log(e),
                Some(e) => Place::Home(e),
                None => Place::Nowhere,
            };
            let (durability, why) =
                self.badge(&place, node, promised && node.changed <= node.promised);
            rows.push(TreeRow {
                path: percent_encode(path),
                kind: kind.to_string(),
                ino: entry.map_or(0, |e| e.ino),
                size,
                blocks: size.div_ceil(u64::from(self.observer.layout.block_size())),
                durability,
                why,
                first_block: entry.and_then(|e| e.first_block),
            });
        }
        for (path, e) in &on_disk {
            let why = if path.starts_with(b"/lost+found") {
                "made by mkfs"
            } else if self.given_image && !known.contains_key(path) {
                "was on the image"
            } else {
                continue;
            };
            if rows.len() < ROWS_MAX {
                rows.push(row(path, e, durability::DURABLE, why));
            }
        }
        rows
    }

    fn badge(&self, place: &Place<'_>, node: &Node, promised: bool) -> (u8, String) {
        let (entry, in_log) = match place {
            Place::Nowhere if promised => {
                let why = "committed in the journal, not yet home";
                return (durability::JOURNAL_ONLY, why.to_string());
            }
            Place::Nowhere => {
                let why = "the name is only in memory";
                return (durability::PAGE_CACHE, why.to_string());
            }
            Place::Log(e) => (e, true),
            Place::Home(e) => (e, false),
        };
        let in_memory = |what: &str| {
            let why = format!("the name is committed, {what} only in memory");
            (durability::PAGE_CACHE, why)
        };
        let block = u64::from(self.observer.layout.block_size());
        match &node.kind {
            NodeKind::File(f) if f.size > entry.size => {
                in_memory(&format!("{} of its bytes are", f.size - entry.size))
            }
            // The one block tells; of more, only recovery can say which version is where.
            NodeKind::File(f)
                if f.size <= block && !in_log && !promised && self.is_older(entry, node) =>
            {
                in_memory("its newest contents are")
            }
            _ if self.in_device_cache(entry.first_block) => (
                durability::DEVICE_CACHE,
                "its first block is only in the device's cache".to_string(),
            ),
            _ if in_log => (
                durability::JOURNAL_ONLY,
                "committed in the journal, not yet home".to_string(),
            ),
            _ if promised => (
                durability::DURABLE,
                "all of it was promised durable".to_string(),
            ),
            _ => (durability::DURABLE, "its inode is at home".to_string()),
        }
    }

    /// The contents changed after the one block of the file was last written.
    fn is_older(&self, entry: &Entry, node: &Node) -> bool {
        let device = self.machine.queue.device();
        let written = |b| self.observer.disk.last_write(device.log(), b);
        let last = entry.first_block.and_then(written);
        node.changed_at > last.unwrap_or_default() && node.changed > 0
    }

    fn in_device_cache(&self, block: Option<u64>) -> bool {
        let device = self.machine.queue.device();
        let o = &self.observer;
        let of = |b| o.disk.durability(device.log(), &o.layout, &o.fold, b);
        block.is_some_and(|b| of(b) == durability::DEVICE_CACHE)
    }
}

/// Where the newest committed version of a name and its inode is.
enum Place<'a> {
    /// In no transaction that is committed.
    Nowhere,
    /// In the log only.
    Log(&'a Entry),
    /// At home.
    Home(&'a Entry),
}

fn row(path: &[u8], e: &Entry, durability: u8, why: &str) -> TreeRow {
    TreeRow {
        path: percent_encode(path),
        kind: match e.kind {
            Kind::Dir => "d",
            Kind::File => "-",
            Kind::Symlink => "l",
            Kind::Special => "s",
        }
        .to_string(),
        ino: e.ino,
        size: e.size,
        blocks: e.size.div_ceil(4096),
        durability,
        why: why.to_string(),
        first_block: e.first_block,
    }
}

/// The tree of a disk.
pub(super) fn disk_rows(store: &Store) -> Result<Vec<TreeRow>, String> {
    let tree = DiskTree::open(store)?;
    let entries = tree.entries();
    Ok(entries
        .iter()
        .take(ROWS_MAX)
        .map(|(path, e)| row(path, e, durability::DURABLE, "on the disk after recovery"))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Experiment;
    use crate::session::view::FrameAsk;

    const SCRIPT: &str = "create /a\npwrite /a 0 4096 1\nfsync /a\nsleep 600\ncreate /b\n\
                          pwrite /b 0 8192 2\nsleep 6000\ncreate /c\npwrite /c 0 4096 3\nsleep 60000\n";

    fn badges(session: &mut Session, seconds: u64) -> Vec<(String, u8, String)> {
        let at_ns = seconds * 1_000_000_000;
        session.run(at_ns, 1_000_000);
        let ask = FrameAsk {
            at_ns,
            tree: true,
            ..FrameAsk::default()
        };
        let rows = session.frame(&ask).tree.unwrap();
        let files = rows.into_iter().filter(|r| r.kind == "-");
        files.map(|r| (r.path, r.durability, r.why)).collect()
    }

    /// A name that a timed commit wrote is there although its home block is old, and its contents are not.
    #[test]
    fn a_committed_name_is_told_from_its_contents() {
        let mut e = Experiment::default();
        for (path, value) in [
            ("device.preset", "sata-ssd"),
            ("device.size", "128M"),
            ("workload.ops", SCRIPT),
        ] {
            e.set(path, value).unwrap();
        }
        let (mut session, _) = Session::load(&e).unwrap();
        let row = |path: &str, d: u8, why: &str| (path.to_string(), d, why.to_string());
        let in_log = "committed in the journal, not yet home";
        let half = "the name is committed, 8192 of its bytes are only in memory";
        let nowhere = "the name is only in memory";
        let seen = [
            row("/a", durability::JOURNAL_ONLY, in_log),
            row("/b", durability::PAGE_CACHE, half),
            row("/c", durability::PAGE_CACHE, nowhere),
        ];
        assert_eq!(badges(&mut session, 7), seen);
        // Written back and committed by now; inodes go home when the log needs their place.
        let end = badges(&mut session, 60);
        let safe = [durability::DURABLE, durability::JOURNAL_ONLY];
        assert!(end.iter().all(|(_, d, _)| safe.contains(d)), "{end:?}");
    }
}
