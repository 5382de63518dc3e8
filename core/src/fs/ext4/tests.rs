//! The core of ext4 over a simulated device, on images of mke2fs, checked by e2fsck. Skipped loudly without those.

use super::mkfs::{mkfs, MkfsOptions};
use super::{
    flag, mode, CostTable, Ext4, Inode, MapFlags, MapRequest, MappingKind, MountConfig,
    MountOptions,
};
use crate::base::rng::SplitMix64;
use crate::base::{Ino, Lblk, Nanos};
use crate::block::{Class, Device, DeviceConfig, Phase, Queue, Store};
use crate::format::ext4::dirent;
use crate::fs::common::FsResult;
use crate::fs::jbd2::{Handle, HandleType, JournalCosts};
use crate::mm::Vm;
use crate::sim::{Sim, WaitReason};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;

struct Rig {
    sim: Sim,
    queue: Rc<Queue>,
    name: &'static str,
}

fn tool(name: &str) -> Option<PathBuf> {
    ["/usr/sbin", "/sbin", "/usr/bin"]
        .iter()
        .map(|d| PathBuf::from(d).join(name))
        .find(|p| p.exists())
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("fsglass-ext4-{}-{name}.img", std::process::id()))
}

impl Rig {
    /// A device with what mke2fs makes of `args`; `None` where there is no mke2fs.
    fn new(name: &'static str, mib: u64, args: &str) -> Option<Rig> {
        let Some(mke2fs) = tool("mke2fs") else {
            eprintln!("SKIPPED {name}: no mke2fs");
            return None;
        };
        let path = scratch(name);
        let out = Command::new(mke2fs)
            .args([
                "-q",
                "-F",
                "-E",
                "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
            ])
            .args(args.split_whitespace())
            .arg(&path)
            .arg(format!("{mib}M"))
            .output()
            .expect("mke2fs runs");
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        let image = std::fs::read(&path).expect("image");
        std::fs::remove_file(&path).expect("image is ours");
        Some(Rig::of(name, &image))
    }

    /// A device with what our own mkfs makes.
    fn own(name: &'static str, mib: u64, args: &str) -> Rig {
        let size = mib << 20;
        let made = mkfs(&MkfsOptions::parse(args).expect("options"), size).expect("mkfs");
        let sim = Sim::new(1, 2);
        let config = DeviceConfig::parse("loop", size).expect("preset");
        let queue = Queue::new(&sim, Device::new(config, sim.rng("device")));
        for (block, payload) in &made.blocks {
            let bytes = payload.to_bytes(made.block_size as usize);
            let at = block * u64::from(made.block_size);
            queue.device_mut().store_mut().write_bytes(at, &bytes);
        }
        Rig { sim, queue, name }
    }

    fn of(name: &'static str, image: &[u8]) -> Rig {
        let sim = Sim::new(1, 2);
        let config = DeviceConfig::parse("loop", image.len() as u64).expect("preset");
        let device = Device::with_store(config, Store::from_bytes(image), sim.rng("device"));
        let queue = Queue::new(&sim, device);
        Rig { sim, queue, name }
    }

    fn config(&self, opts: &str) -> MountConfig {
        MountConfig {
            sim: self.sim.clone(),
            queue: Rc::clone(&self.queue),
            vm: Vm::new(&self.sim, 1 << 30),
            opts: MountOptions::parse(opts).expect("options"),
            wall_clock_base: 1_700_000_000_000_000_000,
            cost: CostTable::MODELLED,
            journal_costs: JournalCosts::LINUX,
            device: "vda".to_owned(),
            mount_point: "/mnt".to_owned(),
            journal_queue: None,
        }
    }

