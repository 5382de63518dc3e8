//! Operation scripts in the kernel-lab grammar (kernel-lab README, "Operation grammar"): text to [`Script`].

use super::size::parse_number;
use std::fmt;

/// A file named by path (percent-decoded, relative to the root) or by an open descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Path below the root of the file system; empty is the root.
    Path(Vec<u8>),
    /// Index into [`Script::descriptors`].
    Fd(usize),
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the grammar's own words")]
pub enum Op {
    Mkdir {
        path: Vec<u8>,
        mode: u32,
    },
    Rmdir {
        path: Vec<u8>,
    },
    Create {
        path: Vec<u8>,
        mode: u32,
    },
    Unlink {
        path: Vec<u8>,
    },
    Rename {
        old: Vec<u8>,
        new: Vec<u8>,
        flags: u32,
    },
    Link {
        old: Vec<u8>,
        new: Vec<u8>,
    },
    Symlink {
        target: Vec<u8>,
        path: Vec<u8>,
    },
    Mknod {
        path: Vec<u8>,
        mode: u32,
        major: u32,
        minor: u32,
    },
    Open {
        fd: usize,
        path: Vec<u8>,
        flags: OpenFlags,
        mode: u32,
    },
    Close {
        fd: usize,
    },
    Pwrite {
        at: Target,
        offset: u64,
        len: u64,
        seed: u64,
    },
    Append {
        at: Target,
        len: u64,
        seed: u64,
    },
    Truncate {
        at: Target,
        size: u64,
    },
    Fallocate {
        at: Target,
        mode: u32,
        offset: u64,
        len: u64,
    },
    Read {
        at: Target,
        offset: u64,
        len: u64,
    },
    Fsync {
        at: Target,
    },
    Fdatasync {
        at: Target,
    },
    Sync,
    Chmod {
        path: Vec<u8>,
        mode: u32,
    },
    Chown {
        path: Vec<u8>,
        uid: u32,
        gid: u32,
    },
    Utimes {
        path: Vec<u8>,
        atime_ns: i128,
        mtime_ns: i128,
    },
    Setxattr {
        path: Vec<u8>,
        name: Vec<u8>,
        len: u64,
        seed: u64,
        flags: u32,
    },
    Getxattr {
        path: Vec<u8>,
        name: Vec<u8>,
    },
    Removexattr {
        path: Vec<u8>,
        name: Vec<u8>,
    },
    Listxattr {
        path: Vec<u8>,
    },
    Stat {
        at: Target,
    },
    Statx {
        at: Target,
        mask: u32,
    },
    Readdir {
        path: Vec<u8>,
    },
    Statfs,
    Sleep {
        ms: u64,
    },
    Dropcaches,
}

impl Op {
    /// The operation's word in the grammar (`punch` is written back as `fallocate`).
    pub fn name(&self) -> &'static str {
        match self {
            Op::Mkdir { .. } => "mkdir",
            Op::Rmdir { .. } => "rmdir",
            Op::Create { .. } => "create",
            Op::Unlink { .. } => "unlink",
            Op::Rename { .. } => "rename",
            Op::Link { .. } => "link",
            Op::Symlink { .. } => "symlink",
            Op::Mknod { .. } => "mknod",
            Op::Open { .. } => "open",
            Op::Close { .. } => "close",
            Op::Pwrite { .. } => "pwrite",
            Op::Append { .. } => "append",
            Op::Truncate { .. } => "truncate",
            Op::Fallocate { .. } => "fallocate",
            Op::Read { .. } => "read",
            Op::Fsync { .. } => "fsync",
            Op::Fdatasync { .. } => "fdatasync",
            Op::Sync => "sync",
            Op::Chmod { .. } => "chmod",
            Op::Chown { .. } => "chown",
            Op::Utimes { .. } => "utimes",
            Op::Setxattr { .. } => "setxattr",
            Op::Getxattr { .. } => "getxattr",
            Op::Removexattr { .. } => "removexattr",
            Op::Listxattr { .. } => "listxattr",
            Op::Stat { .. } => "stat",
            Op::Statx { .. } => "statx",
            Op::Readdir { .. } => "readdir",
            Op::Statfs => "statfs",
            Op::Sleep { .. } => "sleep",
            Op::Dropcaches => "dropcaches",
        }
    }
}

