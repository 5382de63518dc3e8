use super::*;
use crate::base::rng::SplitMix64;
use crate::base::{Lba, Nanos, Payload};
use crate::sim::{Sim, WaitReason};
use std::rc::Rc;

fn setup(device: &str) -> (Sim, Rc<Queue>) {
    let sim = Sim::new(1, 2);
    let config = DeviceConfig::parse(device, 1 << 30).unwrap();
    let rng = sim.rng("device.latency");
    let queue = Queue::new(&sim, Device::new(config, rng));
    (sim, queue)
}

fn page(n: u32) -> Payload {
    Payload::Pattern { seed: 7, page: n }
}

fn write(block: u64, n: u32) -> Bio {
    Bio::write(Lba(block * 8), 4096, page(n), Role::FileData)
}

#[test]
fn written_blocks_read_back_and_the_rest_is_zero() {
    let (sim, q) = setup("loop");
    let q2 = Rc::clone(&q);
    let got = sim.block_on("t", async move {
        q2.run(write(5, 1)).await?;
        q2.run(Bio::read(Lba(32), 3, 4096, Role::FileData)).await
    });
    let got = got.unwrap().unwrap().into_vec();
    let same: Vec<bool> = [Payload::Zero, page(1), Payload::Zero]
        .iter()
        .zip(&got)
        .map(|(a, b)| a.same(b))
        .collect();
    assert_eq!(same, [true, true, true]);
    assert_eq!(q.device().store().entries(), 1);
}

/// The events of that test: what the lanes and the log view show.
fn check_events(sim: &Sim) {
    use crate::trace::Event;
    let mut counts = [0; 5];
    sim.trace().scan(0, |_, r| {
        let at = match r.event() {
            Some(Event::BioQueued { .. }) => 0,
            Some(Event::BioMerged { .. }) => 1,
            Some(Event::RequestIssued { .. }) => 2,
            Some(Event::ReachedCache { .. }) => 3,
            Some(Event::Flushed { .. }) => 4,
            _ => return true,
        };
        counts[at] += 1;
        true
    });
    assert_eq!(counts, [12, 9, 5, 2, 3]);
}

#[test]
fn a_plug_merges_neighbours_and_the_flush_is_a_sequence() {
    let (sim, q) = setup("loop");
    sim.trace()
        .set_recorded(crate::trace::Category::Device.bit());
    let (q2, s) = (Rc::clone(&q), sim.clone());
    sim.block_on("t", async move {
        let batch = Batch::new(&s);
        let plug = q2.plug();
        for i in 0..10 {
            q2.submit_batch(write(100 + i, i as u32), &batch);
        }
        plug.finish();
        batch.wait(WaitReason::Queue).await.unwrap();
        let commit = write(110, 99).flags(BioFlags::PREFLUSH | BioFlags::FUA);
        q2.run(commit).await.unwrap();
        q2.flush().await.unwrap();
    })
    .unwrap();
    let stats = q.stats();
    let r = stats.requests(Phase::Mount);
    assert_eq!((r.rq_w, r.rq_flush, r.merges), (2, 3, 9));
    let total = stats.bios_total(Phase::Mount);
    assert_eq!((total.bios_w, total.sectors_w), (11, 88));
    assert_eq!((total.preflush, total.fua, total.flush_only), (2, 1, 1));
    drop(stats);
    check_events(&sim);
    let device = q.device();
    let ops: Vec<Op> = device.log().records().map(|(_, r)| r.op).collect();
    assert_eq!(ops, [Op::Write, Op::Flush, Op::Write, Op::Flush, Op::Flush]);
    let times: Vec<bool> = device
        .log()
        .records()
        .map(|(_, r)| r.durable < Nanos::MAX)
        .collect();
    assert_eq!(times, [true; 5]);
}

const SECTORS: u64 = 1024;