    fn run<T: 'static, F>(&self, opts: &str, f: impl FnOnce(Rc<Ext4>) -> F + 'static) -> T
    where
        F: std::future::Future<Output = FsResult<T>>,
    {
        let cfg = self.config(opts);
        let work = async move {
            let fs = Ext4::mount(cfg).await?;
            let out = f(Rc::clone(&fs)).await;
            let umounted = fs.umount().await;
            let out = out?;
            umounted?;
            Ok::<T, crate::fs::common::FsError>(out)
        };
        match self.sim.block_on("test", work) {
            Ok(Ok(v)) => v,
            Ok(Err(e)) => panic!("{}: {e}", self.name),
            Err(stuck) => panic!("{}: {stuck}", self.name),
        }
    }

    /// Writes the device to a sparse file.
    fn save(&self, path: &PathBuf) {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::create(path).expect("scratch file");
        let device = self.queue.device();
        file.set_len(device.store().sectors() * 512)
            .expect("sparse");
        device
            .store()
            .export(true, |at, bytes| file.write_all_at(bytes, at))
            .expect("written");
    }

    /// e2fsck finds nothing, not even stale counts.
    fn fsck(&self) {
        let Some(e2fsck) = tool("e2fsck") else { return };
        let path = scratch(&format!("{}-fsck", self.name));
        self.save(&path);
        let out = Command::new(e2fsck)
            .args(["-fn"])
            .arg(&path)
            .output()
            .expect("e2fsck runs");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        std::fs::remove_file(&path).expect("image is ours");
        assert!(out.status.success(), "{}: {text}", self.name);
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.sim.shutdown();
    }
}

/// Enters `inode` under `name` in the root directory's first block.
async fn link(fs: &Ext4, h: &mut Handle, inode: &Inode, name: &str) -> FsResult<()> {
    let root = fs.iget(Ino(2)).await?;
    let bh = fs
        .bread(None, &root, Lblk(0), false)
        .await?
        .expect("mapped");
    fs.get_write_access(h, &bh).await?;
    let end = bh.size() - if fs.csum.metadata_csum { 12 } else { 0 };
    let generation = root.core.borrow().generation;
    bh.modify(|b| {
        let mut at = 0;
        loop {
            let len = usize::from(u16::from_le_bytes([b[at + 4], b[at + 5]]));
            if at + len >= end {
                let used = (8 + usize::from(b[at + 6]) + 3) & !3;
                b[at + 4..at + 6].copy_from_slice(&(used as u16).to_le_bytes());
                at += used;
                break;
            }
            at += len;
        }
        b[at..at + 4].copy_from_slice(&inode.ino.0.to_le_bytes());
        b[at + 4..at + 6].copy_from_slice(&((end - at) as u16).to_le_bytes());
        b[at + 6] = name.len() as u8;
        b[at + 7] = 1;
        b[at + 8..at + 8 + name.len()].copy_from_slice(name.as_bytes());
        dirent::csum_set(&fs.csum, 2, generation, b);
    });
    fs.dirty_metadata(h, Some(&root), &bh).await?;
    fs.iput(root).await
}

async fn new_file(fs: &Ext4, name: &str) -> FsResult<Rc<Inode>> {
    let root = fs.iget(Ino(2)).await?;
    let mut h = fs.journal_start(HandleType::Dir, 47).await?;
    let inode = fs
        .new_inode(&mut h, &root, mode::S_IFREG | 0o644, name.as_bytes(), None)
        .await?;
    link(fs, &mut h, &inode, name).await?;
    fs.unlock_new_inode(&inode);
    fs.journal_stop(h).await?;
    fs.iput(root).await?;
    Ok(inode)
}

const IMAGES: [(&str, u64, &str); 4] = [
    ("default", 64, "-t ext4 -b 4096"),
    ("small", 24, "-t ext4 -b 1024 -O ^resize_inode"),
    ("ext3", 32, "-t ext3 -b 1024 -I 128"),
    (
        "nojournal",
        32,
        "-t ext4 -b 4096 -O ^has_journal,^orphan_file",
    ),
];

#[test]
fn mount_and_unmount_leave_a_clean_image() {
    for (name, mib, args) in IMAGES {
        let Some(rig) = Rig::new("mount", mib, args) else {
            return;
        };
        for opts in ["", "data=journal", "ro"] {
            if opts == "data=journal" && name == "nojournal" {
                continue;
            }
            rig.run(opts, |fs| async move {
                assert!(fs.statfs().bfree > 0);
                Ok(())
            });
            rig.fsck();
        }
    }
}

