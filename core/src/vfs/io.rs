//! Calls on open files: open, close, read, write, truncate, fallocate, the syncs, readdir (kernel `fs/open.c`,
//! `fs/namei.c` `path_openat`, `fs/read_write.c`, `fs/sync.c`, `fs/readdir.c`).

use super::files::File;
use super::walk::{LastType, Step, Walk};
use super::{fail, Fd, Fs, Op, OpenFlags, StatFs, SysResult, Vfs};
use crate::base::{Errno, Ino, WriteSource};
use crate::fs::common::{FsError, FsResult};
use crate::fs::ext4::file::{FileState, IoFlags};
use crate::fs::ext4::{flag, mode, DirPos, Inode};
use crate::trace::Call;
use std::rc::Rc;

/// Most bytes of one read or write (`MAX_RW_COUNT`).
const MAX_RW_COUNT: u64 = 0x7fff_f000;
/// `__O_TMPFILE` without `O_DIRECTORY`.
const TMPFILE_BIT: u32 = 0o20_000_000;

/// A file found or made by `open`, referenced.
struct Opened {
    inode: Rc<Inode>,
    created: bool,
}

impl Vfs {
    /// `open(2)`.
    pub async fn open(&self, path: &[u8], flags: OpenFlags, perm: u32) -> SysResult<Fd> {
        let op = self.begin(Call::Open, Ino(0), 0).await;
        let done = self.do_open(&op, path, flags, perm).await;
        self.end(&op, done)
    }

    async fn do_open(&self, op: &Op, path: &[u8], flags: OpenFlags, perm: u32) -> FsResult<Fd> {
        if flags.0 & TMPFILE_BIT != 0 {
            if !flags.has(OpenFlags::TMPFILE) || !flags.writable() {
                return fail(Errno::EINVAL);
            }
            return self.open_tmpfile(op, path, flags, perm).await;
        }
        if flags.has(OpenFlags::CREAT) && flags.has(OpenFlags::DIRECTORY) {
            return fail(Errno::EINVAL);
        }
        let mut w = self.walk(path).await?;
        let mut must_be_dir = flags.has(OpenFlags::DIRECTORY);
        let opened = self
            .open_last(&mut w, flags, perm, &mut must_be_dir)
            .await?;
        op.ino.set(opened.inode.ino);
        let done = self.finish_open(&opened, flags, must_be_dir).await;
        match done {
            Ok(()) => Ok(self.new_file(opened.inode, flags)),
            Err(e) => {
                self.fs.iput(opened.inode).await?;
                Err(e)
            }
        }
    }

    fn new_file(&self, inode: Rc<Inode>, flags: OpenFlags) -> Fd {
        if flags.writable() && inode.is_reg() {
            inode.writers.set(inode.writers.get() + 1);
        }
        let state = FileState::new(&inode, io_flags(flags));
        self.files.insert(File {
            inode,
            flags,
            state,
        })
    }

    /// How a descriptor was opened (`F_GETFL` of `fcntl(2)`). Error: `EBADF`.
    pub fn status_flags(&self, fd: Fd) -> SysResult<OpenFlags> {
        self.files.get(fd).map(|f| f.flags).map_err(|e| e.errno())
    }

    async fn open_tmpfile(
        &self,
        op: &Op,
        path: &[u8],
        flags: OpenFlags,
        perm: u32,
    ) -> FsResult<Fd> {
        let dir = self.lookup_path(path, true).await?;
        if !dir.is_dir() {
            return fail(Errno::ENOTDIR);
        }
        self.want_write()?;
        let inode = self.fs.tmpfile(&dir, perm & 0o7777).await?;
        op.ino.set(inode.ino);
        Ok(self.new_file(inode, flags))
    }

    /// Finds or makes the file of the last component, following links (kernel `open_last_lookups`).
    async fn open_last(
        &self,
        w: &mut Walk<'_>,
        flags: OpenFlags,
        perm: u32,
        must_be_dir: &mut bool,
    ) -> FsResult<Opened> {
        let creat = flags.has(OpenFlags::CREAT);
        let exclusive = creat && flags.has(OpenFlags::EXCL);
        loop {
            self.walk_parent(w).await?;
            let found = match w.last {
                LastType::Root | LastType::Dot => Rc::clone(&w.dir),
                LastType::DotDot => self.parent_of(&w.dir).await?,
                LastType::Norm if creat => {
                    if w.slash {
                        return fail(Errno::EISDIR);
                    }
                    let opened = self.open_create(w, perm).await?;
                    if opened.created || !opened.inode.is_lnk() {
                        return Ok(opened);
                    }
                    self.fs.iput(Rc::clone(&opened.inode)).await?;
                    opened.inode
                }
                LastType::Norm => {
                    *must_be_dir |= w.slash;
                    let found = self.lookup_unlocked(&w.dir, w.name()).await?;
                    found.ok_or(FsError::Errno(Errno::ENOENT))?
                }
            };
            let follow = !exclusive && !flags.has(OpenFlags::NOFOLLOW);
            match self.step_last(w, found, follow).await? {
                Step::Link => {}
                Step::Inode(inode) => {
                    self.fs.igrab(&inode);
                    let created = false;
                    return Ok(Opened { inode, created });
                }
            }
        }
    }

