//! The buddy of one group in memory (kernel `ext4_buddy` with the counters of `ext4_group_info`): a bitmap of
//! used clusters and, for each order above 0, a bitmap whose clear bits are free, aligned, maximal chunks.
//!
//! Pure. Invariants, checked by [`Buddy::check`]:
//! 1. A free cluster belongs to exactly one chunk: the clear bit of order 0 is a chunk of its own only if its
//!    neighbour is used, else a clear bit of some higher order covers it.
//! 2. `free`, `fragments` and `counters` equal what the bitmaps say.

use crate::base::bitmap;

/// Orders of the buddy for 4 KiB blocks are 0..=13; 64 KiB blocks would need 18.
const ORDERS_MAX: usize = 18;

/// A free extent within a group, in clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FreeExtent {
    /// First cluster.
    pub(crate) start: u32,
    /// Clusters; 0 means none.
    pub(crate) len: u32,
}

/// Buddy of one group.
#[derive(Clone, Debug)]
pub(crate) struct Buddy {
    clusters: u32,
    orders: u32,
    maps: Vec<Vec<u8>>,
    pub(crate) free: u32,
    pub(crate) fragments: u32,
    pub(crate) first_free: u32,
    pub(crate) counters: [u32; ORDERS_MAX],
}

impl Buddy {
    /// Builds the buddy from the bitmap of used clusters, of `clusters` clusters (kernel
    /// `ext4_mb_generate_buddy`). `block_bits` is log2 of the block size.
    pub(crate) fn generate(used: &[u8], clusters: u32, block_bits: u32) -> Buddy {
        let bits = 8u32 << block_bits;
        let orders = block_bits + 2;
        let mut maps = Vec::with_capacity(orders as usize);
        let mut map = vec![0xffu8; (bits / 8) as usize];
        let n = map.len().min(used.len());
        map[..n].copy_from_slice(&used[..n]);
        bitmap::set_range(&mut map, clusters, bits);
        maps.push(map);
        for order in 1..orders {
            maps.push(vec![0xffu8; ((bits >> order) as usize).div_ceil(8)]);
        }
        let mut b = Buddy {
            clusters,
            orders,
            maps,
            free: 0,
            fragments: 0,
            first_free: clusters,
            counters: [0; ORDERS_MAX],
        };
        let mut i = 0;
        while let Some(first) = bitmap::next_zero(&b.maps[0], i, clusters) {
            let end = bitmap::next_one(&b.maps[0], first, clusters).unwrap_or(clusters);
            if b.fragments == 0 {
                b.first_free = first;
            }
            b.fragments += 1;
            b.free += end - first;
            b.mark_free_simple(first, end - first);
            i = end;
        }
        b
    }

    /// Number of orders (kernel `MB_NUM_ORDERS`).
    pub(crate) fn orders(&self) -> u32 {
        self.orders
    }

    /// True if the cluster is used.
    pub(crate) fn is_used(&self, cluster: u32) -> bool {
        bitmap::test(&self.maps[0], cluster)
    }

    /// First free cluster at or after `from`.
    pub(crate) fn next_free(&self, from: u32) -> Option<u32> {
        bitmap::next_zero(&self.maps[0], from, self.clusters)
    }

    /// First used cluster at or after `from`, or the end of the group.
    pub(crate) fn next_used(&self, from: u32) -> u32 {
        bitmap::next_one(&self.maps[0], from, self.clusters).unwrap_or(self.clusters)
    }

    /// First free chunk of `order`.
    pub(crate) fn first_chunk(&self, order: u32) -> Option<FreeExtent> {
        let max = self.max(order);
        let k = bitmap::next_zero(&self.maps[order as usize], 0, max)?;
        Some(FreeExtent {
            start: k << order,
            len: 1 << order,
        })
    }

    /// Order of the largest free chunk, -1 if the group is full (kernel `bb_largest_free_order`).
    pub(crate) fn largest_order(&self) -> i32 {
        (0..self.orders as i32)
            .rev()
            .find(|&o| self.counters[o as usize] > 0)
            .unwrap_or(-1)
    }

    fn max(&self, order: u32) -> u32 {
        (self.maps[0].len() as u32 * 8) >> order
    }

