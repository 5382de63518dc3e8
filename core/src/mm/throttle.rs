//! Throttling of tasks that dirty pages (kernel `mm/page-writeback.c`, `balance_dirty_pages`).
//!
//! All rates are pages per second and all times ticks, as in the kernel, so that rounding is the same.
//!
//! SIMPLIFIED: one device gets the whole of the dirty limits (no `wb_thresh` share by completion fractions).

use super::page_cache::AddressSpace;
use super::vm::{Vm, TICK};
use crate::base::Nanos;
use crate::sim::{TaskId, WaitReason};
use std::rc::Rc;

const HZ: u64 = 250;
const MAX_PAUSE: u64 = HZ / 5;
const BANDWIDTH_INTERVAL: u64 = HZ / 5;
const CALC_SHIFT: u32 = 10;
/// 100 MB/s in pages, the first guess (`INIT_BW`).
const INIT_BW: u64 = 100 << (20 - 12);
/// Pages a task dirties before it is looked at, at first (`128 >> (PAGE_SHIFT - 10)`).
const POLL_THRESH: u64 = 32;

/// What a task dirtied lately (fields of `task_struct`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Dirtier {
    nr_dirtied: u64,
    nr_dirtied_pause: u64,
    paused_when: u64,
}

impl Default for Dirtier {
    fn default() -> Dirtier {
        Dirtier {
            nr_dirtied: 0,
            nr_dirtied_pause: POLL_THRESH,
            paused_when: 0,
        }
    }
}

/// Measured write bandwidth and the resulting dirty rate limit (fields of `bdi_writeback`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    /// Pages per second over about 3 s (`write_bandwidth`).
    pub write: u64,
    /// The same, smoothed (`avg_write_bandwidth`).
    pub avg_write: u64,
    /// Rate at which one task may dirty pages at the set point (`dirty_ratelimit`).
    pub ratelimit: u64,
    balanced: u64,
    stamp: u64,
    dirtied_stamp: u64,
    written_stamp: u64,
    dirty_limit: u64,
    exceeded: bool,
}

impl Bandwidth {
    pub(super) const fn new() -> Bandwidth {
        Bandwidth {
            write: INIT_BW,
            avg_write: INIT_BW,
            ratelimit: INIT_BW,
            balanced: INIT_BW,
            stamp: 0,
            dirtied_stamp: 0,
            written_stamp: 0,
            dirty_limit: 0,
            exceeded: false,
        }
    }

    /// `wb_update_write_bandwidth`.
    fn update_write(&mut self, elapsed: u64, written: u64) {
        let period = (3 * HZ).next_power_of_two();
        let mut bw = written.saturating_sub(self.written_stamp) * HZ;
        let mut avg = self.avg_write;
        let old = self.write;
        if elapsed > period {
            bw /= elapsed;
            avg = bw;
        } else {
            bw += old * (period - elapsed);
            bw >>= period.trailing_zeros();
            if avg > old && old >= bw {
                avg -= (avg - old) >> 3;
            }
            if avg < old && old <= bw {
                avg += (old - avg) >> 3;
            }
        }
        self.avg_write = avg.max(1);
        self.write = bw;
    }

    /// `wb_update_dirty_ratelimit`.
    fn update_ratelimit(&mut self, elapsed: u64, dirtied: u64, d: &Domain, pos_ratio: u64) {
        let setpoint = d.freerun().midpoint(d.limit);
        let dirty_rate = dirtied.saturating_sub(self.dirtied_stamp) * HZ / elapsed.max(1);
        let limit = self.ratelimit;
        let task = ((limit * pos_ratio) >> CALC_SHIFT) + 1;
        let mut balanced = task * self.avg_write / (dirty_rate | 1);
        balanced = balanced.min(self.avg_write);
        let mut step = 0;
        if d.dirty < setpoint {
            let x = self.balanced.min(balanced).min(task);
            step = x.saturating_sub(limit).max(step);
        } else {
            let x = self.balanced.max(balanced).max(task);
            step = limit.saturating_sub(x).max(step);
        }
        let shift = limit / (2 * step + 1);
        step = if shift < 64 {
            (step >> shift).div_ceil(8)
        } else {
            0
        };
        let next = if limit < balanced {
            limit + step
        } else {
            limit.saturating_sub(step)
        };
        self.ratelimit = next.max(1);
        self.balanced = balanced;
    }