    /// Looks the last component up under the directory's lock and makes the file if it is missing.
    async fn open_create(&self, w: &Walk<'_>, perm: u32) -> FsResult<Opened> {
        let _lock = w.dir.rwsem.write().await;
        if let Some(inode) = self.lookup_in(&w.dir, w.name()).await? {
            self.fs.igrab(&inode);
            let created = false;
            return Ok(Opened { inode, created });
        }
        self.want_write()?;
        let inode = self.create_in(&w.dir, w.name(), perm).await?;
        self.fs.igrab(&inode);
        let created = true;
        Ok(Opened { inode, created })
    }

    /// Checks and truncation after the file was found (kernel `do_open`).
    async fn finish_open(
        &self,
        opened: &Opened,
        flags: OpenFlags,
        must_be_dir: bool,
    ) -> FsResult<()> {
        let inode = &opened.inode;
        if flags.has(OpenFlags::CREAT) && !opened.created {
            if flags.has(OpenFlags::EXCL) {
                return fail(Errno::EEXIST);
            }
            if inode.is_dir() {
                return fail(Errno::EISDIR);
            }
        }
        if must_be_dir && !inode.is_dir() {
            return fail(Errno::ENOTDIR);
        }
        let truncate = flags.has(OpenFlags::TRUNC) && inode.is_reg() && !opened.created;
        if !opened.created {
            if truncate {
                self.want_write()?;
            }
            self.may_open(inode, flags)?;
        }
        self.open_type(inode, flags)?;
        if inode.is_reg() {
            self.fs.sample_last_mounted().await?;
        }
        if truncate {
            let _lock = inode.rwsem.write().await;
            self.fs.setattr_size(inode, 0, true).await?;
        }
        Ok(())
    }

    fn may_open(&self, inode: &Inode, flags: OpenFlags) -> FsResult<()> {
        let write = flags.writable() || flags.has(OpenFlags::TRUNC);
        if inode.is_lnk() {
            return fail(Errno::ELOOP);
        }
        if inode.is_dir() && write {
            return fail(Errno::EISDIR);
        }
        if write && inode.is_reg() {
            self.want_write()?;
        }
        if write && inode.has_flag(flag::IMMUTABLE) {
            return fail(Errno::EPERM);
        }
        let appends = flags.has(OpenFlags::APPEND) || !flags.writable();
        if inode.has_flag(flag::APPEND) && (!appends || flags.has(OpenFlags::TRUNC)) {
            return fail(Errno::EPERM);
        }
        Ok(())
    }

    /// SIMPLIFIED: device nodes have no driver and sockets no listener (ENXIO); a FIFO opens without a peer.
    fn open_type(&self, inode: &Inode, flags: OpenFlags) -> FsResult<()> {
        match inode.mode() & mode::S_IFMT {
            mode::S_IFCHR | mode::S_IFBLK | mode::S_IFSOCK => fail(Errno::ENXIO),
            mode::S_IFDIR if flags.has(OpenFlags::DIRECT) => fail(Errno::EINVAL),
            _ => Ok(()),
        }
    }

    /// `open` with `O_CREAT | O_EXCL | O_WRONLY` and `close`.
    pub async fn create(&self, path: &[u8], perm: u32) -> SysResult<()> {
        let op = self.begin(Call::Create, Ino(0), 0).await;
        let flags = OpenFlags::WRONLY
            .with(OpenFlags::CREAT)
            .with(OpenFlags::EXCL);
        let done = match self.do_open(&op, path, flags, perm).await {
            Ok(fd) => self.do_close(&op, fd).await,
            Err(e) => Err(e),
        };
        self.end(&op, done)
    }

    /// `close(2)`.
    pub async fn close(&self, fd: Fd) -> SysResult<()> {
        let op = self.begin(Call::Close, Ino(0), 0).await;
        let done = self.do_close(&op, fd).await;
        self.end(&op, done)
    }

