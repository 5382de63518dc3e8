//! Image files: sparse reading and writing, mkfs, fsck, recover.

use crate::args::{FsckArgs, MkfsArgs, RecoverArgs};
use crate::output::{json_text, say};
use crate::{Outcome, Verdict};
use fsglass::block::{Fill, Store};
use fsglass::experiment::recover::recover_image;
use fsglass::fs::ext4::fsck;
use fsglass::fs::ext4::mkfs::{mkfs as make, MkfsOptions};
use fsglass::workload::size::parse_size;
use serde_json::json;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;

/// Smallest and largest image.
const SIZE_MIN: u64 = 1 << 20;
const SIZE_MAX: u64 = 16 << 40;
/// Piece of an image file that is looked at at once.
const PIECE: usize = 1 << 20;

/// Reads an image file; holes take no time and no memory.
pub(crate) fn load_store(name: &str) -> Result<Store, String> {
    let err = |e: std::io::Error| format!("{name}: {e}");
    let mut file = File::open(name).map_err(err)?;
    let meta = file.metadata().map_err(err)?;
    if meta.is_dir() {
        return Err(format!("{name}: a folder, not an image file"));
    }
    let size = meta.len();
    if size > SIZE_MAX {
        return Err(format!("{name}: {size} bytes; images are at most 16 TiB"));
    }
    let mut store = Store::new(size.div_ceil(512), Fill::Zero);
    let sparse = meta.blocks() * 512 < size;
    let mut buf = vec![0u8; PIECE];
    let mut offset = 0;
    while offset < size {
        if sparse {
            match next_content(&file, offset) {
                Some(at) => offset = at / PIECE as u64 * PIECE as u64,
                None => break,
            }
        }
        let n = (size - offset).min(PIECE as u64) as usize;
        file.seek(SeekFrom::Start(offset)).map_err(err)?;
        file.read_exact(&mut buf[..n]).map_err(err)?;
        for (i, page) in buf[..n].chunks(4096).enumerate() {
            if page.iter().any(|b| *b != 0) {
                store.load(offset + i as u64 * 4096, page);
            }
        }
        offset += n as u64;
    }
    Ok(store)
}

/// The next offset that may hold something else than a hole; `None` if only holes follow.
fn next_content(file: &File, offset: u64) -> Option<u64> {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(offset)) {
        Ok(at) => Some(at),
        Err(rustix::io::Errno::NXIO) => None,
        // The file system of the image does not tell: look at everything.
        Err(_) => Some(offset),
    }
}

/// Writes a store as a sparse file.
pub(crate) fn save_store(name: &str, store: impl std::borrow::Borrow<Store>) -> Result<(), String> {
    let store = store.borrow();
    let err = |e: std::io::Error| format!("{name}: {e}");
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(name);
    let mut file = file.map_err(err)?;
    file.set_len(store.sectors() * 512).map_err(err)?;
    let mut at = 0;
    store
        .export(false, |offset, bytes| {
            if offset != at {
                file.seek(SeekFrom::Start(offset))?;
            }
            file.write_all(bytes)?;
            at = offset + bytes.len() as u64;
            Ok(())
        })
        .map_err(err)
}

/// `fsglass mkfs`.
pub(crate) fn mkfs(a: &MkfsArgs) -> Outcome {
    if a.fs != "ext4" {
        return Err(format!("--fs {} is not supported; ext4", a.fs));
    }
    let size = match parse_size(&a.size) {
        Some(n) if (SIZE_MIN..=SIZE_MAX).contains(&n) => n,
        Some(_) => return Err(format!("--size {}: from 1M to 16T", a.size)),
        None => return Err(format!("--size {}: not a size; write 64M, 1G, 16T", a.size)),
    };
    let mut opts = MkfsOptions::parse(&a.mkfs_opts).map_err(|e| format!("--mkfs-opts: {e}"))?;
    opts.discard_zeroes = true;
    opts.now = fsglass::kernel::WALL_CLOCK as u32;
    let image = make(&opts, size).map_err(|e| format!("--mkfs-opts: {e}"))?;
    let mut store = Store::new(size / 512, Fill::Zero);
    fsglass::kernel::apply_mkfs(&mut store, &image);
    save_store(&a.image, &store)?;
    let sb = &image.super_block;
    let result = json!({
        "blocks": sb.s_blocks_count, "block_size": sb.block_size(), "groups": sb.groups_count(),
        "inodes": sb.s_inodes_count, "inode_size": sb.inode_size(), "features": sb.feature_names(),
        "bytes_written": image.bytes_written(),
    });
    if a.json {
        say(&json_text(&result));
    } else {
        say(&format!(
            "{}: {} blocks of {} bytes, {} groups, {} inodes\nfeatures: {}",
            a.image,
            sb.s_blocks_count,
            sb.block_size(),
            sb.groups_count(),
            sb.s_inodes_count,
            sb.feature_names().join(" ")
        ));
    }
    Ok(Verdict::Good)
}

/// `fsglass fsck`.
pub(crate) fn fsck(a: &FsckArgs) -> Outcome {
    let store = load_store(&a.image)?;
    let findings = fsck::check(&store);
    if a.json {
        let list: Vec<_> = findings
            .iter()
            .map(|f| json!({ "severity": f.severity().name(), "text": f.to_string() }))
            .collect();
        say(&json_text(
            &json!({ "clean": findings.is_empty(), "findings": list }),
        ));
    } else if findings.is_empty() {
        say(&format!("{}: clean", a.image));
    } else {
        for f in &findings {
            say(&f.to_string());
        }
    }
    Ok(if findings.is_empty() {
        Verdict::Good
    } else {
        Verdict::Failed
    })
}

/// `fsglass recover`: 0 if the file system can be mounted afterwards.
pub(crate) fn recover(a: &RecoverArgs) -> Outcome {
    if let Some(journal) = &a.journal {
        return Err(format!(
            "--journal {journal}: external journals are not replayed"
        ));
    }
    let store = load_store(&a.image)?;
    let recovered = recover_image(store, "").map_err(|e| format!("{}: {e}", a.image))?;
    if a.json {
        let steps: Vec<_> = recovered
            .steps
            .iter()
            .map(|s| json!({ "pass": s.title, "sentence": s.sentence, "copies": s.copies }))
            .collect();
        say(&json_text(
            &json!({ "steps": steps, "error": recovered.error }),
        ));
    } else {
        for s in &recovered.steps {
            say(&format!("{:12} {}", s.title, s.sentence));
        }
    }
    match recovered.error {
        Some(reason) => {
            say(&format!("{}: {reason}", a.image));
            Ok(Verdict::Failed)
        }
        None => {
            let out = a.out.as_ref().unwrap_or(&a.image);
            save_store(out, &recovered.store)?;
            Ok(Verdict::Good)
        }
    }
}