    /// `update_dirty_limit`: the hard limit follows the threshold down only slowly.
    fn update_limit(&mut self, thresh: u64, dirty: u64) {
        if self.dirty_limit < thresh {
            self.dirty_limit = thresh;
            return;
        }
        let floor = thresh.max(dirty);
        if self.dirty_limit > floor {
            self.dirty_limit -= (self.dirty_limit - floor) >> 5;
        }
    }
}

/// Dirty pages and limits at one moment (`struct dirty_throttle_control`).
#[derive(Clone, Copy, Debug)]
struct Domain {
    dirty: u64,
    thresh: u64,
    bg: u64,
    limit: u64,
}

impl Domain {
    fn freerun(&self) -> u64 {
        self.thresh.midpoint(self.bg)
    }

    /// `wb_position_ratio` for the only device, in units of 1/1024.
    fn position_ratio(&self, write_bw: u64) -> u64 {
        if self.dirty >= self.limit {
            return 0;
        }
        let setpoint = self.freerun().midpoint(self.limit);
        let mut ratio = polynom(setpoint, self.dirty, self.limit);
        let wb_thresh = self.thresh.max((self.limit - self.dirty) / 8);
        let x = (wb_thresh << 16) / (self.thresh | 1);
        let wb_setpoint = (setpoint * x) >> 16;
        let span = ((self.thresh.saturating_sub(wb_thresh) + 8 * write_bw) * x) >> 16;
        let intercept = wb_setpoint + span;
        if self.dirty < intercept.saturating_sub(span / 4) {
            ratio = ratio * (intercept - self.dirty) / ((intercept - wb_setpoint) | 1);
        } else {
            ratio /= 4;
        }
        let reserve = wb_thresh / 2;
        if self.dirty < reserve {
            if self.dirty > reserve / 8 {
                ratio = ratio * reserve / self.dirty;
            } else {
                ratio *= 8;
            }
        }
        ratio
    }
}

/// `pos_ratio_polynom`: 1 + ((setpoint - dirty) / (limit - setpoint))^3 in units of 1/1024, between 0 and 2.
fn polynom(setpoint: u64, dirty: u64, limit: u64) -> u64 {
    let num = (setpoint as i64 - dirty as i64) << CALC_SHIFT;
    let x = num / ((limit as i64 - setpoint as i64) | 1);
    let mut ratio = x;
    ratio = (ratio * x) >> CALC_SHIFT;
    ratio = (ratio * x) >> CALC_SHIFT;
    ratio += 1 << CALC_SHIFT;
    ratio.clamp(0, 2 << CALC_SHIFT) as u64
}

/// `wb_max_pause` in ticks.
fn max_pause(wb_dirty: u64, avg_bw: u64) -> u64 {
    let t = wb_dirty / (1 + avg_bw / (1 + HZ / 8).next_power_of_two());
    (t + 1).min(MAX_PAUSE)
}

/// `wb_min_pause`: shortest pause worth taking, and after how many pages to look again.
fn min_pause(bw: &Bandwidth, max: u64, task_ratelimit: u64) -> (u64, u64) {
    let hz2 = HZ.next_power_of_two();
    let hi = bw.avg_write.max(1).ilog2() as u64;
    let lo = bw.ratelimit.max(1).ilog2() as u64;
    let mut t = (HZ / 100).max(1);
    if hi > lo {
        t += (hi - lo) * (10 * HZ) / 1024;
    }
    t = t.min(1 + max / 2);
    let mut pages = bw.ratelimit * t / hz2;
    if pages < POLL_THRESH {
        t = max;
        pages = bw.ratelimit * t / hz2;
        if pages > POLL_THRESH {
            pages = POLL_THRESH;
            t = HZ * POLL_THRESH / bw.ratelimit.max(1);
        }
    }
    let pause = HZ * pages / (task_ratelimit + 1);
    if pause > max {
        t = max;
        pages = task_ratelimit * t / hz2;
    }
    let min = if pages >= POLL_THRESH { 1 + t / 2 } else { t };
    (min, pages.max(1))
}

