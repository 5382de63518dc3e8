//! Looking into images: `ls`, `cat`, `dump`.

use crate::args::{CatArgs, DumpArgs, LsArgs};
use crate::image::load_store;
use crate::output::{json_text, say};
use crate::{Outcome, Verdict};
use fsglass::block::Store;
use fsglass::fs::ext4::reader::{Inode, Reader};
use fsglass::session::inspect_disk;
use fsglass::session::view::{Inspect, Selection};
use fsglass::workload::ops::percent_encode;
use serde_json::json;
use std::fs::File;
use std::io::Write as _;

fn open<'a>(name: &str, store: &'a Store) -> Result<Reader<'a, Store>, String> {
    Reader::open(store).map_err(|e| format!("{name}: {e}"))
}

/// `fsglass ls`.
pub(crate) fn ls(a: &LsArgs) -> Outcome {
    let store = load_store(&a.image)?;
    let reader = open(&a.image, &store)?;
    let at = |e| format!("{}: {}: {e}", a.image, a.path);
    let found = reader.lookup(a.path.as_bytes(), true).map_err(at)?;
    let mut rows: Vec<(Vec<u8>, Inode)> = Vec::new();
    if found.raw.is_dir() {
        let mut names = reader.readdir(&found).map_err(at)?;
        names.sort_by(|x, y| x.name.cmp(&y.name));
        for n in names {
            let inode = reader.inode(n.ino).map_err(at)?;
            rows.push((n.name, inode));
        }
    } else {
        rows.push((a.path.clone().into_bytes(), found));
    }
    if a.json {
        let list: Vec<_> = rows
            .iter()
            .map(|(name, i)| {
                json!({
                    "name": percent_encode(name), "ino": i.ino, "mode": format!("{:06o}", i.raw.i_mode),
                    "nlink": i.raw.i_links_count, "size": i.raw.i_size,
                })
            })
            .collect();
        say(&json_text(&json!(list)));
        return Ok(Verdict::Good);
    }
    for (name, i) in &rows {
        say(&format!(
            "{:8} {:06o} {:4} {:12} {}",
            i.ino,
            i.raw.i_mode,
            i.raw.i_links_count,
            i.raw.i_size,
            percent_encode(name)
        ));
    }
    Ok(Verdict::Good)
}

/// `fsglass cat`.
pub(crate) fn cat(a: &CatArgs) -> Outcome {
    let store = load_store(&a.image)?;
    let reader = open(&a.image, &store)?;
    let at = |e| format!("{}: {}: {e}", a.image, a.path);
    let inode = reader.lookup(a.path.as_bytes(), true).map_err(at)?;
    if !inode.raw.is_reg() {
        return Err(format!("{}: {}: not a regular file", a.image, a.path));
    }
    let (pieces, _) = reader.pieces(&inode).map_err(at)?;
    let mut sink: Box<dyn std::io::Write> = match a.out.as_str() {
        "-" => Box::new(std::io::stdout().lock()),
        name => Box::new(File::create(name).map_err(|e| format!("{name}: {e}"))?),
    };
    let mut buf = vec![0u8; 1 << 20];
    let mut offset = 0;
    while offset < inode.raw.i_size {
        let n = (inode.raw.i_size - offset).min(buf.len() as u64) as usize;
        reader
            .read(&inode, &pieces, offset, &mut buf[..n])
            .map_err(at)?;
        if let Err(e) = sink.write_all(&buf[..n]) {
            // The reader of a pipe may have gone away.
            if e.kind() == std::io::ErrorKind::BrokenPipe {
                return Ok(Verdict::Good);
            }
            return Err(format!("{}: {e}", a.out));
        }
        offset += n as u64;
    }
    Ok(Verdict::Good)
}

/// `fsglass dump`.
pub(crate) fn dump(a: &DumpArgs) -> Outcome {
    let store = load_store(&a.image)?;
    open(&a.image, &store)?;
    let need = || {
        a.which
            .clone()
            .ok_or_else(|| format!("dump {} needs a number or path", a.what))
    };
    let number = || {
        let t = need()?;
        fsglass::workload::size::parse_number(&t).ok_or_else(|| format!("`{t}` is not a number"))
    };
    let small =
        || u32::try_from(number()?).map_err(|_| "the number is over 4294967295".to_string());
    let what = match a.what.as_str() {
        "super" => Selection::Super,
        "group" => Selection::Group(small()?),
        "inode" | "extents" | "dir" => Selection::Inode(small()?),
        "journal" => Selection::JournalBlock(match &a.which {
            Some(_) => small()?,
            None => 0,
        }),
        "block" => Selection::Block(number()?),
        _ => Selection::Path(need()?),
    };
    let out = inspect_disk(&store, &what).map_err(|e| format!("{}: {e}", a.image))?;
    if a.json {
        say(&json_text(&serde_json::to_value(&out).unwrap_or_default()));
    } else {
        print(&out, &a.what);
    }
    Ok(Verdict::Good)
}

fn print(out: &Inspect, what: &str) {
    say(&format!(
        "{} (block {}, offset {})",
        out.title, out.block, out.offset
    ));
    if !out.structure.is_empty() {
        say(&format!("{}, {} endian", out.structure, out.endian));
    }
    if what != "extents" && what != "dir" {
        for f in &out.fields {
            let bad = if f.bad { " BAD" } else { "" };
            say(&format!(
                "{:#06x} {:28} {:20} {}{bad}",
                f.offset, f.name, f.raw, f.value
            ));
        }
    }
    for (label, target) in &out.links {
        say(&format!("  {label}: {target:?}"));
    }
}
