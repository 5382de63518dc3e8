//! One page of the page cache and the state of its blocks (kernel `struct folio` of order 0 and its buffer heads).

use crate::base::{payload::PAGE_SIZE, Payload};

/// Bytes per page as a file offset.
pub const PAGE_BYTES: u64 = PAGE_SIZE as u64;
/// log2 of the page size.
pub const PAGE_SHIFT: u32 = 12;

/// Set of blocks of a page, bit `i` = block `i`. Pages have 1, 2 or 4 blocks.
pub type BlockMask = u8;

const UPTODATE_SHIFT: u32 = 0;
const DIRTY_SHIFT: u32 = 4;
const KNOWN_SHIFT: u32 = 8;
const JOURNAL_SHIFT: u32 = 12;
const LOCKED: u32 = 1 << 16;
const READAHEAD: u32 = 1 << 17;
const CHECKED: u32 = 1 << 18;
const ERROR: u32 = 1 << 19;
const ACCESSED: u32 = 1 << 20;
const ORDER_SHIFT: u32 = 24;
const IO_SHIFT: u32 = 28;

/// A cached page: its bytes (by rule where possible) and its flags.
///
/// Dirty, writeback and to-write marks of the whole page are tags of the page tree, as in the kernel's xarray;
/// the bits here are those of buffer heads. 32 bytes: a random-write workload caches 750,000 of them.
#[derive(Clone, Debug)]
pub struct Folio {
    /// The page's bytes. Blocks that are not up to date read as garbage and must not be shown.
    pub payload: Payload,
    flags: u32,
}

impl Folio {
    /// A page without any valid block.
    pub fn new() -> Folio {
        Folio {
            payload: Payload::Zero,
            flags: 0,
        }
    }

    fn field(&self, shift: u32) -> BlockMask {
        ((self.flags >> shift) & 0xf) as BlockMask
    }

    fn add(&mut self, shift: u32, mask: BlockMask) {
        self.flags |= u32::from(mask & 0xf) << shift;
    }

    fn sub(&mut self, shift: u32, mask: BlockMask) {
        self.flags &= !(u32::from(mask & 0xf) << shift);
    }

    fn flag(&self, bit: u32) -> bool {
        self.flags & bit != 0
    }

    fn put_flag(&mut self, bit: u32, on: bool) {
        if on {
            self.flags |= bit;
        } else {
            self.flags &= !bit;
        }
    }

    /// Blocks whose bytes are valid (`BH_Uptodate`).
    pub fn uptodate(&self) -> BlockMask {
        self.field(UPTODATE_SHIFT)
    }

    /// Marks blocks valid.
    pub fn set_uptodate(&mut self, mask: BlockMask) {
        self.add(UPTODATE_SHIFT, mask);
    }

    /// Blocks that differ from the device (`BH_Dirty`; with data journalling also `BH_Jbddirty`).
    pub fn dirty(&self) -> BlockMask {
        self.field(DIRTY_SHIFT)
    }

    /// Marks blocks dirty.
    pub fn set_dirty(&mut self, mask: BlockMask) {
        self.add(DIRTY_SHIFT, mask);
    }

    /// Marks blocks clean.
    pub fn clear_dirty(&mut self, mask: BlockMask) {
        self.sub(DIRTY_SHIFT, mask);
    }

    /// Blocks known to be mapped, delayed or unwritten, so that a write need not ask again (`BH_Mapped`).
    pub fn known(&self) -> BlockMask {
        self.field(KNOWN_SHIFT)
    }

    /// Marks blocks mapped, delayed or unwritten.
    pub fn set_known(&mut self, mask: BlockMask) {
        self.add(KNOWN_SHIFT, mask);
    }

    /// Forgets the mapping of blocks (hole punched, page beyond the end, extent converted).
    pub fn clear_known(&mut self, mask: BlockMask) {
        self.sub(KNOWN_SHIFT, mask);
    }