/// `dirty_poll_interval`.
fn poll_interval(dirty: u64, thresh: u64) -> u64 {
    if thresh > dirty {
        1 << ((thresh - dirty).ilog2() >> 1)
    } else {
        1
    }
}

/// What [`Vm::balance_dirty_pages`] decided to do next.
enum Verdict {
    Done,
    Pause { ticks: u64, leave: bool },
}

impl Vm {
    fn dirtier(&self, f: impl FnOnce(&mut Dirtier)) {
        let TaskId(id) = self.sim().current();
        let mut all = self.dirtiers.borrow_mut();
        if all.len() <= id as usize {
            all.resize(id as usize + 1, Dirtier::default());
        }
        f(&mut all[id as usize]);
    }

    pub(super) fn charge_dirtier(&self) {
        self.dirtier(|d| d.nr_dirtied += 1);
    }

    /// Bandwidth estimate and rate limit at present.
    pub fn bandwidth(&self) -> Bandwidth {
        *self.bw.borrow()
    }

    fn domain(&self) -> Domain {
        let (thresh, bg) = self.dirty_limits();
        let s = self.stat();
        Domain {
            dirty: s.nr_dirty + s.nr_writeback,
            thresh,
            bg,
            limit: thresh.max(self.bw.borrow().dirty_limit),
        }
    }

    /// Re-estimates the bandwidth if the interval is over (`wb_update_bandwidth`).
    pub(super) fn update_bandwidth(&self, ratelimit: bool) {
        let now = self.jiffies();
        let stat = self.stat();
        let d = self.domain();
        let mut bw = self.bw.borrow_mut();
        let elapsed = (now - bw.stamp).max(1);
        if elapsed < BANDWIDTH_INTERVAL {
            return;
        }
        if ratelimit {
            bw.update_limit(d.thresh, d.dirty);
            let pos = d.position_ratio(bw.avg_write);
            bw.update_ratelimit(elapsed, stat.nr_dirtied, &d, pos);
        }
        bw.update_write(elapsed, stat.nr_written);
        bw.dirtied_stamp = stat.nr_dirtied;
        bw.written_stamp = stat.nr_written;
        bw.stamp = now;
    }

    /// Restarts the measuring interval when writeback begins (`wb_bandwidth_estimate_start`).
    pub(super) fn restart_bandwidth(&self) {
        let now = self.jiffies();
        let stat = self.stat();
        let mut bw = self.bw.borrow_mut();
        if now - bw.stamp > HZ {
            bw.stamp = now;
            bw.dirtied_stamp = stat.nr_dirtied;
            bw.written_stamp = stat.nr_written;
        }
    }

    /// Called after each page that a task dirtied: pauses the task if it dirties faster than the device writes
    /// (`balance_dirty_pages_ratelimited`). May wait for [`WaitReason::DirtyThrottle`].
    pub async fn balance_dirty(self: &Rc<Self>, _mapping: &AddressSpace) {
        if let Some(pages) = self.dirtied_enough() {
            self.balance_dirty_pages(pages).await;
        }
    }

    /// Pages the task dirtied since its last look, if it is time for another.
    fn dirtied_enough(&self) -> Option<u64> {
        let exceeded = self.bw.borrow().exceeded;
        let mut due = None;
        self.dirtier(|d| {
            let mut limit = d.nr_dirtied_pause;
            if exceeded {
                limit = limit.min(POLL_THRESH / 4);
            }
            if d.nr_dirtied >= limit {
                due = Some(d.nr_dirtied);
            }
        });
        due
    }

    async fn balance_dirty_pages(&self, pages: u64) {
        loop {
            match self.judge(pages) {
                Verdict::Done => return,
                Verdict::Pause { ticks, leave } => {
                    let d = Nanos(ticks * TICK.0);
                    let mut s = self.stat.get();
                    s.throttled += 1;
                    s.throttled_ns += d.0;
                    self.stat.set(s);
                    self.sim().sleep(d, WaitReason::DirtyThrottle).await;
                    if leave {
                        return;
                    }
                }
            }
        }
    }

