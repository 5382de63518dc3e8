//! What a power cut leaves: the durable writes, and a subset of those that were acknowledged but not flushed or still
//! in flight. Each sector is atomic; larger writes may tear.

use super::bio::{Bio, Op, Role, SECTOR_SIZE};
use super::log::{payload_hash, DeviceLog, LogRecord};
use super::queue::Queue;
use super::store::{Fill, Store, PAGE_SECTORS};
use crate::base::payload::PAGE_SIZE;
use crate::base::rng::{mix64, SplitMix64};
use crate::base::{Ino, Lba, Nanos, Payload, ReadAt, Tid};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Which undecided writes are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// No acknowledged write; those in flight are.
    None,
    /// Everything that was not durable.
    All,
    /// Each with probability 1/2.
    Seed(u64),
    /// All but those with these indices in [`CrashPoint::undecided`].
    Keep(Vec<usize>),
    /// All but the first so many.
    Prefix(usize),
}

/// A write whose fate the power cut decides.
#[derive(Clone, Debug)]
pub struct Undecided {
    /// Position in the device log; `None` for one that the device had not acknowledged by the end of the run.
    pub position: Option<u64>,
    /// False if it was still in flight at the cut.
    pub acknowledged: bool,
    /// Operation.
    pub op: Op,
    /// First sector.
    pub lba: Lba,
    /// Sectors.
    pub sectors: u32,
    /// Purpose of its first bio.
    pub role: Role,
    /// Inode of its first bio.
    pub ino: Ino,
    /// Transaction of its first bio.
    pub tid: Tid,
}

/// One step from the base to the crash image.
struct Step {
    /// Index among the undecided writes; `None` if it was durable.
    undecided: Option<usize>,
    first: u64,
    end: u64,
    /// Contents of the pages it touches, from the page of `first` on.
    pages: Vec<Payload>,
}

/// A power cut at one instant, before the loss is chosen.
pub struct CrashPoint {
    instant: Nanos,
    position: u64,
    base: Rc<Store>,
    /// Hash of `base`, once it was asked for.
    base_hash: OnceCell<u64>,
    steps: Vec<Step>,
    undecided: Vec<Undecided>,
}

/// A disk after a power cut: an overlay, so thousands of them share the base.
#[derive(Clone)]
pub struct CrashImage {
    base: Rc<Store>,
    overlay: BTreeMap<u32, Payload>,
    /// Indices of the undecided writes that were lost.
    pub lost: Vec<usize>,
}

impl CrashPoint {
    /// A cut at `t` (not after now). The error says from when on the log reaches.
    pub fn at_time(queue: &Queue, now: Nanos, t: Nanos) -> Result<CrashPoint, String> {
        queue.device_mut().settle(now);
        let position = {
            let device = queue.device();
            let log = device.log();
            if log.first() > 0 && t < log.earliest() {
                return Err(out_of_reach(log));
            }
            log.position_at(t)
        };
        CrashPoint::new(queue, t.min(now), position)
    }

    /// A cut just after the first `n` records of the log were acknowledged.
    pub fn at_record(queue: &Queue, now: Nanos, n: u64) -> Result<CrashPoint, String> {
        queue.device_mut().settle(now);
        let instant = {
            let device = queue.device();
            let last = n.checked_sub(1).and_then(|i| device.log().record(i));
            if n > device.log().end() {
                return Err(format!("the log has {} records", device.log().end()));
            }
            last.map_or(Nanos::ZERO, |r| r.acked)
        };
        CrashPoint::new(queue, instant, n)
    }

    fn new(queue: &Queue, instant: Nanos, position: u64) -> Result<CrashPoint, String> {
        let bios = queue.writes_in_flight();
        let device = queue.device();
        let log = device.log();
        let oldest = oldest_undecided(log, position, instant);
        let mut cursor = device.cursor();
        if !cursor.seek(log, oldest) {
            return Err(out_of_reach(log));
        }
        let mut point = CrashPoint {
            instant,
            position,
            base: cursor.into_store(),
            base_hash: OnceCell::new(),
            steps: Vec::new(),
            undecided: Vec::new(),
        };
        for p in oldest..position {
            if let Some(r) = log.record(p) {
                point.add_record(log, p, r, r.durable <= instant, true);
            }
        }
        point.add_in_flight(log, position, instant);
        for (issued, bio) in &bios {
            if bio.op.is_write() && *issued < instant {
                point.add_bio(bio);
            }
        }
        Ok(point)
    }

    /// Records that were acknowledged after the cut but issued before it.
    fn add_in_flight(&mut self, log: &DeviceLog, position: u64, instant: Nanos) {
        let horizon = instant + log.longest();
        for p in position..log.end() {
            let Some(r) = log.record(p) else { break };
            if r.acked > horizon {
                break;
            }
            if r.issued < instant {
                self.add_record(log, p, r, false, false);
            }
        }
    }

