//! The device: contents, log, volatile cache and latency model in one, as seen through requests.

use super::bio::{Bio, BioFlags, IoError, Op, Payloads, SECTOR_SIZE};
use super::cache::WriteCache;
use super::fault::Faults;
use super::log::{Cursor, DeviceLog, LogPart, LogRecord};
use super::model::Model;
use super::params::{DeviceConfig, ModelKind};
use super::store::{Fill, Store, PAGE_SECTORS};
use crate::base::payload::PAGE_SIZE;
use crate::base::rng::SplitMix64;
use crate::base::{Lba, Nanos, Payload};

/// A request as the device sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) op: Op,
    pub(super) lba: Lba,
    pub(super) sectors: u32,
    /// FUA that the device itself carries out.
    pub(super) fua: bool,
    /// What the file system asked for.
    pub(super) flags: BioFlags,
    pub(super) issued: Nanos,
}

/// What became of a request, with its position in the log.
#[derive(Clone, Copy, Debug)]
pub(super) enum Carried {
    Read,
    Cache(u64),
    Medium(u64),
    Flushed { records: u32, bytes: u64 },
}

/// A piece of a bio within a request.
pub(super) struct Piece<'a> {
    pub(super) bio: &'a Bio,
    pub(super) task: u32,
    /// First sector of the piece within the bio.
    pub(super) from: u32,
    pub(super) sectors: u32,
}

impl Piece<'_> {
    fn lba(&self) -> u64 {
        self.bio.lba.0 + u64::from(self.from)
    }

    /// The payloads of the piece, if it consists of whole units.
    fn units(&self) -> Option<&[Payload]> {
        let unit = u64::from(self.bio.unit) / SECTOR_SIZE;
        let (from, n) = (u64::from(self.from), u64::from(self.sectors));
        if from % unit != 0 || n % unit != 0 {
            return None;
        }
        let range = (from / unit) as usize..((from + n) / unit) as usize;
        self.bio.payloads.as_slice().get(range)
    }

    fn whole_pages(&self) -> Option<&[Payload]> {
        let aligned = self.lba() % PAGE_SECTORS == 0 && usize::from(self.bio.unit) == PAGE_SIZE;
        aligned.then(|| self.units()).flatten()
    }

    /// The piece as a bio of its own.
    pub(super) fn to_bio(&self) -> Bio {
        let mut bio = Bio {
            lba: Lba(self.lba()),
            sectors: self.sectors,
            payloads: Payloads::None,
            ..self.bio.clone()
        };
        if bio.op == Op::Write {
            if let Some(units) = self.units() {
                bio.payloads = Payloads::Many(units.to_vec());
            } else {
                let mut bytes = Vec::new();
                self.copy_to(&mut bytes);
                let sectors = bytes.chunks(SECTOR_SIZE as usize);
                bio.unit = SECTOR_SIZE as u16;
                bio.payloads = Payloads::Many(sectors.map(|c| Payload::Bytes(c.into())).collect());
            }
        }
        bio
    }

    fn copy_to(&self, out: &mut Vec<u8>) {
        let unit = usize::from(self.bio.unit);
        let start = self.from as usize * SECTOR_SIZE as usize;
        let end = start + self.sectors as usize * SECTOR_SIZE as usize;
        let mut buf = [0; PAGE_SIZE];
        for (i, p) in self.bio.payloads.as_slice().iter().enumerate() {
            let (s, e) = (i * unit, (i + 1) * unit);
            if e > start && s < end {
                p.fill(&mut buf[..unit]);
                out.extend_from_slice(&buf[start.max(s) - s..end.min(e) - s]);
            }
        }
    }
}

/// A block device.
pub struct Device {
    config: DeviceConfig,
    store: Store,
    log: DeviceLog,
    cache: WriteCache,
    model: Model,
    faults: Faults,
    /// Disk requests that wait for the head, with the request that has it.
    pending: Vec<(u32, Request)>,
    head: Option<u32>,
}

impl Device {
    /// A new device; `rng` is the stream `device.latency`.
    pub fn new(config: DeviceConfig, rng: SplitMix64) -> Device {
        let store = Store::new(config.size / SECTOR_SIZE, config.fill);
        Device::with_store(config, store, rng)
    }