#[test]
fn mount_reads_and_writes_what_linux_does() {
    let Some(rig) = Rig::new("counts", 256, "-t ext4 -b 4096 -I 256") else {
        return;
    };
    let cfg = rig.config("");
    let fs = rig
        .sim
        .block_on("test", async move { Ext4::mount(cfg).await });
    let fs = fs.expect("no deadlock").expect("mounts");
    let d = rig.queue.disk_stats();
    // kernel-lab, phase `mount`: 5 reads of 4.25 blocks, 1 write.
    assert_eq!((d.read.ios, d.read.sectors, d.write.ios), (5, 34, 1));
    rig.sim
        .block_on("umount", async move { fs.umount().await })
        .expect("no deadlock")
        .expect("unmounts");
    rig.fsck();
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Hole,
    Written,
    Unwritten,
}

struct Model {
    blocks: Vec<Block>,
}

async fn check_map(fs: &Ext4, inode: &Inode, model: &Model, forget: bool) -> FsResult<()> {
    if forget {
        inode.es.borrow_mut().remove(0, u32::MAX);
    }
    let mut owners: BTreeMap<u64, u32> = BTreeMap::new();
    let mut l = 0u32;
    while (l as usize) < model.blocks.len() {
        let len = model.blocks.len() as u32 - l;
        let req = MapRequest {
            lblk: Lblk(l),
            len,
            flags: MapFlags::NONE,
        };
        let m = fs.map_blocks(None, inode, req).await?;
        assert!(m.len > 0);
        let want = match m.kind {
            MappingKind::Hole => Block::Hole,
            MappingKind::Mapped => Block::Written,
            MappingKind::Unwritten => Block::Unwritten,
            MappingKind::Delayed => panic!("nothing is delayed here"),
        };
        for i in 0..m.len {
            assert_eq!(model.blocks[(l + i) as usize], want, "block {}", l + i);
            if want != Block::Hole {
                let was = owners.insert(m.pblk.0 + u64::from(i), l + i);
                assert_eq!(
                    was,
                    None,
                    "block {} is mapped twice",
                    m.pblk.0 + u64::from(i)
                );
            }
        }
        l += m.len;
    }
    Ok(())
}

/// Maps `len` blocks from `a` on and notes them in the model.
async fn map_run(
    fs: &Rc<Ext4>,
    h: &mut Handle,
    inode: &Rc<Inode>,
    model: &mut Model,
    (a, len): (u32, u32),
    flags: MapFlags,
) -> FsResult<()> {
    let mut l = a;
    while l < a + len {
        let req = MapRequest {
            lblk: Lblk(l),
            len: a + len - l,
            flags,
        };
        let m = fs.map_blocks(Some(h), inode, req).await?;
        assert!(m.mapped_block().is_some() && m.len > 0);
        for i in l..l + m.len {
            let b = &mut model.blocks[i as usize];
            *b = match (*b, flags.has(MapFlags::UNWRIT_EXT)) {
                (Block::Hole, true) => Block::Unwritten,
                (old, true) => old,
                (_, false) => Block::Written,
            };
        }
        l += m.len;
    }
    Ok(())
}

