//! Options of one fio job and how their text becomes values.

use crate::base::Nanos;
use crate::workload::size::{parse_number, parse_size, parse_time};

/// `rw=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "fio's own words")]
pub enum Pattern {
    #[default]
    Read,
    Write,
    RandRead,
    RandWrite,
    ReadWrite,
    RandRw,
}

impl Pattern {
    /// True for the `rand*` patterns.
    pub fn is_random(self) -> bool {
        matches!(
            self,
            Pattern::RandRead | Pattern::RandWrite | Pattern::RandRw
        )
    }

    /// True if the job reads.
    pub fn reads(self) -> bool {
        !matches!(self, Pattern::Write | Pattern::RandWrite)
    }

    /// True if the job writes.
    pub fn writes(self) -> bool {
        !matches!(self, Pattern::Read | Pattern::RandRead)
    }

    /// True if the job does both.
    pub fn mixed(self) -> bool {
        self.reads() && self.writes()
    }

    /// fio's word.
    pub fn word(self) -> &'static str {
        match self {
            Pattern::Read => "read",
            Pattern::Write => "write",
            Pattern::RandRead => "randread",
            Pattern::RandWrite => "randwrite",
            Pattern::ReadWrite => "rw",
            Pattern::RandRw => "randrw",
        }
    }
}

/// `ioengine=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "fio's own words")]
pub enum Engine {
    Sync,
    #[default]
    Psync,
    Libaio,
    IoUring,
}

impl Engine {
    /// True for engines whose calls do not wait for the I/O (`iodepth` counts).
    pub fn is_async(self) -> bool {
        matches!(self, Engine::Libaio | Engine::IoUring)
    }

    /// fio's word.
    pub fn word(self) -> &'static str {
        match self {
            Engine::Sync => "sync",
            Engine::Psync => "psync",
            Engine::Libaio => "libaio",
            Engine::IoUring => "io_uring",
        }
    }
}

/// `random_distribution=`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Distribution {
    /// Every block equally likely.
    #[default]
    Random,
    /// `zipf:theta`.
    Zipf(f64),
    /// `pareto:h`.
    Pareto(f64),
}

/// `fallocate=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "fio's own words")]
pub enum Fallocate {
    None,
    /// `native` and `posix`: fallocate(2) with mode 0.
    #[default]
    Native,
    Keep,
    Truncate,
}

/// `sync=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "fio's own words")]
pub enum SyncKind {
    #[default]
    None,
    Sync,
    Dsync,
}

/// One job (section) with all options resolved.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    missing_docs,
    reason = "the fields are fio's option names; units are bytes and nanoseconds"
)]
pub struct FioJob {
    /// What the report calls the job: the section, or what `name=` says.
    pub name: String,
    /// Head of the section; files are named after it whatever `name=` says.
    pub section: String,
    pub rw: Pattern,
    pub rwmixread: u32,
    pub bs_read: u64,
    pub bs_write: u64,
    pub size: u64,
    pub filesize: Option<u64>,
    pub io_size: Option<u64>,
    pub offset: u64,
    pub filename: Option<String>,
    pub direct: bool,
    pub sync: SyncKind,
    pub fsync: u32,
    pub fdatasync: u32,
    pub end_fsync: bool,
    pub fsync_on_close: bool,
    pub overwrite: bool,
    pub iodepth: u32,
    pub ioengine: Engine,
    pub numjobs: u32,
    pub rate: Option<u64>,
    pub rate_iops: Option<u64>,
    pub runtime: Option<Nanos>,
    pub time_based: bool,
    pub ramp_time: Nanos,
    pub startdelay: Nanos,
    pub thinktime: Nanos,
    pub thinktime_blocks: u32,
    pub randrepeat: bool,
    pub randseed: Option<u64>,
    pub norandommap: bool,
    pub random_distribution: Distribution,
    pub invalidate: bool,
    pub fallocate: Fallocate,
    pub percentile_list: Vec<f64>,
    pub stonewall: bool,
    pub group_reporting: bool,
    pub loops: u32,
    pub unlink: bool,
    /// The options as written, for the report's "job options".
    pub written: Vec<(String, String)>,
}

/// fio's default percentiles.
pub const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];