/// Open flags of the grammar, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of open(2) without O_")]
pub struct OpenFlags {
    pub read: bool,
    pub write: bool,
    pub creat: bool,
    pub excl: bool,
    pub trunc: bool,
    pub append: bool,
    pub direct: bool,
    pub sync: bool,
    pub dsync: bool,
    pub nofollow: bool,
    pub directory: bool,
}

/// An operation with the line it stands on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptOp {
    /// Line number, from 1.
    pub line: u32,
    /// What to do.
    pub op: Op,
    /// The grammar word as written (`punch` stays `punch`).
    pub word: &'static str,
}

/// A parsed script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Operations in order.
    pub ops: Vec<ScriptOp>,
    /// Names of the descriptors that `open` defines.
    pub descriptors: Vec<String>,
}

/// What is wrong with a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    /// Line number, from 1.
    pub line: u32,
    /// What is wrong and what would be right.
    pub reason: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

/// The operation words with their arguments, for messages and completion.
pub const USAGE: [(&str, &str); 32] = [
    ("mkdir", "PATH [MODE=755]"),
    ("rmdir", "PATH"),
    ("create", "PATH [MODE=644]"),
    ("unlink", "PATH"),
    ("rename", "OLD NEW [noreplace|exchange|whiteout]"),
    ("link", "OLD NEW"),
    ("symlink", "TARGET PATH"),
    ("mknod", "PATH fifo|chr|blk|sock MODE [MAJOR MINOR]"),
    ("open", "ID PATH [FLAGS=rw] [MODE=644]"),
    ("close", "ID"),
    ("pwrite", "PATH|@ID OFFSET LEN SEED"),
    ("append", "PATH|@ID LEN SEED"),
    ("truncate", "PATH|@ID SIZE"),
    ("fallocate", "PATH|@ID MODE OFFSET LEN"),
    ("punch", "PATH|@ID OFFSET LEN"),
    ("read", "PATH|@ID OFFSET LEN"),
    ("fsync", "PATH|@ID"),
    ("fdatasync", "PATH|@ID"),
    ("sync", ""),
    ("chmod", "PATH MODE"),
    ("chown", "PATH UID GID"),
    ("utimes", "PATH ATIME_NS MTIME_NS"),
    ("setxattr", "PATH NAME LEN SEED [create|replace]"),
    ("getxattr", "PATH NAME"),
    ("removexattr", "PATH NAME"),
    ("listxattr", "PATH"),
    ("stat", "PATH|@ID"),
    ("statx", "PATH|@ID MASK"),
    ("readdir", "PATH"),
    ("statfs", ""),
    ("sleep", "MS"),
    ("dropcaches", ""),
];

/// Longest run of bytes that one operation may write, read or set (a guard against typing errors).
pub const LEN_MAX: u64 = 1 << 40;

/// Percent-decodes a token.
pub fn percent_decode(token: &str) -> Vec<u8> {
    let b = token.as_bytes();
    let mut out = Vec::with_capacity(b.len());
    let mut i = 0;
    while i < b.len() {
        let hex = |j: usize| b.get(j).and_then(|c| (*c as char).to_digit(16));
        if b[i] == b'%' {
            if let (Some(hi), Some(lo)) = (hex(i + 1), hex(i + 2)) {
                out.push((hi << 4 | lo) as u8);
                i += 3;
                continue;
            }
        }
        out.push(b[i]);
        i += 1;
    }
    out
}

/// Percent-encodes bytes as kernel-lab does in `state`.
pub fn percent_encode(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(bytes.len());
    for &b in bytes {
        if b.is_ascii_alphanumeric() || b"/!#$&'()*+,-.:;<=>?@[]^_`{|}~".contains(&b) {
            out.push(b as char);
        } else {
            let _ = write!(out, "%{b:02X}");
        }
    }
    out
}

