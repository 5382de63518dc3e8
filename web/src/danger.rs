//! The instants of a run judged one by one while the engine has nothing else to do, coarse first.

use fsglass_web::link::protocol::Danger;

/// States looked at for each instant.
const STATES: usize = 8;
/// What is judged is told this often, ms.
const TELL_MS: f64 = 250.0;
/// An instant that takes longer than this is the last one but a few: the disk is too large to go on, ms.
const SLOW_MS: f64 = 300.0;
/// Instants judged on a disk that is slow.
const SLOW_COLUMNS: usize = 12;

/// What is left to be judged.
#[derive(Default)]
pub(crate) struct Task {
    /// Instants, the next one last.
    left: Vec<u64>,
    ready: Vec<Danger>,
    told_ms: f64,
    judged: usize,
}

impl Task {
    /// Judges `columns` instants up to `to_ns`, in an order that fills the axis evenly.
    pub(crate) fn new(to_ns: u64, columns: u32) -> Self {
        let columns = u64::from(columns.clamp(1, 256));
        let size = columns.next_power_of_two();
        let bits = size.trailing_zeros();
        let order = (0..size).map(|i| match bits {
            0 => 0,
            bits => i.reverse_bits() >> (64 - bits),
        });
        let mut left: Vec<u64> = order
            .filter(|i| *i < columns)
            .map(|i| to_ns / columns * i + to_ns / columns / 2)
            .collect();
        left.reverse();
        Self {
            left,
            ..Self::default()
        }
    }

    /// Nothing is left.
    pub(crate) fn is_over(&self) -> bool {
        self.left.is_empty()
    }

    /// Judges one instant, given with the states to be looked at; returns what is to be told now.
    pub(crate) fn step(
        &mut self,
        judge: impl FnOnce(u64, usize) -> Option<Danger>,
        now_ms: impl Fn() -> f64,
    ) -> Option<Vec<Danger>> {
        let at = self.left.pop()?;
        let start = now_ms();
        match judge(at, STATES) {
            Some(danger) => self.ready.push(danger),
            None => self.left.clear(),
        }
        self.judged += 1;
        if now_ms() - start > SLOW_MS && self.judged >= SLOW_COLUMNS {
            self.left.clear();
        }
        if !self.left.is_empty() && now_ms() - self.told_ms < TELL_MS {
            return None;
        }
        self.told_ms = now_ms();
        Some(std::mem::take(&mut self.ready))
    }
}
