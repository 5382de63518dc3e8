//! The journal on a small simulated device: commit, wrap, checkpoint, revoke, abort, and power cuts at every write.

use super::journal::{Journal, JournalMap, JournalOptions};
use super::recovery::replay;
use super::HandleType;
use crate::base::rng::SplitMix64;
use crate::base::{bytes, FsBlock, Lba, Nanos, Payload};
use crate::block::{Bio, Class, Device, DeviceConfig, Fault, Op, Phase, Queue, Role, Store};
use crate::format::jbd2::JournalSuperblock;
use crate::mm::buffer::{Bh, Buffer, BufferCache};
use crate::sim::Sim;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::rc::Rc;

const BLOCK: usize = 4096;
const SECTORS: u64 = 8;
const SIZE: u64 = 256 << 20;
/// First block of the log on the device; homes are below.
const LOG: u64 = 1000;

type Image = BTreeMap<u64, Rc<[u8]>>;

struct Rig {
    sim: Sim,
    queue: Rc<Queue>,
    buffers: Rc<BufferCache>,
}

impl Rig {
    /// A device with an empty journal of `blocks` blocks in two extents.
    fn new(blocks: u32) -> Rig {
        let sim = Sim::new(1, 2);
        let config = DeviceConfig::parse("loop", SIZE).unwrap();
        let queue = Queue::new(&sim, Device::new(config, sim.rng("device")));
        let mut b = vec![0; BLOCK];
        JournalSuperblock::new(BLOCK as u32, blocks, [7; 16]).encode(&mut b);
        let at = LOG * BLOCK as u64;
        queue.device_mut().store_mut().write_bytes(at, &b);
        let buffers = BufferCache::new(&sim, Rc::clone(&queue), BLOCK as u32);
        Rig {
            sim,
            queue,
            buffers,
        }
    }

    fn map(blocks: u32) -> JournalMap {
        let half = blocks / 2;
        let second = FsBlock(LOG + 10_000);
        JournalMap::Inode(vec![(0, half, FsBlock(LOG)), (half, blocks - half, second)])
    }

    fn run<T: 'static, F>(&self, f: impl FnOnce(Sim, Rc<BufferCache>) -> F) -> T
    where
        F: std::future::Future<Output = T> + 'static,
    {
        let fut = f(self.sim.clone(), Rc::clone(&self.buffers));
        match self.sim.block_on("test", fut) {
            Ok(v) => v,
            Err(stuck) => panic!("{stuck}"),
        }
    }

    fn image(&self) -> Image {
        image_of(self.queue.device().store())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.sim.shutdown();
    }
}

fn image_of(store: &Store) -> Image {
    let pages = store.written_pages();
    pages
        .into_iter()
        .map(|p| (u64::from(p), store.get(p).to_bytes(BLOCK)))
        .collect()
}

fn home_of(jblock: u32, blocks: u32) -> u64 {
    let half = blocks / 2;
    if jblock < half {
        LOG + u64::from(jblock)
    } else {
        LOG + 10_000 + u64::from(jblock - half)
    }
}

fn block_of(image: &Image, n: u64) -> Rc<[u8]> {
    image
        .get(&n)
        .map_or_else(|| vec![0; BLOCK].into(), Rc::clone)
}

/// Replays the log of `image` into it; the number of blocks replayed, `None` if the log is damaged.
fn try_recover(image: &mut Image, blocks: u32) -> Option<u32> {
    let jsb = JournalSuperblock::decode(&block_of(image, LOG)).unwrap();
    let mut writes = Vec::new();
    let res = replay::<Infallible>(
        &jsb,
        |at| Ok(block_of(image, home_of(at, blocks))),
        |home, b| {
            writes.push((home, b));
            Ok(())
        },
    );
    image.extend(writes);
    match res.ok()? {
        None => Some(0),
        Some((o, _)) => o.error.is_none().then_some(o.replayed),
    }
}

fn recover(image: &mut Image, blocks: u32) -> u32 {
    try_recover(image, blocks).unwrap()
}