    /// A device with contents, for example a crash image or an imported file.
    pub fn with_store(config: DeviceConfig, store: Store, rng: SplitMix64) -> Device {
        let model = Model::new(config.model, &config.params, store.sectors(), rng);
        Device {
            log: DeviceLog::new(config.log_budget, &store),
            cache: WriteCache::new(&config),
            model,
            faults: Faults::new(config.faults.clone()),
            pending: Vec::new(),
            head: None,
            store,
            config,
        }
    }

    /// What it was made from.
    pub fn config(&self) -> &DeviceConfig {
        &self.config
    }

    /// Its contents: everything that was acknowledged.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Its contents, to be changed from outside (mkfs before the run, edits); not logged.
    pub fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Its log. Call [`Device::settle`] first for durable times up to now.
    pub fn log(&self) -> &DeviceLog {
        &self.log
    }

    /// Faults to be injected.
    pub fn faults_mut(&mut self) -> &mut Faults {
        &mut self.faults
    }

    /// Size in sectors.
    pub fn sectors(&self) -> u64 {
        self.store.sectors()
    }

    /// Bytes in the volatile cache.
    pub fn cached_bytes(&self) -> u64 {
        self.cache.bytes()
    }

    /// A cursor at the end of the log.
    pub fn cursor(&self) -> Cursor {
        Cursor::new(self.store.clone(), self.log.end())
    }

    /// Carries the cache's background work up to `now`.
    pub fn settle(&mut self, now: Nanos) {
        self.cache.settle(now, &mut self.model, &mut self.log);
    }

    /// Takes a request; what begins because of it goes to `started` with the instant it will be done.
    pub(super) fn submit(
        &mut self,
        now: Nanos,
        id: u32,
        req: &Request,
        started: &mut Vec<(u32, Nanos)>,
    ) {
        self.settle(now);
        if req.op == Op::Flush {
            let done = self.cache.flush(now, &mut self.model, &mut self.log);
            started.push((id, done));
            return;
        }
        let cached = self.cache.enabled() && req.op == Op::Write && !req.fua;
        match self.model.kind() {
            ModelKind::Flash => {
                let begin = if cached {
                    let bytes = u64::from(req.sectors) * SECTOR_SIZE;
                    self.cache
                        .make_room(now, bytes, &mut self.model, &mut self.log)
                } else {
                    now
                };
                let done = self.model.flash(begin, req.op, req.sectors, req.fua);
                started.push((id, done));
            }
            ModelKind::Hdd if cached => {
                let bytes = u64::from(req.sectors) * SECTOR_SIZE;
                let begin = self
                    .cache
                    .make_room(now, bytes, &mut self.model, &mut self.log);
                started.push((id, self.model.cached_write(begin, req.sectors)));
            }
            ModelKind::Hdd => {
                self.pending.push((id, *req));
                self.next_transfer(now, started);
            }
        }
    }

    /// Gives the head to the pending request with the shortest access time.
    fn next_transfer(&mut self, now: Nanos, started: &mut Vec<(u32, Nanos)>) {
        if self.head.is_some() {
            return;
        }
        let model = &self.model;
        let cost = |r: &Request| model.media_cost(now, r.lba, r.sectors, r.op == Op::Read);
        let best = self
            .pending
            .iter()
            .enumerate()
            .min_by_key(|(i, (_, r))| (cost(r), *i));
        if let Some((i, _)) = best {
            let (id, r) = self.pending.remove(i);
            let done = self.model.media(now, r.lba, r.sectors, r.op == Op::Read);
            self.head = Some(id);
            started.push((id, done));
        }
    }

