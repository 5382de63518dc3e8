//! What happens to a disk when it is mounted again: replay step by step, orphans, and the tree that is left.

use super::oracle::{Entry, Kind, RecoveredTree};
use crate::base::sha256::Sha256;
use crate::base::ReadAt;
use crate::block::{DeviceConfig, Store};
use crate::format::jbd2::JournalSuperblock;
use crate::fs::ext4::reader::{Inode, Piece, Reader};
use crate::fs::jbd2::recovery::{replay, Found, Pass, RecoveryStep, ReplayError, StopReason};
use crate::kernel::{Machine, MachineConfig, WALL_CLOCK};
use crate::mm::Sysctls;
use crate::trace::Event;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// One step of recovery, as a person follows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Pass or stage.
    pub title: String,
    /// What happened.
    pub sentence: String,
    /// Copies home: journal block and home block.
    pub copies: Vec<(u32, u64)>,
}

/// A disk after recovery.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// The disk after mount and unmount.
    pub store: Store,
    /// The steps.
    pub steps: Vec<Step>,
    /// Why it could not be mounted.
    pub error: Option<String>,
}

/// Mounts a disk as Linux would after a power cut and unmounts it again. The error names what is not an ext4.
pub fn recover_image(store: Store, mount: &str) -> Result<Recovered, String> {
    let mut steps = journal_steps(&store)?;
    let device = DeviceConfig::preset("nvme", store.sectors() * 512)?;
    let (m, error) = mount_and_unmount(device, store, mount, 16 << 20);
    steps.extend(orphan_steps(&m));
    steps.push(Step {
        title: "mount".to_string(),
        sentence: error
            .clone()
            .unwrap_or_else(|| "The file system is mounted.".to_string()),
        copies: Vec::new(),
    });
    let store = m.queue.device().store().clone();
    Ok(Recovered {
        store,
        steps,
        error,
    })
}

/// Mounts and unmounts on a machine of its own, which records up to `events` bytes of events: the machine afterwards,
/// and why it could not mount.
pub(super) fn mount_and_unmount(
    device: DeviceConfig,
    store: Store,
    mount: &str,
    events: usize,
) -> (Machine, Option<String>) {
    let config = MachineConfig {
        seed: 1,
        cpus: 1,
        ram: 8 << 30,
        device,
        sysctls: Sysctls::default(),
        wall_clock: WALL_CLOCK + 86_400,
    };
    let m = Machine::boot_with(config, store);
    if events > 0 {
        m.record(events);
    }
    // Zeroing inode tables is no part of recovery.
    let options = match mount {
        "" => "noinit_itable".to_string(),
        o => format!("{o},noinit_itable"),
    };
    let hw = m.hw.clone();
    let outcome = m.sim.block_on("mount", async move {
        let vfs = hw
            .mount(&options)
            .await
            .map_err(|e| format!("mount failed: {e}"))?;
        hw.umount(&vfs)
            .await
            .map_err(|e| format!("unmount failed: {e}"))
    });
    let error = match outcome {
        Ok(done) => done.err(),
        Err(deadlock) => Some(format!("mount can't go on: {deadlock}")),
    };
    (m, error)
}

fn orphan_steps(m: &Machine) -> Vec<Step> {
    let mut out = Vec::new();
    m.sim.trace().scan(0, |_, record| {
        if let Some(Event::OrphanProcessed { ino, truncated }) = record.event() {
            let what = if truncated == 1 {
                "cut to its size"
            } else {
                "deleted"
            };
            out.push(Step {
                title: "orphans".to_string(),
                sentence: format!("Inode {ino} was on the orphan list and is {what}."),
                copies: Vec::new(),
            });
        }
        true
    });
    out
}