/// Allocates, converts and removes ranges at random, against an array.
async fn churn(fs: Rc<Ext4>, seed: u64, steps: u32, n: u32) -> FsResult<()> {
    let inode = new_file(&fs, "f").await?;
    let extents = inode.has_flag(flag::EXTENTS);
    let mut rng = SplitMix64::new(seed);
    let mut model = Model {
        blocks: vec![Block::Hole; n as usize],
    };
    for step in 0..steps {
        let a = rng.below(u64::from(n)) as u32;
        let most = if rng.below(4) == 0 { 60 } else { 3 };
        let len = (1 + rng.below(most) as u32).min(n - a);
        let what = rng.below(10);
        let mut h = fs.journal_start(HandleType::Misc, 60).await?;
        if what < 6 {
            let flags = match rng.below(4) {
                1 if extents => MapFlags::CREATE.with(MapFlags::UNWRIT_EXT),
                2 if extents => MapFlags::IO_CREATE_EXT,
                _ => MapFlags::CREATE,
            };
            map_run(&fs, &mut h, &inode, &mut model, (a, len), flags).await?;
        } else if what < 8 && extents {
            let all = model.blocks[a as usize..(a + len) as usize]
                .iter()
                .all(|b| *b != Block::Hole);
            if all {
                let bits = fs.geo.block_bits;
                let (o, l) = (u64::from(a) << bits, u64::from(len) << bits);
                fs.convert_unwritten(Some(&mut h), &inode, o, l).await?;
                model.blocks[a as usize..(a + len) as usize].fill(Block::Written);
            }
        } else {
            {
                // As every caller does: space of a preallocation must not be freed block by block.
                let _sem = inode.i_data_sem.write().await;
                fs.discard_preallocations(&inode).await?;
            }
            fs.remove_space(&mut h, &inode, a, a + len - 1).await?;
            inode.es.borrow_mut().remove(a, len);
            model.blocks[a as usize..(a + len) as usize].fill(Block::Hole);
        }
        fs.journal_stop(h).await?;
        if step % 16 == 0 {
            check_map(&fs, &inode, &model, true).await?;
        }
    }
    check_map(&fs, &inode, &model, false).await?;
    check_map(&fs, &inode, &model, true).await?;
    assert!(!fs.has_errors());
    let mut h = fs.journal_start(HandleType::Misc, 60).await?;
    inode.set_size(u64::from(n) << fs.geo.block_bits);
    inode.disksize.set(inode.size());
    fs.mark_inode_dirty(&mut h, &inode).await?;
    fs.journal_stop(h).await?;
    fs.iput(inode).await
}

#[test]
fn mappings_follow_a_model_and_fsck_agrees() {
    for (name, mib, args) in IMAGES {
        for seed in 0..3 {
            let Some(rig) = Rig::new("churn", mib, args) else {
                return;
            };
            let opts = if seed == 1 { "nodelalloc" } else { "" };
            let n = if name == "default" { 3000 } else { 4000 };
            rig.run(opts, move |fs| churn(fs, seed, 700, n));
            rig.fsck();
        }
    }
}

#[test]
fn a_deleted_file_gives_everything_back() {
    for (name, mib, args) in IMAGES {
        let Some(rig) = Rig::new("delete", mib, args) else {
            return;
        };
        let _ = name;
        rig.run("", |fs| async move {
            let root = fs.iget(Ino(2)).await?;
            let before = fs.statfs();
            for round in 0..3u32 {
                let mut h = fs.journal_start(HandleType::Dir, 60).await?;
                let inode = fs
                    .new_inode(&mut h, &root, mode::S_IFREG | 0o600, b"x", None)
                    .await?;
                fs.unlock_new_inode(&inode);
                for i in 0..200u32 {
                    if i % 20 == 0 {
                        let next = fs.journal_start(HandleType::Misc, 60).await?;
                        fs.journal_stop(std::mem::replace(&mut h, next)).await?;
                    }
                    let lblk = Lblk(i * 3 + round * 100);
                    let req = MapRequest {
                        lblk,
                        len: 2,
                        flags: MapFlags::CREATE,
                    };
                    fs.map_blocks(Some(&mut h), &inode, req).await?;
                }
                inode.core.borrow_mut().nlink = 0;
                fs.orphan_add(&mut h, &inode).await?;
                fs.journal_stop(h).await?;
                fs.iput(inode).await?;
            }
            if let Some(j) = fs.journal() {
                j.force_commit().await?;
            }
            let after = fs.statfs();
            assert_eq!((before.bfree, before.ffree), (after.bfree, after.ffree));
            assert_eq!(fs.mb.free_pending.get(), 0);
            fs.iput(root).await
        });
        rig.fsck();
    }
}

