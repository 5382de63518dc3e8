//! Runs an operation script through system calls, call by call as kernel-lab does on a real kernel.

use super::app_log::{AppLog, AppOp};
use super::ops::{percent_encode, Op, Script, ScriptOp, Target};
use crate::base::sha256::Sha256;
use crate::base::{Errno, Nanos, WriteSource};
use crate::sim::{Sim, WaitReason};
use crate::vfs::{Fd, OpenFlags, RenameFlags, Stat, StatFs, SysResult, Timespec, Vfs, XattrMode};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What an operation gave back when it succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the result keys of kernel-lab")]
pub enum OpValue {
    #[default]
    None,
    Moved {
        n: u64,
    },
    Digest {
        n: u64,
        sha256: String,
    },
    Names(Vec<Vec<u8>>),
    Stat(Stat),
    Statx {
        mask: u32,
    },
    StatFs(StatFs),
}

/// Outcome of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpResult {
    /// Line in the script.
    pub line: u32,
    /// Word in the grammar.
    pub word: &'static str,
    /// Result.
    pub result: Result<OpValue, Errno>,
}

/// Totals of a played script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlayTotals {
    /// Bytes written.
    pub app_bytes_written: u64,
    /// Bytes read.
    pub app_bytes_read: u64,
    /// Operations by word.
    pub ops: BTreeMap<&'static str, u64>,
    /// Failures by `word:ERRNO`.
    pub errors: BTreeMap<String, u64>,
}

/// A player with its open descriptors.
pub struct Player {
    sim: Sim,
    vfs: Rc<Vfs>,
    log: Rc<RefCell<AppLog>>,
    fds: BTreeMap<usize, Fd>,
    /// CPU time that the program spends on each operation outside of the call.
    pub op_cost: Nanos,
    /// CPU time for making each KiB that is written.
    pub kib_cost: Nanos,
    /// Totals so far.
    pub totals: PlayTotals,
}

/// The path as the kernel gets it: the grammar's empty path is the root.
fn p(path: &[u8]) -> &[u8] {
    if path.is_empty() {
        b"/"
    } else {
        path
    }
}

/// Longest piece that one read call asks for.
const READ_PIECE: u64 = 1 << 20;
/// Longest piece of a write whose bytes are made beforehand.
const APPEND_PIECE: u64 = 64 << 20;
/// Largest value of an extended attribute (`linux/limits.h`).
const XATTR_SIZE_MAX: u64 = 65536;

impl Player {
    /// A player on a mounted file system.
    pub fn new(sim: &Sim, vfs: &Rc<Vfs>, log: &Rc<RefCell<AppLog>>) -> Player {
        Player {
            sim: sim.clone(),
            vfs: Rc::clone(vfs),
            log: Rc::clone(log),
            fds: BTreeMap::new(),
            op_cost: Nanos::ZERO,
            kib_cost: Nanos::ZERO,
            totals: PlayTotals::default(),
        }
    }

    /// Plays the whole script; `on_op` hears of each operation after it returned.
    pub async fn play(&mut self, script: &Script, mut on_op: impl FnMut(OpResult)) {
        for s in &script.ops {
            on_op(self.step(s).await);
        }
        self.close_all().await;
    }

    /// Plays one operation.
    pub async fn step(&mut self, s: &ScriptOp) -> OpResult {
        let made = match &s.op {
            Op::Pwrite { len, .. } | Op::Append { len, .. } => len / 1024,
            _ => 0,
        };
        self.sim
            .charge(self.op_cost + Nanos(self.kib_cost.0 * made))
            .await;
        let token = self.note_start(&s.op);
        let result = self.op(&s.op).await;
        *self.totals.ops.entry(s.word).or_default() += 1;
        if let Err(e) = result {
            *self
                .totals
                .errors
                .entry(format!("{}:{}", s.word, e))
                .or_default() += 1;
        }
        let bytes = match &result {
            Ok(OpValue::Moved { n } | OpValue::Digest { n, .. }) => *n as u32,
            _ => 0,
        };
        self.log
            .borrow_mut()
            .end(token, self.sim.now(), result.as_ref().err().copied(), bytes);
        OpResult {
            line: s.line,
            word: s.word,
            result,
        }
    }

    /// Closes what is still open, in order of the descriptors.
    pub async fn close_all(&mut self) {
        while let Some((_, fd)) = self.fds.pop_first() {
            // As kernel-lab: errors of these closes are not part of the result.
            let _ = self.vfs.close(fd).await;
        }
    }

