//! Scenarios of kernel-lab through the system calls: what the core counts must be what Linux counted.

use crate::base::rng::SplitMix64;
use crate::base::WriteSource;
use crate::block::{Class, Device, DeviceConfig, Phase, Queue};
use crate::fs::ext4::mkfs::{mkfs, MkfsOptions};
use crate::fs::ext4::{CostTable, Ext4, MountConfig, MountOptions};
use crate::fs::jbd2::{HandleType, JournalCosts};
use crate::mm::Vm;
use crate::sim::Sim;
use crate::vfs::{Fs, OpenFlags, SysResult, Vfs};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Names of kernel-lab's `truth` and what this run counted.
type Truth = BTreeMap<String, u64>;

const MKFS: &str = "-b 4096 -I 256 -U 6b6c6162-0000-4000-8000-000000000001 \
    -E lazy_itable_init=0,lazy_journal_init=0,nodiscard,hash_seed=6b6c6162-0000-4000-8000-000000000002";

fn count_io(queue: &Rc<Queue>, truth: &mut Truth) {
    for phase in Phase::ALL {
        let stats = queue.stats();
        for class in Class::ALL {
            let c = stats.bios(phase, class);
            let at = format!("io_by_phase.{}.by_class.{}", phase.name(), class.name());
            for (name, n) in [
                ("bios_w", c.bios_w),
                ("bios_r", c.bios_r),
                ("blocks_w", c.sectors_w / 8),
                ("fua", c.fua),
                ("preflush", c.preflush),
            ] {
                truth.insert(format!("{at}.{name}"), n);
            }
        }
        let t = stats.bios_total(phase);
        let at = format!("io_by_phase.{}.total", phase.name());
        truth.insert(format!("{at}.flush_only"), t.flush_only);
        truth.insert(format!("{at}.preflush"), t.preflush);
        truth.insert(format!("{at}.fua"), t.fua);
        truth.insert(format!("{at}.bios_w"), t.bios_w);
        truth.insert(format!("{at}.bios_r"), t.bios_r);
    }
}