#[test]
fn a_full_disk_is_an_error_and_nothing_else() {
    for (name, mib, args) in [IMAGES[0], IMAGES[1], IMAGES[2]] {
        let Some(rig) = Rig::new("full", mib, args) else {
            return;
        };
        let _ = name;
        rig.run("", |fs| async move {
            let inode = new_file(&fs, "big").await?;
            let mut l = 0;
            let full = loop {
                let mut h = fs.journal_start(HandleType::Misc, 60).await?;
                let req = MapRequest {
                    lblk: Lblk(l),
                    len: 500,
                    flags: MapFlags::CREATE,
                };
                let m = fs.map_blocks(Some(&mut h), &inode, req).await;
                fs.journal_stop(h).await?;
                match m {
                    Ok(m) => l += m.len,
                    Err(e) => break e,
                }
            };
            assert_eq!(full, crate::fs::common::FsError::NoSpace);
            let st = fs.statfs();
            assert!(st.bfree <= fs.resv_clusters.get() + 64, "{st:?}");
            let mut h = fs.journal_start(HandleType::Truncate, 60).await?;
            fs.truncate_blocks(&mut h, &inode).await?;
            fs.mark_inode_dirty(&mut h, &inode).await?;
            fs.journal_stop(h).await?;
            fs.iput(inode).await
        });
        rig.fsck();
    }
}

#[test]
fn lazy_init_zeroes_every_table_and_says_so() {
    // kernel-lab, ext4-lazyinit-init_itable-*: 8 bios, 4,095 blocks, 8 handles in one transaction.
    for (opts, groups) in [
        ("init_itable=10", 8),
        ("init_itable=0", 8),
        ("noinit_itable", 0),
    ] {
        let rig = Rig::own(
            "lazy",
            1024,
            "-b 4096 -I 256 -E lazy_itable_init=1,nodiscard",
        );
        rig.queue.set_phase(Phase::Work);
        let stats = rig.run(opts, |fs| async move {
            fs.sim.sleep(Nanos::from_secs(15), WaitReason::Timer).await;
            fs.queue.set_phase(Phase::Umount);
            let handles = fs.journal().map_or(0, |j| j.stats().handles().count);
            Ok((
                fs.stats.ext4_lazy_itable_init.get(),
                fs.stats.ext4_mb_buddy_bitmap_load.get(),
                fs.stats.ext4_read_block_bitmap_load.get(),
                handles,
            ))
        });
        assert_eq!(stats, (groups, 8, 3, groups), "{opts}");
        let itable = *rig.queue.stats().bios(Phase::Work, Class::Itable);
        let blocks = if groups > 0 { 4095 } else { 0 };
        assert_eq!((itable.zero_bios, itable.sectors_w / 8), (groups, blocks));
        rig.fsck();
    }
}

#[test]
fn orphans_are_cleaned_up_after_a_power_cut() {
    for args in [
        "-t ext4 -b 4096 -O ^orphan_file",
        "-t ext4 -b 4096 -O orphan_file",
    ] {
        let Some(rig) = Rig::new("orphan", 64, args) else {
            return;
        };
        let cfg = rig.config("");
        let left = rig.sim.block_on("test", async move {
            let fs = Ext4::mount(cfg).await?;
            let root = fs.iget(Ino(2)).await?;
            let before = fs.statfs();
            for i in 0..5u32 {
                let mut h = fs.journal_start(HandleType::Dir, 90).await?;
                let inode = fs
                    .new_inode(&mut h, &root, mode::S_IFREG | 0o600, b"x", None)
                    .await?;
                fs.unlock_new_inode(&inode);
                let req = MapRequest {
                    lblk: Lblk(0),
                    len: 10 + i,
                    flags: MapFlags::CREATE,
                };
                fs.map_blocks(Some(&mut h), &inode, req).await?;
                inode.core.borrow_mut().nlink = 0;
                fs.orphan_add(&mut h, &inode).await?;
                fs.mark_inode_dirty(&mut h, &inode).await?;
                fs.journal_stop(h).await?;
            }
            if let Some(j) = fs.journal() {
                j.force_commit().await?;
            }
            Ok::<_, crate::fs::common::FsError>(before)
        });
        let before = left.expect("no deadlock").expect("works");
        let image = rig.queue.device().store().to_bytes();
        let again = Rig::of("orphan", &image);
        let after = again.run("", |fs| async move {
            if let Some(j) = fs.journal() {
                j.force_commit().await?;
            }
            Ok(fs.statfs())
        });
        assert_eq!(
            (before.bfree, before.ffree),
            (after.bfree, after.ffree),
            "{args}"
        );
        again.fsck();
    }
}