/// A random bio, applied to a plain byte array as well.
fn random_bio(rng: &mut SplitMix64, model: &mut [u8], round: u32) -> Bio {
    let n = 1 + rng.below(20);
    let lba = rng.below(SECTORS - n);
    let at = lba as usize * 512;
    let len = n as usize * 512;
    match rng.below(5) {
        0 => {
            model[at..at + len].fill(0);
            Bio::write_zeroes(Lba(lba), n as u32, Role::Other)
        }
        1 => {
            model[at..at + len].fill(0);
            Bio::discard(Lba(lba), n as u32)
        }
        2 => {
            let block = lba / 8;
            let p = Payload::Pattern {
                seed: round,
                page: 3,
            };
            p.fill(&mut model[block as usize * 4096..][..4096]);
            Bio::write(Lba(block * 8), 4096, p, Role::Other)
        }
        _ => {
            let unit = if n % 2 == 0 { 512 << rng.below(2) } else { 512 };
            let mut units = Vec::new();
            for chunk in model[at..at + len].chunks_mut(unit) {
                chunk[..100].fill(rng.next_u64() as u8);
                units.push(Payload::Bytes((&*chunk).into()));
            }
            Bio::write(Lba(lba), unit as u32, units, Role::Other)
        }
    }
}

/// Random bios of every kind and size against a plain byte array; then the cursor back and forth.
fn random_traffic(device: &str, seed: u64) {
    let sim = Sim::new(seed, 2);
    let config = DeviceConfig::parse(device, SECTORS * 512).unwrap();
    let queue = Queue::new(&sim, Device::new(config, sim.rng("device.latency")));
    let initial = queue.device().store().to_bytes();
    let q = Rc::clone(&queue);
    let states = sim.block_on("t", async move {
        let mut rng = SplitMix64::new(seed);
        let mut model = q.device().store().to_bytes();
        let mut states = vec![(q.device().log().end(), model.clone())];
        for round in 0..150u32 {
            q.run(random_bio(&mut rng, &mut model, round))
                .await
                .unwrap();
            if rng.below(10) == 0 {
                q.flush().await.unwrap();
            }
            states.push((q.device().log().end(), model.clone()));
        }
        states
    });
    let states = states.unwrap();
    let device = queue.device();
    assert!(device.store().to_bytes() == states.last().unwrap().1);
    let log = device.log();
    let mut cursor = device.cursor();
    for (position, bytes) in states.iter().rev() {
        assert!(cursor.seek(log, *position));
        assert!(
            cursor.store().to_bytes() == *bytes,
            "{device} at {position}",
            device = device.config().preset
        );
    }
    assert!(cursor.store().to_bytes() == initial);
    for (position, bytes) in states.iter().step_by(7) {
        assert!(cursor.seek(log, *position));
        assert!(cursor.store().to_bytes() == *bytes);
    }
    check_ledger(&queue);
}

/// Bytes by role, bytes of the device and bytes in the log are the same.
fn check_ledger(queue: &Queue) {
    let device = queue.device();
    let records = device.log().records();
    let writes = records.filter(|(_, r)| matches!(r.op, Op::Write | Op::WriteZeroes));
    let written: u64 = writes.map(|(_, r)| u64::from(r.sectors) * 512).sum();
    assert_eq!(queue.stats().device_written(), written);
    let ledger: u64 = queue.stats().ledger().map(|(_, b)| b.written).sum();
    assert_eq!(ledger, written);
}

#[test]
fn contents_equal_a_byte_array_forwards_and_backwards() {
    for seed in 0..8 {
        random_traffic("loop", seed);
        random_traffic("loop,fill=garbage:3", seed);
        random_traffic("nvme", seed);
    }
}

#[test]
fn log_contents_are_what_was_written() {
    let (sim, q) = setup("loop");
    let q2 = Rc::clone(&q);
    sim.block_on("t", async move {
        let units: Vec<Payload> = (0..3u8)
            .map(|i| Payload::Bytes(vec![i + 1; 1024].into()))
            .collect();
        q2.run(Bio::write(Lba(6), 1024, units, Role::Dir))
            .await
            .unwrap();
    })
    .unwrap();
    let device = q.device();
    let want: Vec<u8> = [1, 2, 3].iter().flat_map(|b| [*b; 1024]).collect();
    assert_eq!(device.log().contents(0), want);
    assert_eq!(device.log().parts(0)[0].role, Role::Dir);
}

