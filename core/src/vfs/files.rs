//! The table of descriptors (kernel `fs/file.c`, `struct file`).

use super::{fail, Fd, OpenFlags};
use crate::base::Errno;
use crate::fs::common::FsResult;
use crate::fs::ext4::file::FileState;
use crate::fs::ext4::Inode;
use std::cell::RefCell;
use std::rc::Rc;

/// An open file.
pub(super) struct File {
    /// What is open; one reference is the file's.
    pub inode: Rc<Inode>,
    /// How it was opened.
    pub flags: OpenFlags,
    /// Readahead and the writeback errors it has reported.
    pub state: FileState,
}

/// Open files by number.
#[derive(Default)]
pub(super) struct Files(RefCell<Vec<Option<Rc<File>>>>);

impl Files {
    /// Gives a file the lowest free number.
    pub(super) fn insert(&self, file: File) -> Fd {
        let mut files = self.0.borrow_mut();
        let at = files.iter().position(Option::is_none);
        let file = Some(Rc::new(file));
        match at {
            Some(i) => {
                files[i] = file;
                Fd(i as u32)
            }
            None => {
                files.push(file);
                Fd(files.len() as u32 - 1)
            }
        }
    }

    /// The file with that number; EBADF if there is none.
    pub(super) fn get(&self, fd: Fd) -> FsResult<Rc<File>> {
        match self.0.borrow().get(fd.0 as usize) {
            Some(Some(file)) => Ok(Rc::clone(file)),
            _ => fail(Errno::EBADF),
        }
    }

    /// Takes a file out; EBADF if there is none.
    pub(super) fn remove(&self, fd: Fd) -> FsResult<Rc<File>> {
        match self
            .0
            .borrow_mut()
            .get_mut(fd.0 as usize)
            .and_then(Option::take)
        {
            Some(file) => Ok(file),
            None => fail(Errno::EBADF),
        }
    }

    /// Numbers in use, ascending.
    pub(super) fn open(&self) -> Vec<Fd> {
        let files = self.0.borrow();
        (0..files.len())
            .filter(|i| files[*i].is_some())
            .map(|i| Fd(i as u32))
            .collect()
    }
}
