//! What the page and the command line are told: plain values in the vocabulary of the screen.
//!
//! Every answer stands alone: it names the run and the instant that it describes. The page never asks for events
//! that it can't draw: windows come with a number of columns, maps with a number of tiles.

use serde::{Deserialize, Serialize};

/// Roles of a block, in the order of the legend and of `Tile::by_role`.
pub const ROLES: [&str; 7] = [
    "free",
    "fixed",
    "bitmap",
    "inode table",
    "directory or tree",
    "journal",
    "file data",
];

/// Where the newest version of a block is. Order is that of the codes in `GroupMap::durability`.
pub const DURABILITY: [&str; 6] = [
    "durable",
    "page cache only",
    "in the device queue",
    "in the device cache",
    "in the journal only",
    "never written",
];

/// Verdicts over one path after a power cut, best first; the index is the code in `Survivor::verdict`.
pub const VERDICTS: [&str; 7] = [
    "intact",
    "older version",
    "shorter",
    "zero-filled",
    "stale data exposed",
    "missing",
    "structure damaged",
];

/// Rows of the latency heat map per decade, and the decades from 1 µs to 10 s.
pub const HEAT_PER_DECADE: usize = 10;
/// Decades of the heat map's latency axis.
pub const HEAT_DECADES: usize = 7;
/// Rows of the heat map.
pub const HEAT_ROWS: usize = HEAT_PER_DECADE * HEAT_DECADES;

/// An experiment as a person types it: every field is text in its own tool's spelling.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Experiment {
    /// Scene or title.
    pub title: String,
    /// Device preset and overrides, `sata-ssd,cache=32M`.
    pub device: String,
    /// Device size, `1G`.
    pub size: String,
    /// Options of mke2fs, `-b 4096 -J size=64`.
    pub mkfs: String,
    /// Mount options, `data=journal,commit=30`.
    pub mount: String,
    /// `fio`, `ops` or `postmark`.
    pub kind: String,
    /// A fio job file or an operation script.
    pub workload: String,
    /// Seed of every random stream.
    pub seed: u64,
    /// How long virtual time goes on at least, ns; 0 is "until the workload ends".
    pub until_ns: u64,
}

/// One thing that is wrong with an experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Field: `device`, `mkfs`, `mount`, `workload`, ...
    pub path: String,
    /// Line in the workload, from 1; 0 where it has none.
    pub line: u32,
    /// What is wrong and what would be right.
    pub reason: String,
}

/// What a loaded experiment is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loaded {
    /// The equivalent mkfs command.
    pub mkfs_line: String,
    /// The equivalent mount command.
    pub mount_line: String,
    /// Doubts about the experiment, each a sentence.
    pub warnings: Vec<String>,
    /// Bytes per block.
    pub block_size: u32,
    /// Blocks of the file system.
    pub blocks: u64,
    /// Block groups.
    pub groups: u32,
    /// Blocks per group.
    pub blocks_per_group: u32,
    /// Inodes per group.
    pub inodes_per_group: u32,
    /// Blocks of the journal, 0 without one.
    pub journal_blocks: u32,
    /// Feature names as dumpe2fs prints them.
    pub features: Vec<String>,
}

/// A thing that can be selected everywhere at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Selection {
    /// A block of the file system.
    Block(u64),
    /// An inode.
    Inode(u32),
    /// A block group.
    Group(u32),
    /// A journal transaction.
    Tid(u32),
    /// A block of the journal, by its number in the log.
    JournalBlock(u32),
    /// The superblock.
    Super,
    /// A path.
    Path(String),
}

/// What survives of the device's volatile cache in a power cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LossModel {
    /// Everything that was only in the cache is lost.
    AllLost,
    /// Everything reached the medium.
    AllKept,
    /// A seeded choice.
    Seed(u64),
}

/// A unit of stepping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepUnit {
    /// Any event.
    Event,
    /// A device request.
    Io,
    /// A system call of the workload.
    Syscall,
    /// A commit of the journal.
    Commit,
    /// A checkpoint.
    Checkpoint,
}

/// A window of time in a number of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// First instant, ns.
    pub from_ns: u64,
    /// End, ns, not included.
    pub to_ns: u64,
    /// Columns.
    pub columns: u32,
}

/// What the page wants to see of one instant. Each part that is asked for comes back in the same `Frame`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameAsk {
    /// The instant, ns.
    pub at_ns: u64,
    /// Map level 0: first group, groups, most tiles.
    pub map: Option<(u32, u32, u32)>,
    /// Map level 1 of this group.
    pub group: Option<u32>,
    /// The journal.
    pub journal: bool,
    /// Blocks of this transaction in the journal.
    pub tid: Option<u32>,
    /// Inode tables.
    pub itable: bool,
    /// Throughput and latency.
    pub metrics: Option<Window>,
    /// Marks under the scrubber.
    pub marks: Option<Window>,
    /// Report in fio's layout and ledger.
    pub report: bool,
    /// The file tree.
    pub tree: bool,
    /// If the power failed now.
    pub loss: bool,
    /// Sentences: before and after the instant.
    pub log: Option<(u32, u32)>,
    /// A structure.
    pub inspect: Option<Selection>,
}