    /// No block is valid, dirty or known any more.
    pub fn discard(&mut self) {
        for shift in [UPTODATE_SHIFT, DIRTY_SHIFT, KNOWN_SHIFT] {
            self.sub(shift, 0xf);
        }
    }

    /// Blocks whose bytes belong to a transaction (data journalling: the buffer has a journal head).
    pub fn journalled(&self) -> BlockMask {
        self.field(JOURNAL_SHIFT)
    }

    /// Marks blocks as part of a transaction.
    pub fn set_journalled(&mut self, mask: BlockMask) {
        self.add(JOURNAL_SHIFT, mask);
    }

    /// Marks blocks as not in the journal any more.
    pub fn clear_journalled(&mut self, mask: BlockMask) {
        self.sub(JOURNAL_SHIFT, mask);
    }

    /// Blocks with a write in flight (`BH_Async_Write`).
    pub fn in_flight(&self) -> BlockMask {
        self.field(IO_SHIFT)
    }

    /// Marks blocks as being written.
    pub fn set_in_flight(&mut self, mask: BlockMask) {
        self.add(IO_SHIFT, mask);
    }

    /// Ends the write of blocks; true if none of the page is left in flight.
    pub fn end_in_flight(&mut self, mask: BlockMask) -> bool {
        self.sub(IO_SHIFT, mask);
        self.in_flight() == 0
    }

    /// log2 of the pages of the large folio this page is part of: pages of one folio are contiguous in memory.
    pub fn order(&self) -> u32 {
        u32::from(self.field(ORDER_SHIFT))
    }

    /// Makes the page part of a folio of `1 << order` pages, aligned to that.
    pub fn set_order(&mut self, order: u32) {
        self.sub(ORDER_SHIFT, 0xf);
        self.add(ORDER_SHIFT, order.min(15) as BlockMask);
    }

    /// True while a task holds the page lock.
    pub fn locked(&self) -> bool {
        self.flag(LOCKED)
    }

    pub(super) fn set_locked(&mut self, on: bool) {
        self.put_flag(LOCKED, on);
    }

    /// True if reading this page should start the next readahead window (`PG_readahead`).
    pub fn readahead(&self) -> bool {
        self.flag(READAHEAD)
    }

    /// Sets or clears the readahead marker.
    pub fn set_readahead(&mut self, on: bool) {
        self.put_flag(READAHEAD, on);
    }

    /// `PG_checked` of a journalled-data page that was dirtied outside of a transaction.
    pub fn checked(&self) -> bool {
        self.flag(CHECKED)
    }

    /// Sets or clears `PG_checked`.
    pub fn set_checked(&mut self, on: bool) {
        self.put_flag(CHECKED, on);
    }

    /// True if the last read of the page failed.
    pub fn error(&self) -> bool {
        self.flag(ERROR)
    }

    /// Records or clears a read error.
    pub fn set_error(&mut self, on: bool) {
        self.put_flag(ERROR, on);
    }

    /// True if the page was used since reclaim last looked at it (`PG_referenced`).
    pub fn accessed(&self) -> bool {
        self.flag(ACCESSED)
    }

    /// Sets or clears the referenced mark.
    pub fn set_accessed(&mut self, on: bool) {
        self.put_flag(ACCESSED, on);
    }

    /// True if nothing but the lock says the page must stay: it can be dropped when clean.
    pub fn is_clean(&self) -> bool {
        self.dirty() == 0 && self.journalled() == 0 && !self.locked()
    }

    /// Overwrites bytes `at..at + src.len()` of the page; the page's other bytes are kept.
    /// A page whose whole content is replaced shares nothing with the old one.
    pub fn write_bytes(&mut self, at: usize, src: &[u8]) {
        let end = (at + src.len()).min(PAGE_SIZE);
        let n = end.saturating_sub(at);
        if n == 0 {
            return;
        }
        if n == PAGE_SIZE {
            self.payload = Payload::Bytes(src[..n].into());
            return;
        }
        self.modify(|b| b[at..end].copy_from_slice(&src[..n]));
    }

