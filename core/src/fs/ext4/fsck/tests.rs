use super::*;
use crate::base::rng::SplitMix64;
use crate::base::{bitmap, bytes};
use crate::format::ext4::{features, RawInode};
use crate::fs::ext4::mkfs::{mkfs, MkfsOptions};
use std::process::Command;

fn fresh(opts: &str, size: u64) -> Vec<u8> {
    let m = mkfs(&MkfsOptions::parse(opts).unwrap(), size).unwrap();
    let mut image = vec![0; size as usize];
    for (at, p) in &m.blocks {
        let at = *at as usize * m.block_size as usize;
        p.fill(&mut image[at..at + m.block_size as usize]);
    }
    image
}

fn texts(image: &Vec<u8>) -> Vec<String> {
    check(image).iter().map(ToString::to_string).collect()
}

const OPTIONS: [&str; 14] = [
    "",
    "-b 4096",
    "-t ext2",
    "-t ext3 -b 1024",
    "-b 2048 -I 1024",
    "-O inline_data -b 4096",
    "-O bigalloc -b 4096",
    "-O bigalloc -b 1024",
    "-O ^flex_bg,^resize_inode,meta_bg -b 1024",
    "-O orphan_file,metadata_csum_seed -b 4096",
    "-O ^metadata_csum,uninit_bg",
    "-O sparse_super2 -b 1024",
    "-O ^sparse_super,^resize_inode -b 1024",
    "-O ^64bit,^has_journal -I 128",
];

#[test]
fn fresh_file_systems_are_clean() {
    for opts in OPTIONS {
        assert_eq!(
            texts(&fresh(opts, 48 << 20)),
            Vec::<String>::new(),
            "{opts}"
        );
    }
}

/// A small file system without checksums, so that one change makes one finding.
fn plain() -> (Vec<u8>, SuperBlock) {
    let image = fresh(
        "-O ^metadata_csum,^has_journal,^resize_inode -b 1024",
        4 << 20,
    );
    let sb = SuperBlock::decode(&image[1024..2048]).unwrap();
    (image, sb)
}

fn inode_at(image: &[u8], sb: &SuperBlock, ino: u32) -> usize {
    let d = GroupDesc::decode(&image[2048..], sb.desc_size());
    d.bg_inode_table as usize * 1024 + (ino as usize - 1) * usize::from(sb.inode_size())
}

fn with_inode(ino: u32, change: impl Fn(&mut RawInode)) -> Vec<String> {
    let (mut image, sb) = plain();
    let at = inode_at(&image, &sb, ino);
    let b = &mut image[at..at + usize::from(sb.inode_size())];
    let mut raw = RawInode::decode(b).unwrap();
    change(&mut raw);
    raw.encode(b);
    texts(&image)
}

fn with_bytes(change: impl Fn(&mut Vec<u8>, &SuperBlock)) -> Vec<String> {
    let (mut image, sb) = plain();
    change(&mut image, &sb);
    texts(&image)
}

/// Each planted inconsistency gives the finding that e2fsck words like this.
#[test]
fn planted_inconsistencies() {
    let cases: Vec<(Vec<String>, &str)> = vec![
        (with_inode(11, |i| i.i_blocks += 2), "Inode 11, i_blocks is 26, should be 24"),
        (with_inode(11, |i| i.i_size += 1024), "Inode 11, i_size is 13312, should be 12288"),
        (with_inode(11, |i| i.i_links_count = 5), "Inode 11 ref count is 5, should be 2"),
        (with_inode(11, |i| i.i_dtime = 7), "Inode 11 is in use, but has dtime set"),
        (with_inode(2, |i| i.i_mode = 0o100_644), "Root inode is not a directory"),
        (with_inode(11, |i| i.i_mode = 0o170_644), "Inode 11 has a bad mode (170644)"),
        (with_inode(11, |i| i.i_block[0] = 0), "Inode 11 has an invalid extent node"),
        (with_inode(11, |i| i.i_file_acl = 1), "Inode 11 has a bad extended attribute block 1"),
        (
            with_bytes(|b, sb| bytes::put_le32(b, 0x40C, sb.s_free_blocks_count as u32 - 1)),
            "Free blocks count wrong (",
        ),
        (
            with_bytes(|b, sb| {
                let d = GroupDesc::decode(&b[2048..], sb.desc_size());
                bitmap::set(&mut b[d.bg_block_bitmap as usize * 1024..], 3000);
            }),
            "Block bitmap differences: -3001",
        ),
        (
            with_bytes(|b, sb| {
                let d = GroupDesc::decode(&b[2048..], sb.desc_size());
                bitmap::clear(&mut b[d.bg_inode_bitmap as usize * 1024..], 10);
            }),
            "Inode bitmap differences: +11",
        ),
        (
            with_bytes(|b, sb| {
                let at = inode_at(b, sb, 11);
                b[at..at + 128].fill(0);
            }),
            "Entry 'lost+found' in directory inode 2 has deleted/unused inode 11",
        ),
        (
            with_bytes(|b, sb| {
                let root = inode_at(b, sb, 2);
                let block = bytes::le32(b, root + 0x28 + 20) as usize * 1024;
                b[block + 24 + 7] = 1;
            }),
            "Entry 'lost+found' in directory inode 2 has an incorrect filetype (was 1, should be 2)",
        ),
    ];
    for (found, want) in cases {
        assert!(
            found.iter().any(|t| t.starts_with(want)),
            "{want}: {found:?}"
        );
    }
}