    fn note_start(&self, op: &Op) -> Option<usize> {
        let fd_of = |t: &Target| match t {
            Target::Fd(i) => Some(*i as u32),
            Target::Path(_) => None,
        };
        let entry = match op {
            Op::Pwrite {
                at,
                offset,
                len,
                seed,
            } if fd_of(at).is_some() => match (u32::try_from(*len), u32::try_from(*seed)) {
                (Ok(len), Ok(seed)) => AppOp::Write {
                    fd: fd_of(at).unwrap_or(0),
                    offset: *offset,
                    len,
                    seed,
                },
                _ => AppOp::Other(Rc::new(op.clone())),
            },
            Op::Open {
                fd, path, flags, ..
            } => AppOp::Open {
                fd: *fd as u32,
                path: path.as_slice().into(),
                flags: *flags,
            },
            Op::Close { fd } => AppOp::Close { fd: *fd as u32 },
            Op::Fsync { at: Target::Fd(fd) } => AppOp::Fsync {
                fd: *fd as u32,
                datasync: false,
            },
            Op::Fdatasync { at: Target::Fd(fd) } => AppOp::Fsync {
                fd: *fd as u32,
                datasync: true,
            },
            op => AppOp::Other(Rc::new(op.clone())),
        };
        self.log.borrow_mut().begin(self.sim.now(), entry)
    }

    async fn op(&mut self, op: &Op) -> SysResult<OpValue> {
        match op {
            Op::Open { .. } | Op::Close { .. } => self.descriptor_op(op).await,
            Op::Pwrite { .. }
            | Op::Append { .. }
            | Op::Truncate { .. }
            | Op::Fallocate { .. }
            | Op::Read { .. }
            | Op::Fsync { .. }
            | Op::Fdatasync { .. }
            | Op::Stat { .. }
            | Op::Statx { .. } => self.file_op(op).await,
            Op::Sleep { ms } => {
                self.sim.sleep(Nanos::from_ms(*ms), WaitReason::Timer).await;
                Ok(OpValue::None)
            }
            _ => self.path_op(op).await,
        }
    }

    async fn descriptor_op(&mut self, op: &Op) -> SysResult<OpValue> {
        match op {
            Op::Open {
                fd,
                path,
                flags,
                mode,
            } => {
                let opened = self.vfs.open(p(path), open_flags(*flags), *mode).await?;
                if let Some(old) = self.fds.insert(*fd, opened) {
                    self.vfs.close(old).await?;
                }
            }
            Op::Close { fd } => {
                let fd = self.fds.remove(fd).ok_or(Errno::EBADF)?;
                self.vfs.close(fd).await?;
            }
            _ => {}
        }
        Ok(OpValue::None)
    }

    /// The descriptor of a target; a path is opened for this one operation.
    async fn open_target(&self, at: &Target, flags: OpenFlags) -> SysResult<(Fd, bool)> {
        match at {
            Target::Fd(i) => self.fds.get(i).map(|fd| (*fd, false)).ok_or(Errno::EBADF),
            Target::Path(path) => Ok((self.vfs.open(p(path), flags, 0).await?, true)),
        }
    }

    async fn close_target(&self, fd: (Fd, bool)) -> SysResult<()> {
        if fd.1 {
            self.vfs.close(fd.0).await?;
        }
        Ok(())
    }

    async fn file_op(&mut self, op: &Op) -> SysResult<OpValue> {
        match op {
            Op::Truncate {
                at: Target::Path(path),
                size,
            } => {
                self.vfs.truncate(p(path), *size as i64).await?;
                return Ok(OpValue::None);
            }
            Op::Stat {
                at: Target::Path(path),
            } => {
                return Ok(OpValue::Stat(self.vfs.lstat(p(path)).await?));
            }
            Op::Statx {
                at: Target::Path(path),
                mask,
            } => {
                return Ok(OpValue::Statx {
                    mask: self.vfs.statx(p(path), *mask).await?,
                });
            }
            _ => {}
        }
        let (at, flags) = match op {
            Op::Pwrite { at, .. } | Op::Append { at, .. } => (at, OpenFlags::WRONLY),
            Op::Fallocate { at, .. } => (at, OpenFlags::RDWR),
            Op::Read { at, .. }
            | Op::Fsync { at }
            | Op::Fdatasync { at }
            | Op::Truncate { at, .. }
            | Op::Stat { at }
            | Op::Statx { at, .. } => (at, OpenFlags::RDONLY),
            _ => return Err(Errno::EINVAL),
        };
        let fd = self.open_target(at, flags).await?;
        let result = self.fd_op(fd.0, op).await;
        let closed = self.close_target(fd).await;
        let value = result?;
        closed?;
        Ok(value)
    }

