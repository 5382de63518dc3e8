use super::*;
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

#[test]
fn a_plug_merges_neighbours_and_the_flush_is_a_sequence() {
    let (sim, q) = setup("loop");
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
