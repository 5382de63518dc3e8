//! The power cut: the disk it leaves, what recovery makes of it, what survives, files to take home.

use super::view::{
    self, Crash, Danger, Export, ExportFile, Loss, LossModel, Outcome, RecoveryStep,
};
use super::Session;
use crate::base::{sha256::Sha256, Nanos};
use crate::block::{CrashPoint, Loss as BlockLoss, Store};
use crate::experiment::explore::{Explorer, Instants};
use crate::experiment::oracle::{judge_at, RecoveredTree, Survivors};
use crate::experiment::recover::{recover_image, DiskTree, Recovered};
use crate::fs::ext4::fsck;
use crate::workload::app_log::AppLog;
use crate::workload::ops::percent_encode;
use std::fmt::Write as _;
use std::rc::Rc;

/// Runs longer than this many calls are not judged while they play; the meter then says what it last knew.
const LOSS_CALLS_MAX: usize = 50_000;
/// Largest disk that is exported in one piece.
const EXPORT_MAX: u64 = 2 << 30;

fn block_loss(loss: &LossModel) -> BlockLoss {
    match loss {
        LossModel::AllLost => BlockLoss::All,
        LossModel::AllKept => BlockLoss::None,
        LossModel::Seed(n) => BlockLoss::Seed(*n),
    }
}

/// A disk as a power cut leaves it.
pub struct Cut {
    /// When.
    pub at: Nanos,
    /// The disk.
    pub store: Store,
    /// Writes lost and kept of those that were undecided.
    pub lost: usize,
    /// See `lost`.
    pub kept: usize,
}

impl Session {
    /// The disk as a power cut at `at_ns` leaves it.
    pub fn cut(&mut self, at_ns: u64, loss: &BlockLoss) -> Result<Cut, String> {
        let now = self.machine.sim.now();
        let at = Nanos(at_ns.min(now.0));
        self.machine.queue.device_mut().settle(now);
        let point = CrashPoint::at_time(&self.machine.queue, now, at)?;
        Ok(Session::cut_of(&point, loss))
    }

    /// The disk as a power cut after record `n` of the device log leaves it.
    pub fn cut_at_record(&mut self, n: u64, loss: &BlockLoss) -> Result<Cut, String> {
        let now = self.machine.sim.now();
        self.machine.queue.device_mut().settle(now);
        let point = CrashPoint::at_record(&self.machine.queue, now, n)?;
        Ok(Session::cut_of(&point, loss))
    }

    fn cut_of(point: &CrashPoint, loss: &BlockLoss) -> Cut {
        let lost = point.lost(loss).len();
        Cut {
            at: point.instant(),
            store: point.image(loss, None).to_store(),
            lost,
            kept: point.undecided().len() - lost,
        }
    }

    /// Recovers a cut disk with the experiment's mount options.
    pub fn recover(&self, cut: &Cut) -> Result<Recovered, String> {
        recover_image(cut.store.clone(), &self.setup.mount)
    }

    /// Holds a recovered disk against what the applications saw at `at`.
    pub fn survivors(&self, at: Nanos, store: &Store) -> Result<Survivors, String> {
        let app = self.progress.app.borrow();
        survivors_of(&app, at, store)
    }

    /// Requests that failed on purpose so far.
    pub fn faults(&self) -> u64 {
        self.machine.queue.device_mut().faults_mut().injected()
    }

    /// Records in the device log so far.
    pub fn records(&self) -> u64 {
        self.machine.queue.device().log().end()
    }

