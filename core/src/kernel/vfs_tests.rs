//! System calls against models: names in directories as a map, attributes as a map, and a table of path walks. Every
//! file system is unmounted at the end and checked by our own fsck.

use crate::base::rng::SplitMix64;
use crate::base::{Errno, Lba, WriteSource};
use crate::block::{Bio, Device, DeviceConfig, Queue, Role};
use crate::fs::ext4::mkfs::{mkfs, MkfsOptions};
use crate::fs::ext4::{fsck, CostTable, Ext4, MountConfig, MountOptions};
use crate::fs::jbd2::JournalCosts;
use crate::mm::Vm;
use crate::sim::Sim;
use crate::vfs::{Fd, Fs, OpenFlags, RenameFlags, SysResult, Vfs, XattrMode};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;

async fn boot(sim: &Sim, queue: &Rc<Queue>, size: u64, mkfs_opts: &str) -> Rc<Vfs> {
    let image = mkfs(&MkfsOptions::parse(mkfs_opts).unwrap(), size).unwrap();
    let bs = u64::from(image.block_size);
    for (at, len) in image.zero {
        let sectors = (len * bs / 512) as u32;
        let bio = Bio::write_zeroes(Lba(at * bs / 512), sectors, Role::Other);
        queue.run(bio).await.unwrap();
    }
    for (at, p) in image.blocks {
        let bio = Bio::write(Lba(at * bs / 512), bs as u32, p, Role::Other);
        queue.run(bio).await.unwrap();
    }
    let fs = Ext4::mount(MountConfig {
        sim: sim.clone(),
        queue: Rc::clone(queue),
        vm: Vm::new(sim, 1 << 30),
        opts: MountOptions::parse("").unwrap(),
        wall_clock_base: 1_700_000_000_000_000_000,
        cost: CostTable::MODELLED,
        journal_costs: JournalCosts::LINUX,
        device: "vda".to_owned(),
        mount_point: "/".to_owned(),
        journal_queue: None,
    })
    .await
    .unwrap();
    Vfs::new(Fs::Ext4(fs))
}

/// Runs `body` on a fresh file system; then everything must be clean.
fn with_fs<F: Future<Output = ()> + 'static>(
    mkfs_opts: &'static str,
    body: impl FnOnce(Rc<Vfs>) -> F + 'static,
) {
    let size = 64 << 20;
    let sim = Sim::new(1, 2);
    let config = DeviceConfig::parse("loop", size).unwrap();
    let queue = Queue::new(&sim, Device::new(config, sim.rng("device")));
    let (s, q) = (sim.clone(), Rc::clone(&queue));
    sim.block_on("app", async move {
        let vfs = boot(&s, &q, size, mkfs_opts).await;
        body(Rc::clone(&vfs)).await;
        vfs.release_all().await.unwrap();
        let Fs::Ext4(fs) = vfs.fs();
        fs.umount().await.unwrap();
    })
    .unwrap();
    let findings = fsck::check(queue.device().store());
    assert!(findings.is_empty(), "{mkfs_opts}: {findings:?}");
    sim.shutdown();
}

async fn random_names(vfs: Rc<Vfs>, steps: u64, spread: u64) {
    vfs.mkdir(b"d", 0o755).await.unwrap();
    let mut r = SplitMix64::new(spread);
    let mut model: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    let name = |n: u64| {
        let mut s = format!("d/{n:05}").into_bytes();
        s.resize(s.len() + (n * 7 % 60) as usize, b'n');
        s
    };
    for step in 0..steps {
        let (a, b) = (name(r.below(spread)), name(r.below(spread)));
        let there = model.contains_key(&a);
        match r.below(10) {
            0..6 => {
                let made = vfs.create(&a, 0o644).await;
                assert_eq!(made, if there { Err(Errno::EEXIST) } else { Ok(()) });
                let ino = vfs.lstat(&a).await.unwrap().ino;
                model.insert(a, u64::from(ino.0));
            }
            6..8 => {
                let gone = vfs.unlink(&a).await;
                assert_eq!(gone, if there { Ok(()) } else { Err(Errno::ENOENT) });
                model.remove(&a);
            }
            8 => {
                let moved = vfs.rename(&a, &b, RenameFlags::NONE).await;
                assert_eq!(moved, if there { Ok(()) } else { Err(Errno::ENOENT) });
                if let Some(ino) = model.remove(&a) {
                    model.insert(b, ino);
                }
            }
            _ => {
                if step % 97 == 0 {
                    vfs.drop_caches().await.unwrap();
                }
                let found = vfs.lstat(&a).await.map(|s| u64::from(s.ino.0));
                assert_eq!(found.ok(), model.get(&a).copied());
            }
        }
    }
    let mut names = vfs.readdir(b"d").await.unwrap();
    names.sort();
    let wanted: Vec<_> = model.keys().map(|k| k[2..].to_vec()).collect();
    assert_eq!(names, wanted);
}