/// Modifies block `n` within its own handle to hold `value`.
async fn put(j: &Rc<Journal>, buffers: &Rc<BufferCache>, blocks: &[u64], value: u64) {
    let mut h = j
        .start(HandleType::Inode, blocks.len() as u32, 0)
        .await
        .unwrap();
    for &n in blocks {
        let b = buffers.bread(FsBlock(n), Role::Itable).await.unwrap();
        j.get_write_access(&mut h, &b).await.unwrap();
        set_value(&b, value);
        j.dirty_metadata(&mut h, &b).unwrap();
    }
    j.stop(h).await.unwrap();
}

fn set_value(b: &Buffer, value: u64) {
    b.modify(|p| bytes::put_le64(p, 8, value));
}

fn value_of(image: &Image, n: u64) -> u64 {
    bytes::le64(&block_of(image, n), 8)
}

async fn load(
    sim: &Sim,
    buffers: &Rc<BufferCache>,
    blocks: u32,
    opts: JournalOptions,
) -> Rc<Journal> {
    Journal::load(sim, Rc::clone(buffers), Rig::map(blocks), opts)
        .await
        .unwrap()
}

#[test]
fn committed_is_recovered_and_uncommitted_is_not() {
    let rig = Rig::new(1024);
    rig.run(|sim, buffers| async move {
        let j = load(&sim, &buffers, 1024, JournalOptions::default()).await;
        put(&j, &buffers, &[5, 6, 7], 1).await;
        j.force_commit().await.unwrap();
        put(&j, &buffers, &[6], 2).await;
        assert_eq!(j.stats().transactions, 1);
        // superblock, descriptor, three copies, commit
        assert_eq!(j.stats().run.blocks_logged, 5);
        assert_eq!(j.stats().journal_sb_writes, 1);
    });
    let mut image = rig.image();
    assert_eq!(
        value_of(&image, 6),
        0,
        "nothing goes home before its checkpoint"
    );
    assert_eq!(recover(&mut image, 1024), 3);
    assert_eq!([5, 6, 7].map(|n| value_of(&image, n)), [1, 1, 1]);
}

#[test]
fn the_timer_commits_after_five_to_six_seconds() {
    let rig = Rig::new(1024);
    rig.run(|sim, buffers| async move {
        let j = load(&sim, &buffers, 1024, JournalOptions::default()).await;
        sim.sleep(Nanos::from_ms(300), crate::sim::WaitReason::Timer)
            .await;
        put(&j, &buffers, &[5], 1).await;
        sim.sleep(Nanos::from_ms(5_650), crate::sim::WaitReason::Timer)
            .await;
        assert_eq!(
            j.stats().transactions,
            0,
            "not before the next whole second"
        );
        sim.sleep(Nanos::from_ms(100), crate::sim::WaitReason::Timer)
            .await;
        assert_eq!(j.stats().transactions, 1);
    });
}

#[test]
fn destroy_brings_everything_home_and_empties_the_log() {
    let rig = Rig::new(1024);
    let stats = rig.run(|sim, buffers| async move {
        let j = load(&sim, &buffers, 1024, JournalOptions::default()).await;
        put(&j, &buffers, &[5, 6], 3).await;
        j.destroy().await.unwrap();
        j.stats()
    });
    let image = rig.image();
    assert_eq!([5, 6].map(|n| value_of(&image, n)), [3, 3]);
    let jsb = JournalSuperblock::decode(&block_of(&image, LOG)).unwrap();
    // An empty log's first transaction is the one after `s_sequence`.
    assert_eq!((jsb.s_start, jsb.s_sequence), (0, 4));
    // As the kernel: before the commit, tail after the checkpoint, empty.
    assert_eq!(stats.journal_sb_writes, 3);
    assert_eq!(stats.checkpoint.written, 2);
}