    /// Explores what power cuts of the run so far can leave, at most `limit` states of it.
    pub fn explorer(&self, instants: Instants, limit: usize) -> Result<Explorer<'_>, String> {
        let app = self.progress.app.borrow().clone();
        let run = (&*self.machine.queue, self.machine.sim.now());
        let sample = (limit, self.machine.config.seed);
        Explorer::new(run, app, &self.setup.mount, instants, sample)
    }

    /// Cuts the power, recovers, and says what is left.
    pub fn crash(&mut self, at_ns: u64, loss: &LossModel) -> Result<Crash, String> {
        let cut = self.cut(at_ns, &block_loss(loss))?;
        let recovered = self.recover(&cut)?;
        let mut out = Crash {
            cut_ns: cut.at.0,
            lost: cut.lost as u32,
            kept: cut.kept as u32,
            recovered: recovered.error.is_none(),
            ..Crash::default()
        };
        for s in &recovered.steps {
            out.steps.push(RecoveryStep {
                title: s.title.clone(),
                sentence: s.sentence.clone(),
                copies: s.copies.clone(),
            });
        }
        out.fsck = fsck::check(&recovered.store)
            .iter()
            .map(ToString::to_string)
            .collect();
        let survivors = self.survivors(cut.at, &recovered.store)?;
        out.survivors = survivors
            .rows
            .iter()
            .map(|r| view::Survivor {
                path: percent_encode(&r.path),
                saw: r.saw.clone(),
                promise: r.promise.clone(),
                after: r.after.clone(),
                verdict: r.verdict as u8,
                because: r.because.clone(),
                block: r.block,
                broken: r.broken,
            })
            .collect();
        out.tree = super::tree::disk_rows(&recovered.store)?;
        Ok(out)
    }

    /// "If the power failed now": worst and best case.
    pub(super) fn loss(&mut self, app: &AppLog, at: Nanos) -> Option<Loss> {
        if app.records().len() > LOSS_CALLS_MAX {
            return None;
        }
        let mut outcome = |loss: &BlockLoss| -> Option<(Survivors, u32)> {
            let cut = self.cut(at.0, loss).ok()?;
            let recovered = self.recover(&cut).ok()?;
            let s = survivors_of(app, at, &recovered.store).ok()?;
            let promises = s.promises;
            Some((s, promises))
        };
        let (worst, promises) = outcome(&BlockLoss::All)?;
        let (best, _) = outcome(&BlockLoss::None)?;
        let view = |s: &Survivors| Outcome {
            broken: s.broken,
            by_verdict: s.by_verdict,
        };
        Some(Loss {
            as_of_ns: at.0,
            promises,
            worst: view(&worst),
            best: view(&best),
        })
    }

    /// The states that a power cut at `at_ns` can leave, all of them or `limit` of them; `None` where the run is
    /// too long to be judged.
    pub fn danger(&mut self, at_ns: u64, limit: usize) -> Option<Danger> {
        let app = Rc::clone(&self.progress.app);
        let app = app.borrow();
        if app.records().len() > LOSS_CALLS_MAX {
            return None;
        }
        let now = self.machine.sim.now();
        let at = Nanos(at_ns.min(now.0));
        self.machine.queue.device_mut().settle(now);
        let point = CrashPoint::at_time(&self.machine.queue, now, at).ok()?;
        let (images, exhaustive) = point.states(limit, self.setup.machine.seed);
        let mut out = Danger {
            at_ns: at.0,
            exhaustive,
            ..Danger::default()
        };
        for image in images {
            let recovered = recover_image(image.to_store(), &self.setup.mount).ok()?;
            let s = survivors_of(&app, at, &recovered.store).ok()?;
            let fate = match (s.broken, s.by_verdict.iter().skip(1).sum()) {
                (0, 0u32) => 0,
                (0, _) => 1,
                _ => 2,
            };
            out.states += 1;
            out.by_fate[fate] += 1;
        }
        Some(out)
    }

    /// The disk to take home, with a manifest of what recovery gives and the commands that check it.
    pub fn export(
        &mut self,
        at_ns: u64,
        loss: &LossModel,
        recovered: bool,
    ) -> Result<Export, String> {
        let cut = self.cut(at_ns, &block_loss(loss))?;
        let size = cut.store.sectors() * 512;
        if size > EXPORT_MAX {
            return Err(format!(
                "the disk has {size} bytes; the page exports up to {EXPORT_MAX}. The command line has no limit."
            ));
        }
        let after = self.recover(&cut)?;
        let (manifest, files) = manifest(&after.store)?;
        let store = if recovered { &after.store } else { &cut.store };
        let name = if recovered { "after.img" } else { "crash.img" };
        let clean = fsck::check(&after.store).is_empty();
        let verdict = if clean { "clean" } else { "not clean" };
        Ok(Export {
            files: vec![
                ExportFile { name: name.to_string(), bytes: raw_image(store) },
                ExportFile { name: "fsg.sha256".to_string(), bytes: manifest.into_bytes() },
            ],
            recipe: recipe(name),
            prediction: format!(
                "Linux replays the journal, finds {files} files with these contents, and e2fsck calls the result {verdict}."
            ),
        })
    }
}

fn survivors_of(app: &AppLog, at: Nanos, store: &Store) -> Result<Survivors, String> {
    let tree = DiskTree::open(store)?;
    let mut s = judge_at(app.records(), at, &tree);
    s.complete &= app.dropped() == 0;
    Ok(s)
}

/// All bytes of a disk, blocks that were never written included.
fn raw_image(store: &Store) -> Vec<u8> {
    let mut out = vec![0u8; (store.sectors() * 512) as usize];
    store.read_bytes(0, &mut out);
    out
}

/// `sha256sum -c` lines for every regular file, and how many there are.
pub fn manifest(store: &Store) -> Result<(String, usize), String> {
    let tree = DiskTree::open(store)?;
    let mut out = String::new();
    let mut files = 0;
    for (path, e) in tree.entries() {
        if e.kind != crate::experiment::oracle::Kind::File {
            continue;
        }
        let mut sha = Sha256::new();
        let mut buf = vec![0u8; 1 << 16];
        let mut at = 0;
        while at < e.size {
            let n = (e.size - at).min(buf.len() as u64) as usize;
            tree.read(e.ino, at, &mut buf[..n])?;
            sha.update(&buf[..n]);
            at += n as u64;
        }
        let name = String::from_utf8_lossy(&path[1..]).into_owned();
        // sha256sum escapes such names with a leading backslash.
        let lead = if name.contains(['\\', '\n']) {
            "\\"
        } else {
            ""
        };
        let name = name.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(out, "{lead}{}  ./{name}", sha.finish_hex());
        files += 1;
    }
    Ok((out, files))
}

fn recipe(image: &str) -> String {
    format!(
        "cp --sparse=always {image} c.img\n\
         debugfs -R \"logdump\" {image} | tail -5\n\
         m=$(mktemp -d); s=$PWD/fsg.sha256\n\
         sudo mount -o loop c.img \"$m\" && (cd \"$m\" && sudo sha256sum -c \"$s\"); sudo umount \"$m\"\n\
         e2fsck -fn c.img\n"
    )
}