    fn add_record(&mut self, log: &DeviceLog, p: u64, r: &LogRecord, durable: bool, acked: bool) {
        if !r.op.is_write() {
            return;
        }
        let pages = match r.op {
            Op::Write => log.new_pages(p),
            _ => Vec::new(),
        };
        let undecided = (!durable).then(|| {
            self.undecided.push(Undecided {
                position: Some(p),
                acknowledged: acked,
                op: r.op,
                lba: r.lba,
                sectors: r.sectors,
                role: r.role,
                ino: r.ino,
                tid: r.tid,
            });
            self.undecided.len() - 1
        });
        self.steps.push(Step {
            undecided,
            first: r.lba.0,
            end: r.lba.0 + u64::from(r.sectors),
            pages,
        });
    }

    fn add_bio(&mut self, bio: &Bio) {
        let mut scratch = Store::new(self.base.sectors(), Fill::Zero);
        let unit = u64::from(bio.unit);
        let mut pages = Vec::new();
        if bio.op == Op::Write {
            let mut buf = [0; PAGE_SIZE];
            for (i, p) in (0u64..).zip(bio.payloads.as_slice()) {
                p.fill(&mut buf[..unit as usize]);
                scratch.write_bytes(bio.lba.0 * SECTOR_SIZE + i * unit, &buf[..unit as usize]);
            }
            let range = bio.lba.0 / PAGE_SECTORS..bio.end().0.div_ceil(PAGE_SECTORS);
            pages = range.map(|page| scratch.get(page as u32)).collect();
        }
        self.undecided.push(Undecided {
            position: None,
            acknowledged: false,
            op: bio.op,
            lba: bio.lba,
            sectors: bio.sectors,
            role: bio.role,
            ino: bio.ino,
            tid: bio.tid,
        });
        self.steps.push(Step {
            undecided: Some(self.undecided.len() - 1),
            first: bio.lba.0,
            end: bio.end().0,
            pages,
        });
    }

    /// The instant of the cut.
    pub fn instant(&self) -> Nanos {
        self.instant
    }

    /// Records of the log that were acknowledged before the cut.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Writes whose fate is open, in the order in which they take effect.
    pub fn undecided(&self) -> &[Undecided] {
        &self.undecided
    }

    /// Writes that are lost under a choice.
    pub fn lost(&self, loss: &Loss) -> Vec<usize> {
        let all = 0..self.undecided.len();
        match loss {
            Loss::None => all.filter(|i| !self.undecided[*i].acknowledged).collect(),
            Loss::All => all.collect(),
            Loss::Seed(seed) => {
                let mut rng = SplitMix64::new(*seed);
                all.filter(|_| rng.below(2) == 0).collect()
            }
            Loss::Keep(keep) => all.filter(|i| !keep.contains(i)).collect(),
            Loss::Prefix(n) => all.skip(*n).collect(),
        }
    }

    /// The disk after the cut. With `torn`, kept writes of several sectors may have reached the medium only in part,
    /// as that seed decides.
    pub fn image(&self, loss: &Loss, torn: Option<u64>) -> CrashImage {
        let lost = self.lost(loss);
        let mut image = CrashImage {
            base: Rc::clone(&self.base),
            overlay: BTreeMap::new(),
            lost,
        };
        let mut rng = torn.map(SplitMix64::new);
        for step in &self.steps {
            let mut end = step.end;
            if let Some(i) = step.undecided {
                if image.lost.binary_search(&i).is_ok() {
                    continue;
                }
                if let Some(rng) = &mut rng {
                    if rng.below(2) == 0 {
                        end = step.first + rng.below(step.end - step.first + 1);
                    }
                }
            }
            image.apply(step, end);
        }
        image
    }

    /// Reachable disks: all subsets of the undecided writes if there are at most `limit` of them, else the two
    /// extremes, all prefixes and random subsets up to `limit`. Different choices that give the same disk count once.
    /// The flag is true if the enumeration was exhaustive.
    pub fn states(&self, limit: usize, seed: u64) -> (Vec<CrashImage>, bool) {
        let n = self.undecided.len();
        let exhaustive = n < 24 && (1usize << n) <= limit;
        let mut choices: Vec<Loss> = Vec::new();
        if exhaustive {
            for mask in 0..1usize << n {
                let keep = (0..n).filter(|i| mask & (1 << i) != 0).collect();
                choices.push(Loss::Keep(keep));
            }
        } else {
            choices.extend([Loss::All, Loss::None]);
            let step = (n / (limit / 4).max(1)).max(1);
            choices.extend((1..=n).step_by(step).map(Loss::Prefix));
            let mut rng = SplitMix64::new(seed);
            while choices.len() < limit {
                choices.push(Loss::Seed(rng.next_u64()));
            }
            choices.truncate(limit);
        }
        let pages = self.touched_pages();
        let mut seen = std::collections::BTreeSet::new();
        let mut images = Vec::new();
        for loss in choices {
            let image = self.image(&loss, None);
            if seen.insert(image.hash_of(&pages)) {
                images.push(image);
            }
        }
        (images, exhaustive)
    }