#[test]
fn one_change_with_checksums_is_one_checksum_finding() {
    let image = fresh("-b 1024", 8 << 20);
    let mut bad = image.clone();
    let sb = SuperBlock::decode(&image[1024..2048]).unwrap();
    let at = inode_at(&image, &sb, 2);
    bad[at + 8] ^= 1;
    assert_eq!(texts(&bad), ["Inode 2 checksum does not match inode"]);
}

#[test]
fn damaged_images_never_panic_or_run_on() {
    let mut rng = SplitMix64::new(23);
    let mut found = 0;
    for opts in [
        "-O ^metadata_csum,^has_journal",
        "-t ext2 -b 1024",
        "-O inline_data,^metadata_csum -b 4096",
        "-O bigalloc,^metadata_csum -b 1024",
    ] {
        let image = fresh(opts, 8 << 20);
        let used: Vec<usize> = (0..image.len() / 64)
            .filter(|i| image[i * 64..i * 64 + 64].iter().any(|b| *b != 0))
            .collect();
        for _ in 0..400 {
            let mut bad = image.clone();
            for _ in 0..=rng.below(8) {
                let at = used[rng.below(used.len() as u64) as usize] * 64 + rng.below(64) as usize;
                bad[at] = rng.next_u64() as u8;
            }
            found += u32::from(!check(&bad).is_empty());
        }
    }
    assert!(found > 800, "{found}");
    let mut noise = vec![0; 1 << 20];
    for b in &mut noise {
        *b = rng.next_u64() as u8;
    }
    assert!(!check(&noise).is_empty());
}

/// What mke2fs makes of a folder is clean for us too, htree directories (made by e2fsck -D) included.
#[test]
fn images_of_mke2fs_are_clean() {
    let dir = std::env::temp_dir().join(format!("fsglass-fsck-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("tree/many")).unwrap();
    std::fs::write(dir.join("tree/big"), vec![7; 3_000_000]).unwrap();
    std::os::unix::fs::symlink("big", dir.join("tree/link")).unwrap();
    std::fs::hard_link(dir.join("tree/big"), dir.join("tree/again")).unwrap();
    for i in 0..1500 {
        std::fs::write(
            dir.join(format!("tree/many/a rather long file name {i}")),
            b"x",
        )
        .unwrap();
    }
    let image = dir.join("img");
    let mut tried = 0;
    for opts in OPTIONS {
        let _ = std::fs::remove_file(&image);
        let made = Command::new("/usr/sbin/mke2fs")
            .args(["-q", "-F", "-N", "4000", "-d"])
            .arg(dir.join("tree"))
            .args(if opts.contains("-t") {
                vec![]
            } else {
                vec!["-t", "ext4"]
            })
            .args(opts.split_whitespace())
            .arg(&image)
            .arg("96M")
            .output();
        let Ok(made) = made else {
            println!("SKIP: mke2fs is not installed");
            break;
        };
        if !made.status.success() {
            println!("SKIP {opts}: {}", String::from_utf8_lossy(&made.stderr));
            continue;
        }
        let _ = Command::new("/usr/sbin/e2fsck")
            .arg("-fyD")
            .arg(&image)
            .output()
            .unwrap();
        let b = std::fs::read(&image).unwrap();
        let sb = SuperBlock::decode(&b[1024..2048]).unwrap();
        assert!(sb.has(features::DIR_INDEX));
        assert_eq!(texts(&b), Vec::<String>::new(), "{opts}");
        tried += 1;
    }
    std::fs::remove_dir_all(&dir).unwrap();
    println!("{tried} images clean");
}