/// Transactions close where the credits say, not where the blocks do: 1365 of 4096 blocks less 7 of overhead, as
/// recorded by kernel-lab (`ext4-journal-randwrite4k-buffered`: full commits of 1336 blocks, 1343 logged).
#[test]
fn transactions_close_where_linux_closes_them() {
    let rig = Rig::new(4096);
    rig.run(|sim, buffers| async move {
        let j = load(&sim, &buffers, 4096, JournalOptions::default()).await;
        assert_eq!(j.max_transaction_buffers(), 1365);
        let mut n = 0;
        let first = j.superblock().s_sequence + 1;
        while j.running_tid().is_none_or(|t| t.0 == first) {
            let mut h = j.start(HandleType::WritePage, 23, 0).await.unwrap();
            let b = buffers.getblk(FsBlock(20_000 + n));
            b.set(Bh::UPTODATE);
            j.get_create_access(&mut h, &b).unwrap();
            set_value(&b, n);
            j.dirty_metadata(&mut h, &b).unwrap();
            j.stop(h).await.unwrap();
            n += 1;
        }
        j.wait_commit(crate::base::Tid(first)).await.unwrap();
        assert_eq!(j.stats().run.blocks, 1336);
        assert_eq!(j.stats().run.blocks_logged, 1343);
        j.destroy().await.unwrap();
    });
}

#[test]
fn long_runs_wrap_and_every_log_block_is_accounted_for() {
    let rig = Rig::new(1024);
    let stats = rig.run(|sim, buffers| async move {
        let j = load(&sim, &buffers, 1024, JournalOptions::default()).await;
        for i in 1..=700 {
            let blocks: Vec<u64> = (0..6).map(|k| 10 + (i * 7 + k * 5) % 60).collect();
            put(&j, &buffers, &blocks, i).await;
            j.force_commit().await.unwrap();
        }
        j.destroy().await.unwrap();
        j.stats()
    });
    let journal: u64 = Phase::ALL
        .iter()
        .map(|p| rig.queue.stats().bios(*p, Class::Journal).sectors_w / SECTORS)
        .sum();
    assert_eq!(journal, stats.run.blocks_logged + stats.journal_sb_writes);
    assert_eq!(stats.transactions, 700);
    assert!(stats.checkpoint.dropped > 3_000, "{:?}", stats.checkpoint);
}

#[test]
fn a_buffer_that_is_logged_can_be_modified_for_the_next_transaction() {
    let rig = Rig::new(1024);
    rig.run(|sim, buffers| async move {
        let j = load(&sim, &buffers, 1024, JournalOptions::default()).await;
        put(&j, &buffers, &[5, 6], 1).await;
        let tid = j.running_tid().unwrap();
        j.start_commit(tid);
        for v in 2..40 {
            put(&j, &buffers, &[5, 6], v).await;
        }
        j.wait_commit(tid).await.unwrap();
    });
    let mut image = rig.image();
    recover(&mut image, 1024);
    let values = [5, 6].map(|n| value_of(&image, n));
    assert_eq!(values[0], values[1], "a handle is atomic");
    assert!(values[0] >= 1);
}

#[test]
fn escaped_blocks_come_back_with_their_magic() {
    let rig = Rig::new(1024);
    rig.run(|sim, buffers| async move {
        let j = load(&sim, &buffers, 1024, JournalOptions::default()).await;
        let mut h = j.start(HandleType::Dir, 2, 0).await.unwrap();
        let b = buffers.bread(FsBlock(9), Role::Dir).await.unwrap();
        j.get_write_access(&mut h, &b).await.unwrap();
        b.modify(|p| bytes::put_be32(p, 0, crate::format::jbd2::JBD2_MAGIC_NUMBER));
        j.dirty_metadata(&mut h, &b).unwrap();
        j.stop(h).await.unwrap();
        j.force_commit().await.unwrap();
    });
    let mut image = rig.image();
    recover(&mut image, 1024);
    let magic = bytes::be32(&block_of(&image, 9), 0);
    assert_eq!(magic, crate::format::jbd2::JBD2_MAGIC_NUMBER);
}

#[test]
fn credits_are_a_limit() {
    let rig = Rig::new(1024);
    rig.run(|sim, buffers| async move {
        let j = load(&sim, &buffers, 1024, JournalOptions::default()).await;
        assert!(
            j.start(HandleType::Misc, 1_000, 0).await.is_err(),
            "more than a transaction holds"
        );
        let mut h = j.start(HandleType::Misc, 1, 0).await.unwrap();
        for n in [5, 6] {
            let b = buffers.bread(FsBlock(n), Role::Itable).await.unwrap();
            j.get_write_access(&mut h, &b).await.unwrap();
            set_value(&b, 1);
            assert_eq!(j.dirty_metadata(&mut h, &b).is_ok(), n == 5);
        }
        assert!(j.extend(&mut h, 1, 0).unwrap());
        let b = buffers.bread(FsBlock(6), Role::Itable).await.unwrap();
        j.dirty_metadata(&mut h, &b).unwrap();
        j.stop(h).await.unwrap();
        j.destroy().await.unwrap();
    });
}

