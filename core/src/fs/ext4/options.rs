//! Mount options of ext4, spelled as the kernel spells them (`Documentation/admin-guide/ext4.rst`).
//!
//! Knows nothing of the mounted file system: [`MountOptions::parse`] only turns text into values;
//! `super` applies what depends on the image. Invariant: an unknown option or a bad value is an error
//! that names it.

use crate::base::Nanos;

/// `data=`: what happens to file contents with respect to the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataMode {
    /// `data=ordered`: new blocks' contents reach the disk before the commit that exposes them.
    #[default]
    Ordered,
    /// `data=writeback`: no order.
    Writeback,
    /// `data=journal`: contents go through the journal.
    Journal,
}

/// `errors=`: reaction to a damaged structure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorsPolicy {
    /// Mark the file system and go on.
    #[default]
    Continue,
    /// Become read-only.
    RemountRo,
    /// Stop the machine (here: the mount is dead and every later call fails).
    Panic,
}

/// How `i_version` changes (an experiment of the simulator; the kernel has only its own default).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IVersionMode {
    /// Linux 4.16 and later: increased only when someone has queried it.
    #[default]
    Lazy,
    /// Linux before 4.16 with `-o i_version`: increased by each change, and each change dirties the inode.
    Unconditional,
    /// Never increased.
    Off,
}

/// Access-time policy of the mount (a VFS mount flag).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtimeMode {
    /// `relatime` (default).
    #[default]
    Relative,
    /// `strictatime`.
    Strict,
    /// `noatime`.
    Never,
}

/// All options of one mount. `Default` is what the kernel takes for an image without stored defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Mounted read-only (`ro`).
    pub read_only: bool,
    /// `data=`; `None`: not given (ordered, or what the superblock's default mount options say).
    pub data_mode: Option<DataMode>,
    /// `barrier` / `nobarrier`.
    pub barrier: bool,
    /// `commit=`: the journal's commit interval.
    pub commit_interval: Nanos,
    /// `init_itable` / `noinit_itable`: run the lazy inode table initialisation.
    pub init_itable: bool,
    /// `init_itable=n`: wait multiplier.
    pub li_wait_mult: u32,
    /// `delalloc` / `nodelalloc`; `None`: not given (on where possible).
    pub delalloc: Option<bool>,
    /// `auto_da_alloc` / `noauto_da_alloc`.
    pub auto_da_alloc: bool,
    /// `dioread_nolock` (default) / `dioread_lock`.
    pub dioread_nolock: bool,
    /// `journal_checksum`.
    pub journal_checksum: bool,
    /// `journal_async_commit`.
    pub journal_async_commit: bool,
    /// `data_err=abort`.
    pub data_err_abort: bool,
    /// `errors=`; `None`: what the superblock says.
    pub errors: Option<ErrorsPolicy>,
    /// `stripe=`, in blocks; 0 none; `None`: from the superblock.
    pub stripe: Option<u32>,
    /// `max_batch_time=` in microseconds.
    pub max_batch_time_us: u32,
    /// `min_batch_time=` in microseconds.
    pub min_batch_time_us: u32,
    /// `discard`.
    pub discard: bool,
    /// `noload` / `norecovery`.
    pub noload: bool,
    /// `lazytime`.
    pub lazytime: bool,
    /// `noatime`, `relatime`, `strictatime`.
    pub atime: AtimeMode,
    /// `nodiratime`.
    pub nodiratime: bool,
    /// Experiment switch, see [`IVersionMode`].
    pub iversion: IVersionMode,
    /// `acl` / `noacl`; `None`: the superblock's default.
    pub acl: Option<bool>,
    /// `user_xattr` / `nouser_xattr`; `None`: the superblock's default.
    pub user_xattr: Option<bool>,
    /// `sb=`: superblock number to use, in units of 1 KiB.
    pub sb_block: u64,
    /// `resuid=`; `None`: from the superblock.
    pub resuid: Option<u32>,
    /// `resgid=`; `None`: from the superblock.
    pub resgid: Option<u32>,
    /// `grpid` / `bsdgroups`.
    pub grpid: bool,
    /// `inode_readahead_blks=`.
    pub inode_readahead_blks: u32,
    /// `max_dir_size_kb=`; 0 means no limit.
    pub max_dir_size_kb: u32,
    /// `mb_optimize_scan=`; `None`: by the number of groups.
    pub mb_optimize_scan: Option<bool>,
    /// `block_validity` / `noblock_validity`.
    pub block_validity: bool,
    /// `no_prefetch_block_bitmaps` turns this off.
    pub prefetch_block_bitmaps: bool,
    /// `minixdf`: statfs counts overhead as space.
    pub minixdf: bool,
    /// `nombcache`: no sharing of xattr blocks.
    pub mbcache: bool,
    /// `max_transaction_divisor=`: simulator switch, 3 (6.11 and later) or 4.
    pub max_transaction_divisor: u32,
    /// `journal_ioprio=`.
    pub journal_ioprio: u32,
    /// `nouid32`.
    pub uid32: bool,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            read_only: false,
            data_mode: None,
            barrier: true,
            commit_interval: Nanos::from_secs(5),
            init_itable: true,
            li_wait_mult: 10,
            delalloc: None,
            auto_da_alloc: true,
            dioread_nolock: true,
            journal_checksum: false,
            journal_async_commit: false,
            data_err_abort: false,
            errors: None,
            stripe: None,
            max_batch_time_us: 15_000,
            min_batch_time_us: 0,
            discard: false,
            noload: false,
            lazytime: false,
            atime: AtimeMode::Relative,
            nodiratime: false,
            iversion: IVersionMode::Lazy,
            acl: None,
            user_xattr: None,
            sb_block: 1,
            resuid: None,
            resgid: None,
            grpid: false,
            inode_readahead_blks: 32,
            max_dir_size_kb: 0,
            mb_optimize_scan: None,
            block_validity: true,
            prefetch_block_bitmaps: true,
            minixdf: false,
            mbcache: true,
            max_transaction_divisor: 3,
            journal_ioprio: 3,
            uid32: true,
        }
    }
}

