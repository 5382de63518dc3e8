//! The disk map, levels 0 and 1, and the inode-table map.

use super::view::{GroupMap, ItableMap, ItableRow, Pace, Tile};
use super::Observer;
use crate::base::bitmap;
use crate::block::DeviceLog;
use crate::format::ext4::GroupDesc;
use crate::observe::blocks::Owner;
use crate::observe::disk::blocks_of;
use crate::observe::layout::role;

/// Descriptor checksum mismatch, beside the bits of `bg_flags`.
const BAD_CSUM: u8 = 128;
/// Writes shown as recent in a group.
const RECENT_MAX: usize = 32;
/// Bursts of zeroing that the pace strip shows.
const BURSTS_MAX: usize = 24;
/// Records looked through for them.
const RECENT_RECORDS_MAX: u64 = 8192;

impl Observer {
    /// Free blocks, free inodes and flags of a group at the instant: as last announced, else as on the disk.
    fn group_counts(&self, group: u32) -> (u32, u32, u16) {
        match self.fold.blocks.groups.get(&group) {
            Some(g) => (g.free_blocks, g.free_inodes, g.flags),
            None => self
                .layout
                .groups
                .get(group as usize)
                .map_or((0, 0, 0), |d: &GroupDesc| {
                    (d.bg_free_blocks_count, d.bg_free_inodes_count, d.bg_flags)
                }),
        }
    }

    /// Level 0: at most `max_tiles` tiles over `groups` groups from `first` on.
    pub(super) fn tiles(
        &self,
        log: &DeviceLog,
        first: u32,
        groups: u32,
        max_tiles: u32,
    ) -> Vec<Tile> {
        let all = self.layout.groups.len() as u32;
        let end = first.saturating_add(groups).min(all);
        let first = first.min(end);
        let per = (end - first).div_ceil(max_tiles.max(1)).max(1);
        let mut out: Vec<Tile> = Vec::new();
        for g in first..end {
            if (g - first) % per == 0 {
                out.push(Tile {
                    first_group: g,
                    ..Tile::default()
                });
            }
            if let Some(tile) = out.last_mut() {
                tile.groups += 1;
                self.add_group(tile, g);
            }
        }
        self.add_durability(log, &mut out, first, per);
        out
    }

    fn add_group(&self, tile: &mut Tile, g: u32) {
        let sb = &self.layout.sb;
        let (start, blocks) = (sb.group_first_block(g), sb.blocks_in_group(g));
        let (free, free_inodes, flags) = self.group_counts(g);
        let mut fixed = 0;
        for (from, to, r) in self.layout.fixed_in(start, start + u64::from(blocks)) {
            let n = (to - from) as u32;
            tile.by_role[usize::from(r)] += n;
            fixed += n;
        }
        let shared = blocks.saturating_sub(fixed).saturating_sub(free);
        let tree = self.tree_blocks.get(&g).copied().unwrap_or(0).min(shared);
        tile.by_role[usize::from(role::FREE)] += free;
        tile.by_role[usize::from(role::TREE)] += tree;
        tile.by_role[usize::from(role::FILE_DATA)] += shared - tree;
        tile.free_inodes += free_inodes;
        tile.flags |= flags as u8;
        if self.bad_groups.contains(&g) {
            tile.flags |= BAD_CSUM;
        }
    }

    /// Counts the blocks that are not simply durable; the rest of a tile is durable or free.
    fn add_durability(&self, log: &DeviceLog, tiles: &mut [Tile], first: u32, per: u32) {
        let sb = &self.layout.sb;
        let touched = self.unsettled(log);
        for (block, code) in touched {
            let g = sb.group_of_block(block);
            let at = g.checked_sub(first).map(|g| (g / per) as usize);
            if let Some(tile) = at.and_then(|i| tiles.get_mut(i)) {
                tile.by_durability[usize::from(code)] += 1;
            }
        }
        for tile in tiles.iter_mut() {
            let used: u32 = tile.by_role[1..].iter().sum();
            let other: u32 = tile.by_durability.iter().sum();
            tile.by_durability[0] = used.saturating_sub(other);
        }
        let spb = self.layout.sectors_per_block();
        let end = log.position_at(self.at);
        let from = end.saturating_sub(RECENT_RECORDS_MAX).max(log.first());
        for position in from..end {
            if let Some(r) = log
                .record(position)
                .filter(|r| r.op.is_write() && r.sectors > 0)
            {
                let g = sb.group_of_block(r.lba.0 / spb);
                let at = g.checked_sub(first).map(|g| (g / per) as usize);
                if let Some(tile) = at.and_then(|i| tiles.get_mut(i)) {
                    tile.last_write_ns = r.acked.0;
                }
            }
        }
    }