    async fn fd_op(&mut self, fd: Fd, op: &Op) -> SysResult<OpValue> {
        let vfs = Rc::clone(&self.vfs);
        match op {
            Op::Pwrite {
                offset, len, seed, ..
            } => self.write(fd, *offset, *len, *seed).await,
            Op::Append { len, seed, .. } => {
                let size = vfs.fstat(fd).await?.size;
                self.write(fd, size, *len, *seed).await
            }
            Op::Read { offset, len, .. } => self.read(fd, *offset, *len).await,
            Op::Truncate { size, .. } => vfs
                .ftruncate(fd, *size as i64)
                .await
                .map(|()| OpValue::None),
            Op::Fallocate {
                mode, offset, len, ..
            } => vfs
                .fallocate(fd, *mode, *offset as i64, *len as i64)
                .await
                .map(|()| OpValue::None),
            Op::Fsync { .. } => vfs.fsync(fd).await.map(|()| OpValue::None),
            Op::Fdatasync { .. } => vfs.fdatasync(fd).await.map(|()| OpValue::None),
            Op::Stat { .. } => vfs.fstat(fd).await.map(OpValue::Stat),
            Op::Statx { mask, .. } => vfs
                .statx_fd(fd, *mask)
                .await
                .map(|mask| OpValue::Statx { mask }),
            _ => Err(Errno::EINVAL),
        }
    }

    async fn write(&mut self, fd: Fd, offset: u64, len: u64, seed: u64) -> SysResult<OpValue> {
        // As kernel-lab: the bytes are those of `offset`, also where O_APPEND puts them elsewhere.
        let moves = self.vfs.status_flags(fd)?.has(OpenFlags::APPEND);
        let mut bytes = Vec::new();
        let mut done = 0;
        while done < len {
            let (source, want) = if moves {
                bytes.resize((len - done).min(APPEND_PIECE) as usize, 0);
                crate::base::payload::content(seed, offset + done, &mut bytes);
                (WriteSource::Bytes(&bytes), bytes.len() as u64)
            } else {
                (WriteSource::Content { seed }, len - done)
            };
            let n = self
                .vfs
                .pwrite(fd, (offset + done) as i64, want, source)
                .await?;
            done += n;
            self.totals.app_bytes_written += n;
            if n == 0 {
                break;
            }
        }
        Ok(OpValue::Moved { n: done })
    }

    async fn read(&mut self, fd: Fd, offset: u64, len: u64) -> SysResult<OpValue> {
        let mut sha = Sha256::new();
        let mut n = 0;
        while n < len {
            let piece = self
                .vfs
                .pread(fd, (offset + n) as i64, (len - n).min(READ_PIECE))
                .await?;
            if piece.is_empty() {
                break;
            }
            sha.update(&piece);
            n += piece.len() as u64;
        }
        self.totals.app_bytes_read += n;
        Ok(OpValue::Digest {
            n,
            sha256: sha.finish_hex(),
        })
    }

    async fn path_op(&mut self, op: &Op) -> SysResult<OpValue> {
        let vfs = Rc::clone(&self.vfs);
        match op {
            Op::Mkdir { path, mode } => vfs.mkdir(p(path), *mode).await?,
            Op::Rmdir { path } => vfs.rmdir(p(path)).await?,
            Op::Create { path, mode } => {
                vfs.create(p(path), *mode).await?;
            }
            Op::Unlink { path } => vfs.unlink(p(path)).await?,
            Op::Rename { old, new, flags } => {
                vfs.rename(p(old), p(new), RenameFlags(*flags)).await?;
            }
            Op::Link { old, new } => vfs.link(p(old), p(new)).await?,
            Op::Symlink { target, path } => vfs.symlink(target, p(path)).await?,
            Op::Mknod {
                path,
                mode,
                major,
                minor,
            } => {
                vfs.mknod(p(path), *mode, (*major, *minor)).await?;
            }
            Op::Sync => vfs.syncfs().await?,
            Op::Chmod { path, mode } => vfs.chmod(p(path), *mode).await?,
            Op::Chown { path, uid, gid } => vfs.lchown(p(path), *uid, *gid).await?,
            Op::Utimes {
                path,
                atime_ns,
                mtime_ns,
            } => {
                let (a, m) = (Timespec::from_ns(*atime_ns), Timespec::from_ns(*mtime_ns));
                vfs.utimensat(p(path), a, m).await?;
            }
            Op::Dropcaches => {
                vfs.syncfs().await?;
                vfs.drop_caches().await?;
            }
            _ => return self.query_op(op).await,
        }
        Ok(OpValue::None)
    }