impl FioJob {
    /// A job with fio's defaults.
    pub fn new(name: &str) -> FioJob {
        FioJob {
            name: name.to_string(),
            section: name.to_string(),
            rw: Pattern::Read,
            rwmixread: 50,
            bs_read: 4096,
            bs_write: 4096,
            size: 0,
            filesize: None,
            io_size: None,
            offset: 0,
            filename: None,
            direct: false,
            sync: SyncKind::None,
            fsync: 0,
            fdatasync: 0,
            end_fsync: false,
            fsync_on_close: false,
            overwrite: false,
            iodepth: 1,
            ioengine: Engine::Psync,
            numjobs: 1,
            rate: None,
            rate_iops: None,
            runtime: None,
            time_based: false,
            ramp_time: Nanos::ZERO,
            startdelay: Nanos::ZERO,
            thinktime: Nanos::ZERO,
            thinktime_blocks: 1,
            randrepeat: true,
            randseed: None,
            norandommap: false,
            random_distribution: Distribution::Random,
            invalidate: true,
            fallocate: Fallocate::Native,
            percentile_list: PERCENTILES.to_vec(),
            stonewall: false,
            group_reporting: false,
            loops: 1,
            unlink: false,
            written: Vec::new(),
        }
    }

    /// Size of the file that the job works on.
    pub fn file_bytes(&self) -> u64 {
        self.filesize.unwrap_or(self.offset + self.size)
    }

    /// Sets one option from its text. `Ok(Some(note))` if it is accepted without effect in virtual time.
    pub fn set(&mut self, key: &str, value: Option<&str>) -> Result<Option<&'static str>, String> {
        let note = match self.set_io(key, value)? {
            Some(note) => note,
            None => match self.set_pace(key, value)? {
                Some(note) => note,
                None => self.set_files(key, value)?.ok_or_else(|| unknown(key))?,
            },
        };
        Ok(note)
    }

    fn set_io(&mut self, key: &str, v: Option<&str>) -> Result<Option<Note>, String> {
        match key {
            "rw" | "readwrite" => self.rw = pattern(text(key, v)?)?,
            "rwmixread" => self.rwmixread = percent(key, v)?,
            "rwmixwrite" => self.rwmixread = 100 - percent(key, v)?,
            "bs" | "blocksize" => (self.bs_read, self.bs_write) = block_sizes(key, v)?,
            "direct" => self.direct = flag(key, v)?,
            "buffered" => self.direct = !flag(key, v)?,
            "sync" => {
                self.sync = match text(key, v)? {
                    "0" | "none" => SyncKind::None,
                    "1" | "sync" => SyncKind::Sync,
                    "dsync" => SyncKind::Dsync,
                    t => return Err(format!("sync=`{t}`: none, sync or dsync")),
                }
            }
            "fsync" => self.fsync = count(key, v)?,
            "fdatasync" => self.fdatasync = count(key, v)?,
            "end_fsync" => self.end_fsync = flag(key, v)?,
            "fsync_on_close" => self.fsync_on_close = flag(key, v)?,
            "overwrite" => self.overwrite = flag(key, v)?,
            "iodepth" => self.iodepth = count(key, v)?.clamp(1, 4096),
            "ioengine" => {
                self.ioengine = match text(key, v)? {
                    "sync" => Engine::Sync,
                    "psync" | "pvsync" | "pvsync2" | "vsync" => Engine::Psync,
                    "libaio" => Engine::Libaio,
                    "io_uring" => Engine::IoUring,
                    t => {
                        return Err(format!(
                            "ioengine `{t}` is not supported; sync, psync, libaio or io_uring"
                        ))
                    }
                }
            }
            "random_distribution" => self.random_distribution = distribution(text(key, v)?)?,
            "norandommap" => self.norandommap = flag(key, v)?,
            "randrepeat" | "allrandrepeat" => self.randrepeat = flag(key, v)?,
            "randseed" => self.randseed = Some(number(key, v)?),
            "percentile_list" => self.percentile_list = percentiles(text(key, v)?)?,
            _ => return Ok(None),
        }
        Ok(Some(None))
    }

    fn set_pace(&mut self, key: &str, v: Option<&str>) -> Result<Option<Note>, String> {
        let second = Nanos::from_secs(1);
        match key {
            "rate" => self.rate = Some(size(key, v)?),
            "rate_iops" => self.rate_iops = Some(number(key, v)?),
            "runtime" => self.runtime = Some(time(key, v, second)?),
            "time_based" => self.time_based = flag(key, v)?,
            "ramp_time" => self.ramp_time = time(key, v, second)?,
            "startdelay" => self.startdelay = time(key, v, second)?,
            "thinktime" => self.thinktime = time(key, v, Nanos::from_us(1))?,
            "thinktime_blocks" => self.thinktime_blocks = count(key, v)?.max(1),
            "stonewall" | "wait_for_previous" => self.stonewall = flag(key, v)?,
            "loops" => self.loops = count(key, v)?.max(1),
            "numjobs" => self.numjobs = count(key, v)?.clamp(1, 1024),
            "group_reporting" => self.group_reporting = flag(key, v)?,
            _ => return Ok(None),
        }
        Ok(Some(None))
    }

    fn set_files(&mut self, key: &str, v: Option<&str>) -> Result<Option<Note>, String> {
        match key {
            "name" => self.name = text(key, v)?.to_string(),
            "size" => self.size = size(key, v)?,
            "filesize" => self.filesize = Some(size(key, v)?),
            "io_size" | "io_limit" => self.io_size = Some(size(key, v)?),
            "offset" => self.offset = size(key, v)?,
            "filename" => self.filename = Some(text(key, v)?.to_string()),
            "invalidate" => self.invalidate = flag(key, v)?,
            "unlink" => self.unlink = flag(key, v)?,
            "fallocate" => {
                self.fallocate = match text(key, v)? {
                    "none" | "0" => Fallocate::None,
                    "native" | "posix" | "1" => Fallocate::Native,
                    "keep" => Fallocate::Keep,
                    "truncate" => Fallocate::Truncate,
                    t => {
                        return Err(format!(
                            "fallocate `{t}`: none, native, posix, keep, truncate"
                        ))
                    }
                }
            }
            "nrfiles" if number(key, v)? == 1 => {}
            _ => return Ok(NO_EFFECT.iter().find(|e| e.0 == key).map(|e| Some(e.1))),
        }
        Ok(Some(None))
    }
}