#[test]
fn reserved_handles_join_a_locked_transaction() {
    let rig = Rig::new(1024);
    rig.run(|sim, buffers| async move {
        let j = load(&sim, &buffers, 1024, JournalOptions::default()).await;
        let mut h = j
            .start_with_reserve(HandleType::WritePage, 4, 3, 0)
            .await
            .unwrap();
        let mut r = h.take_reserved().unwrap();
        let tid = h.tid().unwrap();
        j.start_commit(tid);
        sim.sleep(Nanos::from_us(50), crate::sim::WaitReason::Timer)
            .await;
        j.start_reserved(&mut r, HandleType::ExtConvert)
            .await
            .unwrap();
        assert_eq!(r.tid(), Some(tid), "joined although locked");
        j.stop(h).await.unwrap();
        let b = buffers.bread(FsBlock(5), Role::Itable).await.unwrap();
        j.get_write_access(&mut r, &b).await.unwrap();
        set_value(&b, 1);
        j.dirty_metadata(&mut r, &b).unwrap();
        j.stop(r).await.unwrap();
        j.wait_commit(tid).await.unwrap();
        assert_eq!(j.stats().run.blocks, 1);
        j.destroy().await.unwrap();
    });
}

/// A step of the model: what the homes hold from here on. `None`: anything.
#[derive(Clone, Debug)]
struct Step {
    /// When it was promised durable, if it was.
    promised: Option<Nanos>,
    state: BTreeMap<u64, Option<u64>>,
}

/// Random handles over few blocks, with forced commits, and blocks that are freed, revoked and reused as file data.
async fn workload(
    j: Rc<Journal>,
    buffers: Rc<BufferCache>,
    queue: Rc<Queue>,
    sim: Sim,
    seed: u64,
    steps: Rc<RefCell<Vec<Step>>>,
) {
    let mut rng = SplitMix64::new(seed);
    let mut state: BTreeMap<u64, Option<u64>> = (10..30).map(|n| (n, Some(0))).collect();
    let mut freed: Option<u64> = None;
    let note = |state: &BTreeMap<u64, Option<u64>>| {
        let state = state.clone();
        let promised = None;
        steps.borrow_mut().push(Step { promised, state });
    };
    let promise = || {
        let at = sim.now();
        for s in steps.borrow_mut().iter_mut() {
            s.promised.get_or_insert(at);
        }
    };
    note(&state);
    for i in 1..200u64 {
        let n = 1 + rng.below(5);
        let blocks: Vec<u64> = (0..n).map(|_| 10 + rng.below(20)).collect();
        let blocks: Vec<u64> = blocks.into_iter().filter(|b| Some(*b) != freed).collect();
        for b in &blocks {
            state.insert(*b, Some(i));
        }
        put(&j, &buffers, &blocks, i).await;
        note(&state);
        if rng.below(4) == 0 {
            j.force_commit().await.unwrap();
            promise();
        }
        if rng.below(6) == 0 {
            let b = 10 + rng.below(20);
            if let Some(old) = freed.replace(b) {
                if old != b {
                    let value = state.get(&old).copied().flatten().unwrap_or(0);
                    reuse_as_metadata(&j, &buffers, old, value).await;
                }
            }
            free_block(&j, &buffers, b).await;
            state.insert(b, None);
            note(&state);
            j.force_commit().await.unwrap();
            promise();
            write_file_data(&queue, b, 1_000 + i).await;
            state.insert(b, Some(1_000 + i));
            note(&state);
            promise();
        }
    }
}

async fn free_block(j: &Rc<Journal>, buffers: &Rc<BufferCache>, n: u64) {
    let mut h = j.start(HandleType::Truncate, 1, 1).await.unwrap();
    let b = buffers.getblk(FsBlock(n));
    j.revoke(&mut h, FsBlock(n), Some(&b)).unwrap();
    j.stop(h).await.unwrap();
}

