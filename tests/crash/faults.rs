//! Every request of a short workload fails in its turn, once and from then on: nothing panics or hangs, what fsync
//! vouched for is there after the next mount, and the disk is sound then.

#![allow(
    clippy::unwrap_used,
    reason = "a test: where a step of it fails, the test fails"
)]

use fsglass::block::Loss;
use fsglass::config::parse_experiment;
use fsglass::experiment::lab::{run_script, LabOptions};
use fsglass::fs::ext4::fsck::{self, FindingKind};
use fsglass::session::Session;
use fsglass::workload::ops::Script;

const WORK: &str = "\
mkdir d
create a
pwrite a 0 9000 1
fsync a
create d/b
pwrite d/b 0 5000 2
fsync d/b
dropcaches
pwrite a 3000 700 3
fsync a
readdir d
rename d/b d/c
truncate a 2000
fsync d/c
pwrite d/c 8000 3000 4
setxattr d/c user.k 500 3
fsync d/c
unlink a
sync
";

fn run(mount: &str, mkfs: &str, fault: &str) -> Session {
    let text = format!(
        "[device]\npreset = \"sata-ssd\"\nsize = \"8M\"\nfault = \"{fault}\"\n[mkfs]\nopts = \"-b 1024 {mkfs}\"\n\
         [mount]\noptions = \"{mount}\"\n[workload]\nops = \"\"\"\n{WORK}\"\"\"\n"
    );
    let experiment = parse_experiment(&text).unwrap();
    let (mut session, _) = Session::load(&experiment).unwrap();
    let mut slices = 0;
    while !session.run(u64::MAX, 1 << 20).done {
        slices += 1;
        assert!(slices < 100, "{mount} {fault}: no end");
    }
    session
}

/// Checks the disk of a run with a fault; false if there was no such request.
fn survives(mount: &str, mkfs: &str, fault: &str) -> bool {
    let mut session = run(mount, mkfs, fault);
    if session.faults() == 0 {
        return false;
    }
    if session.failure().is_some() {
        // The mount said so.
        return true;
    }
    for loss in [Loss::None, Loss::All] {
        let cut = session.cut(u64::MAX, &loss).unwrap();
        let recovered = session.recover(&cut).unwrap();
        assert_eq!(recovered.error, None, "{mount} {mkfs} {fault} {loss:?}");
        let survivors = session.survivors(cut.at, &recovered.store).unwrap();
        let broken: Vec<_> = survivors.rows.iter().filter(|r| r.broken).collect();
        assert!(
            broken.is_empty(),
            "{mount} {mkfs} {fault} {loss:?}\n{broken:#?}"
        );
        let mut findings = fsck::check(&recovered.store);
        // That the kernel met an error is written down and no damage.
        findings.retain(|f| !matches!(f.kind, FindingKind::HasErrors { .. }));
        assert!(
            findings.is_empty(),
            "{mount} {mkfs} {fault} {loss:?}\n{findings:#?}"
        );
    }
    true
}

fn every_request(mount: &str, mkfs: &str) {
    let mut faults = 0;
    for operation in ["read", "write", "flush"] {
        for lasting in ["", "+"] {
            let mut n = 1;
            while survives(mount, mkfs, &format!("{operation}@{n}{lasting}")) {
                n += 1;
                faults += 1;
            }
        }
    }
    println!("{mount} {mkfs}: {faults} faults");
    assert!(faults > 100, "{mount} {mkfs}: {faults} faults");
}

#[test]
fn ordered() {
    every_request("data=ordered", "");
}

#[test]
fn journal() {
    every_request("data=journal", "");
}

#[test]
fn writeback() {
    every_request("data=writeback", "");
}

#[test]
fn without_a_journal_every_run_ends() {
    let mut faults = 0;
    for operation in ["read", "write", "flush"] {
        for lasting in ["", "+"] {
            for n in 1.. {
                let session = run("", "-O ^has_journal", &format!("{operation}@{n}{lasting}"));
                if session.faults() == 0 {
                    break;
                }
                faults += 1;
            }
        }
    }
    assert!(faults > 50, "{faults} faults");
}

/// What each operation of a script returns where the `fault` hits.
fn errors(script: &str, mount: &str, fault: &str) -> Vec<&'static str> {
    let options = LabOptions {
        size_mib: 16,
        mkfs: vec!["-b".into(), "4096".into()],
        mount: mount.into(),
        store: None,
        seed: 1,
        faults: vec![fault.parse().unwrap()],
    };
    let script = Script::parse(script).unwrap();
    let run = run_script(options, &script, |_, _, _| {}).unwrap();
    let result = run.to_json();
    let ops = result["ops"].as_array().unwrap();
    ops.iter()
        .map(|o| match o["err"].as_str().unwrap() {
            "OK" => "ok",
            "EIO" => "EIO",
            "EROFS" => "EROFS",
            other => panic!("{other}"),
        })
        .collect()
}

/// A file of one block that is open twice, written once; the second write of the device is its data.
const TWICE_OPEN: &str = "\
create a
open 0 a rw
open 1 a rw
pwrite @0 0 4096 1
fsync @0
fsync @0
fsync @1
fsync @1
sync
sync
create b
";

#[test]
fn each_descriptor_hears_of_lost_data_once() {
    let [ok, eio] = ["ok", "EIO"];
    let heard = errors(TWICE_OPEN, "data=ordered", "write@2");
    assert_eq!(heard, [ok, ok, ok, ok, eio, ok, eio, ok, eio, ok, ok]);
}

#[test]
fn lost_data_aborts_the_journal_if_that_was_asked_for() {
    let heard = errors(TWICE_OPEN, "data=ordered,data_err=abort", "write@2");
    assert_eq!(heard[4], "EIO");
    assert_eq!(heard[10], "EROFS");
}

#[test]
fn a_journal_that_cannot_be_written_ends_all_writing() {
    for mount in ["", "errors=continue", "errors=remount-ro"] {
        let heard = errors(TWICE_OPEN, mount, "write@3");
        assert_eq!(heard[4], "EIO", "{mount}");
        assert_eq!(heard[10], "EROFS", "{mount}");
    }
}
