//! Runs PostMark through system calls and measures its phases.

use super::config::Settings;
use super::pool::{Action, Pool, PoolFile};
use super::stdio::{read_requests, write_pieces};
use crate::base::{Errno, Nanos, WriteSource};
use crate::sim::Sim;
use crate::vfs::{Fd, OpenFlags, SysResult, Vfs};
use crate::workload::app_log::{AppLog, AppOp};
use crate::workload::ops::{Op, OpenFlags as LoggedFlags};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// CPU time that the program spends on each file operation outside of the calls (modelled: path, choices, stream).
pub const FILE_COST: Nanos = Nanos(2_000);
/// CPU time that it spends on copying each KiB through its buffers (modelled: 8 GB/s).
pub const KIB_COST: Nanos = Nanos(128);

/// What a running benchmark shares with whoever watches it.
#[derive(Clone)]
pub struct PostmarkContext {
    /// Clock and tasks.
    pub sim: Sim,
    /// System calls.
    pub vfs: Rc<Vfs>,
    /// Record of calls.
    pub log: Rc<RefCell<AppLog>>,
    /// Set to end the run early.
    pub stop: Rc<Cell<bool>>,
}

/// What one `run` measured.
#[derive(Clone, Debug)]
pub struct PostmarkResult {
    /// Its settings.
    pub settings: Settings,
    /// Time of the creation of the pool, of the transactions and of the deletion.
    pub phases: [Nanos; 3],
    /// Files created before and within the transactions.
    pub created: [u64; 2],
    /// Files deleted after and within the transactions.
    pub deleted: [u64; 2],
    /// Files read.
    pub read: u64,
    /// Files appended to.
    pub appended: u64,
    /// Transactions done; fewer than asked for if the pool ran empty.
    pub transactions: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// The call that failed and ended the run.
    pub error: Option<(Errno, String)>,
}

impl PostmarkResult {
    fn new(settings: &Settings) -> PostmarkResult {
        PostmarkResult {
            settings: settings.clone(),
            phases: [Nanos::ZERO; 3],
            created: [0; 2],
            deleted: [0; 2],
            read: 0,
            appended: 0,
            transactions: 0,
            bytes_read: 0,
            bytes_written: 0,
            error: None,
        }
    }

    /// The whole run.
    pub fn total(&self) -> Nanos {
        let [a, b, c] = self.phases;
        a + b + c
    }
}

type Failure = (Errno, String);

struct Run {
    cx: PostmarkContext,
    pool: Pool,
    /// Within the transactions.
    mixed: bool,
    result: PostmarkResult,
}

/// Runs one benchmark to its end; an error ends it and is in the result.
pub async fn run_postmark(cx: PostmarkContext, settings: &Settings) -> PostmarkResult {
    let mut run = Run {
        pool: Pool::new(settings),
        result: PostmarkResult::new(settings),
        mixed: false,
        cx,
    };
    run.result.error = run.all_phases().await.err();
    run.result
}

impl Run {
    async fn all_phases(&mut self) -> Result<(), Failure> {
        self.make_directories().await?;
        let sim = self.cx.sim.clone();
        let mut since = sim.now();
        let mut lap = |result: &mut PostmarkResult, phase: usize| {
            let now = sim.now();
            result.phases[phase] = now - since;
            since = now;
        };
        let done = self.create_all().await;
        lap(&mut self.result, 0);
        done?;
        self.mixed = true;
        let done = self.transact().await;
        lap(&mut self.result, 1);
        done?;
        self.mixed = false;
        let done = self.delete_all().await;
        lap(&mut self.result, 2);
        done?;
        self.remove_directories().await
    }

    /// The location, as there is no shell to make it, and the subdirectories.
    async fn make_directories(&mut self) -> Result<(), Failure> {
        let mut path = String::new();
        let location = self.result.settings.location.clone();
        for part in location.split('/').filter(|p| !p.is_empty()) {
            path = format!("{path}/{part}");
            match self.mkdir(&path, 0o755).await {
                Err((Errno::EEXIST, _)) => {}
                done => done?,
            }
        }
        for i in 0..self.subdirectories() {
            let path = format!("{}/s{i}", self.base());
            self.mkdir(&path, 0o700).await?;
        }
        Ok(())
    }