async fn reuse_as_metadata(j: &Rc<Journal>, buffers: &Rc<BufferCache>, n: u64, value: u64) {
    let mut h = j.start(HandleType::Dir, 1, 0).await.unwrap();
    let b = buffers.getblk(FsBlock(n));
    j.get_create_access(&mut h, &b).unwrap();
    set_value(&b, value);
    b.set(Bh::UPTODATE);
    j.dirty_metadata(&mut h, &b).unwrap();
    j.stop(h).await.unwrap();
}

async fn write_file_data(queue: &Rc<Queue>, n: u64, value: u64) {
    let mut b = vec![0; BLOCK];
    bytes::put_le64(&mut b, 8, value);
    let bio = Bio::write(
        Lba(n * SECTORS),
        4096,
        Payload::Bytes(b.into()),
        Role::FileData,
    );
    queue.run(bio).await.unwrap();
    queue.flush().await.unwrap();
}

/// A write of the device's log: when it was issued, acknowledged and durable, and what it wrote.
struct Write {
    issued: Nanos,
    acked: Nanos,
    durable: Nanos,
    blocks: Image,
}

/// All writes in the order of acknowledgement.
fn writes(queue: &Queue) -> Vec<Write> {
    let device = queue.device();
    let mut cursor = device.cursor();
    let log = device.log();
    let records: Vec<_> = log.records().map(|(at, r)| (at, *r)).collect();
    let mut out = Vec::new();
    for (at, r) in records {
        if r.op != Op::Write {
            continue;
        }
        assert!(cursor.seek(log, at + 1));
        let pages = r.lba.0 / SECTORS..(r.lba.0 + u64::from(r.sectors)) / SECTORS;
        let blocks = pages.map(|p| (p, cursor.store().get(p as u32).to_bytes(BLOCK)));
        out.push(Write {
            issued: r.issued,
            acked: r.acked,
            durable: r.durable,
            blocks: blocks.collect(),
        });
    }
    out
}

/// The disk after a cut at `t`: what was durable, and of what was in the cache or in flight a random subset of blocks.
fn crash(base: &Image, writes: &[Write], t: Nanos, rng: &mut SplitMix64) -> Image {
    let mut image = base.clone();
    let mode = rng.below(4);
    for w in writes.iter().filter(|w| w.issued <= t) {
        for (n, b) in &w.blocks {
            let durable = w.acked <= t && w.durable <= t;
            if durable || (mode != 0 && rng.below(4) < mode) {
                image.insert(*n, Rc::clone(b));
            }
        }
    }
    image
}

/// Number of cuts after which the homes match no step from the last promise on.
fn broken_cuts(blocks: u32, opts: JournalOptions, seed: u64) -> (usize, usize) {
    let rig = Rig::new(blocks);
    let base = rig.image();
    let steps: Rc<RefCell<Vec<Step>>> = Rc::default();
    let (queue, s) = (Rc::clone(&rig.queue), Rc::clone(&steps));
    rig.run(|sim, buffers| async move {
        let j = load(&sim, &buffers, blocks, opts).await;
        workload(j, buffers, queue, sim, seed, s).await;
    });
    let steps = steps.borrow();
    let mut rng = SplitMix64::new(seed ^ 0x63);
    let mut broken = 0;
    let writes = writes(&rig.queue);
    let cuts: Vec<Nanos> = writes.iter().flat_map(|w| [w.issued, w.acked]).collect();
    for cut in &cuts {
        let mut image = crash(&base, &writes, *cut, &mut rng);
        let damaged = try_recover(&mut image, blocks).is_none();
        let promised = steps
            .iter()
            .rposition(|s| s.promised.is_some_and(|p| p <= *cut));
        let ok = steps[promised.unwrap_or(0)..].iter().any(|s| {
            let same = |(n, v): (&u64, &Option<u64>)| v.is_none_or(|v| value_of(&image, *n) == v);
            s.state.iter().all(same)
        });
        broken += usize::from(!ok || damaged);
    }
    (broken, cuts.len())
}