#[test]
fn mixed_requests_keep_the_purpose_of_each_part() {
    let (sim, q) = setup("loop");
    let (q2, s) = (Rc::clone(&q), sim.clone());
    sim.block_on("t", async move {
        let batch = Batch::new(&s);
        let plug = q2.plug();
        for (i, role) in [
            Role::JournalDescriptor,
            Role::JournalMeta,
            Role::JournalMeta,
        ]
        .into_iter()
        .enumerate()
        {
            let bio = Bio::write(Lba(8 * i as u64), 4096, page(1), role);
            q2.submit_batch(bio, &batch);
        }
        drop(plug);
        batch.wait(WaitReason::Queue).await.unwrap();
    })
    .unwrap();
    let parts: Vec<(Role, u32)> = q
        .device()
        .log()
        .parts(0)
        .iter()
        .map(|p| (p.role, p.sectors))
        .collect();
    assert_eq!(
        parts,
        [(Role::JournalDescriptor, 8), (Role::JournalMeta, 16)]
    );
}

#[test]
fn large_bios_are_split_at_segments_and_sectors() {
    for (segments, want) in [(256, 2), (4, 1)] {
        let (sim, q) = setup("loop");
        let q2 = Rc::clone(&q);
        sim.block_on("t", async move {
            let units: Vec<Payload> = (0..256).map(page).collect();
            let bio = Bio::write(Lba(0), 4096, units, Role::FileData).segments(segments);
            q2.run(bio).await.unwrap();
            let got = q2
                .run(Bio::read(Lba(0), 256, 4096, Role::FileData))
                .await
                .unwrap();
            assert!(got
                .as_slice()
                .iter()
                .zip(0..)
                .all(|(p, i)| p.same(&page(i))));
        })
        .unwrap();
        assert_eq!(q.stats().requests(Phase::Mount).rq_w, want);
        assert_eq!(q.stats().bios_total(Phase::Mount).bios_w, 1);
    }
    let (sim, q) = setup("loop");
    let q2 = Rc::clone(&q);
    sim.block_on("t", async move {
        let units = vec![Payload::Zero; 2048];
        q2.run(Bio::write(Lba(0), 4096, units, Role::FileData).segments(4))
            .await
            .unwrap();
    })
    .unwrap();
    // 8 MiB in pieces of 1280 KiB.
    assert_eq!(q.stats().requests(Phase::Mount).rq_w, 7);
}

#[test]
fn a_plug_is_flushed_when_full_or_when_its_task_blocks() {
    let (sim, q) = setup("loop");
    let (q2, s) = (Rc::clone(&q), sim.clone());
    sim.block_on("t", async move {
        let batch = Batch::new(&s);
        let _plug = q2.plug();
        for i in 0..33 {
            q2.submit_batch(write(i * 2, 1), &batch);
        }
        assert_eq!(q2.stats().requests(Phase::Mount).rq_w, 32);
        s.sleep(Nanos(1), WaitReason::Timer).await;
        assert_eq!(q2.stats().requests(Phase::Mount).rq_w, 33);
        // A request of 128 KiB is the last one of its plug.
        for i in 0..40 {
            q2.submit_batch(write(1000 + i, 1), &batch);
        }
        q2.submit_batch(write(5000, 1), &batch);
        assert_eq!(q2.stats().requests(Phase::Mount).rq_w, 34);
        batch.wait(WaitReason::Queue).await.unwrap();
    })
    .unwrap();
    assert_eq!(q.stats().requests(Phase::Mount).rq_w, 35);
}

#[test]
fn flushes_of_several_tasks_are_shared() {
    let (sim, q) = setup("sata-ssd");
    for i in 0..8 {
        let (q, s) = (Rc::clone(&q), sim.clone());
        sim.spawn("t", crate::sim::TaskClass::User, async move {
            q.run(write(i, 1)).await.unwrap();
            s.sleep_until(Nanos::from_ms(1), WaitReason::Timer).await;
            q.flush().await.unwrap();
        });
    }
    sim.run_until(Nanos::from_secs(1));
    // The first one alone, the rest together.
    assert_eq!(q.stats().requests(Phase::Mount).rq_flush, 2);
    assert_eq!(q.stats().bios_total(Phase::Mount).flush_only, 8);
    assert_eq!(q.device().cached_bytes(), 0);
}

#[test]
fn without_a_volatile_cache_flush_flags_mean_nothing() {
    let (sim, q) = setup("optane");
    let q2 = Rc::clone(&q);
    sim.block_on("t", async move {
        q2.run(write(1, 1).flags(BioFlags::PREFLUSH | BioFlags::FUA))
            .await
            .unwrap();
        q2.flush().await.unwrap();
    })
    .unwrap();
    let r = *q.stats().requests(Phase::Mount);
    assert_eq!((r.rq_w, r.rq_flush), (1, 0));
    let durable = q.device().log().record(0).map(|r| r.durable == r.acked);
    assert_eq!(durable, Some(true));
}