/// The passes over the log, on a copy of the disk.
fn journal_steps(store: &Store) -> Result<Vec<Step>, String> {
    let reader = Reader::open(store).map_err(|e| e.to_string())?;
    let needs = reader.sb.has(crate::format::ext4::features::RECOVER);
    let mut steps = vec![Step {
        title: "superblock".to_string(),
        sentence: match needs {
            true => "The file system was not unmounted: needs_recovery is set.".to_string(),
            false => "The file system was unmounted cleanly.".to_string(),
        },
        copies: Vec::new(),
    }];
    let extents = reader
        .journal_extents()
        .map_err(|e| format!("journal inode: {e}"))?;
    if extents.is_empty() || !needs {
        return Ok(steps);
    }
    let place = |n: u32| -> Option<u64> {
        let mut left = n;
        for (start, len) in &extents {
            if left < *len {
                return Some(start + u64::from(left));
            }
            left -= len;
        }
        None
    };
    let jsb = JournalSuperblock::decode(&reader.block(extents[0].0)).map_err(|e| e.to_string())?;
    steps.push(Step {
        title: "journal".to_string(),
        sentence: match jsb.s_start {
            0 => "The journal is empty.".to_string(),
            n => format!(
                "The log begins at block {n} with transaction {}.",
                jsb.s_sequence
            ),
        },
        copies: Vec::new(),
    });
    let read = |n: u32| -> Result<Rc<[u8]>, String> {
        let block =
            place(n).ok_or_else(|| format!("journal block {n} is outside of the journal"))?;
        Ok(reader.block(block).into())
    };
    let list = match replay(&jsb, read, |_, _| Ok(())) {
        Ok(None) => Vec::new(),
        Ok(Some((_, list))) => list,
        Err(ReplayError::Log { error, steps }) => {
            let mut out = sentences(&steps);
            out.push(Step {
                title: "error".to_string(),
                sentence: format!("{error:?}"),
                copies: Vec::new(),
            });
            return Ok(out);
        }
        Err(ReplayError::Io(e)) => return Err(e),
    };
    steps.extend(sentences(&list));
    Ok(steps)
}

fn pass_name(p: Pass) -> &'static str {
    match p {
        Pass::Scan => "PASS_SCAN",
        Pass::Revoke => "PASS_REVOKE",
        Pass::Replay => "PASS_REPLAY",
        Pass::FastCommit => "fast commits",
    }
}

/// Facts of the passes as steps; the copies of one transaction are one step.
fn sentences(list: &[RecoveryStep]) -> Vec<Step> {
    let mut out: Vec<Step> = Vec::new();
    let mut open: Option<u32> = None;
    for s in list {
        let title = pass_name(s.pass).to_string();
        let tid = s.tid.0;
        let sentence = match &s.found {
            Found::Replayed { home, .. } => {
                let copy = (s.jblock, *home);
                match out.last_mut() {
                    Some(last) if open == Some(tid) => {
                        last.copies.push(copy);
                        let n = last.copies.len();
                        last.sentence = format!("Transaction {tid}: {n} blocks are copied home.");
                    }
                    _ => {
                        let sentence = format!("Transaction {tid}: 1 block is copied home.");
                        out.push(Step {
                            title,
                            sentence,
                            copies: vec![copy],
                        });
                        open = Some(tid);
                    }
                }
                continue;
            }
            // Control blocks of the second and third pass say nothing new.
            Found::Descriptor { .. } | Found::Commit { .. } if s.pass != Pass::Scan => continue,
            Found::Descriptor { tags, csum_ok } => {
                let bad = if *csum_ok {
                    ""
                } else {
                    ", its checksum is wrong"
                };
                format!(
                    "Block {}: descriptor of transaction {tid} with {tags} blocks{bad}.",
                    s.jblock
                )
            }
            Found::Commit { .. } => {
                format!(
                    "Block {}: commit block of transaction {tid}; the transaction is complete.",
                    s.jblock
                )
            }
            Found::Revoke { blocks } if s.pass == Pass::Revoke => {
                format!("Transaction {tid} revokes {} blocks.", blocks.len())
            }
            Found::Revoke { .. } => continue,
            Found::Revoked { home, by } => {
                format!("The copy of block {home} in transaction {tid} is skipped: transaction {by} revoked it.")
            }
            Found::BadCopy { home } => {
                format!("The copy of block {home} in transaction {tid} has a wrong checksum and is skipped.")
            }
            Found::FastCommit => format!("Block {}: fast commit of transaction {tid}.", s.jblock),
            Found::Stop(why) => stop_sentence(s.jblock, tid, *why),
        };
        open = None;
        out.push(Step {
            title,
            sentence,
            copies: Vec::new(),
        });
    }
    out
}

