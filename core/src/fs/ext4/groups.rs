//! Group descriptors in their buffers, flex group counters, and what is known of each group in memory.
//!
//! Invariant: the descriptor buffers are the only truth of descriptors; [`Groups::desc`] decodes, and
//! [`Groups::set_desc`] encodes under a handle that has write access.

use super::mballoc_buddy::Buddy;
use super::mballoc_pa::Prealloc;
use super::{Ext4, Geometry};
use crate::base::Tid;
use crate::block::Role;
use crate::format::ext4::{CsumCtx, GroupDesc, SuperBlock};
use crate::fs::common::FsResult;
use crate::mm::buffer::{Buffer, BufferCache, Trigger, TriggerArgs};
use crate::sim::sync::RwLock;
use crate::sim::{LockRank, WaitReason};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Counters of one flex group (kernel `struct flex_groups`).
#[derive(Debug, Default)]
pub(crate) struct FlexGroup {
    pub(crate) free_clusters: Cell<i64>,
    pub(crate) free_inodes: Cell<i64>,
    pub(crate) used_dirs: Cell<i64>,
}

/// What is known of a group in memory (kernel `ext4_group_info`).
#[derive(Default)]
pub(crate) struct GroupInfo {
    /// The buddy, once loaded (`!EXT4_MB_GRP_NEED_INIT`).
    pub(crate) buddy: Option<Box<Buddy>>,
    /// Read-ahead of the block bitmap was tried (`EXT4_GROUP_INFO_BBITMAP_READ`).
    pub(crate) prefetched: bool,
    /// Block bitmap found bad: nothing is allocated here.
    pub(crate) block_bitmap_corrupt: bool,
    /// Inode bitmap found bad.
    pub(crate) inode_bitmap_corrupt: bool,
    /// Preallocations in this group, newest first.
    pub(crate) pas: Vec<Rc<Prealloc>>,
    /// Extents freed by transactions that have not committed: start to (clusters, transaction).
    pub(crate) freed: BTreeMap<u32, (u32, Tid)>,
    /// Held for writing while the inode table is zeroed (`alloc_sem`).
    pub(crate) alloc_sem: Option<RwLock>,
    /// Order in the list of average fragment sizes, if listed.
    pub(crate) avg_order: Option<u32>,
    /// Order in the list of largest free chunks, if listed.
    pub(crate) largest_order: Option<u32>,
}

/// All groups.
pub(crate) struct Groups {
    gdt: Vec<Rc<Buffer>>,
    group_info: RefCell<Vec<Option<Box<GroupInfo>>>>,
    pub(crate) flex: Vec<FlexGroup>,
    desc_size: u16,
    per_block: u32,
    csum: CsumCtx,
}

impl Groups {
    /// Reads the descriptor blocks, ahead first and then each (kernel `ext4_group_desc_init`).
    pub(crate) async fn load(
        buffers: &Rc<BufferCache>,
        sb: &SuperBlock,
        geo: &Geometry,
        csum: CsumCtx,
    ) -> FsResult<Groups> {
        let blocks: Vec<_> = (0..geo.gdt_blocks)
            .map(|i| crate::base::FsBlock(sb.descriptor_block(i)))
            .collect();
        buffers.bread_ahead(&blocks, Role::Gdt).await;
        let mut gdt = Vec::with_capacity(blocks.len());
        for b in blocks {
            gdt.push(buffers.bread(b, Role::Gdt).await?);
        }
        let flex = (0..=geo.flex_group(geo.groups_count.saturating_sub(1)))
            .map(|_| FlexGroup::default())
            .collect();
        let mut group_info = Vec::new();
        group_info.resize_with(geo.groups_count as usize, || None);
        Ok(Groups {
            gdt,
            group_info: RefCell::new(group_info),
            flex,
            desc_size: geo.desc_size,
            per_block: geo.descs_per_block,
            csum,
        })
    }

    /// Checks every descriptor (kernel `ext4_check_descriptors`).
    pub(crate) fn check(&self, sb: &SuperBlock, count: u32) -> FsResult<()> {
        for group in 0..count {
            self.buffer(group).read(|b| {
                let at = self.offset(group);
                let raw = b.get(at..).unwrap_or(&[]);
                GroupDesc::decode(raw, self.desc_size).check(sb, group)?;
                GroupDesc::csum_verify(&self.csum, group, raw, self.desc_size)
            })?;
        }
        Ok(())
    }

    /// Buffer that holds the descriptor of `group`.
    pub(crate) fn buffer(&self, group: u32) -> &Rc<Buffer> {
        &self.gdt[(group / self.per_block) as usize]
    }

    fn offset(&self, group: u32) -> usize {
        (group % self.per_block) as usize * usize::from(self.desc_size)
    }

    /// The descriptor of `group`.
    pub(crate) fn desc(&self, group: u32) -> GroupDesc {
        let at = self.offset(group);
        self.buffer(group)
            .read(|b| GroupDesc::decode(b.get(at..).unwrap_or(&[]), self.desc_size))
    }

