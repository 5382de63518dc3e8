//! Blocks that hold metadata of fixed place, so that no file may claim them (kernel `block_validity.c`).

use super::Geometry;
use crate::base::Ino;
use crate::format::ext4::SuperBlock;

/// One range of system blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Zone {
    start: u64,
    end: u64,
    ino: u32,
}

/// All system blocks, as sorted ranges that do not overlap.
#[derive(Clone, Debug, Default)]
pub(crate) struct SystemZone {
    zones: Vec<Zone>,
    count: u64,
    first: u64,
}

impl SystemZone {
    /// Superblocks, descriptors, bitmaps and inode tables. `descs` gives block bitmap, inode bitmap and table.
    pub(crate) fn build(
        sb: &SuperBlock,
        geo: &Geometry,
        descs: impl Fn(u32) -> (u64, u64, u64),
    ) -> SystemZone {
        let mut zones = Vec::new();
        for group in 0..geo.groups_count {
            let base = u64::from(sb.base_meta_blocks(group));
            if base > 0 {
                let start = geo.group_first_block(group);
                zones.push(Zone {
                    start,
                    end: start + base,
                    ino: 0,
                });
            }
            let (bb, ib, it) = descs(group);
            for (start, len) in [(bb, 1), (ib, 1), (it, u64::from(geo.itable_blocks))] {
                zones.push(Zone {
                    start,
                    end: start + len,
                    ino: 0,
                });
            }
        }
        let mut z = SystemZone {
            zones,
            count: geo.blocks_count,
            first: u64::from(geo.first_data_block),
        };
        z.normalise();
        z
    }

    /// Adds the blocks of the journal, which only inode `ino` may map.
    pub(crate) fn protect(&mut self, ino: Ino, extents: &[(u64, u64)]) {
        for &(start, len) in extents {
            self.zones.push(Zone {
                start,
                end: start + len,
                ino: ino.0,
            });
        }
        self.normalise();
    }

    fn normalise(&mut self) {
        self.zones.sort_by_key(|z| z.start);
        let mut out: Vec<Zone> = Vec::with_capacity(self.zones.len());
        for z in self.zones.drain(..) {
            match out.last_mut() {
                Some(last) if last.end >= z.start && last.ino == z.ino => {
                    last.end = last.end.max(z.end);
                }
                _ => out.push(z),
            }
        }
        self.zones = out;
    }

    /// True if inode `ino` may own the blocks (kernel `ext4_inode_block_valid`).
    pub(crate) fn valid(&self, ino: Ino, start: u64, len: u64) -> bool {
        if start <= self.first || start.checked_add(len).is_none_or(|e| e > self.count) {
            return false;
        }
        let at = self.zones.partition_point(|z| z.end <= start);
        self.zones
            .get(at)
            .is_none_or(|z| z.start >= start + len || (z.ino != 0 && z.ino == ino.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_refused_unless_owned() {
        let mut z = SystemZone {
            zones: vec![
                Zone {
                    start: 10,
                    end: 12,
                    ino: 0,
                },
                Zone {
                    start: 0,
                    end: 5,
                    ino: 0,
                },
                Zone {
                    start: 5,
                    end: 8,
                    ino: 0,
                },
            ],
            count: 100,
            first: 0,
        };
        z.normalise();
        assert_eq!(z.zones.len(), 2);
        z.protect(Ino(8), &[(50, 10)]);
        assert!(!z.valid(Ino(11), 7, 1));
        assert!(z.valid(Ino(11), 8, 2));
        assert!(!z.valid(Ino(11), 8, 3));
        assert!(!z.valid(Ino(11), 45, 10) && z.valid(Ino(8), 50, 10));
        assert!(!z.valid(Ino(11), 99, 2) && z.valid(Ino(11), 99, 1));
    }
}