/// The answer to a `FrameAsk`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// Instant that this describes, ns.
    pub at_ns: u64,
    /// Map level 0.
    pub map: Option<Vec<Tile>>,
    /// Map level 1.
    pub group: Option<GroupMap>,
    /// The journal; `None` inside when there is none.
    pub journal: Option<Journal>,
    /// Blocks of the asked transaction.
    pub tid_blocks: Option<Vec<JournalBlock>>,
    /// Inode tables.
    pub itable: Option<ItableMap>,
    /// Throughput and latency.
    pub metrics: Option<Metrics>,
    /// Scrubber marks.
    pub marks: Option<Marks>,
    /// Report.
    pub report: Option<Report>,
    /// Files.
    pub tree: Option<Vec<TreeRow>>,
    /// Loss meter.
    pub loss: Option<Loss>,
    /// Sentences.
    pub log: Option<Vec<LogLine>>,
    /// Structure.
    pub inspect: Option<Inspect>,
}

/// One tile of map level 0: one or more whole groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tile {
    /// First group.
    pub first_group: u32,
    /// Groups in it.
    pub groups: u32,
    /// Blocks by role, in the order of `ROLES`.
    pub by_role: [u32; 7],
    /// Blocks by durability, in the order of `DURABILITY`.
    pub by_durability: [u32; 6],
    /// Free inodes.
    pub free_inodes: u32,
    /// `bg_flags`: 1 `INODE_UNINIT`, 2 `BLOCK_UNINIT`, 4 `INODE_ZEROED`; 128 descriptor checksum mismatch.
    pub flags: u8,
    /// Last write to the device inside, ns; 0 for none.
    pub last_write_ns: u64,
}

/// Map level 1: one group, a byte per block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMap {
    /// Group.
    pub group: u32,
    /// Its first block.
    pub first_block: u64,
    /// Role per block.
    #[serde(with = "serde_bytes")]
    pub role: Vec<u8>,
    /// Durability per block.
    #[serde(with = "serde_bytes")]
    pub durability: Vec<u8>,
    /// The latest writes: block in the group and when.
    pub recent: Vec<(u32, u64)>,
}

/// State of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TxState {
    /// Takes handles.
    #[default]
    Running,
    /// Waits for its handles to end.
    Locked,
    /// Writes its ordered data.
    Flush,
    /// Writes its blocks into the log.
    Commit,
    /// Committed, its blocks are not yet home.
    Committed,
    /// Being written home.
    Checkpointing,
}

impl TxState {
    /// Name on the screen.
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Locked => "locked",
            Self::Flush => "flushing data",
            Self::Commit => "committing",
            Self::Committed => "committed",
            Self::Checkpointing => "checkpointing",
        }
    }
}

/// The journal at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// Whether there is one.
    pub present: bool,
    /// Blocks of the log.
    pub blocks: u32,
    /// First block after the superblock, `s_first`.
    pub first: u32,
    /// Next free block.
    pub head: u32,
    /// Oldest block that recovery needs.
    pub tail: u32,
    /// Transaction at the tail.
    pub tail_tid: u32,
    /// Free blocks.
    pub free: u32,
    /// Next timed commit, ns from now; `None` with no running transaction.
    pub next_commit_ns: Option<u64>,
    /// The running transaction.
    pub running: Option<Running>,
    /// Transactions in the log, oldest first.
    pub transactions: Vec<Transaction>,
}

/// The running transaction: it is in memory, not in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Transaction id.
    pub tid: u32,
    /// Credits reserved.
    pub credits: u32,
    /// Buffers joined.
    pub blocks: u32,
    /// Age, ns.
    pub age_ns: u64,
    /// State.
    pub state: TxState,
}

/// A transaction in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transaction {
    /// Transaction id.
    pub tid: u32,
    /// State.
    pub state: TxState,
    /// First block in the log.
    pub start: u32,
    /// Blocks in the log.
    pub blocks: u32,
    /// Descriptor blocks.
    pub descriptors: u32,
    /// Revoke blocks.
    pub revokes: u32,
    /// Metadata copies.
    pub metadata: u32,
    /// File data copies.
    pub data_blocks: u32,
    /// Commit asked for, ns; 0 for not.
    pub requested_ns: u64,
    /// Commit block durable, ns; 0 for not.
    pub committed_ns: u64,
    /// All home, ns; 0 for not.
    pub checkpointed_ns: u64,
}

