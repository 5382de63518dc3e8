//! A counter that is cheap to change and read only roughly (kernel `lib/percpu_counter.c`): each CPU keeps its
//! changes to itself until they reach a batch. ext4 decides by such rough values when a device runs full.

use crate::sim::Sim;
use std::cell::{Cell, RefCell};

/// Changes that a CPU keeps to itself (`percpu_counter_batch` on up to 16 CPUs).
const BATCH: i64 = 32;

/// Kernel `struct percpu_counter`.
pub(crate) struct PercpuCounter {
    sim: Sim,
    count: Cell<i64>,
    counters: RefCell<Vec<i64>>,
}

impl PercpuCounter {
    pub(crate) fn new(sim: &Sim) -> PercpuCounter {
        PercpuCounter {
            sim: sim.clone(),
            count: Cell::new(0),
            counters: RefCell::default(),
        }
    }

    /// Sets the exact value (`percpu_counter_set`).
    pub(crate) fn set(&self, amount: i64) {
        self.count.set(amount);
        self.counters.borrow_mut().clear();
    }

    /// `percpu_counter_add`.
    pub(crate) fn add(&self, amount: i64) {
        let cpu = self.sim.cpu() as usize;
        let mut counters = self.counters.borrow_mut();
        if counters.len() <= cpu {
            counters.resize(cpu + 1, 0);
        }
        let local = counters[cpu] + amount;
        if local.abs() >= BATCH {
            self.count.set(self.count.get() + local);
            counters[cpu] = 0;
        } else {
            counters[cpu] = local;
        }
    }

    /// The value without what the CPUs keep to themselves (`percpu_counter_read_positive`).
    pub(crate) fn read_positive(&self) -> i64 {
        self.count.get().max(0)
    }

    /// The exact value (`percpu_counter_sum`).
    pub(crate) fn sum(&self) -> i64 {
        self.count.get() + self.counters.borrow().iter().sum::<i64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_changes_are_seen_late() {
        let c = PercpuCounter::new(&Sim::new(1, 2));
        c.set(100);
        c.add(-31);
        assert_eq!((c.read_positive(), c.sum()), (100, 69));
        c.add(-1);
        assert_eq!((c.read_positive(), c.sum()), (68, 68));
        c.add(-80);
        c.add(5);
        assert_eq!((c.read_positive(), c.sum()), (0, -7));
    }
}