    /// Ends a request: contents, log and durability change now. What begins because of it goes to `started`.
    pub(super) fn complete<'a>(
        &mut self,
        now: Nanos,
        id: u32,
        req: &Request,
        pieces: impl Iterator<Item = Piece<'a>> + Clone,
        started: &mut Vec<(u32, Nanos)>,
    ) -> Result<Carried, IoError> {
        if self.head == Some(id) {
            self.head = None;
            self.settle(now);
            self.next_transfer(now, started);
        }
        let fault = self.faults.check(req.op, req.lba, req.sectors);
        if let Some(error) = fault {
            if req.op == Op::Flush {
                self.cache.flush_failed();
            }
            return Err(error);
        }
        if req.op == Op::Read {
            return Ok(Carried::Read);
        }
        let record = record_of(req, now, pieces.clone());
        let mixed = record.mixed;
        let position = self.log.push(record);
        if mixed {
            self.note_parts(pieces.clone());
        }
        let mut carried = Carried::Medium(position);
        if req.op == Op::Flush {
            let before = self.cache.bytes();
            let records = self.cache.flushed(now, &mut self.log);
            let bytes = before - self.cache.bytes();
            self.log.set_durable(position, now);
            carried = Carried::Flushed { records, bytes };
        } else {
            self.apply(position, req, pieces);
            if self.cache.enabled() && !req.fua {
                self.cache.add(position, req.lba, req.sectors, now);
                carried = Carried::Cache(position);
            } else {
                self.log.set_durable(position, now);
            }
        }
        let keep = self.cache.oldest().unwrap_or(u64::MAX);
        self.log.trim(keep);
        Ok(carried)
    }

    fn apply<'a>(
        &mut self,
        position: u64,
        req: &Request,
        pieces: impl Iterator<Item = Piece<'a>> + Clone,
    ) {
        let (store, log) = (&mut self.store, &mut self.log);
        match req.op {
            Op::Write if pieces.clone().all(|p| p.whole_pages().is_some()) => {
                for piece in pieces {
                    let page = (piece.lba() / PAGE_SECTORS) as u32;
                    let pages = piece.whole_pages().unwrap_or(&[]);
                    store.write_pages(page, pages, |change, new| log.note(change, new));
                }
            }
            Op::Write => {
                let mut run = Vec::with_capacity(req.sectors as usize * SECTOR_SIZE as usize);
                for piece in pieces {
                    piece.copy_to(&mut run);
                }
                store.write_run(req.lba, &run, |change, new| log.note(change, new));
            }
            Op::WriteZeroes | Op::Discard => {
                let keeps = req.op == Op::Discard && self.config.params.discard_zeroes == 0;
                let fill = if keeps { self.config.fill } else { Fill::Zero };
                let n = u64::from(req.sectors);
                let range = store.fill_range(req.lba, n, fill, |change, new| log.note(change, new));
                if let Some(range) = range {
                    log.note_range(position, range);
                }
            }
            Op::Read | Op::Flush => {}
        }
    }

    /// Contents for a read bio.
    pub(super) fn read(&self, bio: &Bio) -> Payloads {
        let unit = usize::from(bio.unit);
        let count = (bio.bytes() / unit as u64) as usize;
        match count {
            0 => Payloads::None,
            1 => Payloads::One(self.store.read_unit(bio.lba.0 * SECTOR_SIZE, unit)),
            _ => Payloads::Many(self.store.read_units(bio.lba, unit, count)),
        }
    }

    /// Notes in the log which bios a request was made of, if they differ.
    fn note_parts<'a>(&mut self, pieces: impl Iterator<Item = Piece<'a>>) {
        let position = self.log.end() - 1;
        let mut last: Option<LogPart> = None;
        for p in pieces {
            let part = LogPart {
                lba: Lba(p.lba()),
                sectors: p.sectors,
                role: p.bio.role,
                ino: p.bio.ino,
                tid: p.bio.tid,
            };
            match &mut last {
                Some(l) if (l.role, l.ino, l.tid) == (part.role, part.ino, part.tid) => {
                    l.sectors += part.sectors;
                }
                _ => {
                    if let Some(l) = last.replace(part) {
                        self.log.note_part(position, l);
                    }
                }
            }
        }
        if let Some(l) = last {
            self.log.note_part(position, l);
        }
    }
}

fn record_of<'a>(
    req: &Request,
    now: Nanos,
    mut pieces: impl Iterator<Item = Piece<'a>>,
) -> LogRecord {
    let mut record = LogRecord::new(req.op, req.lba, req.sectors, req.issued, now);
    record.flags = req.flags;
    if let Some(first) = pieces.next() {
        let b = first.bio;
        (record.role, record.ino, record.tid) = (b.role, b.ino, b.tid);
        record.task = first.task as u16;
        record.bios = 1;
        for p in pieces {
            record.bios = record.bios.saturating_add(1);
            let same = (p.bio.role, p.bio.ino, p.bio.tid) == (b.role, b.ino, b.tid);
            record.mixed |= !same;
        }
    }
    record
}