/// What a journal block is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum JournalKind {
    /// Descriptor.
    #[default]
    Descriptor,
    /// Copy of a metadata block.
    Metadata,
    /// Copy of file data.
    FileData,
    /// Revoke block.
    Revoke,
    /// Commit block.
    Commit,
}

/// One block in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalBlock {
    /// Number in the log.
    pub jblock: u32,
    /// Kind.
    pub kind: JournalKind,
    /// Home block of a copy.
    pub home: Option<u64>,
    /// Role of the home block, index in `ROLES`.
    pub role: u8,
    /// Escaped (began with the journal's magic number).
    pub escaped: bool,
    /// Checksum matches.
    pub csum_ok: bool,
}

/// Inode tables of all groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItableMap {
    /// Per group.
    pub rows: Vec<ItableRow>,
    /// The lazy init thread at work.
    pub pace: Pace,
}

/// How `ext4lazyinit` goes: it zeroes one table, then waits a multiple of the time that the first one took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pace {
    /// Latest bursts of zeroing, oldest first: start and length, ns.
    pub bursts: Vec<(u64, u64)>,
    /// What the wait is measured by: the first burst, ns; 0 before it is over.
    pub took_ns: u64,
    /// The wait after it, ns.
    pub wait_ns: u64,
    /// Groups that are not zeroed.
    pub left: u32,
}

/// One group's inode table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItableRow {
    /// Group.
    pub group: u32,
    /// Inodes of the table.
    pub inodes: u32,
    /// Used inodes.
    pub used: u32,
    /// `itable_unused`: inodes above the high-water mark.
    pub unused: u32,
    /// `bg_flags`.
    pub flags: u8,
    /// 0 garbage, 1 zeroed, 2 being zeroed.
    pub zeroed: u8,
}

/// Throughput and latency over a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Start of the window, ns.
    pub from_ns: u64,
    /// Width of a column, ns.
    pub column_ns: u64,
    /// Bytes that the application wrote or read, per column.
    pub app_bytes: Vec<u64>,
    /// Operations of the application, per column.
    pub app_ops: Vec<u64>,
    /// Bytes to and from the device, per column.
    pub device_bytes: Vec<u64>,
    /// Heat: `columns` times `HEAT_ROWS` counts, column by column, fastest row first.
    pub heat: Vec<u32>,
    /// Percentile and latency in ns.
    pub percentiles: Vec<(f64, u64)>,
    /// The slowest operations.
    pub slowest: Vec<SlowOp>,
}

/// A slow operation in ext4slower's columns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowOp {
    /// When it ended, ns.
    pub ns: u64,
    /// Task.
    pub comm: String,
    /// `R`, `W`, `S`, ...
    pub op: String,
    /// Bytes.
    pub bytes: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Latency, ns.
    pub latency_ns: u64,
    /// File.
    pub path: String,
}

/// What lies under the scrubber.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// Start, ns.
    pub from_ns: u64,
    /// End, ns.
    pub to_ns: u64,
    /// Operations per column.
    pub ops: Vec<u32>,
    /// Device writes per column.
    pub writes: Vec<u32>,
    /// Commits: when and which.
    pub commits: Vec<(u64, u32)>,
    /// Flushes.
    pub flushes: Vec<u64>,
    /// Checkpoints: from and to.
    pub checkpoints: Vec<(u64, u64)>,
}

/// The run so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// fio's own text; for a script, a table of its operations.
    pub text: String,
    /// Bytes by role, sums to the device's bytes.
    pub ledger: Vec<(String, u64)>,
    /// Bytes that the application wrote.
    pub app_bytes: u64,
    /// Bytes written to the device.
    pub device_bytes: u64,
    /// Bytes that are still to be written home.
    pub debt_bytes: u64,
    /// Flush requests.
    pub flushes: u64,
    /// Hash of device log and events.
    pub digest: String,
}

/// One path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeRow {
    /// Path from the root.
    pub path: String,
    /// `d`, `-`, `l`, ...
    pub kind: String,
    /// Inode.
    pub ino: u32,
    /// Size, bytes.
    pub size: u64,
    /// Blocks of the file system.
    pub blocks: u64,
    /// Weakest durability of name, inode and contents, index in `DURABILITY`.
    pub durability: u8,
    /// Why, one sentence.
    pub why: String,
    /// First block of its contents.
    pub first_block: Option<u64>,
}

/// "If the power failed now."
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Instant that this was worked out for, ns.
    pub as_of_ns: u64,
    /// Promises made so far.
    pub promises: u32,
    /// All of the device cache lost.
    pub worst: Outcome,
    /// All of it kept.
    pub best: Outcome,
}