    fn mark_free_simple(&mut self, mut first: u32, mut len: u32) {
        let border = 1u32 << (self.orders - 1);
        while len > 0 {
            let aligned = (first | border).trailing_zeros();
            let fits = len.ilog2();
            let order = aligned.min(fits);
            self.counters[order as usize] += 1;
            if order > 0 {
                bitmap::clear(&mut self.maps[order as usize], first >> order);
            }
            first += 1 << order;
            len -= 1 << order;
        }
    }

    fn order_of(&self, cluster: u32) -> u32 {
        (1..self.orders)
            .find(|&o| !bitmap::test(&self.maps[o as usize], cluster >> o))
            .unwrap_or(0)
    }

    /// The free extent that starts at `block`, at least `needed` long if there is so much, made of whole chunks
    /// (kernel `mb_find_extent`).
    pub(crate) fn find_extent(&self, block: u32, needed: u32) -> FreeExtent {
        if self.is_used(block) {
            return FreeExtent::default();
        }
        let mut order = self.order_of(block);
        let chunk = (block >> order) << order;
        let mut len = (1 << order) - (block - chunk);
        let mut at = block >> order;
        while needed > len {
            if at + 1 >= self.max(order) {
                break;
            }
            let next = (at + 1) << order;
            if self.is_used(next) {
                break;
            }
            order = self.order_of(next);
            at = next >> order;
            len += 1 << order;
        }
        FreeExtent { start: block, len }
    }

    /// Takes free clusters out (kernel `mb_mark_used`). The caller knows that all of them are free.
    pub(crate) fn mark_used(&mut self, ex: FreeExtent) {
        let (mut start, mut len) = (ex.start, ex.len);
        self.free -= len;
        if self.first_free == start {
            self.first_free += len;
        }
        let left = start != 0 && !self.is_used(start - 1);
        let right = start + len < self.max(0) && !self.is_used(start + len);
        match (left, right) {
            (true, true) => self.fragments += 1,
            (false, false) => self.fragments -= 1,
            _ => {}
        }
        while len > 0 {
            let mut order = self.order_of(start);
            // Split the chunk down until a piece begins at `start` and is no longer than needed.
            while (start >> order) << order != start || len < 1 << order {
                bitmap::set(&mut self.maps[order as usize], start >> order);
                self.counters[order as usize] -= 1;
                order -= 1;
                let cur = (start >> order) & !1;
                if order > 0 {
                    bitmap::clear(&mut self.maps[order as usize], cur);
                    bitmap::clear(&mut self.maps[order as usize], cur + 1);
                }
                self.counters[order as usize] += 2;
            }
            if order > 0 {
                bitmap::set(&mut self.maps[order as usize], start >> order);
            }
            self.counters[order as usize] -= 1;
            start += 1 << order;
            len -= 1 << order;
        }
        bitmap::set_range(&mut self.maps[0], ex.start, ex.start + ex.len);
    }

    /// Gives clusters back (kernel `mb_free_blocks`). `Err(cluster)`: that cluster was free already, nothing is
    /// changed.
    pub(crate) fn free_blocks(&mut self, first: u32, count: u32) -> Result<(), u32> {
        if let Some(already) = bitmap::next_zero(&self.maps[0], first, first + count) {
            return Err(already);
        }
        let left = first != 0 && !self.is_used(first - 1);
        bitmap::clear_range(&mut self.maps[0], first, first + count);
        let mut last = first + count - 1;
        let mut first = first;
        let right = last + 1 < self.max(0) && !self.is_used(last + 1);
        self.free += count;
        self.first_free = self.first_free.min(first);
        match (left, right) {
            (true, true) => self.fragments -= 1,
            (false, false) => self.fragments += 1,
            _ => {}
        }
        if first & 1 == 1 {
            if left {
                self.counters[0] -= 1;
            } else {
                first += 1;
                self.counters[0] += 1;
            }
        }
        if last & 1 == 0 {
            if right {
                self.counters[0] -= 1;
            } else {
                self.counters[0] += 1;
                if last == 0 {
                    return Ok(());
                }
                last -= 1;
            }
        }
        if first <= last {
            self.mark_free(first >> 1, last >> 1);
        }
        Ok(())
    }

