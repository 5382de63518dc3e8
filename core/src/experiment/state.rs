//! The tree of a mounted file system in kernel-lab's `state` form.

use crate::base::sha256::{self, Sha256};
use crate::base::Ino;
use crate::vfs::{OpenFlags, Stat, SysResult, Vfs};
use crate::workload::ops::percent_encode;
use serde_json::{json, Map, Value};
use std::collections::BTreeMap;
use std::rc::Rc;

const S_IFMT: u32 = 0o170_000;
/// Longest piece read at once.
const PIECE: u64 = 1 << 20;

/// Walks the whole tree. Times are given where they lie outside of `window` (all, if `None`).
pub async fn tree_state(vfs: &Rc<Vfs>, window: Option<(i128, i128)>) -> Value {
    let mut out: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    let mut inodes: BTreeMap<String, Ino> = BTreeMap::new();
    let mut todo: Vec<Vec<u8>> = vec![Vec::new()];
    while let Some(path) = todo.pop() {
        let path = if path.is_empty() { b"/".to_vec() } else { path };
        let key = match path.as_slice() {
            b"/" => "/".to_string(),
            p => percent_encode(&[b"/", p].concat()),
        };
        let st = match vfs.lstat(&path).await {
            Ok(st) => st,
            Err(e) => {
                out.insert(
                    key,
                    Map::from_iter([("stat_err".to_string(), json!(e.name()))]),
                );
                continue;
            }
        };
        let mut entry = attributes(&st, window);
        xattrs(vfs, &path, &mut entry).await;
        contents(vfs, &path, &st, &mut entry, &mut todo).await;
        if st.nlink > 1 && st.mode & S_IFMT != 0o040_000 {
            inodes.insert(key.clone(), st.ino);
        }
        out.insert(key, entry);
    }
    let mut first: BTreeMap<Ino, String> = BTreeMap::new();
    for (key, ino) in &inodes {
        match first.get(ino) {
            Some(same) => {
                if let Some(e) = out.get_mut(key) {
                    e.insert("same_as".to_string(), json!(same));
                }
            }
            None => {
                first.insert(*ino, key.clone());
            }
        }
    }
    Value::Object(
        out.into_iter()
            .map(|(k, v)| (k, Value::Object(v)))
            .collect(),
    )
}

fn attributes(st: &Stat, window: Option<(i128, i128)>) -> Map<String, Value> {
    let kind = match st.mode & S_IFMT {
        0o100_000 => "file",
        0o040_000 => "dir",
        0o120_000 => "symlink",
        0o010_000 => "fifo",
        0o020_000 => "chr",
        0o060_000 => "blk",
        0o140_000 => "sock",
        _ => "?",
    };
    let mut m = Map::new();
    m.insert("type".into(), json!(kind));
    m.insert("mode".into(), json!(format!("{:04o}", st.mode & 0o7777)));
    m.insert("nlink".into(), json!(st.nlink));
    m.insert("uid".into(), json!(st.uid));
    m.insert("gid".into(), json!(st.gid));
    m.insert("size".into(), json!(st.size));
    m.insert("blocks".into(), json!(st.blocks));
    for (name, t) in [("atime_ns", st.atime), ("mtime_ns", st.mtime)] {
        let ns = t.as_ns();
        if window.is_none_or(|w| ns < w.0 || ns > w.1) {
            // ext4 times lie from -2^31 s to 2^34 - 2^31 s: below zero they fit in an i64, above in a u64.
            let value = u64::try_from(ns).map_or(json!(ns as i64), |ns| json!(ns));
            m.insert(name.into(), value);
        }
    }
    if matches!(kind, "chr" | "blk") {
        m.insert("rdev".into(), json!(format!("{}:{}", st.rdev.0, st.rdev.1)));
    }
    m
}

async fn xattrs(vfs: &Rc<Vfs>, path: &[u8], entry: &mut Map<String, Value>) {
    let mut names = match vfs.listxattr(path).await {
        Ok(n) => n,
        Err(e) => {
            entry.insert("xattr_err".into(), json!(e.name()));
            return;
        }
    };
    names.sort();
    let mut all = Map::new();
    for name in names {
        let value = match vfs.getxattr(path, &name).await {
            Ok(v) => json!({ "n": v.len(), "sha256": sha256::hex(&v) }),
            Err(e) => {
                entry.insert("xattr_err".into(), json!(e.name()));
                return;
            }
        };
        all.insert(percent_encode(&name), value);
    }
    if !all.is_empty() {
        entry.insert("xattrs".into(), Value::Object(all));
    }
}

async fn contents(
    vfs: &Rc<Vfs>,
    path: &[u8],
    st: &Stat,
    entry: &mut Map<String, Value>,
    todo: &mut Vec<Vec<u8>>,
) {
    match st.mode & S_IFMT {
        0o100_000 => match digest(vfs, path).await {
            Ok(sha) => entry.insert("sha256".into(), json!(sha)),
            Err(e) => entry.insert("read_err".into(), json!(e.name())),
        },
        0o120_000 => match vfs.readlink(path).await {
            Ok(t) => entry.insert("target".into(), json!(percent_encode(&t))),
            Err(e) => entry.insert("read_err".into(), json!(e.name())),
        },
        0o040_000 => match vfs.readdir(path).await {
            Ok(names) => {
                for name in names {
                    let mut child = path.to_vec();
                    if path == b"/" {
                        child.clear();
                    } else {
                        child.push(b'/');
                    }
                    child.extend_from_slice(&name);
                    todo.push(child);
                }
                None
            }
            Err(e) => entry.insert("readdir_err".into(), json!(e.name())),
        },
        _ => None,
    };
}

async fn digest(vfs: &Rc<Vfs>, path: &[u8]) -> SysResult<String> {
    let fd = vfs.open(path, OpenFlags::RDONLY, 0).await?;
    let mut sha = Sha256::new();
    let mut offset = 0;
    let result = loop {
        match vfs.pread(fd, offset as i64, PIECE).await {
            Ok(b) if b.is_empty() => break Ok(()),
            Ok(b) => {
                sha.update(&b);
                offset += b.len() as u64;
            }
            Err(e) => break Err(e),
        }
    };
    vfs.close(fd).await?;
    result.map(|()| sha.finish_hex())
}

/// Regular files of users on a disk and their extents (`layout.*` of kernel-lab).
pub fn layout_counts(disk: &crate::block::Store) -> Result<(u64, u64), String> {
    let reader = crate::fs::ext4::reader::Reader::open(disk).map_err(|e| e.to_string())?;
    let (mut files, mut extents) = (0, 0);
    let mut seen = std::collections::BTreeSet::new();
    reader.walk(
        usize::MAX,
        |_, inode| {
            if inode.raw.is_reg() && seen.insert(inode.ino) {
                files += 1;
                extents += reader.pieces(inode).map_or(0, |p| p.0.len() as u64);
            }
        },
        |_, _| {},
    );
    Ok((files, extents))
}