    fn subdirectories(&self) -> u32 {
        match self.result.settings.subdirectories {
            1 => 0,
            n => n,
        }
    }

    fn base(&self) -> String {
        match self.result.settings.location.as_str() {
            "" => String::new(),
            l => format!("/{l}"),
        }
    }

    async fn mkdir(&mut self, path: &str, mode: u32) -> Result<(), Failure> {
        let op = Op::Mkdir {
            path: path.into(),
            mode,
        };
        let begun = self.cx.sim.now();
        let done = self.cx.vfs.mkdir(path.as_bytes(), mode).await;
        self.note(begun, AppOp::Other(Rc::new(op)), &done, 0);
        done.map_err(|e| (e, format!("mkdir {path}")))
    }

    async fn remove_directories(&mut self) -> Result<(), Failure> {
        for i in 0..self.subdirectories() {
            let path = format!("{}/s{i}", self.base());
            let op = Op::Rmdir {
                path: path.clone().into(),
            };
            let begun = self.cx.sim.now();
            let done = self.cx.vfs.rmdir(path.as_bytes()).await;
            self.note(begun, AppOp::Other(Rc::new(op)), &done, 0);
            done.map_err(|e| (e, format!("rmdir {path}")))?;
        }
        Ok(())
    }

    async fn create_all(&mut self) -> Result<(), Failure> {
        for _ in 0..self.result.settings.number {
            if self.cx.stop.get() {
                break;
            }
            if let Some(action) = self.pool.create() {
                self.act(action).await?;
            }
        }
        Ok(())
    }

    async fn transact(&mut self) -> Result<(), Failure> {
        for _ in 0..self.result.settings.transactions {
            if self.cx.stop.get() {
                break;
            }
            let Some(halves) = self.pool.transaction() else {
                break;
            };
            for action in halves.into_iter().flatten() {
                self.act(action).await?;
            }
            self.result.transactions += 1;
        }
        Ok(())
    }

    async fn delete_all(&mut self) -> Result<(), Failure> {
        let mut slot = 0;
        while let Some((action, next)) = self.pool.delete_next(slot) {
            slot = next;
            if self.cx.stop.get() {
                break;
            }
            self.act(action).await?;
        }
        Ok(())
    }

    async fn act(&mut self, action: Action) -> Result<(), Failure> {
        let mixed = usize::from(self.mixed);
        match action {
            Action::Create(file) => {
                self.write_file(file, 0, file.size).await?;
                self.result.created[mixed] += 1;
            }
            Action::Append { file, bytes } => {
                self.write_file(file, file.size, bytes).await?;
                self.result.appended += 1;
            }
            Action::Read(file) => {
                self.read_file(file).await?;
                self.result.read += 1;
            }
            Action::Delete(file) => {
                self.delete(file).await?;
                self.result.deleted[mixed] += 1;
            }
        }
        Ok(())
    }

    fn path(&self, file: PoolFile) -> String {
        match file.dir {
            Some(d) => format!("{}/s{d}/{}", self.base(), file.number),
            None => format!("{}/{}", self.base(), file.number),
        }
    }

    /// The program's own work for a file of which it moves `bytes`.
    async fn own_work(&self, bytes: u32) {
        let kib = u64::from(bytes).div_ceil(1024);
        let cost = FILE_COST + Nanos(KIB_COST.0 * kib);
        self.cx.sim.charge(cost).await;
    }

    async fn open(&self, path: &str, flags: OpenFlags) -> Result<Fd, Failure> {
        let begun = self.cx.sim.now();
        let done = self.cx.vfs.open(path.as_bytes(), flags, 0o644).await;
        let logged = LoggedFlags {
            read: flags.readable(),
            write: flags.writable(),
            creat: flags.has(OpenFlags::CREAT),
            trunc: flags.has(OpenFlags::TRUNC),
            append: flags.has(OpenFlags::APPEND),
            ..Default::default()
        };
        let fd = done.as_ref().map_or(0, |f| f.0);
        let entry = AppOp::Open {
            fd,
            path: path.as_bytes().into(),
            flags: logged,
        };
        self.note(begun, entry, &done, 0);
        let fd = done.map_err(|e| (e, format!("open {path}")))?;
        if self.result.settings.buffering {
            // The C library asks for the block size before it moves the first byte.
            let stat = self.cx.vfs.fstat(fd).await;
            stat.map_err(|e| (e, format!("fstat {path}")))?;
        }
        Ok(fd)
    }