#[test]
fn after_a_cut_at_any_write_a_prefix_with_all_promises_is_there() {
    for seed in 1..6 {
        let (broken, cuts) = broken_cuts(256, JournalOptions::default(), seed);
        assert_eq!(broken, 0, "of {cuts} cuts, seed {seed}");
        assert!(cuts > 300);
    }
}

#[test]
fn without_barriers_promises_are_broken() {
    let mut broken = 0;
    for seed in 1..6 {
        let opts = JournalOptions {
            barrier: false,
            ..JournalOptions::default()
        };
        broken += broken_cuts(256, opts, seed).0;
    }
    assert!(broken > 0);
}

/// A log with several transactions, revokes and a wrap, as a power cut leaves it.
fn dirty_image(seed: u64) -> Image {
    let rig = Rig::new(256);
    let queue = Rc::clone(&rig.queue);
    rig.run(move |sim, buffers| async move {
        let j = load(&sim, &buffers, 256, JournalOptions::default()).await;
        workload(j, buffers, queue, sim, seed, Rc::default()).await;
    });
    rig.image()
}

#[test]
fn recovery_may_be_interrupted_and_repeated() {
    let image = dirty_image(3);
    let mut whole = image.clone();
    let count = recover(&mut whole, 256);
    assert!(count > 3);
    let jsb = JournalSuperblock::decode(&block_of(&image, LOG)).unwrap();
    for stop in 0..count {
        let mut partly = image.clone();
        let mut left = stop;
        let _ = replay::<()>(
            &jsb,
            |at| Ok(block_of(&image, home_of(at, 256))),
            |home, b| {
                left = left.checked_sub(1).ok_or(())?;
                partly.insert(home, b);
                Ok(())
            },
        );
        recover(&mut partly, 256);
        assert!(partly == whole, "stopped after {stop} of {count} blocks");
    }
}

#[test]
fn mount_replays_and_goes_on_with_newer_numbers() {
    let image = dirty_image(4);
    let mut whole = image.clone();
    recover(&mut whole, 256);
    let rig = Rig::new(256);
    for (n, b) in &image {
        let mut device = rig.queue.device_mut();
        device.store_mut().write_bytes(n * BLOCK as u64, b);
    }
    let stats = rig.run(|sim, buffers| async move {
        let j = load(&sim, &buffers, 256, JournalOptions::default()).await;
        let done = j.recovered().unwrap();
        assert_eq!(done.outcome.next, done.outcome.end.next());
        put(&j, &buffers, &[200], 77).await;
        assert_eq!(j.running_tid(), Some(done.outcome.next));
        j.destroy().await.unwrap();
        j.stats()
    });
    let after = rig.image();
    for n in 10..30 {
        assert_eq!(value_of(&after, n), value_of(&whole, n));
    }
    assert_eq!(value_of(&after, 200), 77);
    assert_eq!(stats.transactions, 1);
}

#[test]
fn no_bytes_in_the_log_make_recovery_panic_or_run_on() {
    let image = dirty_image(5);
    let mut rng = SplitMix64::new(8);
    for _ in 0..300 {
        let mut bad = image.clone();
        for _ in 0..=rng.below(6) {
            let n = home_of(rng.below(256) as u32, 256);
            let mut b = block_of(&bad, n).to_vec();
            let at = rng.below(64) as usize * if rng.below(2) == 0 { 1 } else { 60 };
            bytes::put_be32(&mut b, at, rng.below(1 << 33) as u32 >> rng.below(32));
            bad.insert(n, b.into());
        }
        if JournalSuperblock::decode(&block_of(&bad, LOG)).is_ok() {
            let _ = try_recover(&mut bad, 256);
        }
    }
}