type Note = Option<&'static str>;

/// Options that are taken but change nothing here, with the reason.
const NO_EFFECT: [(&str, &str); 22] = [
    (
        "thread",
        "jobs are tasks of one simulated machine either way",
    ),
    (
        "directory",
        "every file lives in the root of the simulated file system",
    ),
    (
        "cpus_allowed",
        "tasks are placed by the simulated scheduler",
    ),
    (
        "cpus_allowed_policy",
        "tasks are placed by the simulated scheduler",
    ),
    ("gtod_reduce", "reading the virtual clock costs nothing"),
    ("clocksource", "there is one clock, the virtual one"),
    (
        "random_generator",
        "offsets come from the seeded stream of the job",
    ),
    (
        "refill_buffers",
        "each write has content of its own already",
    ),
    (
        "scramble_buffers",
        "each write has content of its own already",
    ),
    (
        "zero_buffers",
        "contents do not change what the file system does",
    ),
    (
        "buffer_compress_percentage",
        "contents do not change what the file system does",
    ),
    ("disable_lat", "latencies are always collected"),
    ("disable_clat", "latencies are always collected"),
    ("disable_slat", "latencies are always collected"),
    ("lat_percentiles", "both latencies are reported"),
    ("clat_percentiles", "both latencies are reported"),
    ("log_avg_msec", "the page draws its own series"),
    ("write_bw_log", "the page draws its own series"),
    ("write_lat_log", "the page draws its own series"),
    ("write_iops_log", "the page draws its own series"),
    (
        "ioscheduler",
        "the scheduler belongs to the device section of the experiment",
    ),
    ("description", "a remark"),
];

/// Names of the supported options, for suggestions and completion.
pub const NAMES: [&str; 48] = [
    "rw",
    "readwrite",
    "rwmixread",
    "rwmixwrite",
    "bs",
    "blocksize",
    "direct",
    "buffered",
    "sync",
    "fsync",
    "fdatasync",
    "end_fsync",
    "fsync_on_close",
    "overwrite",
    "iodepth",
    "ioengine",
    "random_distribution",
    "norandommap",
    "randrepeat",
    "allrandrepeat",
    "randseed",
    "percentile_list",
    "rate",
    "rate_iops",
    "runtime",
    "time_based",
    "ramp_time",
    "startdelay",
    "thinktime",
    "thinktime_blocks",
    "stonewall",
    "wait_for_previous",
    "loops",
    "numjobs",
    "group_reporting",
    "size",
    "filesize",
    "io_size",
    "io_limit",
    "offset",
    "filename",
    "invalidate",
    "unlink",
    "fallocate",
    "nrfiles",
    "directory",
    "thread",
    "name",
];

fn unknown(key: &str) -> String {
    use crate::workload::ops::edit_distance;
    let best = NAMES.iter().map(|n| (edit_distance(key, n), *n)).min();
    match best {
        Some((d, name)) if d <= 2 && d > 0 => {
            format!("option `{key}` is unknown; did you mean `{name}`?")
        }
        _ => format!("option `{key}` is not supported"),
    }
}

