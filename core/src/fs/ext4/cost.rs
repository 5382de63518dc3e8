//! What ext4's operations cost in CPU time. Modelled: order of magnitude from mechanisms F5, not measured here.

use crate::base::Nanos;

/// CPU time per step; charged where the step is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostTable {
    /// Entry and exit of a system call.
    pub syscall: Nanos,
    /// One path component in the dentry cache.
    pub path_component: Nanos,
    /// Copying one page between program and page cache.
    pub copy_page: Nanos,
    /// Adding one folio to the page cache.
    pub page_cache_add: Nanos,
    /// Starting and stopping a handle.
    pub handle: Nanos,
    /// Taking write access to a buffer and dirtying it.
    pub buffer_access: Nanos,
    /// Mapping a block by the extent status tree.
    pub map_cached: Nanos,
    /// Mapping a block by the extent tree, per level.
    pub map_level: Nanos,
    /// One allocation by mballoc.
    pub mballoc: Nanos,
    /// Looking at one group while searching for space.
    pub mballoc_group: Nanos,
    /// Building a buddy from its bitmap.
    pub buddy_generate: Nanos,
    /// Freeing one extent.
    pub free_extent: Nanos,
    /// Allocating an inode.
    pub new_inode: Nanos,
    /// Writing an inode to its table block.
    pub mark_inode_dirty: Nanos,
    /// Searching one directory block.
    pub dir_block: Nanos,
}

impl CostTable {
    /// Nothing costs time.
    pub const FREE: CostTable = CostTable::all(Nanos::ZERO);

    /// Modelled figures for a server core of about 3 GHz.
    pub const MODELLED: CostTable = CostTable {
        syscall: Nanos(250),
        path_component: Nanos(100),
        copy_page: Nanos(350),
        page_cache_add: Nanos(600),
        handle: Nanos(500),
        buffer_access: Nanos(80),
        map_cached: Nanos(60),
        map_level: Nanos(150),
        mballoc: Nanos(900),
        mballoc_group: Nanos(100),
        buddy_generate: Nanos(15_000),
        free_extent: Nanos(700),
        new_inode: Nanos(1_200),
        mark_inode_dirty: Nanos(250),
        dir_block: Nanos(400),
    };

    const fn all(n: Nanos) -> CostTable {
        CostTable {
            syscall: n,
            path_component: n,
            copy_page: n,
            page_cache_add: n,
            handle: n,
            buffer_access: n,
            map_cached: n,
            map_level: n,
            mballoc: n,
            mballoc_group: n,
            buddy_generate: n,
            free_extent: n,
            new_inode: n,
            mark_inode_dirty: n,
            dir_block: n,
        }
    }
}
