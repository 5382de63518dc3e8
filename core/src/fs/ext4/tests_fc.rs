//! Fast commits: how many there are, and what a power cut leaves of them.

use super::file::{FileState, IoFlags};
use super::mkfs::{mkfs, MkfsOptions};
use super::{CostTable, Ext4, Inode, MountConfig, MountOptions};
use crate::base::payload::content;
use crate::base::rng::SplitMix64;
use crate::base::WriteSource;
use crate::base::{Ino, Lba};
use crate::block::{Bio, Device, DeviceConfig, Queue, Role};
use crate::fs::jbd2::JournalCosts;
use crate::mm::Vm;
use crate::sim::Sim;
use std::rc::Rc;

fn device(sim: &Sim, size: u64) -> Rc<Queue> {
    let config = DeviceConfig::parse("loop", size).unwrap();
    Queue::new(sim, Device::new(config, sim.rng("device.latency")))
}

fn format(sim: &Sim, queue: &Rc<Queue>, size: u64, options: &str) {
    let image = mkfs(&MkfsOptions::parse(options).unwrap(), size).unwrap();
    let q = Rc::clone(queue);
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
}

async fn mount(sim: &Sim, queue: &Rc<Queue>) -> Rc<Ext4> {
    Ext4::mount(MountConfig {
        sim: sim.clone(),
        queue: Rc::clone(queue),
        vm: Vm::new(sim, 1 << 30),
        opts: MountOptions::parse("").unwrap(),
        wall_clock_base: 1_700_000_000_000_000_000,
        cost: CostTable::FREE,
        journal_costs: JournalCosts::FREE,
        device: "vda".to_owned(),
        mount_point: "/".to_owned(),
        journal_queue: None,
    })
    .await
    .unwrap()
}

async fn write(fs: &Rc<Ext4>, inode: &Rc<Inode>, offset: u64, len: u64, seed: u64) {
    let f = FileState::new(inode, IoFlags::default());
    let mut pos = offset;
    let src = WriteSource::Content { seed };
    fs.file_write_iter(inode, &f, &mut pos, len, src)
        .await
        .unwrap();
    fs.sync_file(inode, &f, false).await.unwrap();
}

/// kernel-lab, `ext4-fastcommit-randwrite4k-fsync`: 33 full commits for 2000 fsyncs, 1968 fast ones of one block each.
#[test]
fn as_many_fast_commits_as_linux() {
    let sim = Sim::new(1, 2);
    let queue = device(&sim, 256 << 20);
    format(
        &sim,
        &queue,
        256 << 20,
        "-b 4096 -O fast_commit -E lazy_itable_init=0",
    );
    let (s, q) = (sim.clone(), Rc::clone(&queue));
    let stats = sim.block_on("test", async move {
        let fs = mount(&s, &q).await;
        let root = fs.iget(Ino(2)).await.unwrap();
        let inode = fs.create(&root, b"f", 0o644).await.unwrap();
        for (i, block) in SplitMix64::shuffled(16_384, 7)
            .into_iter()
            .take(2000)
            .enumerate()
        {
            write(&fs, &inode, u64::from(block) * 4096, 4096, i as u64).await;
        }
        fs.iput(inode).await.unwrap();
        fs.iput(root).await.unwrap();
        let j = fs.journal().unwrap();
        fs.umount().await.unwrap();
        j.stats()
    });
    let stats = stats.unwrap();
    assert_eq!(stats.fast_commits, 1968);
    assert_eq!(stats.fast_commit_blocks, 1968);
    assert_eq!(stats.transactions, 33);
    sim.shutdown();
}

/// What was fsynced by fast commits is there after a power cut, on a new mount of the same disk.
#[test]
fn fast_commits_are_replayed() {
    let (size, options) = (64u64 << 20, "-b 4096 -O fast_commit -E lazy_itable_init=0");
    let sim = Sim::new(1, 2);
    let queue = device(&sim, size);
    format(&sim, &queue, size, options);
    let (s, q) = (sim.clone(), Rc::clone(&queue));
    let fast = sim.block_on("test", async move {
        let fs = mount(&s, &q).await;
        let root = fs.iget(Ino(2)).await.unwrap();
        let a = fs.create(&root, b"a", 0o644).await.unwrap();
        write(&fs, &a, 0, 9_000, 1).await;
        write(&fs, &a, 20_000, 4_096, 2).await;
        let d = fs.mkdir(&root, b"d", 0o755).await.unwrap();
        let x = fs.create(&d, b"x", 0o644).await.unwrap();
        write(&fs, &x, 0, 5_000, 5).await;
        fs.link(&x, &root, b"y").await.unwrap();
        let z = fs.create(&root, b"z", 0o644).await.unwrap();
        write(&fs, &z, 0, 100_000, 6).await;
        fs.unlink(&root, b"a", &a).await.unwrap();
        write(&fs, &z, 300_000, 10, 7).await;
        fs.journal().unwrap().stats().fast_commits
    });
    assert!(fast.unwrap() >= 4);
    // The power is cut: what the device has is all that is left. Everything was fsynced, so the cache does not matter.
    let mut bytes = vec![0; size as usize];
    queue.device().store().read_bytes(0, &mut bytes);
    sim.shutdown();

    let sim = Sim::new(2, 2);
    let queue = device(&sim, size);
    queue.device_mut().store_mut().write_bytes(0, &bytes);
    let (s, q) = (sim.clone(), Rc::clone(&queue));
    sim.block_on("test", async move {
        let fs = mount(&s, &q).await;
        let root = fs.iget(Ino(2)).await.unwrap();
        let ino = fs.lookup(&root, b"z").await.unwrap().unwrap();
        let z = fs.iget(ino).await.unwrap();
        let f = FileState::new(&z, IoFlags::default());
        let mut got = Vec::new();
        fs.file_read_iter(&z, &f, 0, 1 << 20, Some(&mut got))
            .await
            .unwrap();
        let mut want = vec![0; 300_010];
        content(6, 0, &mut want[..100_000]);
        content(7, 300_000, &mut want[300_000..]);
        assert!(got == want);
        let y = fs.lookup(&root, b"y").await.unwrap().unwrap();
        let d = fs.lookup(&root, b"d").await.unwrap().unwrap();
        let d = fs.iget(d).await.unwrap();
        assert_eq!(fs.lookup(&d, b"x").await.unwrap(), Some(y));
        assert_eq!(fs.lookup(&root, b"a").await.unwrap(), None);
        for inode in [z, d, root] {
            fs.iput(inode).await.unwrap();
        }
        fs.umount().await.unwrap();
    })
    .unwrap();
    sim.shutdown();
}