impl Script {
    /// Parses a whole script; reports the first mistake.
    pub fn parse(text: &str) -> Result<Script, ScriptError> {
        let mut parser = Parser {
            script: Script::default(),
        };
        for (i, raw) in text.lines().enumerate() {
            let line = i as u32 + 1;
            let trimmed = raw.trim();
            if trimmed.is_empty() || trimmed.starts_with('#') {
                continue;
            }
            let tokens: Vec<&str> = trimmed.split_whitespace().collect();
            let (op, word) = parser
                .op(&tokens)
                .map_err(|reason| ScriptError { line, reason })?;
            parser.script.ops.push(ScriptOp { line, op, word });
        }
        Ok(parser.script)
    }
}

struct Parser {
    script: Script,
}

/// Arguments of one line, consumed from the front.
struct Args<'a> {
    rest: &'a [&'a str],
    word: &'static str,
}

impl<'a> Args<'a> {
    fn next(&mut self, what: &str) -> Result<&'a str, String> {
        let (first, rest) = self
            .rest
            .split_first()
            .ok_or_else(|| format!("`{}` needs {what}; usage: {}", self.word, usage(self.word)))?;
        self.rest = rest;
        Ok(first)
    }

    fn maybe(&mut self) -> Option<&'a str> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    fn path(&mut self, what: &str) -> Result<Vec<u8>, String> {
        self.next(what).map(decode_path)
    }

    fn number(&mut self, what: &str) -> Result<u64, String> {
        let t = self.next(what)?;
        parse_number(t).ok_or_else(|| format!("{what} `{t}` is not a number (decimal or 0x..)"))
    }

    fn number32(&mut self, what: &str) -> Result<u32, String> {
        let n = self.number(what)?;
        u32::try_from(n).map_err(|_| format!("{what} {n} is over 4294967295"))
    }

    fn len(&mut self) -> Result<u64, String> {
        let n = self.number("LEN")?;
        if n > LEN_MAX {
            return Err(format!(
                "LEN {n} is over {LEN_MAX}, the most one operation may move"
            ));
        }
        Ok(n)
    }

    fn time(&mut self, what: &str) -> Result<i128, String> {
        let t = self.next(what)?;
        t.parse::<i128>()
            .map_err(|_| format!("{what} `{t}` is not a number of nanoseconds"))
    }

    fn mode(&mut self, default: Option<u32>) -> Result<u32, String> {
        match (self.maybe(), default) {
            (Some(t), _) => octal(t),
            (None, Some(d)) => Ok(d),
            (None, None) => Err(format!(
                "`{}` needs MODE; usage: {}",
                self.word,
                usage(self.word)
            )),
        }
    }

    fn end(&self) -> Result<(), String> {
        match self.rest.first() {
            None => Ok(()),
            Some(t) => Err(format!("`{t}` is too much; usage: {}", usage(self.word))),
        }
    }
}

fn octal(t: &str) -> Result<u32, String> {
    match u32::from_str_radix(t, 8) {
        Ok(m) if m <= 0o7777 => Ok(m),
        _ => Err(format!("mode `{t}` is not octal from 0 to 7777")),
    }
}

fn usage(word: &str) -> String {
    let args = USAGE.iter().find(|u| u.0 == word).map_or("", |u| u.1);
    format!("{word} {args}").trim_end().to_string()
}

fn decode_path(token: &str) -> Vec<u8> {
    let mut p = percent_decode(token);
    let lead = p.iter().take_while(|b| **b == b'/').count();
    p.drain(..lead);
    p
}

/// Mode bits of fallocate(2) by their word in the grammar.
pub const FALLOCATE_MODES: [(&str, u32); 8] = [
    ("alloc", 0),
    ("keep", 1),
    ("punch", 3),
    ("collapse", 8),
    ("zero", 0x10),
    ("zero_keep", 0x11),
    ("insert", 0x20),
    ("unshare", 0x40),
];

