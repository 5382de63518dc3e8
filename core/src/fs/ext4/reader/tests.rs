//! Damaged disks neither panic nor run on; what mke2fs copied in is read. Agreement with Linux is tested in
//! `tests/interop`.

use super::*;
use crate::base::rng::SplitMix64;
use crate::fs::ext4::mkfs::{mkfs, MkfsOptions};
use std::process::Command;

#[test]
fn random_bytes_are_refused() {
    let mut rng = SplitMix64::new(11);
    for _ in 0..200 {
        let bytes: Vec<u8> = (0..8192).map(|_| rng.next_u64() as u8).collect();
        assert!(Reader::open(bytes.as_slice()).is_err());
    }
    assert!(Reader::open([].as_slice()).is_err());
}

fn fresh(opts: &str, size: u64) -> Vec<u8> {
    let m = mkfs(&MkfsOptions::parse(opts).unwrap(), size).unwrap();
    let mut image = vec![0; size as usize];
    for (at, p) in &m.blocks {
        let at = *at as usize * m.block_size as usize;
        p.fill(&mut image[at..at + m.block_size as usize]);
    }
    image
}

fn paths(r: &Reader<'_, Vec<u8>>) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    r.walk(
        1 << 20,
        |p, _| out.push(p.to_vec()),
        |p, e| panic!("{p:?}: {e}"),
    );
    out
}

#[test]
fn fresh_file_systems_have_lost_and_found() {
    for opts in [
        "",
        "-t ext2",
        "-t ext3 -b 1024",
        "-b 2048 -I 1024",
        "-O inline_data",
        "-O bigalloc -b 4096",
    ] {
        let image = fresh(opts, 32 << 20);
        let r = Reader::open(&image).unwrap();
        assert_eq!(
            paths(&r),
            [b"/".to_vec(), b"/lost+found".to_vec()],
            "{opts}"
        );
        let lpf = r.lookup(b"/lost+found/../lost+found", true).unwrap();
        assert_eq!((lpf.ino, lpf.raw.i_mode), (11, 0o040_700));
        assert!(matches!(
            r.lookup(b"no/such", true),
            Err(ReadError::NotFound)
        ));
        if let Some((first, _)) = r.journal_extents().unwrap().first() {
            let jsb = r.block(*first);
            assert!(crate::format::jbd2::JournalSuperblock::decode(&jsb).is_ok());
        }
    }
}

/// An image filled by mke2fs from a folder; `None` without mke2fs.
fn filled(opts: &str, dir: &std::path::Path) -> Option<Vec<u8>> {
    let image = dir.with_extension("img");
    let _ = std::fs::remove_file(&image);
    let out = Command::new("/usr/sbin/mke2fs")
        .args(["-q", "-F", "-d"])
        .arg(dir)
        .args(opts.split_whitespace())
        .arg(&image)
        .arg("16M")
        .output()
        .ok()?;
    assert!(out.status.success(), "{out:?}");
    let b = std::fs::read(&image).unwrap();
    let _ = std::fs::remove_file(&image);
    Some(b)
}

#[test]
fn reads_what_mke2fs_copied_in() {
    let dir = std::env::temp_dir().join(format!("fsglass-reader-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("sub/many")).unwrap();
    let mut big = vec![0; 900_000];
    crate::base::payload::content(3, 0, &mut big);
    std::fs::write(dir.join("sub/big"), &big).unwrap();
    std::fs::write(dir.join("small"), b"hello").unwrap();
    std::os::unix::fs::symlink("sub/big", dir.join("short")).unwrap();
    let long = format!("{}small", "./".repeat(60));
    std::os::unix::fs::symlink(&long, dir.join("long")).unwrap();
    for i in 0..300 {
        std::fs::write(dir.join(format!("sub/many/a name of some length {i}")), b"").unwrap();
    }
    let mut tried = 0;
    for opts in [
        "-t ext4",
        "-t ext4 -b 4096 -O inline_data",
        "-t ext2 -b 1024",
        "-t ext3 -I 128",
        "-t ext4 -b 2048",
    ] {
        let Some(image) = filled(opts, &dir) else {
            println!("SKIP: mke2fs is not installed");
            break;
        };
        tried += 1;
        let r = Reader::open(&image).unwrap();
        let read = |p: &str| {
            let inode = r.lookup(p.as_bytes(), true).unwrap();
            let mut out = vec![0; inode.raw.i_size as usize];
            r.read(&inode, &r.pieces(&inode).unwrap().0, 0, &mut out)
                .unwrap();
            out
        };
        assert_eq!(read("sub/big"), big, "{opts}");
        assert_eq!(read("short"), big);
        assert_eq!(read("long"), b"hello");
        let many = r.lookup(b"sub/many", true).unwrap();
        assert_eq!(r.readdir(&many).unwrap().len(), 300);
        assert_eq!(paths(&r).len(), 308);
    }
    std::fs::remove_dir_all(&dir).unwrap();
    println!("{tried} images read");
}

#[test]
fn damaged_images_never_panic_or_loop() {
    let mut rng = SplitMix64::new(11);
    for opts in [
        "-O ^metadata_csum,^has_journal",
        "-t ext2 -b 1024",
        "-O inline_data,^metadata_csum,^has_journal",
    ] {
        let image = fresh(opts, 4 << 20);
        let used: Vec<usize> = (0..image.len() / 64)
            .filter(|i| image[i * 64..i * 64 + 64].iter().any(|b| *b != 0))
            .collect();
        for _ in 0..600 {
            let mut bad = image.clone();
            for _ in 0..=rng.below(8) {
                let at = used[rng.below(used.len() as u64) as usize] * 64 + rng.below(64) as usize;
                bad[at] = rng.next_u64() as u8;
            }
            let Ok(r) = Reader::open(&bad) else { continue };
            r.walk(1000, |_, _| {}, |_, _| {});
            let _ = r.journal_extents();
            for ino in 1..=12 {
                let Ok(i) = r.inode_unverified(ino) else {
                    continue;
                };
                let _ = r.xattrs(&i);
                let _ = r.readlink(&i);
                if let Ok((pieces, _)) = r.pieces(&i) {
                    let _ = r.read(&i, &pieces, 0, &mut [0; 4096]);
                }
            }
        }
    }
}
