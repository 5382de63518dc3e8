//! The file tree with durability badges.

use super::view::TreeRow;
use super::Session;
use crate::base::Nanos;
use crate::block::Store;
use crate::experiment::model::{ModelFs, NodeKind};
use crate::experiment::oracle::{Kind, RecoveredTree};
use crate::experiment::recover::DiskTree;
use crate::observe::disk::durability;
use crate::workload::app_log::AppLog;
use crate::workload::ops::percent_encode;

/// Rows shown.
const ROWS_MAX: usize = 2_000;

impl Session {
    /// What applications see at the instant, each path with its weakest durability.
    pub(super) fn tree(&self, app: &AppLog, at: Nanos) -> Vec<TreeRow> {
        let model = ModelFs::at(app.records(), at);
        let disk = DiskTree::open(self.observer.disk.cursor().store());
        let on_disk = disk
            .as_ref()
            .map(RecoveredTree::entries)
            .unwrap_or_default();
        let mut rows = Vec::new();
        for (path, id) in model.paths().into_iter().take(ROWS_MAX) {
            let node = &model.nodes[id];
            let (kind, size) = match &node.kind {
                NodeKind::Dir(_) => ("d", 0),
                NodeKind::File(f) => ("-", f.size),
                NodeKind::Symlink(t) => ("l", t.len() as u64),
                NodeKind::Special => ("s", 0),
            };
            let entry = on_disk.get(&path);
            let promised = node.promised > 0 && model.name_promised(&path);
            let (durability, why) = self.badge(
                entry.map(|e| e.ino),
                promised && node.changed <= node.promised,
            );
            rows.push(TreeRow {
                path: percent_encode(&path),
                kind: kind.to_string(),
                ino: entry.map_or(0, |e| e.ino),
                size,
                blocks: size.div_ceil(u64::from(self.observer.layout.block_size())),
                durability,
                why,
                first_block: entry.and_then(|e| e.first_block),
            });
        }
        let known = model.paths();
        for (path, e) in &on_disk {
            let why = if path.starts_with(b"/lost+found") {
                "made by mkfs"
            } else if self.given_image && !known.iter().any(|(p, _)| p == path) {
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

    fn badge(&self, ino: Option<u32>, promised: bool) -> (u8, String) {
        let fold = &self.observer.fold;
        let Some(ino) = ino else {
            return match promised {
                true => (
                    durability::JOURNAL_ONLY,
                    "committed in the journal, not yet home".to_string(),
                ),
                false => (
                    durability::PAGE_CACHE,
                    "the name is not on the disk yet".to_string(),
                ),
            };
        };
        match fold.pages.files.get(&ino) {
            Some(c) if c.dirty > 0 => (
                durability::PAGE_CACHE,
                format!("{} pages are only in the page cache", c.dirty),
            ),
            Some(c) if c.writeback > 0 => (
                durability::IN_FLIGHT,
                format!("{} pages are on their way", c.writeback),
            ),
            _ if promised => (
                durability::DURABLE,
                "all of it was promised durable".to_string(),
            ),
            _ => (
                durability::DURABLE,
                "nothing newer is in memory".to_string(),
            ),
        }
    }
}

fn row(path: &[u8], e: &crate::experiment::oracle::Entry, durability: u8, why: &str) -> TreeRow {
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