fn stop_sentence(jblock: u32, tid: u32, why: StopReason) -> String {
    match why {
        StopReason::NoMagic => {
            format!("Block {jblock} is no journal block: the log ends before transaction {tid}, which is discarded.")
        }
        StopReason::Sequence { found } => format!(
            "Block {jblock} belongs to transaction {found}, from an earlier lap: the log ends before transaction {tid}."
        ),
        StopReason::BlockType { found } => {
            format!("Block {jblock} has type {found}, which can't stand here: the log ends.")
        }
        StopReason::CommitChecksum => {
            format!("The commit block of transaction {tid} has a wrong checksum: the transaction is discarded.")
        }
        StopReason::Stale => format!("Block {jblock} is left from an earlier lap: the log ends."),
        StopReason::End => format!("The end of the log is reached before transaction {tid}."),
    }
}

/// The tree of a recovered disk, for the oracle.
pub struct DiskTree<'a, R: ReadAt + ?Sized> {
    reader: Reader<'a, R>,
    entries: BTreeMap<Vec<u8>, Entry>,
    inodes: RefCell<BTreeMap<u32, (Inode, Vec<Piece>)>>,
    /// Paths that could not be read, with the reason.
    pub damage: Vec<(Vec<u8>, String)>,
}

/// Paths looked at.
const PATHS_MAX: usize = 1_000_000;

impl<'a, R: ReadAt + ?Sized> DiskTree<'a, R> {
    /// Walks the tree.
    pub fn open(disk: &'a R) -> Result<DiskTree<'a, R>, String> {
        let reader = Reader::open(disk).map_err(|e| e.to_string())?;
        let mut entries = BTreeMap::new();
        let mut inodes = BTreeMap::new();
        let mut damage = Vec::new();
        reader.walk(
            PATHS_MAX,
            |path, inode| {
                let pieces = reader.pieces(inode).map(|p| p.0).unwrap_or_default();
                let kind = match () {
                    () if inode.raw.is_dir() => Kind::Dir,
                    () if inode.raw.is_reg() => Kind::File,
                    () if inode.raw.is_symlink() => Kind::Symlink,
                    () => Kind::Special,
                };
                let target = match kind {
                    Kind::Symlink => reader.readlink(inode).unwrap_or_default(),
                    _ => Vec::new(),
                };
                let entry = Entry {
                    kind,
                    size: inode.raw.i_size,
                    ino: inode.ino,
                    target,
                    first_block: pieces.first().map(|p| p.pblk),
                };
                entries.insert(path.to_vec(), entry);
                if kind == Kind::File {
                    inodes.insert(inode.ino, (inode.clone(), pieces));
                }
            },
            |path, e| damage.push((path.to_vec(), e.to_string())),
        );
        Ok(DiskTree {
            reader,
            entries,
            inodes: RefCell::new(inodes),
            damage,
        })
    }
}

impl<R: ReadAt + ?Sized> RecoveredTree for DiskTree<'_, R> {
    fn entries(&self) -> BTreeMap<Vec<u8>, Entry> {
        self.entries.clone()
    }

    fn read(&self, ino: u32, offset: u64, out: &mut [u8]) -> Result<(), String> {
        let inodes = self.inodes.borrow();
        let (inode, pieces) = inodes
            .get(&ino)
            .ok_or_else(|| format!("inode {ino} is not a file"))?;
        self.reader
            .read(inode, pieces, offset, out)
            .map_err(|e| e.to_string())
    }
}

/// SHA-256 of names, kinds, sizes, targets and contents of everything in a tree.
pub fn tree_digest<R: ReadAt + ?Sized>(tree: &DiskTree<'_, R>) -> Result<String, String> {
    let mut sha = Sha256::new();
    let mut buf = [0u8; 4096];
    for (path, e) in &tree.entries {
        sha.update(path);
        sha.update(&[0, e.kind as u8]);
        sha.update(&e.target);
        if e.kind != Kind::File {
            continue;
        }
        sha.update(&e.size.to_le_bytes());
        let mut at = 0;
        while at < e.size {
            let n = (e.size - at).min(buf.len() as u64) as usize;
            tree.read(e.ino, at, &mut buf[..n])?;
            sha.update(&buf[..n]);
            at += n as u64;
        }
    }
    Ok(sha.finish_hex())
}