impl Parser {
    fn fd(&mut self, id: &str) -> usize {
        let known = self.script.descriptors.iter().position(|d| d == id);
        known.unwrap_or_else(|| {
            self.script.descriptors.push(id.to_string());
            self.script.descriptors.len() - 1
        })
    }

    fn target(&mut self, a: &mut Args<'_>) -> Result<Target, String> {
        let t = a.next("PATH or @ID")?;
        Ok(match t.strip_prefix('@') {
            Some(id) => Target::Fd(self.fd(id)),
            None => Target::Path(decode_path(t)),
        })
    }

    fn op(&mut self, tokens: &[&str]) -> Result<(Op, &'static str), String> {
        let Some((first, rest)) = tokens.split_first() else {
            return Err("empty line".to_string());
        };
        let Some((word, _)) = USAGE.iter().find(|u| u.0 == *first) else {
            return Err(format!("unknown operation `{first}`{}", nearest(first)));
        };
        let mut a = Args { rest, word };
        let op = match self.name_space_op(word, &mut a)? {
            Some(op) => op,
            None => match self.file_op(word, &mut a)? {
                Some(op) => op,
                None => Parser::attribute_op(word, &mut a)?,
            },
        };
        a.end()?;
        Ok((op, word))
    }

    fn name_space_op(&mut self, word: &str, a: &mut Args<'_>) -> Result<Option<Op>, String> {
        Ok(Some(match word {
            "mkdir" => Op::Mkdir {
                path: a.path("PATH")?,
                mode: a.mode(Some(0o755))?,
            },
            "rmdir" => Op::Rmdir {
                path: a.path("PATH")?,
            },
            "create" => Op::Create {
                path: a.path("PATH")?,
                mode: a.mode(Some(0o644))?,
            },
            "unlink" => Op::Unlink {
                path: a.path("PATH")?,
            },
            "rename" => Op::Rename {
                old: a.path("OLD")?,
                new: a.path("NEW")?,
                flags: match a.maybe() {
                    None => 0,
                    Some("noreplace") => 1,
                    Some("exchange") => 2,
                    Some("whiteout") => 4,
                    Some(t) => {
                        return Err(format!(
                            "rename flag `{t}` is unknown; noreplace, exchange or whiteout"
                        ))
                    }
                },
            },
            "link" => Op::Link {
                old: a.path("OLD")?,
                new: a.path("NEW")?,
            },
            "symlink" => Op::Symlink {
                target: percent_decode(a.next("TARGET")?),
                path: a.path("PATH")?,
            },
            "mknod" => mknod(a)?,
            "open" => {
                let id = a.next("ID")?;
                let fd = self.fd(id);
                let path = a.path("PATH")?;
                let flags = parse_open_flags(a.maybe().unwrap_or("rw"))?;
                Op::Open {
                    fd,
                    path,
                    flags,
                    mode: a.mode(Some(0o644))?,
                }
            }
            "close" => Op::Close {
                fd: self.known_fd(a.next("ID")?)?,
            },
            _ => return Ok(None),
        }))
    }

    fn known_fd(&self, id: &str) -> Result<usize, String> {
        self.script
            .descriptors
            .iter()
            .position(|d| d == id)
            .ok_or_else(|| format!("no descriptor `{id}` was opened before"))
    }

