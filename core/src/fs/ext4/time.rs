//! Timestamps: coarse clock of one tick, and the multigrain rule of Linux 6.13 (`fs/inode.c`, `current_time` and
//! `inode_set_ctime_current`): a change after somebody looked at ctime or mtime gets a fine-grained time.

use super::{Ext4, Inode, Ts};
use crate::base::Nanos;
use std::cell::Cell;

/// Nanoseconds per tick at HZ=250.
pub(crate) const TICK_NS: u64 = 4_000_000;

/// The wall clock of the mounted machine.
#[derive(Debug)]
pub(crate) struct Clock {
    /// Nanoseconds since 1970 at virtual time 0.
    pub(crate) wall_base_ns: u64,
    /// Latest fine-grained time handed out (kernel `mg_floor`), as virtual time.
    pub(crate) floor: Cell<Nanos>,
}

impl Clock {
    pub(crate) fn new(wall_base_ns: u64) -> Clock {
        Clock {
            wall_base_ns,
            floor: Cell::new(Nanos::ZERO),
        }
    }

    fn ts(&self, t: Nanos) -> Ts {
        let ns = self.wall_base_ns.saturating_add(t.0);
        ((ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as u32)
    }
}

impl Ext4 {
    /// Wall-clock seconds now.
    pub fn wall_secs(&self) -> u64 {
        self.clock.wall_base_ns.saturating_add(self.sim.now().0) / 1_000_000_000
    }

    /// The coarse time, never before a fine-grained one handed out (`ktime_get_coarse_real_ts64_mg`).
    pub fn coarse_ts(&self) -> Ts {
        let now = self.sim.now().0;
        let wall = self.clock.wall_base_ns;
        let tick = (wall + now) / TICK_NS * TICK_NS;
        let coarse = Nanos(tick.saturating_sub(wall));
        self.clock.ts(coarse.max(self.clock.floor.get()))
    }

    /// The exact time; becomes the floor of coarse times (`ktime_get_real_ts64_mg`).
    pub fn fine_ts(&self) -> Ts {
        let now = self.sim.now();
        self.clock.floor.set(now);
        self.clock.ts(now)
    }

    /// The time an update of `inode` would get now (kernel `current_time`).
    pub fn current_time(&self, inode: &Inode) -> Ts {
        let now = self.coarse_ts();
        if inode.ctime_queried.get() && now == inode.core.borrow().ctime {
            let ns = self.sim.now();
            return self.clock.ts(ns);
        }
        now
    }

    /// Sets ctime to now and returns it (kernel `inode_set_ctime_current`).
    pub fn inode_set_ctime_current(&self, inode: &Inode) -> Ts {
        let mut now = self.coarse_ts();
        if inode.ctime_queried.get() && now <= inode.core.borrow().ctime {
            now = self.fine_ts();
        }
        let mut core = inode.core.borrow_mut();
        if core.ctime != now {
            core.ctime = now;
            inode.ctime_queried.set(false);
        }
        now
    }

    /// ctime and mtime as `stat` returns them; marks them as seen (kernel `fill_mg_cmtime`).
    pub fn query_cmtime(&self, inode: &Inode) -> (Ts, Ts) {
        inode.ctime_queried.set(true);
        let core = inode.core.borrow();
        (core.ctime, core.mtime)
    }
}