    /// Frees the chunks `first..=last` of order 1 and merges upwards (kernel `mb_buddy_mark_free`).
    fn mark_free(&mut self, first: u32, last: u32) {
        let (mut first, mut last) = (i64::from(first), i64::from(last));
        let mut order = 1u32;
        loop {
            let o = order as usize;
            if first & 1 == 1 {
                if bitmap::test(&self.maps[o], (first - 1) as u32) {
                    bitmap::clear(&mut self.maps[o], first as u32);
                    self.counters[o] += 1;
                    first += 1;
                } else {
                    first -= 1;
                    bitmap::set(&mut self.maps[o], first as u32);
                    self.counters[o] -= 1;
                }
            }
            if last & 1 == 0 {
                if bitmap::test(&self.maps[o], (last + 1) as u32) {
                    bitmap::clear(&mut self.maps[o], last as u32);
                    self.counters[o] += 1;
                    last -= 1;
                } else {
                    last += 1;
                    bitmap::set(&mut self.maps[o], last as u32);
                    self.counters[o] -= 1;
                }
            }
            if first > last {
                return;
            }
            order += 1;
            if order >= self.orders {
                bitmap::clear_range(&mut self.maps[o], first as u32, last as u32 + 1);
                self.counters[o] += (last - first + 1) as u32;
                return;
            }
            first >>= 1;
            last >>= 1;
        }
    }

    /// Checks the invariants of the module; the text names the first that fails.
    #[cfg(test)]
    pub(crate) fn check(&self) -> Result<(), String> {
        let fresh = Buddy::generate(&self.maps[0], self.clusters, self.orders - 2);
        if fresh.maps != self.maps {
            let o = (0..self.maps.len())
                .find(|&o| fresh.maps[o] != self.maps[o])
                .unwrap_or(0);
            return Err(format!("map of order {o} differs"));
        }
        for (name, a, b) in [
            ("free", fresh.free, self.free),
            ("fragments", fresh.fragments, self.fragments),
        ] {
            if a != b {
                return Err(format!("{name}: {b}, bitmap says {a}"));
            }
        }
        if fresh.counters != self.counters {
            return Err(format!(
                "counters {:?}, want {:?}",
                self.counters, fresh.counters
            ));
        }
        if self.first_free > fresh.first_free {
            return Err(format!(
                "first_free {} is past {}",
                self.first_free, fresh.first_free
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::SplitMix64;

    #[test]
    fn follows_a_bitmap_through_random_use() {
        for (seed, bits, clusters) in [(1, 10, 8192), (2, 10, 8000), (3, 12, 32768), (4, 10, 100)] {
            let mut rng = SplitMix64::new(seed);
            let mut used = vec![0u8; 1 << bits];
            let mut b = Buddy::generate(&used, clusters, bits);
            b.check().expect("fresh");
            for _ in 0..400 {
                let at = rng.below(u64::from(clusters)) as u32;
                let want = 1 + rng.below(700) as u32;
                if b.is_used(at) {
                    let end = (at..(at + want).min(clusters))
                        .find(|&i| !bitmap::test(&used, i))
                        .unwrap_or((at + want).min(clusters));
                    b.free_blocks(at, end - at).expect("all used");
                    bitmap::clear_range(&mut used, at, end);
                } else {
                    let mut ex = b.find_extent(at, want);
                    assert_eq!(ex.start, at);
                    ex.len = ex.len.min(want);
                    assert!(bitmap::next_one(&used, at, at + ex.len).is_none());
                    b.mark_used(ex);
                    bitmap::set_range(&mut used, at, at + ex.len);
                }
                b.check().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
                assert_eq!(b.free, bitmap::count_zeros(&used, clusters));
            }
        }
    }

    #[test]
    fn freeing_a_free_cluster_is_refused() {
        let mut b = Buddy::generate(&[0; 1024], 8192, 10);
        b.mark_used(FreeExtent { start: 10, len: 5 });
        assert_eq!(b.free_blocks(8, 4), Err(8));
        assert_eq!(b.free_blocks(12, 6), Err(15));
        b.check().expect("unchanged");
        assert_eq!(b.free, 8187);
    }

    #[test]
    fn find_extent_returns_whole_chunks() {
        let mut b = Buddy::generate(&[0; 4096], 32768, 12);
        assert_eq!(b.largest_order(), 13);
        assert_eq!(
            b.first_chunk(13),
            Some(FreeExtent {
                start: 0,
                len: 8192
            })
        );
        b.mark_used(FreeExtent { start: 0, len: 1 });
        // From 1: chunks of 1, 2, 4, .. until 100 are covered.
        assert_eq!(b.find_extent(1, 100).len, 127);
        assert_eq!(b.find_extent(0, 1).len, 0);
    }
}