#[test]
fn crash_states_are_the_subsets_of_unflushed_writes() {
    let (sim, q) = setup("loop");
    let q2 = Rc::clone(&q);
    sim.block_on("t", async move {
        q2.run(write(0, 1)).await.unwrap();
        q2.flush().await.unwrap();
        q2.run(write(0, 2)).await.unwrap();
        q2.run(write(1, 3)).await.unwrap();
        q2.run(write(2, 4)).await.unwrap();
        // Overwrites block 1 with what it had: some subsets are the same disk.
        q2.run(write(1, 3)).await.unwrap();
    })
    .unwrap();
    let point = CrashPoint::at_time(&q, sim.now(), sim.now()).unwrap();
    assert_eq!(point.undecided().len(), 4);
    let (images, exhaustive) = point.states(64, 1);
    assert!(exhaustive);
    assert_eq!(images.len(), 8);
    let all = point.image(&Loss::All, None);
    assert!(all.page(0).same(&page(1)) && all.page(1).same(&Payload::Zero));
    let none = point.image(&Loss::None, None);
    assert!(none.page(0).same(&page(2)) && none.page(2).same(&page(4)));
    assert!(none.to_store().get(1).same(&page(3)));
    let one = point.image(&Loss::Keep(vec![2]), None);
    assert!(one.page(0).same(&page(1)) && one.page(2).same(&page(4)));
    // Cut after the third record: blocks 1 and 2 were never written.
    let early = CrashPoint::at_record(&q, sim.now(), 3).unwrap();
    assert_eq!(early.undecided().len(), 1);
    assert!(early.image(&Loss::None, None).page(1).same(&Payload::Zero));
}

#[test]
fn a_write_in_flight_may_reach_the_medium_and_one_behind_a_flush_may_not() {
    let (sim, q) = setup("sata-ssd");
    let q2 = Rc::clone(&q);
    sim.spawn("t", crate::sim::TaskClass::User, async move {
        q2.submit_detached(write(1, 1));
        let _ = q2.run(write(2, 2).flags(BioFlags::PREFLUSH)).await;
    });
    sim.run_until(Nanos(1000));
    let point = CrashPoint::at_time(&q, sim.now(), sim.now()).unwrap();
    let blocks: Vec<u64> = point.undecided().iter().map(|u| u.lba.0 / 8).collect();
    assert_eq!(blocks, [1]);
    // The same cut seen later, from the log.
    sim.run_until(Nanos::from_secs(1));
    let point = CrashPoint::at_time(&q, sim.now(), Nanos(1000)).unwrap();
    let blocks: Vec<(u64, bool)> = point
        .undecided()
        .iter()
        .map(|u| (u.lba.0 / 8, u.acknowledged))
        .collect();
    assert_eq!(blocks, [(1, false)]);
    let torn: Vec<Payload> = (0..20)
        .map(|s| point.image(&Loss::Prefix(9), Some(s)).page(1))
        .collect();
    assert!(torn.iter().any(|p| p.same(&page(1))));
    assert!(torn.iter().any(|p| matches!(p, Payload::Bytes(_))));
}

#[test]
fn sub_page_writes_are_lost_one_by_one() {
    let (sim, q) = setup("loop");
    let q2 = Rc::clone(&q);
    sim.block_on("t", async move {
        for i in 0..2u64 {
            let p = Payload::Bytes(vec![i as u8 + 1; 1024].into());
            q2.run(Bio::write(Lba(2 * i), 1024, p, Role::Dir))
                .await
                .unwrap();
        }
    })
    .unwrap();
    let point = CrashPoint::at_time(&q, sim.now(), sim.now()).unwrap();
    let bytes = point
        .image(&Loss::Keep(vec![1]), None)
        .page(0)
        .to_bytes(4096);
    assert_eq!((bytes[0], bytes[1024], bytes[2048]), (0, 2, 0));
}