    /// Hash of the whole disk of an image of this point: the same at other points for the same contents.
    pub fn disk_hash(&self, image: &CrashImage) -> u64 {
        let of =
            |page: u32, payload: &Payload| mix64(payload_hash(payload) ^ mix64(u64::from(page)));
        let base = self.base_hash.get_or_init(|| {
            let pages = self.base.written_pages();
            let hashes = pages.iter().map(|p| of(*p, &self.base.get(*p)));
            hashes.fold(0, u64::wrapping_add)
        });
        let mut hash = *base;
        for (page, payload) in &image.overlay {
            if self.base.is_written(*page) {
                hash = hash.wrapping_sub(of(*page, &self.base.get(*page)));
            }
            hash = hash.wrapping_add(of(*page, payload));
        }
        hash
    }

    fn touched_pages(&self) -> Vec<u32> {
        let mut pages: Vec<u32> = Vec::new();
        for s in &self.steps {
            pages.extend((s.first / PAGE_SECTORS..s.end.div_ceil(PAGE_SECTORS)).map(|p| p as u32));
        }
        pages.sort_unstable();
        pages.dedup();
        pages
    }
}

fn out_of_reach(log: &DeviceLog) -> String {
    let ns = log.earliest().0;
    format!("the device log reaches back to {ns} ns only")
}

/// First record before `position` that was not durable at `instant`, or `position`.
fn oldest_undecided(log: &DeviceLog, position: u64, instant: Nanos) -> u64 {
    let mut oldest = position;
    // Everything acknowledged before a completed flush was issued is durable.
    let mut settled = Nanos::ZERO;
    for p in (log.first()..position).rev() {
        let Some(r) = log.record(p) else { break };
        if r.durable > instant {
            oldest = p;
        } else if r.op == Op::Flush {
            settled = settled.max(r.issued);
        }
        if r.acked < settled {
            break;
        }
    }
    oldest
}

impl CrashImage {
    /// Contents of a page.
    pub fn page(&self, page: u32) -> Payload {
        match self.overlay.get(&page) {
            Some(p) => p.clone(),
            None => self.base.get(page),
        }
    }

    fn apply(&mut self, step: &Step, end: u64) {
        let first_page = step.first / PAGE_SECTORS;
        for page in first_page..end.div_ceil(PAGE_SECTORS) {
            let zero = Payload::Zero;
            let new = step
                .pages
                .get((page - first_page) as usize)
                .unwrap_or(&zero);
            let from = step.first.max(page * PAGE_SECTORS) - page * PAGE_SECTORS;
            let to = end.min((page + 1) * PAGE_SECTORS) - page * PAGE_SECTORS;
            if from == 0 && to == PAGE_SECTORS {
                self.overlay.insert(page as u32, new.clone());
                continue;
            }
            let mut bytes = vec![0; PAGE_SIZE];
            let mut source = [0; PAGE_SIZE];
            self.page(page as u32).fill(&mut bytes);
            new.fill(&mut source);
            let range = (from * SECTOR_SIZE) as usize..(to * SECTOR_SIZE) as usize;
            bytes[range.clone()].copy_from_slice(&source[range]);
            self.overlay
                .insert(page as u32, Payload::Bytes(bytes.into()));
        }
    }

    fn hash_of(&self, pages: &[u32]) -> u64 {
        pages.iter().fold(0, |h, page| {
            mix64(h ^ payload_hash(&self.page(*page))) ^ u64::from(*page)
        })
    }

    /// The disk as a table of its own, for a new device.
    pub fn to_store(&self) -> Store {
        let mut store = (*self.base).clone();
        for (page, payload) in &self.overlay {
            store.set_page(*page, payload);
        }
        store
    }
}

impl ReadAt for CrashImage {
    fn size(&self) -> u64 {
        self.base.size()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) {
        let mut done = 0;
        while done < out.len() {
            let at = offset + done as u64;
            let within = (at % PAGE_SIZE as u64) as usize;
            let n = (PAGE_SIZE - within).min(out.len() - done);
            let dst = &mut out[done..done + n];
            let page = u32::try_from(at / PAGE_SIZE as u64).ok();
            match page.and_then(|p| self.overlay.get(&p)) {
                Some(payload) => super::store::copy_page(payload, within, dst),
                None => self.base.read_bytes(at, dst),
            }
            done += n;
        }
    }
}
