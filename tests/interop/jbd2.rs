//! Journals that the Linux kernel left dirty: our replay gives the same blocks as e2fsck's.
//!
//! The kernel lab records what a kernel writes to a device; the image after a power cut at each record, with and
//! without losses of the volatile cache, is replayed by `e2fsck -E journal_only` and by us, and all blocks outside of
//! the journal and the superblock are compared. Needs root and the lab; where it cannot run it says so.

#![allow(
    clippy::unwrap_used,
    reason = "a test: where a step of it fails, the test fails"
)]

use fsglass::base::bytes;
use fsglass::block::{Device, DeviceConfig, Queue};
use fsglass::format::ext4::{Extent, ExtentHeader, GroupDesc, RawInode, SuperBlock};
use fsglass::format::jbd2::JournalSuperblock;
use fsglass::fs::ext4::{CostTable, Ext4, MountConfig, MountOptions};
use fsglass::fs::jbd2::recovery::replay;
use fsglass::fs::jbd2::JournalCosts;
use fsglass::mm::Vm;
use fsglass::sim::Sim;
use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

const SCRIPT: &str = "\
mkdir d
create d/a
pwrite d/a 0 9000 1
fsync d/a
mkdir d/e
create d/e/f
symlink target d/s
fsync d/e/f
unlink d/a
unlink d/e/f
rmdir d/e
sync
mkdir g
create g/a
create g/b
fsync g/a
unlink g/a
unlink g/b
rmdir g
create big
pwrite big 0 300000 5
fsync big
rename big big2
truncate big2 5000
fsync big2
setxattr big2 user.x 3000 3
create z
pwrite z 0 200000 9
sync
removexattr big2 user.x
unlink z
create y
pwrite y 0 200000 8
fsync y
";

fn lab() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kernel-lab/lab.py")
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() {
            shm.to_path_buf()
        } else {
            std::env::temp_dir()
        };
        let dir = base.join(format!("fsglass-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An image with the place of its journal.
struct Image {
    bytes: Vec<u8>,
    block_size: usize,
    journal: Vec<Extent>,
}

impl Image {
    fn read(path: &Path) -> Image {
        let image = fs::read(path).unwrap();
        let sb = SuperBlock::decode_unchecked(&image[1024..2048]).unwrap();
        let block_size = sb.block_size() as usize;
        let desc_size = sb.desc_size();
        let gdt = (sb.s_first_data_block as usize + 1) * block_size;
        let ino = sb.s_journal_inum;
        let (group, index) = (
            (ino - 1) / sb.s_inodes_per_group,
            (ino - 1) % sb.s_inodes_per_group,
        );
        let at = gdt + group as usize * usize::from(desc_size);
        let desc = GroupDesc::decode(&image[at..], desc_size);
        let at = desc.bg_inode_table as usize * block_size
            + index as usize * usize::from(sb.inode_size());
        let inode = RawInode::decode(&image[at..at + usize::from(sb.inode_size())]).unwrap();
        let header = ExtentHeader::decode(&inode.i_block).unwrap();
        assert_eq!(
            header.eh_depth, 0,
            "the journal of a small image has no tree"
        );
        let journal = (0..header.eh_entries)
            .map(|i| Extent::decode(&inode.i_block, i))
            .collect();
        Image {
            bytes: image,
            block_size,
            journal,
        }
    }

    fn home(&self, jblock: u32) -> u64 {
        let e = self.journal.iter().rfind(|e| e.lblk <= jblock).unwrap();
        e.pblk + u64::from(jblock - e.lblk)
    }

    fn block(&self, n: u64) -> &[u8] {
        let at = n as usize * self.block_size;
        &self.bytes[at..at + self.block_size]
    }

    /// Replays in place; the number of blocks and the next transaction.
    fn replay(&mut self) -> Option<(u32, u32)> {
        let jsb = JournalSuperblock::decode(self.block(self.home(0))).unwrap();
        let mut writes: Vec<(u64, Rc<[u8]>)> = Vec::new();
        let done = replay::<Infallible>(
            &jsb,
            |at| Ok(self.block(self.home(at)).into()),
            |home, b| {
                writes.push((home, b));
                Ok(())
            },
        );
        let (outcome, _) = done.unwrap()?;
        assert_eq!(outcome.error, None);
        for (home, b) in writes {
            let at = home as usize * self.block_size;
            self.bytes[at..at + self.block_size].copy_from_slice(&b);
        }
        Some((outcome.replayed, outcome.next.0))
    }

    /// Blocks that differ, without the journal and the primary superblock.
    fn differences(&self, other: &Image) -> Vec<u64> {
        let blocks = (self.bytes.len() / self.block_size) as u64;
        let in_journal = |n: u64| {
            let hit = |e: &Extent| n >= e.pblk && n < e.pblk + u64::from(e.len);
            self.journal.iter().any(hit)
        };
        let sb_block = 1024 / self.block_size as u64;
        let same = |n: u64| {
            if n != sb_block {
                return self.block(n) == other.block(n);
            }
            // Free counts and the like may differ by what e2fsck writes itself; layout fields may not.
            bytes::le32(&self.bytes, 1024) == bytes::le32(&other.bytes, 1024)
        };
        (0..blocks)
            .filter(|&n| !in_journal(n) && !same(n))
            .collect()
    }
}

fn python(args: &[&str]) -> bool {
    let mut c = Command::new("python3");
    c.arg(lab()).args(args);
    let out = c.output().expect("python3 runs");
    if !out.status.success() {
        let text = [out.stdout, out.stderr].concat();
        println!("{args:?}: {}", String::from_utf8_lossy(&text));
    }
    out.status.success()
}

fn can_run() -> bool {
    let probe = Command::new("python3").arg(lab()).arg("probe").output();
    let Ok(out) = probe else {
        println!("skipped: no python3");
        return false;
    };
    if out.status.code() == Some(77) {
        println!("skipped: {}", String::from_utf8_lossy(&out.stdout).trim());
        return false;
    }
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stdout)
    );
    true
}