fn number(name: &str, value: Option<&str>) -> Result<u64, String> {
    let v = value.ok_or_else(|| format!("mount option '{name}' needs a number"))?;
    let parsed = match v.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => v.parse(),
    };
    parsed.map_err(|_| format!("mount option '{name}': '{v}' is not a number"))
}

fn number32(name: &str, value: Option<&str>) -> Result<u32, String> {
    let n = number(name, value)?;
    u32::try_from(n).map_err(|_| format!("mount option '{name}': {n} is too large"))
}

fn bad_value(name: &str, value: Option<&str>) -> String {
    format!(
        "mount option '{name}': '{}' is not a valid value",
        value.unwrap_or("")
    )
}

impl MountOptions {
    /// Parses a comma list over the defaults.
    pub fn parse(text: &str) -> Result<MountOptions, String> {
        let mut o = MountOptions::default();
        o.apply(text)?;
        Ok(o)
    }

    /// Applies a comma list over the present values (remount).
    pub fn apply(&mut self, text: &str) -> Result<(), String> {
        for word in text.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            let (name, value) = match word.split_once('=') {
                Some((n, v)) => (n, Some(v)),
                None => (word, None),
            };
            let known = self.apply_flag(name, value) || self.apply_value(name, value)?;
            if !known {
                return Err(format!("unknown mount option '{word}'"));
            }
        }
        Ok(())
    }

    /// Options without a value; false: not one of these.
    fn apply_flag(&mut self, name: &str, value: Option<&str>) -> bool {
        if value.is_some() {
            return false;
        }
        match name {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "barrier" => self.barrier = true,
            "nobarrier" => self.barrier = false,
            "init_itable" => (self.init_itable, self.li_wait_mult) = (true, 10),
            "noinit_itable" => self.init_itable = false,
            "delalloc" => self.delalloc = Some(true),
            "nodelalloc" => self.delalloc = Some(false),
            "auto_da_alloc" => self.auto_da_alloc = true,
            "noauto_da_alloc" => self.auto_da_alloc = false,
            "dioread_nolock" | "nodioread_lock" => self.dioread_nolock = true,
            "dioread_lock" | "nodioread_nolock" => self.dioread_nolock = false,
            "journal_checksum" => self.journal_checksum = true,
            "nojournal_checksum" => self.journal_checksum = false,
            "journal_async_commit" => {
                self.journal_async_commit = true;
                self.journal_checksum = true;
            }
            "discard" => self.discard = true,
            "nodiscard" => self.discard = false,
            "noload" | "norecovery" => self.noload = true,
            "lazytime" => self.lazytime = true,
            "nolazytime" => self.lazytime = false,
            "noatime" => self.atime = AtimeMode::Never,
            "relatime" | "atime" => self.atime = AtimeMode::Relative,
            "strictatime" => self.atime = AtimeMode::Strict,
            "nodiratime" => self.nodiratime = true,
            "diratime" => self.nodiratime = false,
            "acl" => self.acl = Some(true),
            "noacl" => self.acl = Some(false),
            "user_xattr" => self.user_xattr = Some(true),
            "nouser_xattr" => self.user_xattr = Some(false),
            "grpid" | "bsdgroups" => self.grpid = true,
            "nogrpid" | "sysvgroups" => self.grpid = false,
            "mb_optimize_scan" => self.mb_optimize_scan = Some(true),
            "block_validity" => self.block_validity = true,
            "noblock_validity" => self.block_validity = false,
            "no_prefetch_block_bitmaps" => self.prefetch_block_bitmaps = false,
            "prefetch_block_bitmaps" => self.prefetch_block_bitmaps = true,
            "minixdf" => self.minixdf = true,
            "bsddf" => self.minixdf = false,
            "nombcache" | "no_mbcache" => self.mbcache = false,
            "nouid32" => self.uid32 = false,
            _ => return ignored_flag(name),
        }
        true
    }

    /// Options with a value. `Ok(false)`: not one of these.
    fn apply_value(&mut self, name: &str, value: Option<&str>) -> Result<bool, String> {
        match name {
            "data" | "errors" | "data_err" | "iversion_mode" => {
                return self.apply_choice(name, value)
            }
            "barrier" => self.barrier = number(name, value)? != 0,
            "commit" => self.commit_interval = commit_interval(number32(name, value)?)?,
            "init_itable" => {
                self.init_itable = true;
                self.li_wait_mult = number32(name, value)?;
            }
            "auto_da_alloc" => self.auto_da_alloc = number(name, value)? != 0,
            "stripe" => self.stripe = Some(number32(name, value)?),
            "max_batch_time" => self.max_batch_time_us = number32(name, value)?,
            "min_batch_time" => self.min_batch_time_us = number32(name, value)?,
            "sb" => self.sb_block = number(name, value)?,
            "resuid" => self.resuid = Some(number32(name, value)?),
            "resgid" => self.resgid = Some(number32(name, value)?),
            "inode_readahead_blks" => {
                let n = number32(name, value)?;
                if n > 1 << 30 || (n != 0 && !n.is_power_of_two()) {
                    return Err(format!(
                        "mount option '{name}': {n} is not 0 or a power of 2"
                    ));
                }
                self.inode_readahead_blks = n;
            }
            "max_dir_size_kb" => self.max_dir_size_kb = number32(name, value)?,
            "mb_optimize_scan" => match number(name, value)? {
                n @ (0 | 1) => self.mb_optimize_scan = Some(n == 1),
                _ => return Err(bad_value(name, value)),
            },
            "journal_ioprio" => {
                let n = number32(name, value)?;
                if n > 7 {
                    return Err(format!("mount option '{name}': {n} is not in 0..7"));
                }
                self.journal_ioprio = n;
            }
            "max_transaction_divisor" => match number32(name, value)? {
                n @ (3 | 4) => self.max_transaction_divisor = n,
                _ => return Err(bad_value(name, value)),
            },
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn apply_choice(&mut self, name: &str, value: Option<&str>) -> Result<bool, String> {
        match (name, value) {
            ("data", Some("ordered")) => self.data_mode = Some(DataMode::Ordered),
            ("data", Some("writeback")) => self.data_mode = Some(DataMode::Writeback),
            ("data", Some("journal")) => self.data_mode = Some(DataMode::Journal),
            ("errors", Some("continue")) => self.errors = Some(ErrorsPolicy::Continue),
            ("errors", Some("remount-ro")) => self.errors = Some(ErrorsPolicy::RemountRo),
            ("errors", Some("panic")) => self.errors = Some(ErrorsPolicy::Panic),
            ("data_err", Some("abort")) => self.data_err_abort = true,
            ("data_err", Some("ignore")) => self.data_err_abort = false,
            ("iversion_mode", Some("lazy")) => self.iversion = IVersionMode::Lazy,
            ("iversion_mode", Some("unconditional")) => self.iversion = IVersionMode::Unconditional,
            ("iversion_mode", Some("off")) => self.iversion = IVersionMode::Off,
            _ => return Err(bad_value(name, value)),
        }
        Ok(true)
    }
}

/// `commit=` seconds; 0 is the default of 5 s.
fn commit_interval(secs: u32) -> Result<Nanos, String> {
    match secs {
        0 => Ok(Nanos::from_secs(5)),
        1..=21_474_836 => Ok(Nanos::from_secs(u64::from(secs))),
        _ => Err(format!("mount option 'commit': {secs} is too large")),
    }
}

/// Accepted and without effect, here or in the kernel (removed options, VFS flags, debug switches).
fn ignored_flag(name: &str) -> bool {
    matches!(
        name,
        "defaults"
            | "suid"
            | "nosuid"
            | "dev"
            | "nodev"
            | "exec"
            | "noexec"
            | "sync"
            | "async"
            | "dirsync"
            | "iversion"
            | "noiversion"
            | "i_version"
            | "oldalloc"
            | "orlov"
            | "debug"
            | "nobh"
            | "bh"
            | "nocheck"
            | "noreservation"
            | "reservation"
            | "warn_on_error"
            | "nowarn_on_error"
            | "silent"
            | "loud"
            | "noquota"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_the_kernel_parses() {
        let o = MountOptions::parse(
            "ro,data=journal,barrier=0,commit=30,init_itable=3,nodelalloc,errors=remount-ro,stripe=16",
        )
        .expect("all known");
        assert!(o.read_only && !o.barrier);
        assert_eq!(o.data_mode, Some(DataMode::Journal));
        assert_eq!(o.commit_interval, Nanos::from_secs(30));
        assert_eq!((o.init_itable, o.li_wait_mult), (true, 3));
        assert_eq!(o.delalloc, Some(false));
        assert_eq!(o.errors, Some(ErrorsPolicy::RemountRo));
        assert_eq!(o.stripe, Some(16));
    }

    #[test]
    fn names_what_it_does_not_know() {
        for (text, word) in [
            ("rw,frobnicate", "frobnicate"),
            ("commit=soon", "soon"),
            ("data=fast", "fast"),
            ("stripe", "stripe"),
            ("inode_readahead_blks=3", "inode_readahead_blks"),
        ] {
            let e = MountOptions::parse(text).expect_err(text);
            assert!(e.contains(word), "{e}");
        }
    }
}