    async fn close(&self, fd: Fd, path: &str) -> Result<(), Failure> {
        let begun = self.cx.sim.now();
        let done = self.cx.vfs.close(fd).await;
        self.note(begun, AppOp::Close { fd: fd.0 }, &done, 0);
        done.map_err(|e| (e, format!("close {path}")))
    }

    /// Writes `bytes` from `from` on: a new file at 0, an append behind it.
    async fn write_file(&mut self, file: PoolFile, from: u32, bytes: u32) -> Result<(), Failure> {
        self.own_work(bytes).await;
        let s = &self.result.settings;
        let pieces = write_pieces(u64::from(bytes), u64::from(s.write_block), s.buffering);
        let flags = match (s.buffering, from) {
            (true, 0) => OpenFlags::WRONLY
                .with(OpenFlags::CREAT)
                .with(OpenFlags::TRUNC),
            (true, _) => OpenFlags::WRONLY
                .with(OpenFlags::CREAT)
                .with(OpenFlags::APPEND),
            (false, 0) => OpenFlags::RDWR.with(OpenFlags::CREAT),
            (false, _) => OpenFlags::RDWR.with(OpenFlags::APPEND),
        };
        let path = self.path(file);
        let fd = self.open(&path, flags).await?;
        let mut offset = u64::from(from);
        for len in pieces {
            let begun = self.cx.sim.now();
            let seed = file.number;
            let source = WriteSource::Content {
                seed: u64::from(seed),
            };
            let done = self.cx.vfs.pwrite(fd, offset as i64, len, source).await;
            let n = done.as_ref().map_or(0, |n| *n);
            let entry = AppOp::Write {
                fd: fd.0,
                offset,
                len: len as u32,
                seed,
            };
            self.note(begun, entry, &done, n);
            let n = done.map_err(|e| (e, format!("write {path}")))?;
            self.result.bytes_written += n;
            offset += n;
            if n < len {
                return Err((Errno::ENOSPC, format!("write {path}")));
            }
        }
        self.close(fd, &path).await
    }

    async fn read_file(&mut self, file: PoolFile) -> Result<(), Failure> {
        self.own_work(file.size).await;
        let s = &self.result.settings;
        let requests = read_requests(u64::from(file.size), u64::from(s.read_block), s.buffering);
        let path = self.path(file);
        let fd = self.open(&path, OpenFlags::RDONLY).await?;
        let mut offset = 0;
        for len in requests {
            let begun = self.cx.sim.now();
            let done = self.cx.vfs.pread_discard(fd, offset as i64, len).await;
            let n = done.as_ref().map_or(0, |n| *n);
            let entry = AppOp::Read {
                fd: fd.0,
                offset,
                len: len as u32,
            };
            self.note(begun, entry, &done, n);
            offset += done.map_err(|e| (e, format!("read {path}")))?;
        }
        self.result.bytes_read += offset;
        self.close(fd, &path).await
    }

    async fn delete(&mut self, file: PoolFile) -> Result<(), Failure> {
        self.own_work(0).await;
        let path = self.path(file);
        let op = Op::Unlink {
            path: path.clone().into(),
        };
        let begun = self.cx.sim.now();
        let done = self.cx.vfs.unlink(path.as_bytes()).await;
        self.note(begun, AppOp::Other(Rc::new(op)), &done, 0);
        done.map_err(|e| (e, format!("unlink {path}")))
    }

    /// Notes a call that has returned; one that never returns has no effect that could be promised.
    fn note<T>(&self, begun: Nanos, op: AppOp, done: &SysResult<T>, bytes: u64) {
        let mut log = self.cx.log.borrow_mut();
        let token = log.begin(begun, op);
        let err = done.as_ref().err().copied();
        log.end(token, self.cx.sim.now(), err, bytes as u32);
    }
}