/// Cuts a recorded run at every `step`-th record; returns how many cuts needed a replay.
fn check(name: &str, mkfs: &str, mount: &str, step: usize) -> u32 {
    let dir = Scratch::new(name);
    let ops = dir.path("script.ops");
    fs::write(&ops, SCRIPT).unwrap();
    let log = dir.path("log");
    let (ops, log) = (ops.to_str().unwrap(), log.to_str().unwrap());
    let mut args = vec!["wlog", ops, "--size", "32", "--out", log];
    let options = format!("{mkfs} -E lazy_itable_init=0,lazy_journal_init=0,nodiscard");
    args.extend(["--mkfs-opts", &options]);
    if !mount.is_empty() {
        args.extend(["--mount-opts", mount]);
    }
    assert!(python(&args), "the kernel lab records");
    let records = fs::read_to_string(Path::new(log).join("log.jsonl"))
        .unwrap()
        .lines()
        .count();
    let (cut, theirs) = (dir.path("cut.img"), dir.path("e2fsck.img"));
    let mut replays = 0;
    for at in (1..=records).step_by(step) {
        for loss in [false, true] {
            let at = at.to_string();
            let mut args = vec!["wcut", log, "--at", &at, "--out", cut.to_str().unwrap()];
            if loss {
                args.extend(["--drop-unflushed", "--seed", &at]);
            }
            assert!(python(&args), "wcut at {at}");
            fs::copy(&cut, &theirs).unwrap();
            let e2fsck = Command::new("e2fsck")
                .args(["-fy", "-E", "journal_only"])
                .arg(&theirs)
                .output()
                .expect("e2fsck runs");
            assert!(
                e2fsck.status.code().is_some_and(|c| c < 8),
                "e2fsck at {at}"
            );
            let theirs = Image::read(&theirs);
            let mut ours = Image::read(&cut);
            if let Some((_, next)) = ours.replay() {
                replays += 1;
                let jsb = JournalSuperblock::decode(theirs.block(theirs.home(0))).unwrap();
                assert_eq!(
                    (jsb.s_start, jsb.s_sequence),
                    (0, next),
                    "at {at}, loss {loss}"
                );
            }
            let differ = ours.differences(&theirs);
            assert_eq!(
                differ, [0u64; 0],
                "{name}: blocks after a cut at {at}, loss {loss}"
            );
        }
    }
    replays
}

/// Directories are made by a full commit: the kernel's own replay of a created one leaves its parent's links wrong.
const FAST_COMMIT_SCRIPT: &str = "\
mkdir d
sync
create a
pwrite a 0 9000 1
fsync a
open h a w
pwrite @h 20000 4096 2
fsync @h
pwrite @h 0 4096 3
fsync @h
pwrite @h 60000 30000 4
fsync @h
close h
create d/x
pwrite d/x 0 5000 5
fsync d/x
link d/x d/y
fsync d/x
unlink d/y
create d/z
fsync d/z
truncate a 10000
fsync a
pwrite a 40000 8000 6
fsync a
create e
symlink tt d/s
fsync e
unlink d/x
fsync e
";

/// Mounts and unmounts an image on a simulated device; the image afterwards.
fn mount_and_unmount(image: &Path, options: &str) -> Vec<u8> {
    let bytes = fs::read(image).unwrap();
    // Times that replay sets must be close to those of the kernel, which the lab then leaves out.
    let written = fs::metadata(image).unwrap().modified().unwrap();
    let written = written.duration_since(std::time::UNIX_EPOCH).unwrap();
    let sim = Sim::new(1, 2);
    let config = DeviceConfig::parse("loop", bytes.len() as u64).unwrap();
    let queue = Queue::new(&sim, Device::new(config, sim.rng("device")));
    for (i, page) in bytes.chunks(4096).enumerate() {
        if page.iter().any(|b| *b != 0) {
            queue
                .device_mut()
                .store_mut()
                .write_bytes(i as u64 * 4096, page);
        }
    }
    let cfg = MountConfig {
        sim: sim.clone(),
        queue: Rc::clone(&queue),
        vm: Vm::new(&sim, 1 << 30),
        opts: MountOptions::parse(options).unwrap(),
        wall_clock_base: written.as_nanos() as u64,
        cost: CostTable::FREE,
        journal_costs: JournalCosts::LINUX,
        device: "vda".to_owned(),
        mount_point: "/mnt".to_owned(),
        journal_queue: None,
    };
    let done = sim.block_on("mount", async move {
        let fs = Ext4::mount(cfg).await?;
        fs.umount().await
    });
    done.expect("nothing is stuck")
        .expect("mounts and unmounts");
    let mut out = bytes;
    let device = queue.device();
    device.store().read_bytes(0, &mut out);
    sim.shutdown();
    out
}

