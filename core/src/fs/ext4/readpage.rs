//! Reading file pages: holes and unwritten extents are zero, the rest comes from the device in large bios
//! (kernel `fs/ext4/readpage.c`, `mm/filemap.c`).

use super::{Ext4, Inode, MapFlags, MapRequest, MappingKind};
use crate::base::{Errno, Lba, Lblk, Payload};
use crate::block::{Bio, BioFlags, IoResult, Role};
use crate::fs::common::{FsError, FsResult};
use crate::mm::folio::{all_blocks, BlockMask};
use crate::mm::readahead::Window;
use crate::mm::AddressSpace;
use std::cell::Cell;
use std::rc::Rc;

/// Most pages of one read bio (`BIO_MAX_VECS`).
const BIO_MAX_PAGES: u32 = 256;

/// Blocks with one kind of mapping.
struct Run {
    len: u32,
    pblk: Option<u64>,
}

/// A read bio being put together, block by block.
struct ReadBio {
    start: u64,
    flags: BioFlags,
    blocks: Vec<(u64, u32)>,
}

impl Ext4 {
    /// Mapping of `lblk..` for reading: up to `len` blocks of one kind.
    async fn map_for_read(&self, inode: &Rc<Inode>, lblk: u32, len: u32) -> FsResult<Run> {
        let request = MapRequest {
            lblk: Lblk(lblk),
            len,
            flags: MapFlags::NONE,
        };
        let m = self.map_blocks(None, inode, request).await?;
        Ok(Run {
            len: m.len.clamp(1, len),
            pblk: (m.kind == MappingKind::Mapped).then_some(m.pblk.0),
        })
    }

    /// Reads the window's pages that are not cached; does not wait for the device. The pages stay locked until
    /// their I/O is done (kernel `ext4_mpage_readpages`).
    pub(super) async fn readahead(
        &self,
        inode: &Rc<Inode>,
        window: Window,
        ahead: bool,
    ) -> FsResult<()> {
        let end = inode.size().div_ceil(4096);
        let last = (window.start + window.count).min(end);
        let mut fresh = Vec::new();
        for index in window.start..last {
            let mapping = &inode.mapping;
            let made = mapping.with_new(index, |f, made| {
                if window.marker == Some(index) {
                    f.set_readahead(true);
                }
                made
            });
            if made {
                mapping.try_lock(index);
                fresh.push(index);
            }
        }
        let flags = if ahead {
            BioFlags::RAHEAD
        } else {
            BioFlags::NONE
        };
        self.read_pages(inode, &fresh, flags).await
    }

    /// Reads locked pages of the cache, ascending; they are unlocked when their I/O is done.
    async fn read_pages(&self, inode: &Rc<Inode>, pages: &[u64], flags: BioFlags) -> FsResult<()> {
        let bs = self.geo.block_size;
        let per_page = 4096 / bs;
        let eof = inode.end_lblk(self.geo.block_bits).0;
        let plug = self.queue.plug();
        let mut bio = ReadBio::new(flags);
        let mut known = (0, Run { len: 0, pblk: None });
        let mut res = Ok(());
        for &index in pages {
            let base = index as u32 * per_page;
            let mut found: Vec<(u32, u64)> = Vec::with_capacity(per_page as usize);
            for b in 0..per_page {
                let lblk = base + b;
                if res.is_ok() && (lblk < known.0 || lblk >= known.0 + known.1.len) {
                    let most = (eof.saturating_sub(lblk)).clamp(1, BIO_MAX_PAGES * per_page);
                    match self.map_for_read(inode, lblk, most).await {
                        Ok(run) => known = (lblk, run),
                        Err(e) => res = Err(e),
                    }
                }
                if let (true, Some(start)) = (res.is_ok(), known.1.pblk) {
                    found.push((b, start + u64::from(lblk - known.0)));
                }
            }
            if res.is_err() {
                inode.mapping.with(index, |f| f.set_error(true));
            }
            // All blocks count as in flight before the first is sent: the last to arrive unlocks the page.
            let waits = found.iter().fold(0, |m, (b, _)| m | 1 << b);
            self.note_holes(inode, index, waits, res.is_err());
            for (b, pblk) in found {
                if !bio.fits(pblk, per_page) {
                    self.send_read(inode, &mut bio).await;
                }
                bio.push(pblk, index, b);
            }
        }
        self.send_read(inode, &mut bio).await;
        plug.finish();
        res
    }

    /// Zeroes the blocks of a page that need no I/O; unlocks the page if none does.
    fn note_holes(&self, inode: &Inode, index: u64, waits: BlockMask, failed: bool) {
        let bs = self.geo.block_size;
        inode.mapping.with(index, |f| {
            f.set_in_flight(waits);
            let zero = all_blocks(bs) & !waits & !f.uptodate();
            for b in 0..4096 / bs {
                if zero & (1 << b) != 0 {
                    f.zero_range((b * bs) as usize, ((b + 1) * bs) as usize);
                }
            }
            if !failed {
                f.set_uptodate(zero);
            }
        });
        if waits == 0 {
            inode.mapping.unlock(index);
        }
    }

