//! The named workload generators of kernel-lab scenarios (README, "Scenarios").

use super::ops::{Op, OpenFlags, Script, ScriptOp, Target};
use crate::base::rng::SplitMix64;

/// What is queried after each write of `seqwrite`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// `stat`.
    Stat,
    /// `statx` with this mask.
    Statx(u32),
}

/// A generator with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the scenario's keys")]
pub enum Generator {
    RandWrite(WriteLoop),
    SeqWrite(WriteLoop),
    Prealloc {
        filesize: u64,
        written: bool,
        seed: u64,
    },
    CreateUnlink {
        dir: String,
        count: u32,
        sync: bool,
        unlink: bool,
    },
    Idle {
        ms: u64,
    },
}

/// Parameters of `randwrite` and `seqwrite`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the scenario's keys")]
pub struct WriteLoop {
    pub file: String,
    pub filesize: u64,
    pub bs: u64,
    pub count: u32,
    pub seed: u64,
    pub fsync_every: u32,
    pub final_fsync: bool,
    pub create: bool,
    pub flags: OpenFlags,
    pub query: Option<Query>,
}

impl Generator {
    /// The script that the generator stands for.
    pub fn script(&self) -> Script {
        let mut out = Builder::default();
        match self {
            Generator::RandWrite(w) => {
                let blocks = w
                    .filesize
                    .checked_div(w.bs)
                    .unwrap_or(0)
                    .min(u64::from(u32::MAX));
                let order = SplitMix64::shuffled(blocks as u32, w.seed);
                out.write_loop(w, order.into_iter().take(w.count as usize).map(u64::from));
            }
            Generator::SeqWrite(w) => out.write_loop(w, (0..w.count).map(u64::from)),
            Generator::Prealloc {
                filesize,
                written,
                seed,
            } => {
                out.prealloc(*filesize, *written, *seed);
            }
            Generator::CreateUnlink {
                dir,
                count,
                sync,
                unlink,
            } => {
                out.create_unlink(dir, *count, *sync, *unlink);
            }
            Generator::Idle { ms } => out.push("sleep", Op::Sleep { ms: *ms }),
        }
        out.script
    }
}

#[derive(Default)]
struct Builder {
    script: Script,
}

impl Builder {
    fn push(&mut self, word: &'static str, op: Op) {
        let line = self.script.ops.len() as u32 + 1;
        self.script.ops.push(ScriptOp { line, op, word });
    }

    fn open(&mut self, path: &[u8], flags: OpenFlags) {
        self.script.descriptors = vec!["h".to_string()];
        self.push(
            "open",
            Op::Open {
                fd: 0,
                path: path.to_vec(),
                flags,
                mode: 0o644,
            },
        );
    }

    fn write_loop(&mut self, w: &WriteLoop, blocks: impl Iterator<Item = u64>) {
        let path = w.file.as_bytes();
        if w.create {
            self.push(
                "create",
                Op::Create {
                    path: path.to_vec(),
                    mode: 0o644,
                },
            );
        }
        self.open(path, w.flags);
        for (i, block) in blocks.enumerate() {
            let at = Target::Fd(0);
            let offset = block * w.bs;
            self.push(
                "pwrite",
                Op::Pwrite {
                    at,
                    offset,
                    len: w.bs,
                    seed: w.seed,
                },
            );
            match w.query {
                Some(Query::Stat) => self.push("stat", Op::Stat { at: Target::Fd(0) }),
                Some(Query::Statx(mask)) => {
                    self.push(
                        "statx",
                        Op::Statx {
                            at: Target::Fd(0),
                            mask,
                        },
                    );
                }
                None => {}
            }
            if w.fsync_every > 0 && (i as u32 + 1) % w.fsync_every == 0 {
                self.push("fsync", Op::Fsync { at: Target::Fd(0) });
            }
        }
        if w.final_fsync {
            self.push("fsync", Op::Fsync { at: Target::Fd(0) });
        }
        self.push("close", Op::Close { fd: 0 });
    }

    fn prealloc(&mut self, filesize: u64, written: bool, seed: u64) {
        let path = b"f".to_vec();
        self.push(
            "create",
            Op::Create {
                path: path.clone(),
                mode: 0o644,
            },
        );
        let at = Target::Path(path.clone());
        self.push(
            "fallocate",
            Op::Fallocate {
                at,
                mode: 0,
                offset: 0,
                len: filesize,
            },
        );
        if written {
            let flags = OpenFlags {
                read: true,
                write: true,
                ..OpenFlags::default()
            };
            self.open(&path, flags);
            for offset in (0..filesize).step_by(1 << 20) {
                let at = Target::Fd(0);
                self.push(
                    "pwrite",
                    Op::Pwrite {
                        at,
                        offset,
                        len: 1 << 20,
                        seed,
                    },
                );
            }
            self.push("close", Op::Close { fd: 0 });
        }
        self.push("sync", Op::Sync);
    }

    fn create_unlink(&mut self, dir: &str, count: u32, sync: bool, unlink: bool) {
        self.push(
            "mkdir",
            Op::Mkdir {
                path: dir.as_bytes().to_vec(),
                mode: 0o755,
            },
        );
        let name = |i: u32| format!("{dir}/file{i:06}").into_bytes();
        for i in 0..count {
            self.push(
                "create",
                Op::Create {
                    path: name(i),
                    mode: 0o644,
                },
            );
        }
        if sync {
            self.push("sync", Op::Sync);
        }
        if unlink {
            for i in 0..count {
                self.push("unlink", Op::Unlink { path: name(i) });
            }
            if sync {
                self.push("sync", Op::Sync);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn create_unlink_has_the_calls_of_the_scenario() {
        let g = Generator::CreateUnlink {
            dir: "d".into(),
            count: 3,
            sync: true,
            unlink: true,
        };
        let words: Vec<&str> = g.script().ops.iter().map(|o| o.word).collect();
        let expect = "mkdir create create create sync unlink unlink unlink sync";
        assert_eq!(words.join(" "), expect);
    }

    #[test]
    fn random_writes_follow_the_shuffle() {
        let w = WriteLoop {
            file: "f".into(),
            filesize: 16 * 4096,
            bs: 4096,
            count: 2,
            seed: 7,
            fsync_every: 1,
            final_fsync: false,
            create: true,
            flags: OpenFlags {
                read: true,
                write: true,
                ..OpenFlags::default()
            },
            query: None,
        };
        let s = Generator::RandWrite(w).script();
        let at = || Target::Fd(0);
        assert_eq!(
            s.ops[2].op,
            Op::Pwrite {
                at: at(),
                offset: 14 * 4096,
                len: 4096,
                seed: 7
            }
        );
        assert_eq!(
            s.ops[4].op,
            Op::Pwrite {
                at: at(),
                offset: 6 * 4096,
                len: 4096,
                seed: 7
            }
        );
        assert_eq!(s.ops.len(), 7);
    }
}
