//! Our mkfs beside mke2fs: same options, same UUID, hash seed and time. Every block that we write must hold the
//! same bytes in mke2fs's image, `dumpe2fs` must say the same, and `e2fsck -fn` must be content.

use fsglass::fs::ext4::mkfs::{mkfs, MkfsImage, MkfsOptions};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const FIXED: &str = "-U 6b6c6162-0000-4000-8000-000000000001";
const SEED: &str = "hash_seed=6b6c6162-0000-4000-8000-0000000000aa";
const NOW: u32 = 1_700_000_000;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// Options after `-t`, extended options, and sizes.
const MATRIX: &[(&str, &str, &[u64])] = &[
    (
        "-t ext4",
        "nodiscard",
        &[
            MIB,
            2 * MIB,
            5 * MIB,
            8 * MIB,
            16 * MIB + 4 * KIB,
            64 * MIB,
            511 * MIB,
            512 * MIB,
            3 * GIB,
            40 * GIB,
            149 * GIB,
            TIB,
            5 * TIB,
            16 * TIB - 4 * KIB,
        ],
    ),
    (
        "-t ext4 -b 4096",
        "lazy_itable_init=0,lazy_journal_init=0,nodiscard",
        &[MIB, 8 * MIB, 64 * MIB, 100 * MIB, 129 * MIB, GIB],
    ),
    ("-t ext4 -b 4096", "discard", &[64 * MIB, GIB]),
    ("-t ext4 -b 4096 -I 128", "nodiscard", &[64 * MIB, 2 * GIB]),
    ("-t ext4 -b 4096 -I 512", "nodiscard", &[64 * MIB]),
    (
        "-t ext4 -b 2048 -I 1024",
        "nodiscard",
        &[10 * MIB, 300 * MIB],
    ),
    (
        "-t ext4 -b 1024 -O ^flex_bg",
        "nodiscard",
        &[20 * MIB, 700 * MIB],
    ),
    (
        "-t ext4 -b 1024 -g 1024 -J size=4",
        "nodiscard",
        &[40 * MIB],
    ),
    ("-t ext4 -b 4096 -g 2048 -G 4", "nodiscard", &[200 * MIB]),
    ("-t ext4 -G 1", "nodiscard", &[200 * MIB]),
    ("-t ext4 -b 4096 -G 64", "nodiscard", &[20 * GIB]),
    ("-t ext4 -b 4096 -N 500", "nodiscard", &[GIB]),
    ("-t ext4 -b 4096 -i 65536", "nodiscard", &[4 * GIB]),
    (
        "-t ext4 -b 4096 -m 0 -L label",
        "nodiscard,stride=16,stripe_width=64",
        &[600 * MIB],
    ),
    (
        "-t ext4 -b 4096 -O ^flex_bg",
        "nodiscard,stride=16",
        &[600 * MIB],
    ),
    ("-t ext4 -b 4096 -O ^has_journal", "nodiscard", &[GIB]),
    ("-t ext4 -b 4096 -O ^resize_inode", "nodiscard", &[GIB]),
    (
        "-t ext4 -b 4096 -O ^resize_inode,meta_bg",
        "nodiscard",
        &[GIB, 20 * GIB],
    ),
    (
        "-t ext4 -b 1024 -O ^resize_inode,meta_bg",
        "nodiscard",
        &[300 * MIB],
    ),
    (
        "-t ext4 -b 4096 -O ^metadata_csum,uninit_bg",
        "nodiscard",
        &[GIB],
    ),
    ("-t ext4 -b 4096 -O ^metadata_csum", "nodiscard", &[GIB]),
    ("-t ext4 -b 4096 -O ^64bit", "nodiscard", &[GIB, 20 * GIB]),
    (
        "-t ext4 -b 4096 -O ^sparse_super,^resize_inode",
        "nodiscard",
        &[GIB],
    ),
    (
        "-t ext4 -b 4096 -O sparse_super2",
        "nodiscard",
        &[GIB, 200 * MIB],
    ),
    (
        "-t ext4 -b 4096 -O sparse_super2",
        "nodiscard,num_backup_sb=1",
        &[GIB],
    ),
    (
        "-t ext4 -b 4096 -O sparse_super2",
        "nodiscard,num_backup_sb=0,packed_meta_blocks=1",
        &[GIB],
    ),
    (
        "-t ext4 -b 4096 -O orphan_file,metadata_csum_seed",
        "nodiscard",
        &[64 * MIB, GIB, 20 * GIB],
    ),
    ("-t ext4 -b 4096 -O inline_data", "nodiscard", &[64 * MIB]),
    (
        "-t ext4 -b 1024 -O inline_data,orphan_file",
        "nodiscard",
        &[64 * MIB],
    ),
    (
        "-t ext4 -b 4096 -O fast_commit,large_dir,ea_inode",
        "nodiscard",
        &[GIB],
    ),
    ("-t ext4 -b 4096 -O ^extent,^64bit", "nodiscard", &[GIB]),
    (
        "-t ext4 -b 4096 -O bigalloc",
        "nodiscard",
        &[64 * MIB, GIB, 20 * GIB],
    ),
    ("-t ext4 -b 4096 -O bigalloc -C 16384", "nodiscard", &[GIB]),
    ("-t ext4 -b 1024 -O bigalloc", "nodiscard", &[256 * MIB]),
    ("-t ext4 -b 4096", "nodiscard,resize=100G", &[GIB]),
    ("-t ext4 -b 4096 -J size=1024", "nodiscard", &[8 * GIB]),
    (
        "-t ext4 -b 4096 -J size=64",
        "nodiscard,lazy_journal_init=1",
        &[400 * MIB],
    ),
    ("-t ext4 -T largefile4", "nodiscard", &[10 * GIB]),
    ("-t ext4 -T news", "nodiscard", &[2 * GIB]),
    ("-t ext3", "nodiscard", &[64 * MIB, GIB]),
    ("-t ext3 -b 1024 -I 128", "nodiscard", &[300 * MIB]),
    ("-t ext3 -O orphan_file -b 1024", "nodiscard", &[300 * MIB]),
    ("-t ext2", "nodiscard", &[MIB, 64 * MIB, 3 * GIB]),
    ("-t ext2 -j -b 2048", "nodiscard", &[200 * MIB]),
];

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("fsglass-mkfs-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a scratch folder");
    dir.join(name)
}

