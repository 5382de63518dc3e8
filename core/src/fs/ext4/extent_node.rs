//! One node of an extent tree as bytes: `i_block` (the root) or a block. Pure; entries are moved as 12-byte units,
//! so the same functions serve leaves and indexes.

use crate::base::bytes::{le16, le32, put_le16};
use crate::format::ext4::extent::{entry_offset, max_entries, EXT4_EXTENT_SIZE};
use crate::format::ext4::ExtentHeader;

/// Makes `i_block` an empty extent root.
pub(crate) fn init_root(i_block: &mut [u8; 60]) {
    i_block.fill(0);
    init(i_block, 0);
}

/// Makes `b` an empty node of `depth`.
pub(crate) fn init(b: &mut [u8], depth: u16) {
    ExtentHeader {
        eh_entries: 0,
        eh_max: max_entries(b.len()),
        eh_depth: depth,
        eh_generation: 0,
    }
    .encode(b);
}

/// Entries in use.
pub(crate) fn entries(b: &[u8]) -> u16 {
    le16(b, 2).min(max_entries(b.len()))
}

/// Sets the number of entries in use.
pub(crate) fn set_entries(b: &mut [u8], n: u16) {
    put_le16(b, 2, n);
}

/// Entries that fit.
pub(crate) fn max(b: &[u8]) -> u16 {
    le16(b, 4).min(max_entries(b.len()))
}

/// Levels below.
pub(crate) fn depth(b: &[u8]) -> u16 {
    le16(b, 6)
}

/// Sets the levels below.
pub(crate) fn set_depth(b: &mut [u8], depth: u16) {
    put_le16(b, 6, depth);
}

/// First logical block of entry `i`.
pub(crate) fn lblk(b: &[u8], i: u16) -> u32 {
    le32(b, entry_offset(i))
}

/// The last entry that begins at or before `lblk`, or the first (kernel `ext4_ext_binsearch`).
pub(crate) fn search(b: &[u8], target: u32) -> u16 {
    let (mut lo, mut hi) = (1, entries(b));
    while lo < hi {
        let mid = lo + (hi - lo) / 2;
        if target < lblk(b, mid) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    lo.max(hi.min(1)).saturating_sub(1)
}

/// Opens a gap for one entry at `i`; the caller fills it.
pub(crate) fn open_gap(b: &mut [u8], i: u16) {
    let n = entries(b);
    let (from, end) = (entry_offset(i), entry_offset(n));
    if from < end {
        b.copy_within(from..end, from + EXT4_EXTENT_SIZE);
    }
    set_entries(b, n + 1);
}

/// Removes entry `i`; the slot that becomes free is zeroed.
pub(crate) fn remove(b: &mut [u8], i: u16) {
    let n = entries(b);
    let (from, end) = (entry_offset(i + 1), entry_offset(n));
    if from < end {
        b.copy_within(from..end, from - EXT4_EXTENT_SIZE);
    }
    b[end - EXT4_EXTENT_SIZE..end].fill(0);
    set_entries(b, n - 1);
}

/// Takes all entries from `i` on out of `b`, as bytes.
pub(crate) fn cut_tail(b: &mut [u8], i: u16) -> Vec<u8> {
    let n = entries(b);
    let tail = b[entry_offset(i)..entry_offset(n.max(i))].to_vec();
    set_entries(b, i.min(n));
    tail
}

/// Appends entries given as bytes.
pub(crate) fn append(b: &mut [u8], tail: &[u8]) {
    let n = entries(b);
    let at = entry_offset(n);
    b[at..at + tail.len()].copy_from_slice(tail);
    set_entries(b, n + (tail.len() / EXT4_EXTENT_SIZE) as u16);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::ext4::Extent;

    fn put(b: &mut [u8], i: u16, lblk: u32) {
        open_gap(b, i);
        let e = Extent {
            lblk,
            len: 1,
            unwritten: false,
            pblk: 100 + u64::from(lblk),
        };
        e.encode(b, i);
    }

    #[test]
    fn entries_move_as_units() {
        let mut b = vec![0u8; 1024];
        init(&mut b, 0);
        for (i, l) in [(0, 30), (0, 10), (1, 20), (3, 40)] {
            put(&mut b, i, l);
        }
        assert_eq!(
            (0..4).map(|i| lblk(&b, i)).collect::<Vec<_>>(),
            [10, 20, 30, 40]
        );
        for (t, want) in [
            (0, 0),
            (10, 0),
            (19, 0),
            (20, 1),
            (39, 2),
            (40, 3),
            (999, 3),
        ] {
            assert_eq!(search(&b, t), want, "{t}");
        }
        let tail = cut_tail(&mut b, 2);
        assert_eq!((entries(&b), tail.len()), (2, 24));
        append(&mut b, &tail);
        remove(&mut b, 1);
        assert_eq!(
            (0..3).map(|i| lblk(&b, i)).collect::<Vec<_>>(),
            [10, 30, 40]
        );
        assert_eq!(search(&[0; 60], 5), 0);
    }
}
