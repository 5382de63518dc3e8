//! Which file is made, read, appended to and deleted when: PostMark's choices, without any I/O.

use super::config::{Bias, Settings};
use super::twister::Twister;

/// A file of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolFile {
    /// Its name is this number; files are numbered from 1.
    pub number: u32,
    /// Its subdirectory, if there are several.
    pub dir: Option<u32>,
    /// Its size in bytes.
    pub size: u32,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make it with its size.
    Create(PoolFile),
    /// Read the whole.
    Read(PoolFile),
    /// Append to a file that had `size` bytes.
    #[allow(missing_docs, reason = "bytes to append")]
    Append { file: PoolFile, bytes: u32 },
    /// Delete it.
    Delete(PoolFile),
}

/// The pool and its stream of choices.
pub struct Pool {
    settings: Settings,
    rng: Twister,
    slots: Vec<Option<PoolFile>>,
    /// Where the next new file goes if that slot is free.
    next_slot: usize,
    created: u32,
    deleted: u32,
}

impl Pool {
    /// An empty pool. The tool draws the text that fills all files first.
    pub fn new(settings: &Settings) -> Pool {
        let mut rng = Twister::new(settings.seed);
        for _ in 0..2 * u64::from(settings.size_high) {
            rng.draw();
        }
        Pool {
            rng,
            slots: vec![None; 2 * settings.number as usize],
            next_slot: 0,
            created: 0,
            deleted: 0,
            settings: settings.clone(),
        }
    }

    /// A new file; `None` if twice the number of files exist.
    pub fn create(&mut self) -> Option<Action> {
        let free = |i: &usize| self.slots.get(*i).is_some_and(Option::is_none);
        let slot = match Some(self.next_slot).filter(free) {
            Some(i) => i,
            None => self.slots.iter().position(Option::is_none)?,
        };
        self.next_slot = slot + 1;
        let s = &self.settings;
        let dir = match s.subdirectories {
            0 | 1 => None,
            n => Some(self.rng.below(u64::from(n)) as u32),
        };
        self.created += 1;
        let spread = u64::from(s.size_high - s.size_low);
        let file = PoolFile {
            number: self.created,
            dir,
            size: s.size_low + self.rng.below(spread) as u32,
        };
        self.slots[slot] = Some(file);
        Some(Action::Create(file))
    }

    /// The two halves of a transaction; `None` once the pool is empty, which ends the transactions.
    pub fn transaction(&mut self) -> Option<[Option<Action>; 2]> {
        if self.created == self.deleted {
            return None;
        }
        let first = match self.toss(self.settings.bias_read) {
            None => None,
            Some(true) => Some(Action::Read(self.used().1)),
            Some(false) => self.append(),
        };
        let second = match self.toss(self.settings.bias_create) {
            None => None,
            Some(true) => self.create(),
            Some(false) => {
                let (slot, file) = self.used();
                self.slots[slot] = None;
                self.deleted += 1;
                Some(Action::Delete(file))
            }
        };
        Some([first, second])
    }

    /// The deletion of the file in the lowest slot from `from` on, and the slot after it.
    pub fn delete_next(&mut self, from: usize) -> Option<(Action, usize)> {
        let rest = self.slots.get(from..)?;
        let slot = from + rest.iter().position(Option::is_some)?;
        let file = self.slots[slot].take()?;
        self.deleted += 1;
        Some((Action::Delete(file), slot + 1))
    }

    fn toss(&mut self, bias: Bias) -> Option<bool> {
        match bias {
            Bias::Off => None,
            Bias::Tenths(n) => Some(self.rng.below(10) < u64::from(n)),
        }
    }

    /// A file by chance; the pool is not empty.
    fn used(&mut self) -> (usize, PoolFile) {
        loop {
            let slot = self.rng.below(self.slots.len() as u64) as usize;
            if let Some(file) = self.slots[slot] {
                return (slot, file);
            }
        }
    }

