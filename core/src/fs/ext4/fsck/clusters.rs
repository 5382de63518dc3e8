//! Bitmaps of clusters in use, made only for groups that have any.

use crate::base::bitmap;
use crate::format::ext4::SuperBlock;

/// Clusters in use by group.
#[derive(Debug)]
pub(super) struct Clusters {
    groups: Vec<Option<Box<[u8]>>>,
    bytes: usize,
}

impl Clusters {
    pub(super) fn new(sb: &SuperBlock) -> Clusters {
        Clusters {
            groups: vec![None; sb.groups_count() as usize],
            bytes: (sb.s_clusters_per_group / 8) as usize + 1,
        }
    }

    /// Marks the cluster of `block`; false if it was marked before.
    pub(super) fn claim(&mut self, sb: &SuperBlock, block: u64) -> bool {
        let bytes = self.bytes;
        let Some(slot) = self.groups.get_mut(sb.group_of_block(block) as usize) else {
            return false;
        };
        let map = slot.get_or_insert_with(|| vec![0; bytes].into());
        bitmap::set(map, sb.cluster_in_group(block))
    }

    /// Bitmap of a group; `None` if nothing in it is used.
    pub(super) fn group(&self, group: u32) -> Option<&[u8]> {
        self.groups.get(group as usize)?.as_deref()
    }

    /// Used clusters among the first `len` of a group.
    pub(super) fn count(&self, group: u32, len: u32) -> u32 {
        self.group(group)
            .map_or(0, |m| len - bitmap::count_zeros(m, len))
    }
}