    /// Role of one block at the instant.
    pub(super) fn role_of(&self, block: u64) -> u8 {
        if let Some(r) = self.layout.fixed_role(block) {
            return r;
        }
        match self.fold.blocks.owner(block) {
            Some(Owner::Freed) => return role::FREE,
            Some(Owner::FileData(_)) => return role::FILE_DATA,
            Some(Owner::Tree(_)) => return role::TREE,
            None => {}
        }
        if !self.base_used(block) {
            return role::FREE;
        }
        let seen = self.base_roles.get(&block).copied();
        seen.or_else(|| self.disk.written_role(block))
            .unwrap_or(role::FILE_DATA)
    }

    /// True if the block was in use when the record began (bitmap of the disk then).
    fn base_used(&self, block: u64) -> bool {
        let sb = &self.layout.sb;
        let g = sb.group_of_block(block);
        self.base_bitmaps
            .get(&g)
            .is_some_and(|map| bitmap::test(map, sb.cluster_in_group(block)))
    }

    /// Level 1: one group, block by block.
    pub(super) fn group_map(&mut self, log: &DeviceLog, group: u32) -> Option<GroupMap> {
        let sb = &self.layout.sb;
        if group as usize >= self.layout.groups.len() {
            return None;
        }
        let (first, blocks) = (sb.group_first_block(group), sb.blocks_in_group(group));
        self.load_base_bitmap(group);
        let mut map = GroupMap {
            group,
            first_block: first,
            ..GroupMap::default()
        };
        for b in first..first + u64::from(blocks) {
            let r = self.role_of(b);
            map.role.push(r);
            map.durability.push(match r {
                role::FREE => 0,
                _ => self.disk.durability(log, &self.layout, &self.fold, b),
            });
        }
        let spb = self.layout.sectors_per_block();
        let end = log.position_at(self.at);
        let from = end.saturating_sub(RECENT_RECORDS_MAX).max(log.first());
        for position in (from..end).rev() {
            let Some(r) = log.record(position).filter(|r| r.op.is_write()) else {
                continue;
            };
            for b in blocks_of(r, spb) {
                if (first..first + u64::from(blocks)).contains(&b) && map.recent.len() < RECENT_MAX
                {
                    map.recent.push(((b - first) as u32, r.acked.0));
                }
            }
            if map.recent.len() >= RECENT_MAX {
                break;
            }
        }
        Some(map)
    }

    /// Inode tables of all groups, and what the lazy init thread is at.
    pub(super) fn itable(&self) -> ItableMap {
        let inodes = self.layout.sb.s_inodes_per_group;
        let lazy = &self.fold.lazy;
        let rows: Vec<ItableRow> = (0..self.layout.groups.len() as u32)
            .map(|g| {
                let desc = &self.descs[g as usize];
                let (_, free_inodes, flags) = self.group_counts(g);
                let flags = flags | desc.bg_flags;
                let zeroed = match () {
                    () if lazy.busy == Some(g) => 2,
                    () if lazy.done.contains_key(&g) || flags & 4 != 0 => 1,
                    () => 0,
                };
                let used = inodes.saturating_sub(free_inodes);
                let unused = desc.bg_itable_unused.min(inodes);
                ItableRow {
                    group: g,
                    inodes,
                    used,
                    unused,
                    flags: flags as u8,
                    zeroed,
                }
            })
            .collect();
        let pace = self.pace(&rows);
        ItableMap { rows, pace }
    }

    fn pace(&self, rows: &[ItableRow]) -> Pace {
        let lazy = &self.fold.lazy;
        let mut bursts: Vec<(u64, u64)> = lazy
            .done
            .values()
            .map(|(end, took)| (end.0 - took.0, took.0))
            .collect();
        // By group is by time: the thread goes through the groups in their order.
        let first = bursts.first().map_or(0, |b| b.1);
        bursts.drain(..bursts.len().saturating_sub(BURSTS_MAX));
        Pace {
            bursts,
            took_ns: first,
            wait_ns: lazy.wait.map_or(0, |w| w.1 .0),
            left: rows.iter().filter(|r| r.zeroed != 1).count() as u32,
        }
    }
}
