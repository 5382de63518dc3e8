//! Every sequence of one and of two operations of a bounded set, each followed by a promise, with the power cut after
//! every write of the device and every subset of the undecided writes lost: recovery gives a clean file system and no
//! promise is broken (the workloads of ACE, Mohan et al., OSDI 2018). Settings known to be bad do break promises.
//!
//! `FSGLASS_ACE=all` takes every pair of all operations instead of the bounded set (about ten minutes).

#![allow(
    clippy::unwrap_used,
    reason = "a test: where a step of it fails, the test fails"
)]

use fsglass::config::parse_experiment;
use fsglass::experiment::explore::{Found, Instants, Outcome};
use fsglass::session::Session;

/// What is there and durable before the operations.
const SETUP: &str = "\
mkdir d
mkdir z
create a
pwrite a 0 3000 1
create d/b
pwrite d/b 0 5000 2
sync
";

/// An operation and what is synced after it. The first [`BOUNDED`] make pairs.
const OPERATIONS: [(&str, &str); 16] = [
    ("create n", "n"),
    ("pwrite a 2500 3000 7", "a"),
    ("truncate a 700", "a"),
    ("unlink a", "/"),
    ("rename a d/n", "d/n"),
    ("rename d/b a", "a"),
    ("link a d/l", "d/l"),
    ("rmdir z", "/"),
    ("pwrite a 0 1024 8", "a"),
    ("truncate a 9000", "a"),
    ("fallocate d/b punch 1024 2048", "d/b"),
    ("fallocate a keep 4096 8192", "a"),
    ("mkdir e", "e"),
    ("symlink a s", "/"),
    ("setxattr a user.k 500 3", "a"),
    ("fallocate d/b zero 512 3000", "d/b"),
];
const BOUNDED: usize = 8;
/// More than any of these runs has.
const LIMIT: usize = 1 << 20;

fn session(device: &str, mount: &str, script: &str) -> Session {
    let text = format!(
        "[device]\npreset = \"{device}\"\nsize = \"8M\"\n[mkfs]\nopts = \"-b 1024\"\n\
         [mount]\noptions = \"{mount}\"\n[workload]\nops = \"\"\"\n{script}\"\"\"\n"
    );
    let experiment = parse_experiment(&text).unwrap();
    let (mut session, _) = Session::load(&experiment).unwrap();
    while !session.run(u64::MAX, 1 << 20).done {}
    assert_eq!(session.failure(), None, "{script}");
    session
}

fn explore(session: &Session, from: u64, limit: usize) -> (Found, Vec<Outcome>) {
    let mut explorer = session.explorer(Instants::From(from), limit).unwrap();
    while explorer.step().unwrap() {}
    explorer.finish().unwrap()
}

/// An outcome in words.
fn story(o: &Outcome) -> String {
    format!(
        "{:#?}\n{:#?}\n{:#?}\n{:#?}",
        o.error, o.broken, o.findings, o.witness
    )
}

/// Records of the device log that mount and setup make.
fn records_of_setup(mount: &str) -> u64 {
    session("sata-ssd", mount, SETUP).records()
}

/// States explored.
fn must_hold(mount: &str, from: u64, operations: &str) -> u64 {
    let script = format!("{SETUP}{operations}");
    let (found, outcomes) = explore(&session("sata-ssd", mount, &script), from, LIMIT);
    assert!(found.exhaustive && found.complete, "{mount}: {script}");
    for o in &outcomes {
        assert!(o.good(), "{mount}\n{script}\n{}", story(o));
    }
    assert!(
        found.recoveries_differ.is_empty(),
        "{mount}\n{script}\n{:#?}",
        found.recoveries_differ
    );
    found.states
}

fn sequences(mount: &str) {
    let from = records_of_setup(mount);
    let mut states = 0;
    for (operation, target) in OPERATIONS {
        states += must_hold(mount, from, &format!("{operation}\nfsync {target}\n"));
    }
    let all = std::env::var("FSGLASS_ACE").is_ok_and(|v| v == "all");
    let set = &OPERATIONS[..if all { OPERATIONS.len() } else { BOUNDED }];
    for (first, first_target) in set {
        for (second, second_target) in set {
            let each = format!("{first}\nfsync {first_target}\n{second}\nfsync {second_target}\n");
            states += must_hold(mount, from, &each);
            states += must_hold(mount, from, &format!("{first}\n{second}\nsync\n"));
        }
    }
    println!("{mount}: {states} states");
}

#[test]
fn ordered_keeps_its_promises() {
    sequences("data=ordered");
}

#[test]
fn journal_keeps_its_promises() {
    sequences("data=journal");
}

#[test]
fn writeback_keeps_its_promises() {
    sequences("data=writeback");
}

#[test]
fn without_barriers_a_volatile_cache_breaks_promises() {
    let script = format!("{SETUP}create n\npwrite n 0 3000 3\nfsync n\n");
    let (_, outcomes) = explore(&session("sata-ssd", "barrier=0", &script), 0, 2000);
    let broken: usize = outcomes.iter().map(|o| o.broken.len()).sum();
    assert!(broken > 0, "the loss was not found");
    let smallest = outcomes.iter().filter(|o| !o.broken.is_empty());
    let smallest = smallest.map(|o| o.witness.lost.len()).min();
    assert!(smallest.unwrap() <= 2, "{smallest:?} writes for one loss");
}

#[test]
fn without_barriers_a_device_without_cache_keeps_promises() {
    let script = format!("{SETUP}create n\npwrite n 0 3000 3\nfsync n\n");
    let (found, outcomes) = explore(&session("sata-ssd-plp", "barrier=0", &script), 0, 4000);
    assert!(found.states > 10, "{found:?}");
    for o in &outcomes {
        assert!(o.broken.is_empty(), "{}", story(o));
    }
}
