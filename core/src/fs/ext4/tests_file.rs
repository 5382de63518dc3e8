//! The data path against a model: one file as a vector of bytes, over a mounted simulated file system, with
//! remounts, in all data modes and block sizes.

use super::file::{FileState, IoFlags};
use super::mkfs::{mkfs, MkfsOptions};
use super::{CostTable, Ext4, Inode, MountConfig, MountOptions};
use crate::base::payload::content;
use crate::base::rng::SplitMix64;
use crate::base::{Ino, Lba, Nanos, WriteSource};
use crate::block::{Bio, Device, DeviceConfig, Queue, Role};
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::{HandleType, JournalCosts};
use crate::mm::{Tag, Vm};
use crate::sim::{Sim, WaitReason};
use std::rc::Rc;

const ALLOC: u32 = 0;
const KEEP: u32 = 1;
const PUNCH: u32 = 3;
const COLLAPSE: u32 = 8;
const ZERO: u32 = 0x10;
const ZERO_KEEP: u32 = 0x11;
const INSERT: u32 = 0x20;

/// A machine with a formatted device.
struct Rig {
    sim: Sim,
    queue: Rc<Queue>,
    opts: String,
}

impl Rig {
    fn new(seed: u64, mib: u64, mkfs_opts: &str, mount_opts: &str) -> Rig {
        let sim = Sim::new(seed, 2);
        let size = mib << 20;
        let config = DeviceConfig::parse("loop", size).unwrap();
        let queue = Queue::new(&sim, Device::new(config, sim.rng("device.latency")));
        let image = mkfs(&MkfsOptions::parse(mkfs_opts).unwrap(), size).unwrap();
        let q = Rc::clone(&queue);
        sim.block_on("mkfs", async move {
            let bs = u64::from(image.block_size);
            let lba = |b: u64| Lba(b * bs / 512);
            for (at, len) in image.zero {
                let sectors = (len * bs / 512) as u32;
                q.run(Bio::write_zeroes(lba(at), sectors, Role::Other))
                    .await
                    .unwrap();
            }
            for (at, p) in image.blocks {
                q.run(Bio::write(lba(at), bs as u32, p, Role::Other))
                    .await
                    .unwrap();
            }
        })
        .unwrap();
        let opts = mount_opts.to_owned();
        Rig { sim, queue, opts }
    }

    async fn mount(&self) -> FsResult<Rc<Ext4>> {
        Ext4::mount(MountConfig {
            sim: self.sim.clone(),
            queue: Rc::clone(&self.queue),
            vm: Vm::new(&self.sim, 1 << 30),
            opts: MountOptions::parse(&self.opts).unwrap(),
            wall_clock_base: 1_700_000_000_000_000_000,
            cost: CostTable::MODELLED,
            journal_costs: JournalCosts::LINUX,
            device: "vda".to_owned(),
            mount_point: "/".to_owned(),
            journal_queue: None,
        })
        .await
    }
}

/// A regular file without a name.
async fn make_file(fs: &Rc<Ext4>) -> FsResult<Rc<Inode>> {
    let root = fs.iget(Ino(2)).await?;
    let mut h = fs.journal_start(HandleType::Dir, 60).await?;
    let inode = fs.new_inode(&mut h, &root, 0o100_644, b"f", None).await?;
    fs.mark_inode_dirty(&mut h, &inode).await?;
    fs.journal_stop(h).await?;
    fs.unlock_new_inode(&inode);
    fs.iput(root).await?;
    Ok(inode)
}

struct Player {
    rig: Rc<Rig>,
    fs: Rc<Ext4>,
    inode: Rc<Inode>,
    f: FileState,
    model: Vec<u8>,
    rng: SplitMix64,
    max: u64,
    block: u64,
    extents: bool,
    log: Vec<String>,
}

impl Player {
    async fn step(&mut self, n: u32) {
        let r = self.rng.below(100);
        let off = self.rng.below(self.max);
        let len = 1 + self.rng.below((self.max / 6).min(self.max - off));
        let size = self.model.len();
        self.log.push(format!(
            "{n}: kind {r} mode {}, {off}+{len} of {size}",
            n % 9
        ));
        match r {
            0..40 => self.write(off, len, n, r % 4 == 0).await,
            40..48 => self.truncate(self.rng_size()).await,
            48..72 => self.falloc(n, off, len).await,
            72..82 => self.read(off, len).await,
            82..86 => self
                .fs
                .sync_file(&self.inode, &self.f, r % 2 == 0)
                .await
                .unwrap(),
            86..89 => self.fs.sync_filesystem().await.unwrap(),
            89..92 => self.fs.drop_pagecache(),
            92..95 => {
                self.rig
                    .sim
                    .sleep(Nanos::from_ms(700 * r), WaitReason::Timer)
                    .await;
            }
            95..97 => self
                .fs
                .fadvise_dontneed(&self.inode, off, len)
                .await
                .unwrap(),
            _ => self.remount().await,
        }
    }