/// The kernel's view of an image, by the lab: it replays what there is to replay.
fn kernel_state(dir: &Scratch, image: &Path, name: &str) -> PathBuf {
    let ops = dir.path("empty.ops");
    fs::write(&ops, "stat /\n").unwrap();
    let out = dir.path(name);
    let args = [
        "oplog",
        "replay",
        ops.to_str().unwrap(),
        "--image",
        image.to_str().unwrap(),
        "--no-mkfs",
        "--out",
        out.to_str().unwrap(),
    ];
    assert!(python(&args), "the kernel mounts {}", image.display());
    out
}

/// Mounts each crash image with our ext4; the kernel finds the same files as after its own replay, and e2fsck nothing.
fn check_mounts(name: &str, mkfs: &str, script: &str, step: usize) -> usize {
    let dir = Scratch::new(name);
    let ops = dir.path("script.ops");
    fs::write(&ops, script).unwrap();
    let log = dir.path("log");
    let (ops, log) = (ops.to_str().unwrap(), log.to_str().unwrap());
    let options = format!("{mkfs} -E lazy_itable_init=0,lazy_journal_init=0,nodiscard");
    let args = [
        "wlog",
        ops,
        "--size",
        "64",
        "--out",
        log,
        "--mkfs-opts",
        &options,
    ];
    assert!(python(&args), "the kernel lab records");
    let records = fs::read_to_string(Path::new(log).join("log.jsonl"))
        .unwrap()
        .lines()
        .count();
    let (cut, ours) = (dir.path("cut.img"), dir.path("ours.img"));
    let mut cuts = 0;
    for at in (2..=records).step_by(step) {
        let at = at.to_string();
        assert!(python(&[
            "wcut",
            log,
            "--at",
            &at,
            "--out",
            cut.to_str().unwrap()
        ]));
        fs::write(&ours, mount_and_unmount(&cut, "")).unwrap();
        let fsck = Command::new("e2fsck")
            .arg("-fn")
            .arg(&ours)
            .output()
            .expect("e2fsck runs");
        let text = String::from_utf8_lossy(&fsck.stdout);
        assert!(
            fsck.status.success(),
            "{name}: e2fsck after a cut at {at}: {text}"
        );
        let (a, b) = (
            kernel_state(&dir, &cut, "kernel.json"),
            kernel_state(&dir, &ours, "ours.json"),
        );
        let args = ["compare", a.to_str().unwrap(), b.to_str().unwrap()];
        let same = Command::new("python3")
            .arg(lab())
            .args(args)
            .output()
            .expect("python3 runs");
        let text = String::from_utf8_lossy(&same.stdout);
        assert!(
            same.status.success(),
            "{name}: trees after a cut at {at}: {text}"
        );
        cuts += 1;
    }
    cuts
}

#[test]
fn crash_images_of_linux_mount_to_the_same_tree() {
    if !can_run() {
        return;
    }
    let deep = std::env::var_os("FSGLASS_DEEP").is_some();
    let step = if deep { 1 } else { 6 };
    let fast = check_mounts(
        "fast-commit",
        "-b 4096 -O fast_commit",
        FAST_COMMIT_SCRIPT,
        step,
    );
    let plain = check_mounts("mount", "-b 4096", SCRIPT, step * 2);
    println!("{fast} cuts with fast commits, {plain} without");
}

#[test]
fn journals_left_dirty_by_linux_are_replayed_as_e2fsck_does() {
    if !can_run() {
        return;
    }
    // Every few records take minutes; by default fewer cuts are tried.
    let deep = std::env::var_os("FSGLASS_DEEP").is_some();
    let cases = [
        ("csum-v3", "-b 4096", "", 2),
        ("1k", "-b 1024 -O ^metadata_csum,^64bit", "", 3),
        (
            "csum-v1",
            "-b 4096 -O ^metadata_csum",
            "journal_checksum",
            5,
        ),
        ("data-journal", "-b 4096", "data=journal", 2),
    ];
    for (name, mkfs, mount, step) in cases {
        let replays = check(name, mkfs, mount, if deep { step } else { step * 4 });
        println!("{name}: {replays} replays equal");
        assert!(replays > 4, "{name}: {replays}");
    }
}