#[test]
fn a_full_cache_slows_writes_down_and_idle_time_empties_it() {
    let (sim, q) = setup("hdd,cache=1M");
    let (q2, s) = (Rc::clone(&q), sim.clone());
    let (fast, slow) = sim
        .block_on("t", async move {
            let mut rng = s.rng("blocks");
            let mut times = Vec::new();
            for _ in 0..400 {
                let t = s.now();
                q2.run(write(rng.below(200_000), 1)).await.unwrap();
                times.push((s.now() - t).0);
            }
            (
                times[..200].iter().sum::<u64>() / 200,
                times[300..].iter().sum::<u64>() / 100,
            )
        })
        .unwrap();
    assert!(fast < 300_000, "{fast}");
    assert!(slow > 1_000_000, "{slow}");
    assert!(q.device().cached_bytes() > 900_000);
    sim.run_until(sim.now() + Nanos::from_secs(60));
    q.device_mut().settle(sim.now());
    assert_eq!(q.device().cached_bytes(), 0);
    assert!(q
        .device()
        .log()
        .records()
        .all(|(_, r)| r.durable < Nanos::MAX));
}

#[test]
fn faults_fail_the_request_they_are_meant_for() {
    let (sim, q) = setup("loop");
    q.device_mut()
        .faults_mut()
        .add(Fault::nth(Some(Op::Write), 1));
    q.device_mut()
        .faults_mut()
        .add(Fault::range(Some(Op::Read), Lba(80), 8));
    q.device_mut()
        .faults_mut()
        .add(Fault::nth(Some(Op::Flush), 0));
    let q2 = Rc::clone(&q);
    let got = sim
        .block_on("t", async move {
            let mut got = Vec::new();
            for i in 0..3 {
                got.push(q2.run(write(i, 1)).await.map(|_| ()));
            }
            got.push(
                q2.run(Bio::read(Lba(72), 3, 4096, Role::Other))
                    .await
                    .map(|_| ()),
            );
            got.push(q2.flush().await);
            got.push(q2.flush().await);
            got.push(q2.run(write(1 << 40, 1)).await.map(|_| ()));
            got
        })
        .unwrap();
    let medium = Err(IoError::Medium);
    let bad = Err(IoError::BadRequest);
    assert_eq!(got, [Ok(()), medium, Ok(()), medium, medium, Ok(()), bad]);
    assert_eq!(q.device().store().entries(), 2);
}

#[test]
fn the_log_keeps_to_its_budget_and_says_from_when_it_reaches() {
    let (sim, q) = setup("optane,log_budget=64K");
    let q2 = Rc::clone(&q);
    sim.block_on("t", async move {
        for i in 0..5000 {
            q2.run(write(i % 50, i as u32)).await.unwrap();
        }
    })
    .unwrap();
    let device = q.device();
    let log = device.log();
    assert!(log.memory() <= 64 * 1024 && log.first() > 4000 && log.end() == 5000);
    let mut cursor = device.cursor();
    assert!(!cursor.seek(log, log.first() - 1));
    assert!(cursor.seek(log, log.first()));
    let last = log.first() - 1;
    assert!(cursor
        .store()
        .get((last % 50) as u32)
        .same(&page(last as u32)));
    drop(device);
    assert!(CrashPoint::at_time(&q, sim.now(), Nanos(1)).is_err());
}

#[test]
fn the_same_run_has_the_same_digest_and_another_seed_has_not() {
    let run = |seed| {
        let sim = Sim::new(seed, 2);
        let config = DeviceConfig::preset("nvme", 1 << 30).unwrap();
        let queue = Queue::new(&sim, Device::new(config, sim.rng("device.latency")));
        let q = Rc::clone(&queue);
        sim.block_on("t", async move {
            for i in 0..100 {
                q.run(write(i * 7 % 31, i as u32)).await.unwrap();
            }
        })
        .unwrap();
        let digest = queue.device().log().digest();
        digest
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn tasks_wait_for_a_free_request() {
    let (sim, q) = setup("loop,nr_requests=4");
    let q2 = Rc::clone(&q);
    sim.block_on("t", async move {
        for i in 0..100 {
            let bio = write(i * 3, 1);
            q2.enter(&bio).await;
            q2.submit_detached(bio);
            assert!(q2.requests() <= 4);
        }
    })
    .unwrap();
    sim.run_until(Nanos::from_secs(1));
    let d = q.disk_stats();
    assert_eq!((d.write.ios, d.write.sectors, d.in_flight), (100, 800, 0));
    assert!(d.busy > Nanos::ZERO && d.in_queue >= d.busy);
}