    fn file_op(&mut self, word: &str, a: &mut Args<'_>) -> Result<Option<Op>, String> {
        Ok(Some(match word {
            "pwrite" => Op::Pwrite {
                at: self.target(a)?,
                offset: a.number("OFFSET")?,
                len: a.len()?,
                seed: a.number("SEED")?,
            },
            "append" => Op::Append {
                at: self.target(a)?,
                len: a.len()?,
                seed: a.number("SEED")?,
            },
            "truncate" => Op::Truncate {
                at: self.target(a)?,
                size: a.number("SIZE")?,
            },
            "fallocate" => {
                let at = self.target(a)?;
                let t = a.next("MODE")?;
                let mode = FALLOCATE_MODES.iter().find(|m| m.0 == t).map(|m| m.1);
                let mode = mode.or((t == "0").then_some(0)).ok_or_else(|| {
                    let words: Vec<&str> = FALLOCATE_MODES.iter().map(|m| m.0).collect();
                    format!(
                        "fallocate mode `{t}` is unknown; one of {}",
                        words.join(", ")
                    )
                })?;
                Op::Fallocate {
                    at,
                    mode,
                    offset: a.number("OFFSET")?,
                    len: a.number("LEN")?,
                }
            }
            "punch" => Op::Fallocate {
                at: self.target(a)?,
                mode: 3,
                offset: a.number("OFFSET")?,
                len: a.number("LEN")?,
            },
            "read" => Op::Read {
                at: self.target(a)?,
                offset: a.number("OFFSET")?,
                len: a.number("LEN")?,
            },
            "fsync" => Op::Fsync {
                at: self.target(a)?,
            },
            "fdatasync" => Op::Fdatasync {
                at: self.target(a)?,
            },
            "stat" => Op::Stat {
                at: self.target(a)?,
            },
            "statx" => Op::Statx {
                at: self.target(a)?,
                mask: a.number32("MASK")?,
            },
            _ => return Ok(None),
        }))
    }

    fn attribute_op(word: &str, a: &mut Args<'_>) -> Result<Op, String> {
        Ok(match word {
            "sync" => Op::Sync,
            "chmod" => Op::Chmod {
                path: a.path("PATH")?,
                mode: a.mode(None)?,
            },
            "chown" => Op::Chown {
                path: a.path("PATH")?,
                uid: a.number32("UID")?,
                gid: a.number32("GID")?,
            },
            "utimes" => Op::Utimes {
                path: a.path("PATH")?,
                atime_ns: a.time("ATIME_NS")?,
                mtime_ns: a.time("MTIME_NS")?,
            },
            "setxattr" => Op::Setxattr {
                path: a.path("PATH")?,
                name: percent_decode(a.next("NAME")?),
                len: a.len()?,
                seed: a.number("SEED")?,
                flags: match a.maybe() {
                    None => 0,
                    Some("create") => 1,
                    Some("replace") => 2,
                    Some(t) => {
                        return Err(format!("setxattr flag `{t}` is unknown; create or replace"))
                    }
                },
            },
            "getxattr" => Op::Getxattr {
                path: a.path("PATH")?,
                name: percent_decode(a.next("NAME")?),
            },
            "removexattr" => Op::Removexattr {
                path: a.path("PATH")?,
                name: percent_decode(a.next("NAME")?),
            },
            "listxattr" => Op::Listxattr {
                path: a.path("PATH")?,
            },
            "readdir" => Op::Readdir {
                path: a.path("PATH")?,
            },
            "statfs" => Op::Statfs,
            "sleep" => Op::Sleep {
                ms: a.number("MS")?,
            },
            "dropcaches" => Op::Dropcaches,
            _ => return Err(format!("unknown operation `{word}`")),
        })
    }
}

fn mknod(a: &mut Args<'_>) -> Result<Op, String> {
    let path = a.path("PATH")?;
    let kind = match a.next("fifo|chr|blk|sock")? {
        "fifo" => 0o010_000,
        "chr" => 0o020_000,
        "blk" => 0o060_000,
        "sock" => 0o140_000,
        t => {
            return Err(format!(
                "mknod kind `{t}` is unknown; fifo, chr, blk or sock"
            ))
        }
    };
    let mode = kind | a.mode(None)?;
    let (major, minor) = if a.rest.is_empty() {
        (0, 0)
    } else {
        (a.number32("MAJOR")?, a.number32("MINOR")?)
    };
    Ok(Op::Mknod {
        path,
        mode,
        major,
        minor,
    })
}