fn sparse(path: &Path, size: u64) -> File {
    let f = File::options()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(path)
        .expect("an image file");
    f.set_len(size).expect("a sparse image file");
    f
}

fn run(program: &str, args: &[&str], image: &Path) -> Option<Output> {
    Command::new(program)
        .args(args)
        .arg(image)
        .env("E2FSPROGS_FAKE_TIME", NOW.to_string())
        .env("TZ", "UTC")
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .output()
        .ok()
}

fn write_image(m: &MkfsImage, f: &File) {
    let mut b = vec![0; m.block_size as usize];
    for (at, payload) in &m.blocks {
        payload.fill(&mut b);
        f.write_all_at(&b, at * u64::from(m.block_size))
            .expect("a block of the image");
    }
}

fn dumpe2fs(image: &Path) -> Vec<String> {
    let out = run("dumpe2fs", &[], image).expect("dumpe2fs");
    assert!(out.status.success(), "dumpe2fs {out:?}");
    String::from_utf8_lossy(&out.stdout)
        .lines()
        .filter(|l| !l.starts_with("Lifetime writes:") && !l.starts_with("Checksum: "))
        .map(str::to_string)
        .collect()
}

/// Bytes that may differ: in a superblock `s_kbytes_written` and the checksum over it.
fn mask_super(b: &mut [u8], at: u64, m: &MkfsImage) {
    let sb = &m.super_block;
    let start = match (at, m.block_size) {
        (0, 2048..) => 1024,
        (1, 1024) => 0,
        _ => {
            let group = sb.group_of_block(at);
            if group == 0 || at != sb.group_first_block(group) || !sb.has_super(group) {
                return;
            }
            0
        }
    };
    b[start + 0x178..start + 0x180].fill(0);
    b[start + 0x3fc..start + 0x400].fill(0);
}

fn compare_blocks(m: &MkfsImage, theirs: &File) -> Vec<String> {
    let size = m.block_size as usize;
    let (mut a, mut b) = (vec![0; size], vec![0; size]);
    let mut wrong = Vec::new();
    for (at, payload) in &m.blocks {
        payload.fill(&mut a);
        theirs
            .read_exact_at(&mut b, at * size as u64)
            .expect("mke2fs's block");
        mask_super(&mut a, *at, m);
        mask_super(&mut b, *at, m);
        if a != b {
            let first = a.iter().zip(&b).position(|(x, y)| x != y);
            wrong.push(format!("block {at} differs from byte {first:?}"));
        }
    }
    wrong
}