fn text<'a>(key: &str, v: Option<&'a str>) -> Result<&'a str, String> {
    v.filter(|t| !t.is_empty())
        .ok_or_else(|| format!("`{key}` needs a value: {key}=..."))
}

fn flag(key: &str, v: Option<&str>) -> Result<bool, String> {
    match v {
        None | Some("1" | "true") => Ok(true),
        Some("0" | "false") => Ok(false),
        Some(t) => Err(format!("`{key}={t}`: 0 or 1")),
    }
}

fn number(key: &str, v: Option<&str>) -> Result<u64, String> {
    let t = text(key, v)?;
    parse_number(t)
        .or_else(|| parse_size(t))
        .ok_or_else(|| format!("`{key}={t}` is not a number"))
}

fn count(key: &str, v: Option<&str>) -> Result<u32, String> {
    u32::try_from(number(key, v)?).map_err(|_| format!("`{key}` is over 4294967295"))
}

fn percent(key: &str, v: Option<&str>) -> Result<u32, String> {
    match count(key, v)? {
        p @ 0..=100 => Ok(p),
        p => Err(format!("`{key}={p}`: a percentage from 0 to 100")),
    }
}

fn size(key: &str, v: Option<&str>) -> Result<u64, String> {
    let t = text(key, v)?;
    parse_size(t).ok_or_else(|| format!("`{key}={t}` is not a size; write 4k, 64M, 1G"))
}

fn time(key: &str, v: Option<&str>, unit: Nanos) -> Result<Nanos, String> {
    let t = text(key, v)?;
    parse_time(t, unit).ok_or_else(|| format!("`{key}={t}` is not a time; write 500ms, 30s, 2m"))
}

fn block_sizes(key: &str, v: Option<&str>) -> Result<(u64, u64), String> {
    let t = text(key, v)?;
    let (read, write) = t.split_once(',').unwrap_or((t, t));
    let one = |s: &str| match parse_size(s) {
        Some(n @ 1..=0x4000_0000) => Ok(n),
        _ => Err(format!(
            "`{key}={t}` is not a block size; write 4k or 4k,64k (1 byte to 1 GiB)"
        )),
    };
    let write = write.split(',').next().unwrap_or(write);
    let r = one(read)?;
    Ok((r, if write.is_empty() { r } else { one(write)? }))
}

fn pattern(t: &str) -> Result<Pattern, String> {
    Ok(match t {
        "read" => Pattern::Read,
        "write" => Pattern::Write,
        "randread" => Pattern::RandRead,
        "randwrite" => Pattern::RandWrite,
        "rw" | "readwrite" => Pattern::ReadWrite,
        "randrw" => Pattern::RandRw,
        "randomwrite" => {
            return Err("rw=`randomwrite` is unknown; fio's word is `randwrite`".into())
        }
        "randomread" => return Err("rw=`randomread` is unknown; fio's word is `randread`".into()),
        "trim" | "randtrim" | "trimwrite" => {
            return Err(format!(
                "rw=`{t}` is not supported; read, write, randread, randwrite, rw, randrw"
            ))
        }
        _ => {
            return Err(format!(
                "rw=`{t}` is unknown; read, write, randread, randwrite, rw or randrw"
            ))
        }
    })
}

fn distribution(t: &str) -> Result<Distribution, String> {
    let (kind, arg) = t.split_once(':').unwrap_or((t, ""));
    let arg = |default: f64| -> Result<f64, String> {
        if arg.is_empty() {
            return Ok(default);
        }
        arg.parse::<f64>()
            .ok()
            .filter(|x| x.is_finite() && *x > 0.0 && *x < 100.0)
            .ok_or_else(|| format!("random_distribution=`{t}`: `{arg}` is not a number over 0"))
    };
    match kind {
        "random" => Ok(Distribution::Random),
        "zipf" => Ok(Distribution::Zipf(arg(1.1)?)),
        "pareto" => Ok(Distribution::Pareto(arg(0.2)?)),
        _ => Err(format!(
            "random_distribution=`{t}` is not supported; random, zipf:X or pareto:X"
        )),
    }
}

fn percentiles(t: &str) -> Result<Vec<f64>, String> {
    let list: Option<Vec<f64>> = t
        .split(':')
        .map(|p| p.parse::<f64>().ok().filter(|p| *p > 0.0 && *p <= 100.0))
        .collect();
    match list {
        Some(v) if v.len() <= 20 => Ok(v),
        _ => Err(format!(
            "percentile_list=`{t}`: up to 20 numbers over 0 up to 100, joined by `:`"
        )),
    }
}