/// Parses the comma list of open flags.
pub fn parse_open_flags(list: &str) -> Result<OpenFlags, String> {
    let mut f = OpenFlags::default();
    for word in list.split(',') {
        match word {
            "r" => f.read = true,
            "w" => f.write = true,
            "rw" => (f.read, f.write) = (true, true),
            "creat" => f.creat = true,
            "excl" => f.excl = true,
            "trunc" => f.trunc = true,
            "append" => f.append = true,
            "direct" => f.direct = true,
            "sync" => f.sync = true,
            "dsync" => f.dsync = true,
            "nofollow" => f.nofollow = true,
            "directory" => f.directory = true,
            _ => {
                return Err(format!(
                    "open flag `{word}` is unknown; r w rw creat excl trunc append direct sync \
                     dsync nofollow directory"
                ))
            }
        }
    }
    // open(2) without an access mode is O_RDONLY.
    if !f.write {
        f.read = true;
    }
    Ok(f)
}

fn nearest(word: &str) -> String {
    let best = USAGE.iter().map(|u| (edit_distance(word, u.0), u.0)).min();
    match best {
        Some((d, name)) if d <= 2 => format!("; did you mean `{name}`?"),
        _ => "; see `fsglass ops --help` for the list".to_string(),
    }
}

/// Levenshtein distance, for suggestions.
pub fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(text: &str) -> String {
        Script::parse(text).map_or_else(|e| e.to_string(), |_| "parsed".to_string())
    }

    #[test]
    fn a_script_with_every_word_parses() {
        let text = "# all\nmkdir a\nmkdir b 700\nrmdir b\ncreate a/f\nunlink x\nrename a/f g exchange\n\
            link g h\nsymlink ../x%20y s\nmknod p fifo 644\nmknod c chr 600 1 3\nopen h g r,direct\n\
            close h\npwrite g 0x10 5 7\nappend @h 5 7\ntruncate g 9\nfallocate g zero_keep 0 4096\n\
            punch g 0 1\nread @h 0 9\nfsync g\nfdatasync @h\nsync\nchmod g 4755\nchown g 1 2\n\
            utimes g -5 3140382437982676912\nsetxattr g user.k 5 1 create\ngetxattr g user.k\n\
            removexattr g user.k\nlistxattr g\nstat @h\nstatx g 0x7ff\nreaddir /\nstatfs\nsleep 5\ndropcaches\n";
        let s = Script::parse(text).map_err(|e| e.to_string());
        assert_eq!(s.as_ref().map(|s| s.ops.len()), Ok(34));
        let s = s.unwrap();
        assert_eq!(s.ops[0].line, 2);
        assert_eq!(
            s.ops[7].op,
            Op::Symlink {
                target: b"../x y".to_vec(),
                path: b"s".to_vec()
            }
        );
        assert_eq!(s.ops[30].op, Op::Readdir { path: vec![] });
        assert_eq!(s.descriptors, ["h"]);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        assert_eq!(
            reason("\nmkdri a"),
            "line 2: unknown operation `mkdri`; did you mean `mkdir`?"
        );
        assert_eq!(
            reason("pwrite f 0 x 1"),
            "line 1: LEN `x` is not a number (decimal or 0x..)"
        );
        assert_eq!(
            reason("rmdir"),
            "line 1: `rmdir` needs PATH; usage: rmdir PATH"
        );
        assert_eq!(reason("sync now"), "line 1: `now` is too much; usage: sync");
        assert_eq!(
            reason("close h"),
            "line 1: no descriptor `h` was opened before"
        );
        assert!(reason("chmod f 8").contains("not octal"));
        assert!(reason("open h f rx").contains("open flag `rx`"));
        assert!(reason("fallocate f slide 0 1").contains("one of alloc, keep"));
    }

    #[test]
    fn percent_coding_round_trips() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(percent_decode(&percent_encode(&all)), all);
        assert_eq!(percent_encode(b"/sp ace%"), "/sp%20ace%25");
    }
}