/// Blocks with content in mke2fs's image that ours would not have. Only for sizes that are quick to read.
fn compare_rest(m: &MkfsImage, theirs: &File, size: u64) -> Vec<String> {
    if size > GIB {
        return Vec::new();
    }
    let block = m.block_size as usize;
    let ours: std::collections::BTreeSet<u64> = m.blocks.iter().map(|b| b.0).collect();
    let mut b = vec![0; block];
    (0..size / block as u64)
        .filter(|at| {
            !ours.contains(at)
                && theirs.read_exact_at(&mut b, at * block as u64).is_ok()
                && b.iter().any(|x| *x != 0)
        })
        .map(|at| format!("block {at} is not zero in mke2fs's image"))
        .collect()
}

fn check(options: &str, extended: &str, size: u64) -> Result<bool, String> {
    let text = format!("{options} {FIXED} -E {SEED},{extended}");
    let theirs_path = scratch("theirs.img");
    let theirs = sparse(&theirs_path, size);
    let mut args: Vec<&str> = vec!["-q", "-F"];
    args.extend(text.split_whitespace());
    let out = run("mke2fs", &args, &theirs_path).ok_or("mke2fs does not run")?;
    let mut opts = MkfsOptions::parse(&text).map_err(|e| e.to_string())?;
    opts.now = NOW;
    opts.discard_zeroes = true;
    let ours = mkfs(&opts, size);
    if !out.status.success() {
        return match ours {
            Err(_) => Ok(false),
            Ok(_) => Err(format!(
                "mke2fs refuses: {}",
                String::from_utf8_lossy(&out.stderr)
            )),
        };
    }
    let ours = ours.map_err(|e| e.to_string())?;
    let path = scratch("ours.img");
    let f = sparse(&path, size);
    write_image(&ours, &f);
    let mut wrong = compare_blocks(&ours, &theirs);
    wrong.extend(compare_rest(&ours, &theirs, size));
    let (a, b) = (dumpe2fs(&path), dumpe2fs(&theirs_path));
    for (x, y) in a.iter().zip(&b).filter(|(x, y)| x != y).take(5) {
        wrong.push(format!("dumpe2fs: ours `{x}`, mke2fs `{y}`"));
    }
    if a.len() != b.len() {
        wrong.push(format!("dumpe2fs: {} lines, mke2fs {}", a.len(), b.len()));
    }
    let fsck = run("e2fsck", &["-fn"], &path).ok_or("e2fsck does not run")?;
    if !fsck.status.success() {
        wrong.push(format!("e2fsck: {}", String::from_utf8_lossy(&fsck.stdout)));
    }
    if wrong.is_empty() {
        Ok(true)
    } else {
        wrong.truncate(12);
        Err(wrong.join("\n    "))
    }
}

#[test]
fn same_as_mke2fs() {
    if run("mke2fs", &["-V"], Path::new("-")).is_none() {
        println!("SKIP: mke2fs is not installed; nothing was compared");
        return;
    }
    let (mut equal, mut failures) = (0, Vec::new());
    let only = std::env::var("FSGLASS_MKFS_ONLY").unwrap_or_default();
    // Sizes above 1 GiB take minutes of mke2fs's and e2fsck's time.
    let all = std::env::var_os("FSGLASS_SLOW").is_some() || !only.is_empty();
    for (options, extended, sizes) in MATRIX {
        for size in *sizes {
            let name = format!("{options} -E {extended} {size}");
            if !name.contains(&only) || (*size > GIB && !all) {
                continue;
            }
            match check(options, extended, *size) {
                Ok(true) => equal += 1,
                Ok(false) => println!("both refuse: {name}"),
                Err(e) => failures.push(format!("{name}\n    {e}")),
            }
        }
    }
    let _ = std::fs::remove_dir_all(scratch(""));
    println!("{equal} images equal to mke2fs's");
    assert!(
        failures.is_empty(),
        "{} of {} differ:\n{}",
        failures.len(),
        failures.len() + equal,
        failures.join("\n")
    );
}
