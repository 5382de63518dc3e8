//! Counters of what ext4 did, named as the kernel's tracepoints (`include/trace/events/ext4.h`).

use std::cell::Cell;

macro_rules! stats {
    ($($name:ident, $doc:literal;)*) => {
        /// Counters since the mount.
        #[derive(Debug, Default)]
        pub struct Stats {
            $(#[doc = $doc] pub $name: Cell<u64>,)*
        }

        impl Stats {
            /// All counters with their names.
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get()),)*]
            }
        }
    };
}

stats! {
    alloc_data_calls, "`ext4_allocate_blocks` for file contents: calls (`alloc.data.calls`).";
    alloc_data_blocks, "The same: blocks.";
    alloc_meta_calls, "`ext4_allocate_blocks` for metadata: calls (`alloc.meta.calls`).";
    alloc_meta_blocks, "The same: blocks.";
    free_calls, "`ext4_free_blocks`: calls (`alloc.free.calls`).";
    free_blocks, "The same: blocks.";
    ext4_allocate_inode, "Inodes allocated.";
    ext4_free_inode, "Inodes freed.";
    ext4_evict_inode, "Inodes evicted.";
    ext4_load_inode, "Inode table blocks read.";
    ext4_load_inode_bitmap, "Inode bitmaps read.";
    ext4_read_block_bitmap_load, "Block bitmaps read.";
    ext4_mb_bitmap_load, "Bitmaps taken over into the buddy cache.";
    ext4_mb_buddy_bitmap_load, "Buddies generated.";
    ext4_mark_inode_dirty, "Inodes written to their table block.";
    ext4_mballoc_alloc, "Allocations from the buddy.";
    ext4_mballoc_prealloc, "Allocations from a preallocation.";
    ext4_mb_new_inode_pa, "Preallocations made for an inode.";
    ext4_mb_new_group_pa, "Preallocations made for a locality group.";
    ext4_discard_preallocations, "Preallocations of an inode given back: calls.";
    ext4_journal_start_inode, "Handles started for an inode.";
    ext4_journal_start_sb, "Handles started without an inode.";
    ext4_journal_start_reserved, "Reserved handles started.";
    ext4_sync_fs, "`sync_fs` calls.";
    ext4_da_reserve_space, "Reservations for delayed allocation.";
    ext4_da_release_space, "Such reservations given back.";
    ext4_ext_handle_unwritten_extents, "Requests on unwritten extents.";
    ext4_ext_map_blocks, "Lookups in extent trees.";
    ext4_lazy_itable_init, "Inode tables zeroed.";
}

impl Stats {
    /// Adds one.
    pub fn inc(c: &Cell<u64>) {
        c.set(c.get() + 1);
    }

    /// Adds `n`.
    pub fn add(c: &Cell<u64>, n: u64) {
        c.set(c.get() + n);
    }
}