#[test]
fn remount_changes_between_read_only_and_writable() {
    let Some(rig) = Rig::new("remount", 64, "-t ext4 -b 4096") else {
        return;
    };
    rig.run("ro", |fs| async move {
        assert!(fs.journal_start(HandleType::Misc, 1).await.is_err());
        fs.remount("rw,commit=7").await?;
        let inode = new_file(&fs, "a").await?;
        fs.iput(inode).await?;
        fs.remount("ro").await?;
        assert!(fs.journal_start(HandleType::Misc, 1).await.is_err());
        assert!(fs.remount("data=journal").await.is_err());
        assert!(fs.remount("rw,nonsense").await.is_err());
        Ok(())
    });
    rig.fsck();
}

#[test]
fn shifted_extents_keep_their_blocks() {
    for args in ["-t ext4 -b 1024", "-t ext4 -b 4096"] {
        let Some(rig) = Rig::new("shift", 32, args) else {
            return;
        };
        rig.run("", |fs| async move {
            let inode = new_file(&fs, "s").await?;
            let mut want: BTreeMap<u32, u64> = BTreeMap::new();
            for i in 0..500u32 {
                let mut h = fs.journal_start(HandleType::Misc, 60).await?;
                let req = MapRequest {
                    lblk: Lblk(i * 2),
                    len: 1,
                    flags: MapFlags::CREATE,
                };
                let m = fs.map_blocks(Some(&mut h), &inode, req).await?;
                want.insert(i * 2, m.pblk.0);
                fs.journal_stop(h).await?;
            }
            for (start, by, right) in [(300, 100, true), (1, 7, true), (900, 300, false)] {
                let mut h = fs.journal_start(HandleType::Misc, 90).await?;
                {
                    let _sem = inode.i_data_sem.write().await;
                    fs.discard_preallocations(&inode).await?;
                }
                if !right {
                    fs.remove_space(&mut h, &inode, start - by, start - 1)
                        .await?;
                    want.retain(|l, _| *l < start - by || *l >= start);
                }
                let sem = inode.i_data_sem.write().await;
                if right {
                    fs.split_before(&mut h, &inode, start).await?;
                }
                fs.ext_shift(&mut h, &inode, start, by, right).await?;
                drop(sem);
                fs.journal_stop(h).await?;
                want = want
                    .into_iter()
                    .map(|(l, p)| match (l >= start, right) {
                        (false, _) => (l, p),
                        (true, true) => (l + by, p),
                        (true, false) => (l - by, p),
                    })
                    .collect();
                inode.es.borrow_mut().remove(0, u32::MAX);
                for (l, p) in &want {
                    let req = MapRequest {
                        lblk: Lblk(*l),
                        len: 1,
                        flags: MapFlags::NONE,
                    };
                    let m = fs.map_blocks(None, &inode, req).await?;
                    assert_eq!(m.mapped_block().map(|b| b.0), Some(*p), "block {l}");
                }
            }
            let mut h = fs.journal_start(HandleType::Misc, 60).await?;
            let end = want.keys().next_back().map_or(0, |l| l + 1);
            inode.set_size(u64::from(end) << fs.geo.block_bits);
            inode.disksize.set(inode.size());
            fs.mark_inode_dirty(&mut h, &inode).await?;
            fs.journal_stop(h).await?;
            fs.iput(inode).await
        });
        rig.fsck();
    }
}