    /// Stores the descriptor of `group`; its checksum is computed when the block leaves memory, or now for the
    /// crc16 variant.
    pub(crate) fn set_desc(&self, group: u32, desc: &GroupDesc) {
        let at = self.offset(group);
        let bh = self.buffer(group);
        let (csum, size) = (self.csum, self.desc_size);
        bh.modify(|b| {
            if let Some(raw) = b.get_mut(at..) {
                if csum.gdt_csum {
                    desc.encode_with_csum(&csum, group, raw, size);
                } else {
                    desc.encode(raw, size);
                }
            }
        });
        if csum.metadata_csum {
            bh.set_trigger(Trigger {
                run: gdt_csum,
                args: TriggerArgs {
                    seed: csum.seed,
                    blocknr: bh.blocknr.0,
                    mask: 1 << mask_bit(group % self.per_block, self.per_block),
                    extra: u64::from(group - group % self.per_block) | u64::from(size) << 32,
                    ..TriggerArgs::default()
                },
            });
        }
    }

    /// Changes the descriptor of `group`.
    pub(crate) fn update<R>(&self, group: u32, f: impl FnOnce(&mut GroupDesc) -> R) -> R {
        let mut d = self.desc(group);
        let r = f(&mut d);
        self.set_desc(group, &d);
        r
    }

    /// Looks at or changes what is known of `group`.
    pub(crate) fn with<R>(&self, group: u32, f: impl FnOnce(&mut GroupInfo) -> R) -> R {
        let mut all = self.group_info.borrow_mut();
        f(all[group as usize].get_or_insert_with(Box::default))
    }

    /// The same for a loaded buddy; `None` if it is not loaded.
    pub(crate) fn with_buddy<R>(&self, group: u32, f: impl FnOnce(&mut Buddy) -> R) -> Option<R> {
        let mut all = self.group_info.borrow_mut();
        all[group as usize]
            .as_mut()
            .and_then(|g| g.buddy.as_deref_mut())
            .map(f)
    }
}

/// Bit of the trigger's mask that covers descriptor `index` of its block (64-bit mask, up to 128 descriptors).
fn mask_bit(index: u32, per_block: u32) -> u32 {
    index / per_block.div_ceil(64)
}

/// Checksums of the descriptors whose mask bit is set.
fn gdt_csum(args: &TriggerArgs, b: &mut [u8]) {
    let first = args.extra as u32;
    let size = (args.extra >> 32) as u16;
    let ctx = CsumCtx {
        seed: args.seed,
        metadata_csum: true,
        ..CsumCtx::NONE
    };
    let per_block = b.len() as u32 / u32::from(size.max(1));
    for (i, raw) in b.chunks_exact_mut(usize::from(size.max(1))).enumerate() {
        if args.mask & (1 << mask_bit(i as u32, per_block)) != 0 {
            GroupDesc::csum_set(&ctx, first + i as u32, raw, size);
        }
    }
}

impl Ext4 {
    /// `alloc_sem` of a group.
    pub(crate) fn alloc_sem(&self, group: u32) -> RwLock {
        let sim = &self.sim;
        self.groups.with(group, |g| {
            g.alloc_sem
                .get_or_insert_with(|| {
                    let why = WaitReason::GroupLock(crate::base::GroupNo(group));
                    RwLock::new(sim, LockRank::Group, why)
                })
                .clone()
        })
    }

    /// Sums over all groups: free clusters, free inodes, directories; fills the flex groups
    /// (kernel `ext4_count_free_clusters`, `ext4_fill_flex_info`).
    pub(crate) fn count_groups(&self) -> (i64, i64, i64) {
        let (mut clusters, mut inodes, mut dirs) = (0i64, 0i64, 0i64);
        for f in &self.groups.flex {
            f.free_clusters.set(0);
            f.free_inodes.set(0);
            f.used_dirs.set(0);
        }
        for group in 0..self.geo.groups_count {
            let d = self.groups.desc(group);
            let c = i64::from(d.bg_free_blocks_count);
            let i = i64::from(d.bg_free_inodes_count);
            let u = i64::from(d.bg_used_dirs_count);
            clusters += c;
            inodes += i;
            dirs += u;
            if let Some(f) = self.flex_of(group) {
                f.free_clusters.set(f.free_clusters.get() + c);
                f.free_inodes.set(f.free_inodes.get() + i);
                f.used_dirs.set(f.used_dirs.get() + u);
            }
        }
        (clusters, inodes, dirs)
    }

    /// Counters of the flex group that `group` belongs to.
    pub(crate) fn flex_of(&self, group: u32) -> Option<&FlexGroup> {
        self.groups.flex.get(self.geo.flex_group(group) as usize)
    }

    /// Notes a change of free clusters of `group` in its flex group.
    pub(crate) fn flex_add_clusters(&self, group: u32, n: i64) {
        if let Some(f) = self.flex_of(group) {
            f.free_clusters.set(f.free_clusters.get() + n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trigger_covers_each_marked_descriptor() {
        for size in [32u16, 64] {
            let per = 4096 / u32::from(size);
            let mut b = vec![7u8; 4096];
            let hit = per - 1;
            let args = TriggerArgs {
                seed: 5,
                mask: 1 << mask_bit(hit, per),
                extra: 128 | u64::from(size) << 32,
                ..TriggerArgs::default()
            };
            gdt_csum(&args, &mut b);
            let ctx = CsumCtx {
                seed: 5,
                metadata_csum: true,
                ..CsumCtx::NONE
            };
            let at = hit as usize * usize::from(size);
            GroupDesc::csum_verify(&ctx, 128 + hit, &b[at..], size).expect("set");
            assert!(GroupDesc::csum_verify(&ctx, 128, &b, size).is_err());
        }
    }
}
