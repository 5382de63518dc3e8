//! The arguments of every subcommand.

use clap::{Args, Parser, Subcommand};
use fsglass::block::Fault;

/// A real ext4 and JBD2 over a simulated device, in deterministic virtual time.
#[derive(Parser)]
#[command(name = "fsglass", version, disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Make a file system in a sparse image file
    Mkfs(MkfsArgs),
    /// Run an operation script and record results and the final tree
    Ops(OpsArgs),
    /// Run a scenario in virtual time and count its I/O
    Trace(TraceArgs),
    /// Run an operation script and write the ordered write log of the device
    Wlog(WlogArgs),
    /// Run an experiment (TOML, a fio job file, PostMark commands or an operation script) and print the report
    Run(RunArgs),
    /// Cut the power during an experiment
    Crash(CrashArgs),
    /// Replay the journal and the orphan list of an image, step by step
    Recover(RecoverArgs),
    /// Check an image without changing it
    Fsck(FsckArgs),
    /// Decode a structure of an image
    Dump(DumpArgs),
    /// List a directory of an image
    Ls(LsArgs),
    /// Write a file of an image to standard output
    Cat(CatArgs),
}

/// `mkfs`
#[derive(Args)]
pub(crate) struct MkfsArgs {
    /// Image file to write
    pub(crate) image: String,
    /// Size: 64M, 1G, 16T (binary; 1 MiB to 16 TiB)
    #[arg(long)]
    pub(crate) size: String,
    /// File system
    #[arg(long, default_value = "ext4")]
    pub(crate) fs: String,
    /// Options as mke2fs spells them
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    pub(crate) mkfs_opts: String,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `ops`
#[derive(Args)]
pub(crate) struct OpsArgs {
    /// Operation script, - for standard input
    pub(crate) script: String,
    /// Image file: made anew, or used as it is with --no-mkfs
    #[arg(long)]
    pub(crate) image: String,
    /// File system
    #[arg(long, default_value = "ext4")]
    pub(crate) fs: String,
    /// Size in MiB
    #[arg(long, default_value_t = 64)]
    pub(crate) size: u64,
    /// Options as mke2fs spells them; replaces the default ones
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) mkfs_opts: Option<String>,
    /// Options as mount -o spells them
    #[arg(long)]
    pub(crate) mount_opts: Option<String>,
    /// Use the image as it is
    #[arg(long)]
    pub(crate) no_mkfs: bool,
    /// Seed of the run
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Let a request of the device fail, mount included: OPERATION@N (read, write, flush, zeroes, discard, any),
    /// OPERATION@N+ for all from there on, :FIRST-LAST for these sectors only; may be given more than once
    #[arg(long)]
    pub(crate) fault: Vec<Fault>,
    /// Result file, - for standard output
    #[arg(long, default_value = "-")]
    pub(crate) out: String,
}

/// `trace`
#[derive(Args)]
pub(crate) struct TraceArgs {
    /// Scenario file (JSON), - for standard input
    pub(crate) scenario: String,
    /// Seed of the run
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Result file, - for standard output
    #[arg(long, default_value = "-")]
    pub(crate) out: String,
}

/// `wlog`
#[derive(Args)]
pub(crate) struct WlogArgs {
    /// Operation script, - for standard input
    pub(crate) script: String,
    /// File system
    #[arg(long, default_value = "ext4")]
    pub(crate) fs: String,
    /// Size in MiB
    #[arg(long, default_value_t = 64)]
    pub(crate) size: u64,
    /// Options as mke2fs spells them; replaces the default ones
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) mkfs_opts: Option<String>,
    /// Options as mount -o spells them
    #[arg(long)]
    pub(crate) mount_opts: Option<String>,
    /// Which operations leave a mark in the log
    #[arg(long, default_value = "sync", value_parser = ["sync", "all"])]
    pub(crate) mark: String,
    /// Seed of the run
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Folder for base.img, log.dat, log.jsonl and summary.json
    #[arg(long)]
    pub(crate) out: String,
}

/// What names and changes an experiment.
#[derive(Args)]
pub(crate) struct ExperimentArgs {
    /// Experiment file: TOML, a fio job file, PostMark commands or an operation script; - for standard input
    pub(crate) experiment: String,
    /// Change a field: device=optane, mount.data=journal, mkfs.opts="-J size=128"
    #[arg(long = "set", value_name = "PATH=VALUE", allow_hyphen_values = true)]
    pub(crate) set: Vec<String>,
    /// Value of ${NAME} in a fio job file
    #[arg(long = "var", value_name = "NAME=VALUE")]
    pub(crate) var: Vec<String>,
    /// Seed of the run
    #[arg(long)]
    pub(crate) seed: Option<u64>,
}

/// `run`
#[derive(Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) experiment: ExperimentArgs,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the image after the clean unmount
    #[arg(long)]
    pub(crate) image: Option<String>,
}

/// `crash`
#[derive(Args)]
pub(crate) struct CrashArgs {
    #[command(flatten)]
    pub(crate) experiment: ExperimentArgs,
    /// Instant of the power cut: 6.1s, 250ms
    #[arg(long, conflicts_with = "record")]
    pub(crate) at: Option<String>,
    /// Cut after this record of the device log
    #[arg(long)]
    pub(crate) record: Option<u64>,
    /// What the volatile cache loses: none, all, seed=N, keep=RECORD,RECORD..
    #[arg(long, default_value = "all")]
    pub(crate) loss: String,
    /// Image file to write; its manifest goes to the same name with .sha256 and .json
    #[arg(long)]
    pub(crate) image: Option<String>,
    /// Try all states that a power cut can leave at the instant, or without one at all instants; each is recovered,
    /// checked and held against the promises made
    #[arg(long, conflicts_with_all = ["image", "loss"])]
    pub(crate) explore: bool,
    /// Most states to try; where there are more, a sample of them
    #[arg(long, default_value_t = 4096, requires = "explore", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `recover`
#[derive(Args)]
pub(crate) struct RecoverArgs {
    /// Image file
    pub(crate) image: String,
    /// Write the recovered image here; without it the image itself is changed
    #[arg(long)]
    pub(crate) out: Option<String>,
    /// Device of an external journal
    #[arg(long)]
    pub(crate) journal: Option<String>,
    /// Print the steps as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `fsck`
#[derive(Args)]
pub(crate) struct FsckArgs {
    /// Image file
    pub(crate) image: String,
    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `dump`
#[derive(Args)]
pub(crate) struct DumpArgs {
    /// Image file
    pub(crate) image: String,
    /// super, group, inode, extents, dir, journal, block or path
    #[arg(value_parser = ["super", "group", "inode", "extents", "dir", "journal", "block", "path"])]
    pub(crate) what: String,
    /// Number of the group, inode or block, or the path
    pub(crate) which: Option<String>,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `ls`
#[derive(Args)]
pub(crate) struct LsArgs {
    /// Image file
    pub(crate) image: String,
    /// Path within the image
    #[arg(default_value = "/")]
    pub(crate) path: String,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `cat`
#[derive(Args)]
pub(crate) struct CatArgs {
    /// Image file
    pub(crate) image: String,
    /// Path within the image
    pub(crate) path: String,
    /// Output file, - for standard output
    #[arg(long, default_value = "-")]
    pub(crate) out: String,
}