    async fn do_close(&self, op: &Op, fd: Fd) -> FsResult<()> {
        let file = self.files.remove(fd)?;
        let inode = Rc::clone(&file.inode);
        op.ino.set(inode.ino);
        if inode.is_reg() {
            let writer = file.flags.writable();
            let released = self.fs.release_file(&inode, writer).await;
            if writer {
                inode.writers.set(inode.writers.get().saturating_sub(1));
            }
            released?;
        }
        self.fs.iput(inode).await
    }

    /// Closes all descriptors, lowest first.
    pub async fn close_all(&self) -> SysResult<()> {
        for fd in self.files.open() {
            self.close(fd).await?;
        }
        Ok(())
    }

    /// `pwrite(2)`: bytes written. With `O_APPEND` the offset is ignored.
    pub async fn pwrite(
        &self,
        fd: Fd,
        offset: i64,
        len: u64,
        source: WriteSource<'_>,
    ) -> SysResult<u64> {
        let op = self.begin(Call::Write, Ino(0), offset.max(0) as u64).await;
        let done = self.do_pwrite(&op, fd, offset, len, source).await;
        self.end(&op, done)
    }

    async fn do_pwrite(
        &self,
        op: &Op,
        fd: Fd,
        offset: i64,
        len: u64,
        source: WriteSource<'_>,
    ) -> FsResult<u64> {
        let offset = u64::try_from(offset).map_err(|_| FsError::Errno(Errno::EINVAL))?;
        let file = self.files.get(fd)?;
        op.ino.set(file.inode.ino);
        if !file.inode.is_reg() {
            return fail(if file.flags.writable() {
                Errno::ESPIPE
            } else {
                Errno::EBADF
            });
        }
        if !file.flags.writable() {
            return fail(Errno::EBADF);
        }
        if offset
            .checked_add(len)
            .is_none_or(|end| end > i64::MAX as u64)
        {
            return fail(Errno::EINVAL);
        }
        let mut pos = offset;
        let len = len.min(MAX_RW_COUNT);
        let n = self
            .fs
            .file_write_iter(&file.inode, &file.state, &mut pos, len, source)
            .await?;
        op.bytes.set(n);
        if n > 0 && file.flags.has(OpenFlags::DSYNC) {
            self.promise(op, file.inode.ino);
        }
        Ok(n)
    }

    /// The file for a read at `offset`, checked as `pread(2)` does.
    fn readable(&self, op: &Op, fd: Fd, offset: i64, len: u64) -> FsResult<(Rc<File>, u64)> {
        let offset = u64::try_from(offset).map_err(|_| FsError::Errno(Errno::EINVAL))?;
        let file = self.files.get(fd)?;
        op.ino.set(file.inode.ino);
        if !file.flags.readable() {
            return fail(Errno::EBADF);
        }
        if offset
            .checked_add(len)
            .is_none_or(|end| end > i64::MAX as u64)
        {
            return fail(Errno::EINVAL);
        }
        match file.inode.mode() & mode::S_IFMT {
            mode::S_IFREG => Ok((file, offset)),
            mode::S_IFDIR => fail(Errno::EISDIR),
            _ => fail(Errno::ESPIPE),
        }
    }

    /// `pread(2)`: the bytes, fewer at the end of the file.
    pub async fn pread(&self, fd: Fd, offset: i64, len: u64) -> SysResult<Vec<u8>> {
        let op = self.begin(Call::Read, Ino(0), offset.max(0) as u64).await;
        let done = match self.readable(&op, fd, offset, len) {
            Ok((file, at)) => {
                let mut out = Vec::new();
                let len = len.min(MAX_RW_COUNT);
                let read = self
                    .fs
                    .file_read_iter(&file.inode, &file.state, at, len, Some(&mut out))
                    .await;
                read.map(|_| out)
            }
            Err(e) => Err(e),
        };
        op.bytes.set(done.as_ref().map_or(0, |v| v.len() as u64));
        self.end(&op, done)
    }

    /// `pread(2)` whose bytes nobody looks at: how many there were.
    pub async fn pread_discard(&self, fd: Fd, offset: i64, len: u64) -> SysResult<u64> {
        let op = self.begin(Call::Read, Ino(0), offset.max(0) as u64).await;
        let done = match self.readable(&op, fd, offset, len) {
            Ok((file, at)) => {
                let len = len.min(MAX_RW_COUNT);
                self.fs
                    .file_read_iter(&file.inode, &file.state, at, len, None)
                    .await
            }
            Err(e) => Err(e),
        };
        op.bytes.set(done.as_ref().map_or(0, |n| *n));
        self.end(&op, done)
    }