    /// One round of the kernel's loop, up to the pause.
    fn judge(&self, pages: u64) -> Verdict {
        let mut now = self.jiffies();
        let d = self.domain();
        if self.stat().nr_dirty > d.bg && !self.writeback_in_progress() {
            self.start_background();
        }
        if d.dirty <= d.freerun() {
            let pause = poll_interval(d.dirty, d.thresh);
            self.bw.borrow_mut().exceeded = false;
            self.dirtier(|t| {
                *t = Dirtier {
                    nr_dirtied: 0,
                    nr_dirtied_pause: pause,
                    paused_when: now,
                }
            });
            return Verdict::Done;
        }
        if !self.writeback_in_progress() {
            self.start_background();
        }
        self.bw.borrow_mut().exceeded = d.dirty > d.thresh;
        self.update_bandwidth(true);
        let bw = *self.bw.borrow();
        let pos = d.position_ratio(bw.avg_write);
        let task = (bw.ratelimit * pos) >> CALC_SHIFT;
        let max = max_pause(d.dirty, bw.avg_write);
        let (min, next_look) = min_pause(&bw, max, task);
        let (period, mut pause) = match (HZ * pages).checked_div(task) {
            None => (max, max as i64),
            Some(period) => (period, self.owed(period, now)),
        };
        if task != 0 && pause < min as i64 {
            self.skip_pause(pause, period, pages, now);
            return Verdict::Done;
        }
        if pause > max as i64 {
            now += (pause as u64 - max).min(max);
            pause = max as i64;
        }
        let ticks = pause as u64;
        self.dirtier(|t| {
            *t = Dirtier {
                nr_dirtied: 0,
                nr_dirtied_pause: next_look,
                paused_when: now + ticks,
            }
        });
        let leave = task != 0;
        Verdict::Pause { ticks, leave }
    }

    /// The period less the time the task spent on its own since its last pause.
    fn owed(&self, period: u64, now: u64) -> i64 {
        let mut paused_when = 0;
        self.dirtier(|t| paused_when = t.paused_when);
        let mut pause = period as i64;
        if paused_when != 0 {
            pause -= now as i64 - paused_when as i64;
        }
        pause
    }

    fn skip_pause(&self, pause: i64, period: u64, pages: u64, now: u64) {
        self.dirtier(|t| {
            if pause < -(HZ as i64) {
                t.paused_when = now;
                t.nr_dirtied = 0;
            } else if period != 0 {
                t.paused_when += period;
                t.nr_dirtied = 0;
            } else if t.nr_dirtied_pause <= pages {
                t.nr_dirtied_pause += pages;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain(dirty: u64) -> Domain {
        Domain {
            dirty,
            thresh: 20_000,
            bg: 10_000,
            limit: 20_000,
        }
    }

    #[test]
    fn position_ratio_falls_with_dirty_pages() {
        let ratio: Vec<u64> = (10_000..=20_000)
            .step_by(500)
            .map(|n| domain(n).position_ratio(INIT_BW))
            .collect();
        assert!(ratio.windows(2).all(|w| w[0] >= w[1]), "{ratio:?}");
        assert_eq!(domain(20_000).position_ratio(INIT_BW), 0);
        // At the set point of the whole the ratio is close to 1.
        let at = domain(17_500).position_ratio(INIT_BW);
        assert!((1000..=1024).contains(&at), "{at}");
    }

    #[test]
    fn bandwidth_follows_the_device() {
        let mut bw = Bandwidth::new();
        let mut written = 0;
        for _ in 0..200 {
            written += 50_000 / 5;
            bw.update_write(BANDWIDTH_INTERVAL, written);
            bw.written_stamp = written;
        }
        assert!((49_000..=50_000).contains(&bw.write), "{bw:?}");
        assert!((47_000..=50_000).contains(&bw.avg_write), "{bw:?}");
    }

    #[test]
    fn pauses_have_the_kernels_bounds() {
        assert_eq!(max_pause(1 << 30, INIT_BW), MAX_PAUSE);
        assert_eq!(max_pause(0, INIT_BW), 1);
        let bw = Bandwidth::new();
        let (min, look) = min_pause(&bw, MAX_PAUSE, bw.ratelimit);
        assert!(min <= MAX_PAUSE && look >= POLL_THRESH);
    }
}