#[test]
fn names_match_a_map_in_linear_and_indexed_directories() {
    for opts in [
        "-b 1024",
        "-b 4096",
        "-b 1024 -O ^dir_index",
        "-b 4096 -O inline_data",
    ] {
        with_fs(opts, |vfs| random_names(vfs, 3000, 40));
        with_fs(opts, |vfs| random_names(vfs, 3000, 1500));
    }
}

#[test]
fn two_index_levels_hold_and_end_with_an_error() {
    with_fs("-b 1024 -N 20000", |vfs| async move {
        vfs.mkdir(b"d", 0o755).await.unwrap();
        for i in 0..9000u32 {
            vfs.create(format!("d/{i:0>40}").as_bytes(), 0o644)
                .await
                .unwrap();
        }
        assert_eq!(vfs.readdir(b"d").await.unwrap().len(), 9000);
        for i in (0..9000u32).step_by(3) {
            vfs.unlink(format!("d/{i:0>40}").as_bytes()).await.unwrap();
        }
        assert_eq!(vfs.readdir(b"d").await.unwrap().len(), 6000);
        assert_eq!(vfs.rmdir(b"d").await, Err(Errno::ENOTEMPTY));
    });
}

#[test]
fn path_walks_give_the_kernels_errors() {
    with_fs("-b 4096", |vfs| async move {
        vfs.mkdir(b"d", 0o755).await.unwrap();
        vfs.mkdir(b"d/sub", 0o755).await.unwrap();
        vfs.create(b"f", 0o644).await.unwrap();
        vfs.symlink(b"d/sub", b"to").await.unwrap();
        vfs.symlink(b"../../f", b"d/sub/back").await.unwrap();
        vfs.symlink(b"loop", b"loop").await.unwrap();
        vfs.symlink(b"/d", b"abs").await.unwrap();
        let long = [b'n'; 256];
        let deep = b"d/".repeat(2100);
        let cases: &[(&[u8], SysResult<u32>)] = &[
            (b"", Ok(2)),
            (b"/", Ok(2)),
            (b"..", Ok(2)),
            (b"d/..", Ok(2)),
            (b"d/./sub/../..", Ok(2)),
            (b"f/", Err(Errno::ENOTDIR)),
            (b"f/x", Err(Errno::ENOTDIR)),
            (b"nope/x", Err(Errno::ENOENT)),
            (b"loop/x", Err(Errno::ELOOP)),
            (&long, Err(Errno::ENAMETOOLONG)),
            (&deep, Err(Errno::ENAMETOOLONG)),
        ];
        for (path, wanted) in cases {
            let got = vfs.lstat(path).await.map(|s| s.ino.0);
            assert_eq!(got, *wanted, "{}", String::from_utf8_lossy(path));
        }
        let sub = vfs.lstat(b"d/sub").await.unwrap().ino;
        for path in [&b"to/"[..], b"abs/sub", b"abs/../to/."] {
            assert_eq!(vfs.lstat(path).await.unwrap().ino, sub);
        }
        let f = vfs.lstat(b"f").await.unwrap().ino;
        let fd = vfs.open(b"to/back", OpenFlags::RDONLY, 0).await.unwrap();
        assert_eq!(vfs.fstat(fd).await.unwrap().ino, f);
        assert_eq!(
            vfs.open(b"loop", OpenFlags::RDONLY, 0).await,
            Err(Errno::ELOOP)
        );
        assert_eq!(vfs.fstat(Fd(99)).await, Err(Errno::EBADF));
        assert_eq!(
            vfs.rename(b"d", b"d/sub/x", RenameFlags::NONE).await,
            Err(Errno::EINVAL)
        );
        // The root is a mount point: its name lies outside.
        for (old, new) in [(&b"/"[..], &b"d/x"[..]), (b"f", b"/")] {
            let renamed = vfs.rename(old, new, RenameFlags::NONE).await;
            assert_eq!(renamed, Err(Errno::EXDEV));
        }
    });
}

/// A range is forgotten before the leaves that map it are read; what they say must not be remembered.
#[test]
fn truncation_after_dropped_caches_leaves_no_stale_mapping() {
    with_fs("-b 4096", |vfs| async move {
        let flags = OpenFlags::RDWR.with(OpenFlags::CREAT);
        let fd = vfs.open(b"f", flags, 0o600).await.unwrap();
        let write = |at: i64, seed| {
            let source = WriteSource::Content { seed };
            vfs.pwrite(fd, at, 4096, source)
        };
        // Every other block: more extents than fit into the inode.
        for i in 0..20 {
            write(i * 8192, 1).await.unwrap();
        }
        // A later commit lets go of the leaf, which the journal holds until it is checkpointed.
        for name in [&b"g"[..], b"h"] {
            vfs.syncfs().await.unwrap();
            vfs.create(name, 0o600).await.unwrap();
        }
        vfs.drop_caches().await.unwrap();
        vfs.ftruncate(fd, 5 * 8192).await.unwrap();
        write(12 * 8192, 2).await.unwrap();
        vfs.syncfs().await.unwrap();
        vfs.drop_caches().await.unwrap();
        let mut wanted = vec![0; 4096];
        crate::base::payload::content(2, 12 * 8192, &mut wanted);
        let got = vfs.pread(fd, 12 * 8192, 4096).await.unwrap();
        assert!(got == wanted, "the write after the truncation is lost");
        assert_eq!(vfs.fstat(fd).await.unwrap().blocks, (5 + 1 + 1) * 8);
        vfs.close(fd).await.unwrap();
    });
}