    fn rng_size(&self) -> u64 {
        let mut r = self.rng.clone();
        r.below(self.max)
    }

    async fn write(&mut self, off: u64, len: u64, n: u32, direct: bool) {
        let (off, len) = if direct {
            (off & !511, (len + 511) & !511)
        } else {
            (off, len)
        };
        let flags = IoFlags {
            direct,
            dsync: n % 31 == 0,
            sync: n % 62 == 0,
            append: false,
        };
        let f = FileState::new(&self.inode, flags);
        let mut pos = off;
        let mut bytes = vec![0; len as usize];
        content(u64::from(n), off, &mut bytes);
        let src = if n % 3 == 0 {
            WriteSource::Bytes(&bytes)
        } else {
            WriteSource::Content { seed: u64::from(n) }
        };
        let done = self
            .fs
            .file_write_iter(&self.inode, &f, &mut pos, len, src)
            .await
            .unwrap();
        assert_eq!((done, pos), (len, off + len), "op {n}");
        let end = (off + len) as usize;
        if self.model.len() < end {
            self.model.resize(end, 0);
        }
        self.model[off as usize..end].copy_from_slice(&bytes);
    }

    async fn truncate(&mut self, size: u64) {
        let guard = self.inode.rwsem.write().await;
        self.fs.setattr_size(&self.inode, size, true).await.unwrap();
        drop(guard);
        self.model.resize(size as usize, 0);
    }

    async fn falloc(&mut self, n: u32, off: u64, len: u64) {
        let b = self.block;
        let (aoff, alen) = (off / b * b, (len / b * b).max(b));
        let (mode, off, len) = match n % 9 {
            0 => (ALLOC, off, len),
            1 => (KEEP, off, len),
            2 | 3 => (PUNCH, off, len),
            4 => (ZERO, off, len),
            5 => (ZERO_KEEP, off, len),
            6 | 7 => (COLLAPSE, aoff, alen),
            _ => (INSERT, aoff, alen),
        };
        if mode == INSERT && self.model.len() as u64 + len > 2 * self.max {
            return;
        }
        let res = self.fs.fallocate(&self.inode, mode, off, len).await;
        let size = self.model.len() as u64;
        let possible = self.extents || mode == PUNCH;
        let expect = possible
            && match mode {
                COLLAPSE => off + len < size,
                INSERT => off < size,
                _ => true,
            };
        assert_eq!(
            res.is_ok(),
            expect,
            "op {n}: mode {mode:x} {off}+{len} of {size}: {res:?}"
        );
        if res.is_err() {
            return;
        }
        let (o, e) = (off as usize, (off + len) as usize);
        match mode {
            ALLOC if self.model.len() < e => self.model.resize(e, 0),
            PUNCH | ZERO_KEEP => self.zero(o, e),
            ZERO => {
                if self.model.len() < e {
                    self.model.resize(e, 0);
                }
                self.zero(o, e);
            }
            COLLAPSE => drop(self.model.drain(o..e)),
            INSERT => drop(self.model.splice(o..o, vec![0; len as usize])),
            _ => {}
        }
    }

    fn zero(&mut self, from: usize, to: usize) {
        let n = self.model.len();
        self.model[from.min(n)..to.min(n)].fill(0);
    }

    async fn read(&mut self, off: u64, len: u64) {
        let mut out = Vec::new();
        let n = self
            .fs
            .file_read_iter(&self.inode, &self.f, off, len, Some(&mut out))
            .await
            .unwrap();
        let from = (off as usize).min(self.model.len());
        let to = ((off + len) as usize).min(self.model.len());
        assert_eq!(n as usize, to - from);
        if out != self.model[from..to] {
            let tail = self.log.len().saturating_sub(14);
            panic!(
                "{}\n{}",
                difference(&out, &self.model[from..to], off),
                self.log[tail..].join("\n")
            );
        }
    }

    async fn remount(&mut self) {
        let ino = self.inode.ino;
        self.fs.iput(Rc::clone(&self.inode)).await.unwrap();
        self.fs.umount().await.unwrap();
        self.fs = self.rig.mount().await.unwrap();
        self.inode = self.fs.iget(ino).await.unwrap();
        self.f = FileState::new(&self.inode, IoFlags::default());
        self.check().await;
    }

