//! Journal credits of the data path beyond those of `ext4_jbd2`: they depend on the largest folio of a file.

use super::{flag, Ext4, Inode};

/// log2 of pages in the largest folio (2 MiB, `MAX_PAGECACHE_ORDER` on x86-64).
const MAX_FOLIO_ORDER: u32 = 9;

impl Ext4 {
    /// log2 of the largest folio in pages: 0 where large folios are off (`ext4_should_enable_large_folio`).
    pub(crate) fn folio_order_max(&self, inode: &Inode) -> u32 {
        if inode.is_reg() && !self.should_journal_data(inode) {
            MAX_FOLIO_ORDER
        } else {
            0
        }
    }

    /// Blocks of the largest folio the file may have (`ext4_journal_blocks_per_folio`).
    pub(crate) fn blocks_per_folio(&self, inode: &Inode) -> u32 {
        (4096 / self.geo.block_size) << self.folio_order_max(inode)
    }

    /// Credits for a buffered write of one folio without delayed allocation (`ext4_write_begin`): one block more
    /// for the orphan list, and the contents where they are logged.
    pub(crate) fn write_begin_credits(&self, inode: &Inode) -> u32 {
        let bpf = self.blocks_per_folio(inode);
        let logged = if self.should_journal_data(inode) {
            bpf
        } else {
            0
        };
        self.chunk_trans_blocks(inode, bpf) + 1 + logged
    }

    /// Credits reserved for the conversion at the end of a folio's I/O.
    pub(crate) fn conversion_credits(&self, inode: &Inode) -> u32 {
        1 + self.ext_index_trans_blocks(self.blocks_per_folio(inode))
    }

    /// Credits for the start of a truncate or hole punch that touches `extents` extents.
    pub(crate) fn truncate_credits(&self, inode: &Inode, extents: u32) -> u32 {
        if inode.has_flag(flag::EXTENTS) {
            self.chunk_trans_blocks(inode, extents)
        } else {
            self.blocks_for_truncate(inode)
        }
    }
}