/// Direct I/O that does not begin and end at sectors: holes can be read, everything mapped is refused, and a refused
/// write past the end leaves nothing behind.
#[test]
fn misaligned_direct_io_is_refused_where_blocks_are_mapped() {
    for opts in ["-b 4096", "-b 4096 -O ^has_journal", "-b 1024"] {
        with_fs(opts, |vfs| async move {
            let flags = OpenFlags::RDWR.with(OpenFlags::CREAT);
            let buffered = vfs.open(b"f", flags, 0o600).await.unwrap();
            let direct = flags.with(OpenFlags::DIRECT);
            let fd = vfs.open(b"f", direct, 0o600).await.unwrap();
            let seed = WriteSource::Content { seed: 1 };
            assert_eq!(vfs.pwrite(fd, 21_262, 1, seed).await, Err(Errno::EINVAL));
            assert_eq!(vfs.fstat(fd).await.unwrap().blocks, 0);
            vfs.ftruncate(fd, 50_000).await.unwrap();
            let hole = vfs.pread(fd, 7441, 4223).await.unwrap();
            assert_eq!(hole, vec![0; 4223]);
            vfs.pwrite(buffered, 16_384, 4096, seed).await.unwrap();
            for (at, len) in [(7441, 12_000), (16_385, 512), (16_384, 100)] {
                let read = vfs.pread(fd, at, len).await;
                assert_eq!(read, Err(Errno::EINVAL), "{at} {len}");
            }
            // Past the mapped blocks the end may lie anywhere.
            let read = vfs.pread(fd, 16_384, 4099).await.unwrap();
            assert_eq!(read.len(), 4099);
            vfs.close(fd).await.unwrap();
            vfs.close(buffered).await.unwrap();
        });
    }
}

#[test]
fn an_unlinked_open_file_lives_until_it_is_closed() {
    with_fs("-b 4096", |vfs| async move {
        let flags = OpenFlags::RDWR.with(OpenFlags::CREAT);
        let fd = vfs.open(b"f", flags, 0o600).await.unwrap();
        vfs.unlink(b"f").await.unwrap();
        assert_eq!(vfs.lstat(b"f").await.map(|s| s.nlink), Err(Errno::ENOENT));
        let n = vfs
            .pwrite(fd, 0, 5000, WriteSource::Content { seed: 3 })
            .await;
        assert_eq!(n, Ok(5000));
        assert_eq!(vfs.fstat(fd).await.unwrap().nlink, 0);
        vfs.syncfs().await.unwrap();
        assert_eq!(vfs.pread(fd, 0, 9000).await.unwrap().len(), 5000);
        vfs.close(fd).await.unwrap();
        assert_eq!(vfs.close(fd).await, Err(Errno::EBADF));
    });
}

#[test]
fn attributes_match_a_map_in_body_and_shared_blocks() {
    for opts in ["-b 1024 -I 128", "-b 4096 -I 256", "-b 1024 -I 512"] {
        with_fs(opts, |vfs| async move {
            let mut r = SplitMix64::new(7);
            let mut model: BTreeMap<(u64, u64), Vec<u8>> = BTreeMap::new();
            for i in 0..8u64 {
                vfs.create(format!("f{i}").as_bytes(), 0o644).await.unwrap();
            }
            for step in 0..1500u64 {
                let (f, k) = (r.below(8), r.below(5));
                let (path, name) = (format!("f{f}"), format!("user.key{k}"));
                let (path, name) = (path.as_bytes(), name.as_bytes());
                let value = vec![(k + 1) as u8; [0, 3, 40, 200][(r.below(4)) as usize]];
                if r.below(4) == 0 {
                    let gone = vfs.removexattr(path, name).await;
                    let had = model.remove(&(f, k)).is_some();
                    assert_eq!(gone, if had { Ok(()) } else { Err(Errno::ENODATA) });
                } else if vfs
                    .setxattr(path, name, &value, XattrMode::Any)
                    .await
                    .is_ok()
                {
                    model.insert((f, k), value);
                }
                if step % 300 == 0 {
                    vfs.drop_caches().await.unwrap();
                }
                let now = vfs.getxattr(path, name).await;
                let wanted = model.get(&(f, k)).cloned();
                assert_eq!(now, wanted.ok_or(Errno::ENODATA));
            }
        });
    }
}
