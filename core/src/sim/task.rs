//! Tasks as others see them: ids, classes, wait reasons, views.

use super::executor::Sim;
use crate::base::{FsBlock, GroupNo, Ino, Nanos, Tid};
use std::fmt;
use std::rc::Rc;

/// Number of a task; never used twice within a run. Task 0 is interrupt context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

impl TaskId {
    /// Interrupt context, or code outside of any task.
    pub const IRQ: TaskId = TaskId(0);
}

/// What kind of thread a task models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskClass {
    /// A program.
    User,
    /// A kernel thread of its own, for example `jbd2/vda-8`.
    Kthread,
    /// A work queue's thread.
    Kworker,
}

/// Why a task does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// `i_rwsem` of an inode.
    InodeLock(Ino),
    /// A locked folio.
    FolioLock,
    /// A bio in flight, by its number.
    Bio(u64),
    /// Writeback of an inode's folios.
    Writeback(Ino),
    /// Open handles of a transaction that is being locked.
    HandlesDrain(Tid),
    /// The commit of a transaction.
    JournalCommit(Tid),
    /// Room in the log.
    LogSpace,
    /// `balance_dirty_pages`.
    DirtyThrottle,
    /// A virtual CPU.
    RunQueue,
    /// A point in time.
    Timer,
    /// A metadata buffer.
    Buffer(FsBlock),
    /// The lock of a block group.
    GroupLock(GroupNo),
    /// A free request in the device's queue.
    Queue,
    /// Anything else, named.
    Other(&'static str),
}

impl WaitReason {
    /// Kind and number for an event record.
    pub fn numbers(self) -> (u8, u64) {
        match self {
            WaitReason::Other(_) => (0, 0),
            WaitReason::InodeLock(ino) => (1, u64::from(ino.0)),
            WaitReason::FolioLock => (2, 0),
            WaitReason::Bio(id) => (3, id),
            WaitReason::Writeback(ino) => (4, u64::from(ino.0)),
            WaitReason::HandlesDrain(tid) => (5, u64::from(tid.0)),
            WaitReason::JournalCommit(tid) => (6, u64::from(tid.0)),
            WaitReason::LogSpace => (7, 0),
            WaitReason::DirtyThrottle => (8, 0),
            WaitReason::RunQueue => (9, 0),
            WaitReason::Timer => (10, 0),
            WaitReason::Buffer(b) => (11, b.0),
            WaitReason::GroupLock(g) => (12, u64::from(g.0)),
            WaitReason::Queue => (13, 0),
        }
    }

    /// The reason of a record's kind and number; `Other` has lost its name.
    pub fn from_numbers(why: u8, what: u64) -> WaitReason {
        match why {
            1 => WaitReason::InodeLock(Ino(what as u32)),
            2 => WaitReason::FolioLock,
            3 => WaitReason::Bio(what),
            4 => WaitReason::Writeback(Ino(what as u32)),
            5 => WaitReason::HandlesDrain(Tid(what as u32)),
            6 => WaitReason::JournalCommit(Tid(what as u32)),
            7 => WaitReason::LogSpace,
            8 => WaitReason::DirtyThrottle,
            9 => WaitReason::RunQueue,
            10 => WaitReason::Timer,
            11 => WaitReason::Buffer(FsBlock(what)),
            12 => WaitReason::GroupLock(GroupNo(what as u32)),
            13 => WaitReason::Queue,
            _ => WaitReason::Other("another condition"),
        }
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitReason::InodeLock(ino) => write!(f, "lock of inode {ino}"),
            WaitReason::FolioLock => f.write_str("folio lock"),
            WaitReason::Bio(id) => write!(f, "bio {id}"),
            WaitReason::Writeback(ino) => write!(f, "writeback of inode {ino}"),
            WaitReason::HandlesDrain(tid) => write!(f, "open handles of transaction {tid}"),
            WaitReason::JournalCommit(tid) => write!(f, "commit of transaction {tid}"),
            WaitReason::LogSpace => f.write_str("log space"),
            WaitReason::DirtyThrottle => f.write_str("dirty throttling"),
            WaitReason::RunQueue => f.write_str("a CPU"),
            WaitReason::Timer => f.write_str("a timer"),
            WaitReason::Buffer(b) => write!(f, "buffer of block {b}"),
            WaitReason::GroupLock(g) => write!(f, "lock of group {g}"),
            WaitReason::Queue => f.write_str("a free request"),
            WaitReason::Other(what) => f.write_str(what),
        }
    }
}

/// Order in which locks are taken; a task may not take a lock of a lower rank than one it holds.
/// Mirrors the order at the head of `fs/ext4/super.c` and `mm/rmap.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockRank {
    /// `s_umount`.
    Umount,
    /// `s_vfs_rename_mutex`.
    Rename,
    /// `i_rwsem` of directories (parents before children).
    DirInode,
    /// `i_rwsem` of files.
    Inode,
    /// `mapping.invalidate_lock`.
    InvalidateLock,
    /// `s_writepages_rwsem`.
    Writepages,
    /// Folio locks.
    Folio,
    /// `j_barrier`, `j_checkpoint_mutex` and the wait to start a handle.
    Journal,
    /// `i_data_sem`.
    DataSem,
    /// `xattr_sem`.
    XattrSem,
    /// `s_orphan_lock`.
    Orphan,
    /// Group locks (`ext4_lock_group`, `alloc_sem`).
    Group,
    /// Buffer head locks.
    Buffer,
    /// Locks below everything above, never held across another lock.
    Leaf,
}

/// State of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// Holds a CPU.
    OnCpu,
    /// Wants a CPU.
    Runnable,
    /// Waits for something.
    Blocked(WaitReason),
    /// Has ended.
    Done,
}

/// A task at one instant, for panels and reports.
#[derive(Clone, Debug)]
pub struct TaskView {
    /// Its number.
    pub id: TaskId,
    /// Its name, for example `jbd2/vda-8`.
    pub name: Rc<str>,
    /// Its class.
    pub class: TaskClass,
    /// Its state, with the wait reason.
    pub state: TaskState,
    /// Since when it is in that state.
    pub since: Nanos,
    /// CPU it runs on or ran on last.
    pub cpu: u32,
    /// CPU time used so far.
    pub cpu_time: Nanos,
    /// Voluntary context switches (blocked).
    pub nvcsw: u64,
    /// Involuntary context switches (slice ended).
    pub nivcsw: u64,
    /// Labels of the frames entered, outermost first.
    pub frames: Vec<&'static str>,
    /// Ranks and reasons of the locks held, in order of acquisition.
    pub held: Vec<(LockRank, WaitReason)>,
}

/// A frame label that stays on the task's stack until dropped.
#[must_use = "the label is popped when this is dropped"]
pub struct Frame {
    pub(super) sim: Sim,
    pub(super) task: TaskId,
}

impl Drop for Frame {
    fn drop(&mut self) {
        self.sim.pop_frame(self.task);
    }
}