fn run<F>(work: impl FnOnce(Rc<Vfs>) -> F + 'static) -> Truth
where
    F: std::future::Future<Output = SysResult<()>>,
{
    let size = 256 << 20;
    let made = mkfs(&MkfsOptions::parse(MKFS).expect("options"), size).expect("mkfs");
    let sim = Sim::new(1, 2);
    let config = DeviceConfig::parse("loop", size).expect("preset");
    let queue = Queue::new(&sim, Device::new(config, sim.rng("device")));
    for (block, payload) in &made.blocks {
        let bytes = payload.to_bytes(made.block_size as usize);
        let at = block * u64::from(made.block_size);
        queue.device_mut().store_mut().write_bytes(at, &bytes);
    }
    let cfg = MountConfig {
        sim: sim.clone(),
        queue: Rc::clone(&queue),
        vm: Vm::new(&sim, 2 << 30),
        opts: MountOptions::parse("data=ordered").expect("options"),
        wall_clock_base: 1_700_000_000_000_000_000,
        cost: CostTable::MODELLED,
        journal_costs: JournalCosts::LINUX,
        device: "vda".to_owned(),
        mount_point: "/mnt".to_owned(),
        journal_queue: None,
    };
    let q = Rc::clone(&queue);
    let job = async move {
        q.set_phase(Phase::Mount);
        let fs = Ext4::mount(cfg).await.expect("mounts");
        q.set_phase(Phase::Work);
        let vfs = Vfs::new(Fs::Ext4(Rc::clone(&fs)));
        work(Rc::clone(&vfs)).await.expect("works");
        vfs.release_all().await.expect("closes");
        q.set_phase(Phase::Umount);
        let journal = fs.journal().expect("journal");
        fs.umount().await.expect("unmounts");
        let mut truth = Truth::new();
        for (name, n) in fs.stats.all() {
            truth.insert(format!("events.{name}"), n);
        }
        let js = journal.stats();
        truth.insert("jbd2.transactions".into(), js.transactions);
        truth.insert("jbd2.blocks".into(), js.run.blocks);
        truth.insert("jbd2.blocks_logged".into(), js.run.blocks_logged);
        truth.insert("jbd2.journal_sb_writes".into(), js.journal_sb_writes);
        for ty in HandleType::ALL {
            let s = js.handles_by_type[ty as usize];
            let at = format!("jbd2.handles_by_type.{}", ty.name());
            truth.insert(format!("{at}.n"), s.count);
            truth.insert(format!("{at}.requested"), s.requested);
            truth.insert(format!("{at}.dirtied"), s.dirtied);
        }
        truth
    };
    let mut truth = sim.block_on("player", job).expect("no deadlock");
    count_io(&queue, &mut truth);
    sim.shutdown();
    truth
}

/// Values that kernel-lab found the same in all its runs (`ground-truth/NAME.json`).
fn check(truth: &Truth, want: &[(&str, u64)]) {
    let wrong: Vec<String> = want
        .iter()
        .filter_map(|(name, n)| {
            let ours = truth.get(*name).copied();
            (ours != Some(*n)).then(|| format!("{name}: {ours:?}, Linux {n}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn create_and_unlink_cost_what_linux_pays() {
    let truth = run(|vfs| async move {
        vfs.mkdir(b"d", 0o755).await?;
        for i in 0..5000 {
            vfs.create(format!("d/file{i:06}").as_bytes(), 0o644)
                .await?;
        }
        vfs.syncfs().await?;
        for i in 0..5000 {
            vfs.unlink(format!("d/file{i:06}").as_bytes()).await?;
        }
        vfs.syncfs().await
    });
    check(
        &truth,
        &[
            ("events.alloc_meta_calls", 34),
            ("events.alloc_meta_blocks", 34),
            ("events.ext4_allocate_inode", 5001),
            ("events.ext4_free_inode", 5000),
            ("events.ext4_evict_inode", 5004),
            ("events.ext4_journal_start_inode", 10034),
            ("events.ext4_journal_start_sb", 5002),
            ("events.ext4_mark_inode_dirty", 40107),
            ("events.ext4_mb_bitmap_load", 2),
            ("jbd2.transactions", 2),
            ("jbd2.blocks", 703),
            ("jbd2.blocks_logged", 709),
            ("jbd2.handles_by_type.dir.requested", 360_047),
            ("jbd2.handles_by_type.truncate.requested", 150_000),
            ("io_by_phase.mount.total.bios_r", 5),
            ("io_by_phase.work.by_class.itable.bios_w", 628),
            ("io_by_phase.work.by_class.dirext.bios_w", 68),
            ("io_by_phase.work.by_class.journal.bios_w", 710),
            ("io_by_phase.umount.by_class.journal.bios_w", 3),
        ],
    );
}

#[test]
fn random_writes_with_fsync_cost_what_linux_pays() {
    let truth = run(|vfs| async move {
        vfs.create(b"f", 0o644).await?;
        let fd = vfs.open(b"f", OpenFlags::RDWR, 0).await?;
        for at in SplitMix64::shuffled(16384, 7).into_iter().take(2000) {
            let src = WriteSource::Content { seed: 7 };
            vfs.pwrite(fd, i64::from(at) * 4096, 4096, src).await?;
            vfs.fsync(fd).await?;
        }
        vfs.close(fd).await
    });
    check(
        &truth,
        &[
            ("events.alloc_data_calls", 2000),
            ("events.alloc_meta_calls", 12),
            ("events.ext4_mballoc_alloc", 20),
            ("events.ext4_mballoc_prealloc", 1992),
            ("events.ext4_mb_new_inode_pa", 8),
            ("jbd2.transactions", 2000),
            ("jbd2.blocks", 8017),
            ("jbd2.handles_by_type.write_page.requested", 42_000),
            ("jbd2.handles_by_type.ext_convert.requested", 36_000),
            ("io_by_phase.umount.by_class.bitmap.bios_w", 2),
            ("io_by_phase.umount.by_class.dirext.bios_w", 12),
            ("io_by_phase.work.by_class.dirext.bios_w", 2),
        ],
    );
}
