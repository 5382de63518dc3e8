//! What the session knows of an instant: all folds together.

use super::view::Loaded;
use crate::base::{FastMap, Nanos};
use crate::block::{Cursor, DeviceLog};
use crate::experiment::setup::Setup;
use crate::format::ext4::{GroupDesc, SuperBlock};
use crate::fs::ext4::reader::Reader;
use crate::observe::disk::{durability, DiskFold};
use crate::observe::layout::{role, Layout};
use crate::observe::timeline::Timeline;
use crate::observe::Fold;
use crate::trace::Tracer;
use std::collections::{BTreeMap, BTreeSet};

/// Folds of one run.
pub(crate) struct Observer {
    pub(super) fold: Fold,
    pub(super) disk: DiskFold,
    pub(super) layout: Layout,
    pub(super) timeline: Timeline,
    pub(super) at: Nanos,
    /// The disk before the run.
    base: Cursor,
    pub(super) base_bitmaps: BTreeMap<u32, Vec<u8>>,
    /// Roles of blocks that were in use before the run and are not fixed.
    pub(super) base_roles: FastMap<u64, u8>,
    /// Blocks of directories and trees by group.
    pub(super) tree_blocks: BTreeMap<u32, u32>,
    base_tree_blocks: BTreeMap<u32, u32>,
    /// Descriptors on the disk at the instant.
    pub(super) descs: Vec<GroupDesc>,
    /// Groups whose descriptor checksum does not match.
    pub(super) bad_groups: BTreeSet<u32>,
}

/// Inodes looked at when an image is loaded, for the roles of its blocks.
const BASE_INODES_MAX: usize = 200_000;

impl Observer {
    /// Looks at the disk before the run; the error says what is wrong with the image.
    pub(super) fn new(base: Cursor) -> Result<Observer, String> {
        let store = base.store();
        let reader = Reader::open(store).map_err(|e| e.to_string())?;
        let journal = reader.journal_extents().map_err(|e| e.to_string())?;
        let layout = Layout::new(reader.sb, reader.group_descs(), journal);
        let mut base_roles = FastMap::default();
        let mut base_tree_blocks = BTreeMap::new();
        reader.walk_blocks(BASE_INODES_MAX, |block, tree| {
            let code = if tree { role::TREE } else { role::FILE_DATA };
            base_roles.insert(block, code);
            if tree {
                *base_tree_blocks
                    .entry(layout.sb.group_of_block(block))
                    .or_default() += 1;
            }
        });
        let descs = layout.groups.clone();
        Ok(Observer {
            fold: Fold::default(),
            disk: DiskFold::new(base.clone()),
            timeline: Timeline::default(),
            at: Nanos::ZERO,
            base_bitmaps: BTreeMap::new(),
            base_roles,
            tree_blocks: base_tree_blocks.clone(),
            base_tree_blocks,
            descs,
            bad_groups: BTreeSet::new(),
            base,
            layout,
        })
    }

    /// What a loaded experiment is.
    pub(super) fn loaded(&self, setup: &Setup) -> Loaded {
        let sb: &SuperBlock = &self.layout.sb;
        Loaded {
            mkfs_line: setup.mkfs_line.clone(),
            mount_line: setup.mount_line.clone(),
            warnings: setup.warnings.clone(),
            block_size: sb.block_size(),
            blocks: sb.s_blocks_count,
            groups: sb.groups_count(),
            blocks_per_group: sb.s_blocks_per_group,
            inodes_per_group: sb.s_inodes_per_group,
            journal_blocks: self.layout.journal_blocks(),
            features: sb.feature_names(),
        }
    }

    /// Takes in the instants of everything that has run.
    pub(super) fn update_timeline(&mut self, tracer: &Tracer) {
        self.timeline.update(tracer);
    }

    /// Moves all folds to an instant.
    pub(super) fn seek(&mut self, tracer: &Tracer, log: &DeviceLog, at: Nanos) {
        self.update_timeline(tracer);
        if at == self.at && self.disk.is_at(log, at) {
            return;
        }
        self.at = at;
        self.fold.seek(tracer, at);
        self.disk.seek(log, self.layout.sectors_per_block(), at);
        self.read_groups();
        self.tree_blocks = self.base_tree_blocks.clone();
        for block in self.fold.blocks.tree_blocks() {
            if !self.base_roles.contains_key(&block) {
                *self
                    .tree_blocks
                    .entry(self.layout.sb.group_of_block(block))
                    .or_default() += 1;
            }
        }
    }

    fn read_groups(&mut self) {
        let store = self.disk.cursor().store();
        let sb = &self.layout.sb;
        if let Ok(reader) = Reader::open(store) {
            self.descs = reader.group_descs();
        }
        self.bad_groups.clear();
        let ctx = sb.csum_ctx();
        let size = sb.desc_size();
        let mut buf = vec![0u8; usize::from(size)];
        for (g, desc) in self.descs.iter().enumerate() {
            let g = g as u32;
            desc.encode(&mut buf, size);
            if GroupDesc::csum_verify(&ctx, g, &buf, size).is_err() {
                self.bad_groups.insert(g);
            }
        }
    }

    /// Loads the block bitmap of a group as it was before the run.
    pub(super) fn load_base_bitmap(&mut self, group: u32) {
        if self.base_bitmaps.contains_key(&group) {
            return;
        }
        let Some(desc) = self.layout.groups.get(group as usize) else {
            return;
        };
        let bs = u64::from(self.layout.block_size());
        let mut map = vec![0u8; bs as usize];
        // BLOCK_UNINIT: nothing but fixed structures is in use.
        if desc.bg_flags & 2 == 0 {
            self.base
                .store()
                .read_bytes(desc.bg_block_bitmap * bs, &mut map);
        }
        self.base_bitmaps.insert(group, map);
    }

    /// Blocks that are not simply durable, with their code.
    pub(super) fn unsettled(&self, log: &DeviceLog) -> Vec<(u64, u8)> {
        let mut blocks = self.fold.blocks.unsettled();
        blocks.extend(self.disk.unsettled(log, self.layout.sectors_per_block()));
        blocks.sort_unstable();
        blocks.dedup();
        let code = |b: &u64| self.disk.durability(log, &self.layout, &self.fold, *b);
        let coded = blocks.iter().map(|b| (*b, code(b)));
        coded.filter(|(_, c)| *c != durability::DURABLE).collect()
    }
}