    async fn check(&mut self) {
        assert_eq!(self.inode.size(), self.model.len() as u64);
        let all = self.model.len() as u64 + 1;
        self.read(0, all).await;
    }
}

/// Where and how far two pieces of the file differ.
fn difference(got: &[u8], want: &[u8], off: u64) -> String {
    let differ = |i: &usize| got.get(*i) != want.get(*i);
    let n = got.len().max(want.len());
    let bad: Vec<usize> = (0..n).filter(differ).collect();
    let blocks: std::collections::BTreeSet<u64> =
        bad.iter().map(|i| (off + *i as u64) >> 10).collect();
    format!(
        "{} of {n} bytes differ, in the 1 KiB blocks {blocks:?}",
        bad.len()
    )
}

fn model_run(seed: u64, mkfs_opts: &str, mount_opts: &str, steps: u32) {
    let mkfs_opts = format!("-U 6b6c6162-0000-4000-8000-000000000001 {mkfs_opts}");
    let rig = Rc::new(Rig::new(seed, 48, &mkfs_opts, mount_opts));
    let sim = rig.sim.clone();
    let run = async move {
        let fs = rig.mount().await.unwrap();
        let inode = make_file(&fs).await.unwrap();
        let f = FileState::new(&inode, IoFlags::default());
        let block = u64::from(fs.geo.block_size);
        let extents = fs.geo.extents;
        let mut p = Player {
            rig,
            fs,
            inode,
            f,
            model: Vec::new(),
            rng: SplitMix64::new(seed),
            max: 400_000,
            block,
            extents,
            log: Vec::new(),
        };
        for n in 1..=steps {
            p.step(n).await;
        }
        p.check().await;
        p.remount().await;
        p.fs.iput(Rc::clone(&p.inode)).await.unwrap();
        p.fs.umount().await.unwrap();
    };
    if let Err(e) = sim.block_on("player", run) {
        panic!("seed {seed}, {mkfs_opts}, {mount_opts}: {e}");
    }
    sim.shutdown();
}

#[test]
fn ordered_4k_agrees_with_a_vector() {
    for seed in 0..4 {
        model_run(seed, "-b 4096", "", 300);
    }
}

#[test]
fn ordered_1k_agrees_with_a_vector() {
    for seed in 10..14 {
        model_run(seed, "-b 1024", "", 300);
    }
}

#[test]
fn journalled_data_agrees_with_a_vector() {
    for (seed, b) in [(20, 4096), (21, 1024), (22, 4096)] {
        model_run(seed, &format!("-b {b}"), "data=journal", 250);
    }
}

#[test]
fn writeback_and_nodelalloc_agree_with_a_vector() {
    model_run(30, "-b 4096", "data=writeback", 250);
    model_run(31, "-b 2048", "nodelalloc", 250);
    model_run(32, "-b 1024", "nodelalloc,dioread_lock", 250);
}

#[test]
fn nojournal_and_block_maps_agree_with_a_vector() {
    model_run(40, "-b 4096 -O ^has_journal", "", 250);
    model_run(41, "-b 1024 -O ^extents,^64bit", "", 250);
}

/// Runs `f` on a fresh 64 MiB file system with one file.
fn with_file<F>(mount_opts: &str, f: impl FnOnce(Rc<Rig>, Rc<Ext4>, Rc<Inode>) -> F)
where
    F: std::future::Future<Output = ()> + 'static,
{
    let rig = Rc::new(Rig::new(1, 64, "-b 4096", mount_opts));
    let sim = rig.sim.clone();
    let (r, slot) = (Rc::clone(&rig), Rc::new(std::cell::RefCell::new(None)));
    let out = Rc::clone(&slot);
    sim.block_on("setup", async move {
        let fs = r.mount().await.unwrap();
        let inode = make_file(&fs).await.unwrap();
        *out.borrow_mut() = Some((fs, inode));
    })
    .unwrap();
    let (fs, inode) = slot.borrow_mut().take().unwrap();
    sim.block_on("test", f(rig, fs, inode)).unwrap();
    sim.shutdown();
}

async fn write(fs: &Rc<Ext4>, inode: &Rc<Inode>, off: u64, len: u64) {
    let f = FileState::new(inode, IoFlags::default());
    let mut pos = off;
    let src = WriteSource::Content { seed: 5 };
    fs.file_write_iter(inode, &f, &mut pos, len, src)
        .await
        .unwrap();
}