    /// `truncate(2)`.
    pub async fn truncate(&self, path: &[u8], size: i64) -> SysResult<()> {
        let op = self.begin(Call::Truncate, Ino(0), 0).await;
        let done = self.do_truncate(&op, path, size).await;
        self.end(&op, done)
    }

    async fn do_truncate(&self, op: &Op, path: &[u8], size: i64) -> FsResult<()> {
        let size = u64::try_from(size).map_err(|_| FsError::Errno(Errno::EINVAL))?;
        let inode = self.lookup_path(path, true).await?;
        op.ino.set(inode.ino);
        if inode.is_dir() {
            return fail(Errno::EISDIR);
        }
        if !inode.is_reg() {
            return fail(Errno::EINVAL);
        }
        self.want_write()?;
        if inode.has_flag(flag::IMMUTABLE) || inode.has_flag(flag::APPEND) {
            return fail(Errno::EPERM);
        }
        self.fs.igrab(&inode);
        let done = self.set_size(&inode, size, false).await;
        self.fs.iput(inode).await?;
        done
    }

    /// `mtime`: set that time even if the size stays, as `ftruncate` does and `truncate` does not.
    async fn set_size(&self, inode: &Rc<Inode>, size: u64, mtime: bool) -> FsResult<()> {
        let _lock = inode.rwsem.write().await;
        self.fs.setattr_size(inode, size, mtime).await
    }

    /// `ftruncate(2)`.
    pub async fn ftruncate(&self, fd: Fd, size: i64) -> SysResult<()> {
        let op = self.begin(Call::Truncate, Ino(0), 0).await;
        let done = self.do_ftruncate(&op, fd, size).await;
        self.end(&op, done)
    }

    async fn do_ftruncate(&self, op: &Op, fd: Fd, size: i64) -> FsResult<()> {
        let size = u64::try_from(size).map_err(|_| FsError::Errno(Errno::EINVAL))?;
        let file = self.files.get(fd)?;
        op.ino.set(file.inode.ino);
        if !file.inode.is_reg() || !file.flags.writable() {
            return fail(Errno::EINVAL);
        }
        if file.inode.has_flag(flag::APPEND) {
            return fail(Errno::EPERM);
        }
        self.want_write()?;
        self.set_size(&file.inode, size, true).await
    }

    /// `fallocate(2)`.
    pub async fn fallocate(&self, fd: Fd, how: u32, offset: i64, len: i64) -> SysResult<()> {
        let op = self
            .begin(Call::Fallocate, Ino(0), offset.max(0) as u64)
            .await;
        let done = self.do_fallocate(&op, fd, how, offset, len).await;
        self.end(&op, done)
    }

    async fn do_fallocate(&self, op: &Op, fd: Fd, how: u32, offset: i64, len: i64) -> FsResult<()> {
        use super::falloc::{COLLAPSE_RANGE, INSERT_RANGE, KEEP_SIZE, PUNCH_HOLE};
        use super::falloc::{UNSHARE_RANGE, ZERO_RANGE};
        let file = self.files.get(fd)?;
        let inode = &file.inode;
        op.ino.set(inode.ino);
        if offset < 0 || len <= 0 {
            return fail(Errno::EINVAL);
        }
        let keep = how & KEEP_SIZE != 0;
        match how & !KEEP_SIZE {
            0 | UNSHARE_RANGE | ZERO_RANGE => {}
            PUNCH_HOLE if keep => {}
            COLLAPSE_RANGE | INSERT_RANGE if !keep => {}
            _ => return fail(Errno::EOPNOTSUPP),
        }
        if !file.flags.writable() {
            return fail(Errno::EBADF);
        }
        if how & !KEEP_SIZE != 0 && inode.has_flag(flag::APPEND) || inode.has_flag(flag::IMMUTABLE)
        {
            return fail(Errno::EPERM);
        }
        match inode.mode() & mode::S_IFMT {
            mode::S_IFREG => {}
            mode::S_IFIFO => return fail(Errno::ESPIPE),
            mode::S_IFDIR => return fail(Errno::EISDIR),
            _ => return fail(Errno::ENODEV),
        }
        let max = self.fs.geo.max_bytes(true) as i64;
        if offset.checked_add(len).is_none_or(|end| end > max) {
            return fail(Errno::EFBIG);
        }
        self.want_write()?;
        self.fs
            .fallocate(inode, how, offset as u64, len as u64)
            .await
    }