    async fn query_op(&mut self, op: &Op) -> SysResult<OpValue> {
        let vfs = Rc::clone(&self.vfs);
        match op {
            Op::Setxattr {
                path,
                name,
                len,
                seed,
                flags,
            } => {
                // One byte more than is allowed is enough to be refused.
                let mut value = vec![0; (*len).min(XATTR_SIZE_MAX + 1) as usize];
                crate::base::payload::content(*seed, 0, &mut value);
                let mode = match flags {
                    1 => XattrMode::Create,
                    2 => XattrMode::Replace,
                    _ => XattrMode::Any,
                };
                vfs.setxattr(p(path), name, &value, mode)
                    .await
                    .map(|()| OpValue::None)
            }
            Op::Getxattr { path, name } => {
                let v = vfs.getxattr(p(path), name).await?;
                let sha256 = crate::base::sha256::hex(&v);
                Ok(OpValue::Digest {
                    n: v.len() as u64,
                    sha256,
                })
            }
            Op::Removexattr { path, name } => {
                vfs.removexattr(p(path), name).await.map(|()| OpValue::None)
            }
            Op::Listxattr { path } => {
                let mut names = vfs.listxattr(p(path)).await?;
                names.sort();
                Ok(OpValue::Names(names))
            }
            Op::Readdir { path } => {
                let mut names = vfs.readdir(p(path)).await?;
                names.sort();
                let sha256 = crate::base::sha256::hex(&names.join(&b'\n'));
                Ok(OpValue::Digest {
                    n: names.len() as u64,
                    sha256,
                })
            }
            Op::Statfs => vfs.statfs().await.map(OpValue::StatFs),
            _ => Err(Errno::EINVAL),
        }
    }
}

fn open_flags(f: super::ops::OpenFlags) -> OpenFlags {
    let access = match (f.read, f.write) {
        (true, true) => OpenFlags::RDWR,
        (_, true) => OpenFlags::WRONLY,
        _ => OpenFlags::RDONLY,
    };
    [
        (f.creat, OpenFlags::CREAT),
        (f.excl, OpenFlags::EXCL),
        (f.trunc, OpenFlags::TRUNC),
        (f.append, OpenFlags::APPEND),
        (f.direct, OpenFlags::DIRECT),
        (f.sync, OpenFlags::SYNC),
        (f.dsync, OpenFlags::DSYNC),
        (f.nofollow, OpenFlags::NOFOLLOW),
        (f.directory, OpenFlags::DIRECTORY),
    ]
    .iter()
    .filter(|(on, _)| *on)
    .fold(access, |acc, (_, bit)| acc.with(*bit))
}

impl OpResult {
    /// The result object of kernel-lab (`ops` entries).
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::json;
        let mut o = match &self.result {
            Err(_) | Ok(OpValue::None) => json!({}),
            Ok(OpValue::Moved { n }) => json!({ "n": n }),
            Ok(OpValue::Digest { n, sha256 }) => json!({ "n": n, "sha256": sha256 }),
            Ok(OpValue::Names(names)) => {
                let names: Vec<String> = names.iter().map(|n| percent_encode(n)).collect();
                json!({ "names": names })
            }
            Ok(OpValue::Stat(s)) => {
                let mode = format!("{:o}", s.mode);
                json!({ "mode": mode, "nlink": s.nlink, "size": s.size, "blocks": s.blocks })
            }
            Ok(OpValue::Statx { mask }) => json!({ "mask": format!("{mask:#x}") }),
            Ok(OpValue::StatFs(s)) => statfs_json(s),
        };
        let err = self.result.as_ref().err().map_or("OK", |e| e.name());
        o["err"] = json!(err);
        o["line"] = json!(self.line);
        o
    }
}

/// `statfs` in kernel-lab's keys.
pub fn statfs_json(s: &StatFs) -> serde_json::Value {
    serde_json::json!({
        "bsize": s.bsize, "blocks": s.blocks, "bfree": s.bfree, "bavail": s.bavail,
        "files": s.files, "ffree": s.ffree, "namemax": s.namelen,
    })
}
