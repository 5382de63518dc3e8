//! Slabs of bios, pieces and requests. Nothing is allocated per bio once the slabs have grown.

use super::bio::{Bio, BioFlags, EndIo, IoError, IoResult, Op};
use super::device::Piece;
use crate::base::Nanos;
use crate::sim::TaskId;

/// End of a list.
pub(super) const NONE: u32 = u32::MAX;

/// A bio in flight, or done and not yet collected.
pub(super) struct BioSlot {
    pub(super) bio: Bio,
    pub(super) end_io: EndIo,
    pub(super) number: u64,
    pub(super) task: TaskId,
    /// Pieces not yet done.
    pub(super) pending: u32,
    pub(super) error: Option<IoError>,
    pub(super) result: Option<IoResult>,
    pub(super) waiter: Option<TaskId>,
}

/// A part of a bio within a request; usually the whole bio.
#[derive(Clone, Copy)]
pub(super) struct PieceSlot {
    pub(super) bio: u32,
    pub(super) from: u32,
    pub(super) sectors: u32,
    pub(super) next: u32,
}

/// A request (kernel `struct request`).
#[derive(Clone, Copy)]
pub(super) struct ReqSlot {
    pub(super) op: Op,
    pub(super) lba: u64,
    pub(super) sectors: u32,
    pub(super) segments: u32,
    /// What the file system asked for.
    pub(super) flags: BioFlags,
    /// FUA that the device itself carries out.
    pub(super) fua: bool,
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) allocated: Nanos,
    pub(super) issued: Nanos,
    /// The device has it now.
    pub(super) at_device: bool,
    /// Steps of the flush machinery that are needed and done.
    pub(super) flush_policy: u8,
    pub(super) flush_done: u8,
    pub(super) error: Option<IoError>,
}

impl ReqSlot {
    /// A request without anything in it.
    pub(super) const EMPTY: ReqSlot = ReqSlot {
        op: Op::Flush,
        lba: 0,
        sectors: 0,
        segments: 0,
        flags: BioFlags::NONE,
        fua: false,
        first: NONE,
        last: NONE,
        allocated: Nanos::ZERO,
        issued: Nanos::ZERO,
        at_device: false,
        flush_policy: 0,
        flush_done: 0,
        error: None,
    };

    pub(super) fn end(&self) -> u64 {
        self.lba + u64::from(self.sectors)
    }

    /// May bios be merged into it? (kernel `rq_mergeable`)
    pub(super) fn mergeable(&self) -> bool {
        matches!(self.op, Op::Read | Op::Write)
            && self.flags.0 & (BioFlags::PREFLUSH.0 | BioFlags::FUA.0) == 0
    }
}

/// A growing table with reuse.
pub(super) struct Slab<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(super) const fn new() -> Slab<T> {
        Slab {
            items: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, item: T) -> u32 {
        if let Some(i) = self.free.pop() {
            self.items[i as usize] = item;
            i
        } else {
            self.items.push(item);
            self.items.len() as u32 - 1
        }
    }

    pub(super) fn remove(&mut self, i: u32) {
        self.free.push(i);
    }

    pub(super) fn get(&self, i: u32) -> &T {
        &self.items[i as usize]
    }

    pub(super) fn get_mut(&mut self, i: u32) -> &mut T {
        &mut self.items[i as usize]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }
}

/// Walks the pieces of a request.
#[derive(Clone)]
pub(super) struct Pieces<'a> {
    pub(super) bios: &'a Slab<BioSlot>,
    pub(super) slab: &'a Slab<PieceSlot>,
    pub(super) at: u32,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        if self.at == NONE {
            return None;
        }
        let p = self.slab.get(self.at);
        self.at = p.next;
        let slot = self.bios.get(p.bio);
        Some(Piece {
            bio: &slot.bio,
            task: slot.task.0,
            from: p.from,
            sectors: p.sectors,
        })
    }
}