    /// An append that leaves the file at its largest size at most; nothing for a file that is full.
    fn append(&mut self) -> Option<Action> {
        let (slot, file) = self.used();
        let room = self.settings.size_high.saturating_sub(file.size);
        if room == 0 {
            return None;
        }
        let bytes = self.rng.below(u64::from(room)) as u32 + 1;
        self.slots[slot] = Some(PoolFile {
            size: file.size + bytes,
            ..file
        });
        Some(Action::Append { file, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::ops::{Op, Script, Target};
    use crate::workload::postmark::stdio::{read_requests, write_pieces};

    fn all(settings: &Settings) -> Vec<Action> {
        let mut pool = Pool::new(settings);
        let mut out: Vec<Action> = (0..settings.number).filter_map(|_| pool.create()).collect();
        for _ in 0..settings.transactions {
            let Some(halves) = pool.transaction() else {
                break;
            };
            out.extend(halves.into_iter().flatten());
        }
        let mut at = 0;
        while let Some((a, next)) = pool.delete_next(at) {
            out.push(a);
            at = next;
        }
        out
    }

    /// One line for each system call that moves data or names, as the recording has them.
    fn calls(actions: &[Action], s: &Settings) -> Vec<String> {
        let mut out = Vec::new();
        let mut write = |name: u32, from: u32, len: u32| {
            let mut at = u64::from(from);
            for n in write_pieces(u64::from(len), u64::from(s.write_block), s.buffering) {
                out.push(format!("write {name} {at} {n}"));
                at += n;
            }
        };
        let mut reads = Vec::new();
        for a in actions {
            match a {
                Action::Create(f) => write(f.number, 0, f.size),
                Action::Append { file, bytes } => write(file.number, file.size, *bytes),
                Action::Read(f) => {
                    let (block, size) = (u64::from(s.read_block), u64::from(f.size));
                    reads.push((f.number, read_requests(size, block, s.buffering)));
                }
                Action::Delete(_) => {}
            }
        }
        out.extend(reads.into_iter().map(|(n, r)| format!("read {n} {r:?}")));
        out.extend(actions.iter().filter_map(|a| match a {
            Action::Delete(f) => Some(format!("unlink {}", f.number)),
            _ => None,
        }));
        out
    }

    #[test]
    fn every_call_of_the_recorded_tool_is_predicted() {
        let settings = Settings {
            transactions: 2000,
            ..Settings::default()
        };
        let ours = calls(&all(&settings), &settings);
        let text = include_str!("../../../../tests/kernel-lab/scenarios/postmark-small.ops");
        let script = Script::parse(text).unwrap_or_else(|e| panic!("{e}"));
        let (mut writes, mut reads, mut unlinks) = (Vec::new(), Vec::new(), Vec::new());
        let name = |p: &[u8]| String::from_utf8_lossy(p).into_owned();
        let mut open = String::new();
        let mut pending: Vec<u64> = Vec::new();
        for op in &script.ops {
            match &op.op {
                Op::Open { path, .. } => open = name(path),
                Op::Pwrite {
                    at: Target::Fd(_),
                    offset,
                    len,
                    ..
                } => writes.push(format!("write {open} {offset} {len}")),
                Op::Read { len, .. } => pending.push(*len),
                Op::Close { .. } if !pending.is_empty() => {
                    reads.push(format!("read {open} {pending:?}"));
                    pending.clear();
                }
                Op::Unlink { path } => unlinks.push(format!("unlink {}", name(path))),
                _ => {}
            }
        }
        let theirs: Vec<String> = [writes, reads, unlinks].concat();
        assert!(theirs.len() > 6000);
        for (i, (a, b)) in ours.iter().zip(&theirs).enumerate() {
            assert_eq!(a, b, "call {i}");
        }
        assert_eq!(ours.len(), theirs.len());
    }

    #[test]
    fn sizes_stay_in_bounds_and_everything_made_is_deleted() {
        let settings = Settings {
            number: 20,
            transactions: 3000,
            size_low: 100,
            size_high: 300,
            subdirectories: 4,
            seed: 9,
            ..Settings::default()
        };
        let actions = all(&settings);
        let (mut made, mut gone) = (0, 0);
        for a in &actions {
            match a {
                Action::Create(f) => {
                    made += 1;
                    assert!((100..300).contains(&f.size) && f.dir.is_some_and(|d| d < 4));
                }
                Action::Append { file, bytes } => assert!(file.size + bytes <= 300),
                Action::Delete(_) => gone += 1,
                Action::Read(_) => {}
            }
        }
        assert_eq!(made, gone);
        assert!(made > 20);
    }

    #[test]
    fn transactions_end_with_the_last_file() {
        let settings = Settings {
            number: 5,
            transactions: 1000,
            bias_create: Bias::Tenths(0),
            ..Settings::default()
        };
        let deletions = all(&settings);
        let deletions = deletions.iter().filter(|a| matches!(a, Action::Delete(_)));
        assert_eq!(deletions.count(), 5);
    }
}
