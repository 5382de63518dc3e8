//! Used blocks as ranges, with the searches mke2fs makes. Nothing here costs time by the block.

use std::collections::BTreeMap;

/// Used ranges of the device, `start -> end` (exclusive), disjoint and not touching.
#[derive(Debug, Default)]
pub(super) struct Space {
    used: BTreeMap<u64, u64>,
    /// First block that may be handed out.
    first: u64,
    /// Blocks of the file system.
    count: u64,
    /// Blocks per cluster: 1 until [`Space::convert`].
    granularity: u64,
}

impl Space {
    pub(super) fn new(first: u64, count: u64) -> Space {
        Space {
            used: BTreeMap::new(),
            first,
            count,
            granularity: 1,
        }
    }

    /// Marks `len` blocks from `start` used; whole clusters after [`Space::convert`].
    pub(super) fn mark(&mut self, start: u64, len: u64) {
        let g = self.granularity;
        let mut end = (start + len).div_ceil(g) * g;
        let mut start = start / g * g;
        if let Some((&s, &e)) = self.used.range(..=start).next_back() {
            if e >= start {
                start = s;
                end = end.max(e);
                self.used.remove(&s);
            }
        }
        while let Some((&s, &e)) = self.used.range(start..=end).next() {
            end = end.max(e);
            self.used.remove(&s);
        }
        self.used.insert(start, end);
    }

    /// From now on in clusters of `ratio` blocks: a cluster with a used block is used.
    pub(super) fn convert(&mut self, ratio: u64) {
        if ratio == 1 {
            return;
        }
        self.granularity = ratio;
        for (s, e) in std::mem::take(&mut self.used) {
            self.mark(s / ratio * ratio, e - s / ratio * ratio);
        }
    }

    /// First used block in `from..to`.
    pub(super) fn next_used(&self, from: u64, to: u64) -> Option<u64> {
        if from >= to {
            return None;
        }
        if let Some((_, &e)) = self.used.range(..=from).next_back() {
            if e > from {
                return Some(from);
            }
        }
        self.used.range(from..to).next().map(|(&s, _)| s)
    }

    /// First free block in `from..to`.
    pub(super) fn next_free(&self, from: u64, to: u64) -> Option<u64> {
        let at = match self.used.range(..=from).next_back() {
            Some((_, &e)) if e > from => e,
            _ => from,
        };
        (at < to).then_some(at)
    }

    /// One free block or cluster at or after `goal`, else from the start (libext2fs `ext2fs_new_block`).
    pub(super) fn new_block(&self, goal: u64) -> Option<u64> {
        let goal = if goal == 0 || goal >= self.count {
            self.first
        } else {
            goal
        };
        let goal = goal / self.granularity * self.granularity;
        self.next_free(goal, self.count)
            .or_else(|| self.next_free(self.first, goal))
    }

    /// A free run at or after `goal` of at most `len` blocks (libext2fs `ext2fs_new_range` without flags).
    pub(super) fn new_range(&self, goal: u64, len: u64) -> Option<(u64, u64)> {
        let goal = if goal == 0 || goal >= self.count {
            self.first
        } else {
            goal
        };
        let start = self
            .next_free(goal, self.count)
            .or_else(|| self.next_free(self.first, self.count))?;
        let to = (start + len).min(self.count);
        let end = self.next_used(start, to).unwrap_or(to);
        Some((start, end - start))
    }

    /// First run of `num` free blocks that starts in `start..finish` (libext2fs `ext2fs_get_free_blocks`):
    /// with `finish <= start` the search goes round the end of the device.
    pub(super) fn get_free_blocks(&self, start: u64, finish: u64, num: u64) -> Option<u64> {
        let num = num.max(1);
        let start = if start == 0 { self.first } else { start };
        let finish = if finish == 0 { start } else { finish };
        if finish > start {
            return self.find_run(start, finish, num);
        }
        self.find_run(start, self.count, num)
            .or_else(|| self.find_run(self.first, finish.max(self.first + 1), num))
    }

    fn find_run(&self, start: u64, finish: u64, num: u64) -> Option<u64> {
        let mut at = start;
        loop {
            at = self.next_free(at, finish)?;
            if at + num > self.count {
                return None;
            }
            match self.next_used(at, at + num) {
                None => return Some(at),
                Some(used) => at = used,
            }
        }
    }

    /// Used blocks in `from..to`.
    pub(super) fn used_in(&self, from: u64, to: u64) -> u64 {
        self.ranges_in(from, to).map(|(s, e)| e - s).sum()
    }

    /// Used ranges clipped to `from..to`.
    pub(super) fn ranges_in(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let to = to.max(from);
        let head = self
            .used
            .range(..from)
            .next_back()
            .map(|(_, &e)| (from, e.min(to)))
            .filter(|(s, e)| e > s);
        let rest = self
            .used
            .range(from..to)
            .map(move |(&s, &e)| (s, e.min(to)));
        head.into_iter().chain(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_vector_of_bools() {
        let mut rng = crate::base::rng::SplitMix64::new(9);
        let mut space = Space::new(1, 500);
        let mut model = vec![false; 500];
        for _ in 0..300 {
            let (at, len) = (rng.below(480), 1 + rng.below(9));
            space.mark(at, len);
            model[at as usize..(at + len) as usize].fill(true);
            let (a, b) = (rng.below(500), rng.below(501));
            let find = |want: bool| (a..b).find(|&i| model[i as usize] == want);
            assert_eq!(space.next_used(a, b), find(true));
            assert_eq!(space.next_free(a, b), find(false));
            let used = (a..b).filter(|&i| model[i as usize]).count() as u64;
            assert_eq!(space.used_in(a, b.max(a)), used);
            let num = 1 + rng.below(7);
            let fits = |i: u64| i + num <= 500 && (i..i + num).all(|j| !model[j as usize]);
            if a.max(1) < b {
                let want = (a.max(1)..b).find(|&i| fits(i));
                assert_eq!(space.get_free_blocks(a, b, num), want);
            }
            if model.iter().filter(|u| !**u).count() < 60 {
                model.fill(false);
                space = Space::new(1, 500);
            }
        }
    }

    #[test]
    fn clusters() {
        let mut s = Space::new(0, 64);
        s.mark(3, 2);
        s.convert(8);
        assert_eq!(s.new_block(0), Some(8));
        s.mark(8, 1);
        assert_eq!(s.new_block(0), Some(16));
        assert_eq!(s.used_in(0, 64), 16);
    }
}