/// Each request fails in turn: the journal aborts, nobody hangs, and what is on disk is a promised prefix.
#[test]
fn any_failing_write_aborts_cleanly() {
    for n in 0..40 {
        let rig = Rig::new(256);
        let queue = Rc::clone(&rig.queue);
        let aborted = rig.run(move |sim, buffers| async move {
            let j = load(&sim, &buffers, 256, JournalOptions::default()).await;
            let fault = Fault::nth(Some(Op::Write), n);
            queue.device_mut().faults_mut().add(fault);
            let mut good = 0;
            for i in 1..30 {
                let Ok(mut h) = j.start(HandleType::Inode, 1, 0).await else {
                    break;
                };
                let b = buffers.getblk(FsBlock(5));
                b.set(Bh::UPTODATE);
                let ok = j.get_write_access(&mut h, &b).await.is_ok();
                set_value(&b, i);
                if !ok || j.dirty_metadata(&mut h, &b).is_err() {
                    break;
                }
                let _ = j.stop(h).await;
                if j.force_commit().await.is_err() {
                    break;
                }
                good = i;
            }
            let aborted = j.is_aborted();
            let _ = j.destroy().await;
            (aborted, good)
        });
        let (aborted, good) = aborted;
        assert!(aborted || good == 29, "write {n}");
        let mut image = rig.image();
        if try_recover(&mut image, 256).is_some() {
            let value = value_of(&image, 5);
            assert!(
                value == good || value == good + 1,
                "write {n}: {value}, promised {good}"
            );
        }
    }
}

#[test]
fn other_formats_round_trip() {
    use super::JournalCsum;
    for (csum, bit64, is_async) in [
        (JournalCsum::None, false, false),
        (JournalCsum::V1, false, false),
        (JournalCsum::V1, true, true),
        (JournalCsum::V3, true, true),
    ] {
        let opts = JournalOptions {
            csum,
            bit64,
            async_commit: is_async,
            ..JournalOptions::default()
        };
        let rig = Rig::new(1024);
        rig.run(move |sim, buffers| async move {
            let j = load(&sim, &buffers, 1024, opts).await;
            for i in 1..9 {
                put(&j, &buffers, &[5, 6 + i], i).await;
                j.force_commit().await.unwrap();
            }
        });
        let mut image = rig.image();
        recover(&mut image, 1024);
        assert_eq!(value_of(&image, 5), 8, "{csum:?} {bit64} {is_async}");
        assert_eq!(value_of(&image, 9), 3);
    }
}

/// The log on a device of its own: identity mapped, its superblock after the block of the device's own.
#[test]
fn the_log_can_be_on_another_device() {
    let rig = Rig::new(1024);
    let config = DeviceConfig::parse("loop", 8 << 20).unwrap();
    let log = Queue::new(&rig.sim, Device::new(config, rig.sim.rng("log")));
    let mut b = vec![0; BLOCK];
    let mut jsb = JournalSuperblock::new(BLOCK as u32, 1024, [9; 16]);
    jsb.s_first = 2;
    jsb.encode(&mut b);
    log.device_mut().store_mut().write_bytes(BLOCK as u64, &b);
    let queue = Rc::clone(&log);
    let flushed = Rc::clone(&rig.queue);
    rig.run(move |sim, buffers| async move {
        let map = JournalMap::External {
            queue,
            superblock: 1,
        };
        let opts = JournalOptions::default();
        let j = Journal::load(&sim, Rc::clone(&buffers), map, opts)
            .await
            .unwrap();
        for i in 1..400 {
            put(&j, &buffers, &[5, 6 + i % 7], i).await;
            j.force_commit().await.unwrap();
        }
        // The tail moved, and not before a flush of the file system's device.
        assert!(j.superblock().s_start != 0 && j.superblock().s_sequence > 1);
        let flushes: u64 = Phase::ALL
            .iter()
            .map(|p| flushed.stats().bios_total(*p).flush_only)
            .sum();
        assert!(flushes > 0);
    });
    let jsb = {
        let device = log.device();
        let at = device.store().get(1).to_bytes(BLOCK);
        JournalSuperblock::decode(&at).unwrap()
    };
    let logged = image_of(log.device().store());
    let mut image = rig.image();
    let done = replay::<Infallible>(
        &jsb,
        |at| Ok(block_of(&logged, u64::from(at))),
        |home, b| {
            image.insert(home, b);
            Ok(())
        },
    );
    assert!(done.unwrap().is_some());
    assert_eq!(value_of(&image, 5), 399);
    let names = |q: &Queue, c| -> u64 {
        let stats = q.stats();
        Phase::ALL.iter().map(|p| stats.bios(*p, c).bios_w).sum()
    };
    assert_eq!(names(&rig.queue, Class::Journal), 0, "the log is elsewhere");
}