/// What the states reachable by a power cut at one instant come to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Danger {
    /// Instant, ns.
    pub at_ns: u64,
    /// States looked at.
    pub states: u32,
    /// These are all that can be.
    pub exhaustive: bool,
    /// Of them: as the applications saw it; something lost or old without a promise broken; a promise broken.
    pub by_fate: [u32; 3],
}

/// Outcome of one power cut.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Broken promises.
    pub broken: u32,
    /// Files by verdict, in the order of `VERDICTS`.
    pub by_verdict: [u32; 7],
}

/// One event as a sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// When, ns.
    pub ns: u64,
    /// Family: `app`, `jbd2`, `device`, ...
    pub family: String,
    /// The sentence.
    pub sentence: String,
    /// Block that it names.
    pub block: Option<u64>,
    /// Transaction that it names.
    pub tid: Option<u32>,
}

/// A decoded structure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inspect {
    /// A sentence.
    pub title: String,
    /// Kernel name of the structure.
    pub structure: String,
    /// Byte order: `little`, `big` or empty.
    pub endian: String,
    /// Block shown.
    pub block: u64,
    /// Offset of the first byte shown in the block.
    pub offset: u32,
    /// Bytes.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
    /// Decoded fields.
    pub fields: Vec<Field>,
    /// Where it leads: label and target.
    pub links: Vec<(String, Selection)>,
    /// Life of the block, oldest first.
    pub biography: Vec<LogLine>,
}

/// A decoded field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Kernel name.
    pub name: String,
    /// Offset in `Inspect::bytes`.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
    /// Raw value.
    pub raw: String,
    /// Decoded value.
    pub value: String,
    /// Whether it is wrong (a checksum that does not match).
    pub bad: bool,
}

/// A power cut, its recovery and what is left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crash {
    /// When the power failed, ns.
    pub cut_ns: u64,
    /// Cached writes lost.
    pub lost: u32,
    /// Cached writes that reached the medium.
    pub kept: u32,
    /// Recovery, step by step.
    pub steps: Vec<RecoveryStep>,
    /// Whether the file system could be mounted again.
    pub recovered: bool,
    /// What fsck finds after recovery.
    pub fsck: Vec<String>,
    /// Files, broken promises first.
    pub survivors: Vec<Survivor>,
    /// The file tree after recovery.
    pub tree: Vec<TreeRow>,
}

/// One step of recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryStep {
    /// Pass: `PASS_SCAN`, ...
    pub title: String,
    /// What happened.
    pub sentence: String,
    /// Copies home: journal block and home block.
    pub copies: Vec<(u32, u64)>,
}

/// What became of one path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survivor {
    /// Path.
    pub path: String,
    /// What the application saw.
    pub saw: String,
    /// What it was promised; empty for nothing.
    pub promise: String,
    /// What is there after recovery.
    pub after: String,
    /// Index in `VERDICTS`.
    pub verdict: u8,
    /// Why.
    pub because: String,
    /// A block that explains it.
    pub block: Option<u64>,
    /// Whether a promise was broken.
    pub broken: bool,
}

/// Files to save: a name and bytes each, and the recipe that checks them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Export {
    /// Files to download.
    pub files: Vec<ExportFile>,
    /// Shell commands that verify them.
    pub recipe: String,
    /// What we predict.
    pub prediction: String,
}

/// A file to download.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportFile {
    /// Name.
    pub name: String,
    /// Contents.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

/// How far the run is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Virtual time reached, ns.
    pub reachable_ns: u64,
    /// Expected end, ns; 0 when it can't be known.
    pub end_ns: u64,
    /// Events so far.
    pub events: u64,
    /// Whether it goes on by itself.
    pub running: bool,
    /// Whether the workload is over.
    pub done: bool,
}

/// What a comparison measures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measure {
    /// Name, in fio's words where fio has one.
    pub name: String,
    /// `ns`, `bytes`, `/s`, `×`; empty for a plain count.
    pub unit: String,
    /// Counted by the core; otherwise it hangs on the device model.
    pub exact: bool,
}

/// One measure on both sides.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CompareRow {
    /// What is measured.
    pub measure: Measure,
    /// A's runs, in the order of the seeds.
    pub a: Vec<f64>,
    /// B's runs.
    pub b: Vec<f64>,
    /// Median of A.
    pub a_mid: f64,
    /// Median of B.
    pub b_mid: f64,
    /// Difference of the medians as a share of A's.
    pub change: f64,
    /// Widest difference between runs of one side, as a share of A's median.
    pub spread: f64,
    /// The medians are further apart than the runs of either side.
    pub real: bool,
}

/// Two settings over several seeds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Runs that are over.
    pub done: u32,
    /// Runs in all.
    pub total: u32,
    /// Share of the present run, 0 to 1.
    pub part: f64,
    /// A against A.
    pub noise: bool,
    /// Measures.
    pub rows: Vec<CompareRow>,
}