    /// Zeroes bytes `from..to` of the page.
    pub fn zero_range(&mut self, from: usize, to: usize) {
        if from >= to || matches!(self.payload, Payload::Zero) {
            return;
        }
        if from == 0 && to >= PAGE_SIZE {
            self.payload = Payload::Zero;
        } else {
            self.modify(|b| b[from..to.min(PAGE_SIZE)].fill(0));
        }
    }

    /// Changes the bytes of the page in place, after making them this page's own.
    pub fn modify(&mut self, f: impl FnOnce(&mut [u8])) {
        let mut bytes = self.payload.to_bytes(PAGE_SIZE);
        if let Some(own) = std::rc::Rc::get_mut(&mut bytes) {
            f(own);
        } else {
            let mut copy = bytes.to_vec();
            f(&mut copy);
            bytes = copy.into();
        }
        self.payload = Payload::Bytes(bytes);
    }

    /// The payload of block `block` of `block_size` bytes, for a bio of that block alone.
    pub fn block_payload(&self, block: u32, block_size: u32) -> Payload {
        if block_size as usize == PAGE_SIZE {
            return self.payload.clone();
        }
        if matches!(self.payload, Payload::Zero) {
            return Payload::Zero;
        }
        let at = (block * block_size) as usize;
        let bytes = self.payload.to_bytes(PAGE_SIZE);
        Payload::Bytes(bytes[at..at + block_size as usize].into())
    }
}

impl Default for Folio {
    fn default() -> Folio {
        Folio::new()
    }
}

/// The blocks of a page that overlap its bytes `from..to`.
pub fn blocks_touching(from: usize, to: usize, block_size: u32) -> BlockMask {
    if from >= to {
        return 0;
    }
    let bs = block_size as usize;
    mask_range(from / bs, to.div_ceil(bs))
}

/// The blocks of a page that lie entirely within its bytes `from..to`.
pub fn blocks_within(from: usize, to: usize, block_size: u32) -> BlockMask {
    let bs = block_size as usize;
    mask_range(from.div_ceil(bs), to / bs)
}

/// All blocks of a page.
pub fn all_blocks(block_size: u32) -> BlockMask {
    mask_range(0, PAGE_SIZE / block_size as usize)
}

fn mask_range(lo: usize, hi: usize) -> BlockMask {
    if lo >= hi {
        return 0;
    }
    (((1u32 << hi) - 1) & !((1u32 << lo) - 1)) as BlockMask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folio_is_compact() {
        assert!(size_of::<Folio>() <= 32);
    }

    #[test]
    fn masks() {
        assert_eq!(blocks_touching(0, 4096, 4096), 1);
        assert_eq!(blocks_touching(1023, 1025, 1024), 0b11);
        assert_eq!(blocks_within(1, 4096, 1024), 0b1110);
        assert_eq!(blocks_within(1, 1024, 1024), 0);
        assert_eq!(all_blocks(1024), 0b1111);
        assert_eq!(all_blocks(2048), 0b11);
    }

    #[test]
    fn partial_writes_keep_the_rest() {
        let mut f = Folio::new();
        f.payload = Payload::Pattern { seed: 7, page: 1 };
        let before = f.payload.to_bytes(PAGE_SIZE);
        f.write_bytes(100, &[1, 2, 3]);
        let after = f.payload.to_bytes(PAGE_SIZE);
        assert_eq!(after[..100], before[..100]);
        assert_eq!(after[100..103], [1, 2, 3]);
        assert_eq!(after[103..], before[103..]);
        f.zero_range(0, 10);
        assert_eq!(f.payload.to_bytes(PAGE_SIZE)[..10], [0; 10]);
    }

    #[test]
    fn clones_do_not_see_later_writes() {
        let mut f = Folio::new();
        f.write_bytes(0, &[9; 10]);
        let image = f.payload.clone();
        f.write_bytes(0, &[8; 10]);
        assert_eq!(image.to_bytes(PAGE_SIZE)[..10], [9; 10]);
    }
}