    /// `fsync(2)`: contents and attributes are on stable storage when it returns.
    pub async fn fsync(&self, fd: Fd) -> SysResult<()> {
        self.sync_file(Call::Fsync, fd, false).await
    }

    /// `fdatasync(2)`: contents, and the attributes needed to read them.
    pub async fn fdatasync(&self, fd: Fd) -> SysResult<()> {
        self.sync_file(Call::Fdatasync, fd, true).await
    }

    async fn sync_file(&self, call: Call, fd: Fd, datasync: bool) -> SysResult<()> {
        let op = self.begin(call, Ino(0), 0).await;
        let done = self.do_sync_file(&op, fd, datasync).await;
        self.end(&op, done)
    }

    async fn do_sync_file(&self, op: &Op, fd: Fd, datasync: bool) -> FsResult<()> {
        let file = self.files.get(fd)?;
        op.ino.set(file.inode.ino);
        if !file.inode.is_reg() && !file.inode.is_dir() {
            return fail(Errno::EINVAL);
        }
        self.fs
            .sync_file(&file.inode, &file.state, datasync)
            .await?;
        self.promise(op, file.inode.ino);
        Ok(())
    }

    /// `syncfs(2)`.
    pub async fn syncfs(&self) -> SysResult<()> {
        let op = self.begin(Call::Syncfs, Ino(0), 0).await;
        let seen = self.fs.vm.sample_wb_err();
        let synced = self.fs.sync_filesystem().await;
        let reported = self.fs.vm.check_wb_err(seen).map_err(FsError::Errno);
        let done = synced.and(reported);
        if done.is_ok() {
            self.promise(&op, Ino(0));
        }
        self.end(&op, done)
    }

    /// `posix_fadvise(POSIX_FADV_DONTNEED)`.
    pub async fn fadvise_dontneed(&self, fd: Fd, offset: u64, len: u64) -> SysResult<()> {
        let op = self.begin(Call::Fadvise, Ino(0), offset).await;
        let done = match self.files.get(fd) {
            Ok(file) => {
                op.ino.set(file.inode.ino);
                self.fs.fadvise_dontneed(&file.inode, offset, len).await
            }
            Err(e) => Err(e),
        };
        self.end(&op, done)
    }

    /// Names in a directory, without `.` and `..`, in the order of `getdents(2)`.
    pub async fn readdir(&self, path: &[u8]) -> SysResult<Vec<Vec<u8>>> {
        let op = self.begin(Call::Readdir, Ino(0), 0).await;
        let done = self.do_readdir(&op, path).await;
        self.end(&op, done)
    }

    async fn do_readdir(&self, op: &Op, path: &[u8]) -> FsResult<Vec<Vec<u8>>> {
        let dir = self.lookup_path(path, true).await?;
        if !dir.is_dir() {
            return fail(Errno::ENOTDIR);
        }
        op.ino.set(dir.ino);
        self.fs.igrab(&dir);
        let done = self.read_names(&dir).await;
        self.fs.iput(dir).await?;
        done
    }

    async fn read_names(&self, dir: &Rc<Inode>) -> FsResult<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        let mut pos = Some(DirPos::default());
        let _lock = dir.rwsem.read().await;
        while let Some(from) = pos {
            let batch = self.fs.readdir(dir, from).await?;
            self.sim.charge(self.fs.cost.dir_block).await;
            for item in batch.items {
                if item.name != b"." && item.name != b".." {
                    names.push(item.name);
                }
            }
            pos = batch.next;
        }
        self.fs.touch_atime(dir).await?;
        Ok(names)
    }

    /// `statvfs(3)` of the root.
    pub async fn statfs(&self) -> SysResult<StatFs> {
        let op = self.begin(Call::Statfs, Ino(0), 0).await;
        let Fs::Ext4(fs) = self.fs();
        let s = fs.statfs();
        let done = Ok(StatFs {
            bsize: s.bsize,
            blocks: s.blocks,
            bfree: s.bfree,
            bavail: s.bavail,
            files: s.files,
            ffree: s.ffree,
            namelen: 255,
        });
        self.end(&op, done)
    }
}

fn io_flags(flags: OpenFlags) -> IoFlags {
    IoFlags {
        direct: flags.has(OpenFlags::DIRECT),
        sync: flags.has(OpenFlags::SYNC),
        dsync: flags.has(OpenFlags::DSYNC),
        append: flags.has(OpenFlags::APPEND),
    }
}