    async fn send_read(&self, inode: &Rc<Inode>, bio: &mut ReadBio) {
        if bio.blocks.is_empty() {
            return;
        }
        let bs = self.geo.block_size;
        let blocks = std::mem::take(&mut bio.blocks);
        let lba = Lba(bio.start * u64::from(bs) / 512);
        let io = Bio::read(lba, blocks.len() as u32, bs, Role::FileData)
            .flags(bio.flags)
            .ino(inode.ino);
        let mapping = inode.mapping.clone();
        let done = move |res: IoResult| end_read(&mapping, &blocks, bs, res);
        self.queue.enter(&io).await;
        self.queue.submit_with(io, done);
    }

    /// Reads single blocks of a locked page and waits for them; the page stays locked.
    pub(super) async fn read_blocks(
        &self,
        inode: &Rc<Inode>,
        index: u64,
        mask: BlockMask,
    ) -> FsResult<()> {
        let bs = self.geo.block_size;
        for b in 0..4096 / bs {
            if mask & (1 << b) == 0 {
                continue;
            }
            let lblk = index as u32 * (4096 / bs) + b;
            let run = self.map_for_read(inode, lblk, 1).await?;
            let at = (b * bs) as usize;
            let payload = match run.pblk {
                None => Payload::Zero,
                Some(pblk) => {
                    let lba = Lba(pblk * u64::from(bs) / 512);
                    let io = Bio::read(lba, 1, bs, Role::FileData)
                        .flags(BioFlags::SYNC)
                        .ino(inode.ino);
                    self.queue.run(io).await?.into_one()
                }
            };
            inode.mapping.with(index, |f| {
                put_block(f, at, bs, payload);
                f.set_uptodate(1 << b);
            });
        }
        Ok(())
    }

    /// Brings a page in and waits until it is valid.
    pub(super) async fn read_page(&self, inode: &Rc<Inode>, index: u64) -> FsResult<()> {
        let bs = self.geo.block_size;
        loop {
            inode.mapping.wait_locked(index).await;
            let state = inode
                .mapping
                .with(index, |f| (f.uptodate() == all_blocks(bs), f.error()));
            match state {
                Some((true, _)) => return Ok(()),
                Some((false, true)) => {
                    inode.mapping.with(index, |f| f.set_error(false));
                    return Err(FsError::Errno(Errno::EIO));
                }
                Some((false, false)) => {
                    // Partly valid (small blocks written before): read the rest.
                    inode.mapping.lock(index).await;
                    let have = inode.mapping.with(index, |f| f.uptodate()).unwrap_or(0);
                    let missing = all_blocks(bs) & !have;
                    let res = self.read_blocks(inode, index, missing).await;
                    inode.mapping.unlock(index);
                    res?;
                }
                None => {
                    let w = Window {
                        start: index,
                        count: 1,
                        marker: None,
                    };
                    self.readahead(inode, w, false).await?;
                }
            }
        }
    }
}

impl ReadBio {
    fn new(flags: BioFlags) -> ReadBio {
        ReadBio {
            start: 0,
            flags,
            blocks: Vec::new(),
        }
    }

    fn fits(&self, pblk: u64, per_page: u32) -> bool {
        let n = self.blocks.len() as u64;
        n == 0 || pblk == self.start + n && n < u64::from(BIO_MAX_PAGES * per_page)
    }

    fn push(&mut self, pblk: u64, index: u64, block: u32) {
        if self.blocks.is_empty() {
            self.start = pblk;
        }
        self.blocks.push((index, block));
    }
}

fn put_block(f: &mut crate::mm::Folio, at: usize, bs: u32, payload: Payload) {
    if bs == 4096 {
        f.payload = payload;
    } else {
        f.write_bytes(at, &payload.to_bytes(bs as usize));
    }
}

/// A read bio is done, in interrupt context.
fn end_read(mapping: &AddressSpace, blocks: &[(u64, u32)], bs: u32, res: IoResult) {
    let (payloads, failed) = match res {
        Ok(p) => (p.into_vec(), false),
        Err(_) => (Vec::new(), true),
    };
    let last = Cell::new(false);
    for (i, &(index, b)) in blocks.iter().enumerate() {
        mapping.with(index, |f| {
            if failed {
                f.set_error(true);
            } else if f.uptodate() & (1 << b) == 0 {
                let p = payloads.get(i).cloned().unwrap_or(Payload::Zero);
                put_block(f, (b * bs) as usize, bs, p);
                f.set_uptodate(1 << b);
            }
            last.set(f.end_in_flight(1 << b));
        });
        if last.get() {
            mapping.unlock(index);
        }
    }
}