#[test]
fn delayed_blocks_are_allocated_by_the_flusher_after_thirty_seconds() {
    with_file("", |rig, fs, inode| async move {
        write(&fs, &inode, 0, 10_000).await;
        assert_eq!(inode.reserved_blocks.get(), 3);
        assert_eq!((inode.size(), inode.disksize.get()), (10_000, 0));
        rig.sim.sleep(Nanos::from_secs(29), WaitReason::Timer).await;
        assert_eq!(inode.reserved_blocks.get(), 3);
        rig.sim.sleep(Nanos::from_secs(7), WaitReason::Timer).await;
        assert_eq!(inode.reserved_blocks.get(), 0);
        assert_eq!(inode.disksize.get(), 10_000);
        assert_eq!(fs.vm.stat().nr_writeback, 0);
    });
}

#[test]
fn a_direct_write_is_buffered_in_silence_with_journalled_data_only() {
    for (opts, ok) in [("", false), ("data=journal", true)] {
        with_file(opts, move |_, fs, inode| async move {
            let flags = IoFlags {
                direct: true,
                ..IoFlags::default()
            };
            let f = FileState::new(&inode, flags);
            let src = WriteSource::Bytes(&[1; 100]);
            let res = fs.file_write_iter(&inode, &f, &mut 3, 100, src).await;
            assert_eq!(res.is_ok(), ok);
            if let Err(e) = res {
                assert_eq!(e, FsError::Errno(crate::base::Errno::EINVAL));
            }
        });
    }
}

#[test]
fn fsync_costs_the_flushes_that_linux_pays() {
    // kernel-lab: ordered 2 (preflush of the commit block, and FUA emulated), journalled data one more.
    for (opts, flushes) in [("", 2), ("data=journal", 3)] {
        with_file(opts, move |rig, fs, inode| async move {
            write(&fs, &inode, 0, 4096).await;
            let f = FileState::new(&inode, IoFlags::default());
            fs.sync_file(&inode, &f, false).await.unwrap();
            let count = || {
                let s = rig.queue.stats();
                let all = [crate::block::Phase::Mount];
                all.iter().map(|p| s.requests(*p).rq_flush).sum::<u64>()
            };
            for i in 1..6 {
                write(&fs, &inode, i * 40_960, 4096).await;
                let before = count();
                fs.sync_file(&inode, &f, false).await.unwrap();
                assert_eq!(count() - before, flushes, "{opts}");
            }
        });
    }
}

#[test]
fn writers_are_throttled_to_the_speed_of_the_device() {
    with_file("", |rig, fs, inode| async move {
        let start = rig.sim.now();
        // A quarter of 1 GiB of memory is over the limit of 20 %; the file stays within 40 MiB by overwriting.
        let mut s = fs.vm.sysctls();
        s.dirty_bytes = 8 << 20;
        s.dirty_background_bytes = 4 << 20;
        fs.vm.set_sysctls(s);
        for round in 0..3 {
            for i in 0..10 {
                write(&fs, &inode, i << 22, 4 << 20).await;
                let dirty = fs.vm.stat().nr_dirty;
                assert!(dirty <= 4096 + 1024, "round {round}: {dirty} dirty pages");
            }
        }
        assert!(fs.vm.stat().throttled > 0);
        assert!(rig.sim.now() > start);
    });
}

#[test]
fn inserting_or_collapsing_a_range_leaves_the_reservations_before_it() {
    for (mode, blocks) in [(INSERT, 7), (COLLAPSE, 5)] {
        with_file("", move |_, fs, inode| async move {
            write(&fs, &inode, 0, 7 * 4096).await;
            fs.fallocate(&inode, mode, 4 * 4096, 2 * 4096)
                .await
                .unwrap();
            assert_eq!(inode.reserved_blocks.get(), 4, "mode {mode:#x}");
            fs.write_and_wait(&inode, 0, u64::MAX).await.unwrap();
            assert_eq!(inode.reserved_blocks.get(), 0, "mode {mode:#x}");
            assert_eq!(
                fs.getattr(&inode, false).blocks,
                blocks * 8,
                "mode {mode:#x}"
            );
        });
    }
}

#[test]
fn fsync_writes_what_more_than_one_extent_holds() {
    with_file("", |_, fs, inode| async move {
        // Two files take turns, so that no two extents of the first are neighbours on the device.
        let other = make_file(&fs).await.unwrap();
        for i in 0..4 {
            for file in [&inode, &other] {
                fs.fallocate(file, ALLOC, i * 4 * 4096, 4 * 4096)
                    .await
                    .unwrap();
            }
        }
        write(&fs, &inode, 0, 16 * 4096).await;
        let f = FileState::new(&inode, IoFlags::default());
        fs.sync_file(&inode, &f, false).await.unwrap();
        assert!(!inode.mapping.any(Tag::Dirty));
        fs.iput(other).await.unwrap();
    });
}
