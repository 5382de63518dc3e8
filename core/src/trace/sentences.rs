//! One sentence per event, for the log view, the screen reader and golden files. Reviewed as text.

use super::event::{Event, Record};

/// Time as printed before a sentence: `3.201 440 100 s`.
pub fn time_text(ns: u64) -> String {
    let (s, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
    let (ms, us) = (rest / 1_000_000, rest / 1_000 % 1_000);
    if ns % 1_000 == 0 {
        format!("{s}.{ms:03} {us:03} s")
    } else {
        format!("{s}.{ms:03} {us:03} {:03} s", ns % 1_000)
    }
}

/// The sentence of a record, without its time. `task` is the name of the task that it belongs to.
pub fn sentence(record: &Record, task: &str) -> String {
    let Some(event) = record.event() else {
        return format!("Unknown event {}.", record.kind);
    };
    app(&event, task)
        .or_else(|| cache(&event, task))
        .or_else(|| jbd2(&event, task))
        .or_else(|| journal(&event))
        .or_else(|| device(&event))
        .or_else(|| structures(&event))
        .or_else(|| recovery(&event))
        .or_else(|| sched(&event, task))
        .unwrap_or_else(|| format!("{}.", event.name()))
}

fn app(event: &Event, task: &str) -> Option<String> {
    Some(match *event {
        Event::Gap { records } => format!("{records} older records were dropped."),
        Event::OpBegin { call, op, ino, .. } if ino.0 == 0 => {
            format!("{task} calls {} (operation {op}).", call.name())
        }
        Event::OpBegin {
            call,
            op,
            ino,
            sector,
        } => format!(
            "{task} calls {} on inode {ino} at {} (operation {op}).",
            call.name(),
            sector.0 * 512
        ),
        Event::OpEnd {
            call,
            errno: 0,
            op,
            bytes,
            ..
        } => {
            format!(
                "{} returns to {task}: {bytes} bytes (operation {op}).",
                call.name()
            )
        }
        Event::OpEnd {
            call, errno, op, ..
        } => {
            format!("{} fails with error {errno} (operation {op}).", call.name())
        }
        Event::Promise { call, op, ino } if ino.0 == 0 => {
            format!(
                "{} promises {task} that everything is durable (operation {op}).",
                call.name()
            )
        }
        Event::Promise { call, op, ino } => {
            format!(
                "{} promises {task} that inode {ino} is durable (operation {op}).",
                call.name()
            )
        }
        _ => return None,
    })
}

fn cache(event: &Event, task: &str) -> Option<String> {
    Some(match *event {
        Event::FolioDirtied { ino, index, pages } => {
            format!("{task} dirtied {pages} pages of inode {ino} from page {index}.")
        }
        Event::DelallocMapped {
            ino,
            lblk,
            pblk,
            len,
        } => {
            format!("Blocks {lblk}+{len} of inode {ino} got blocks {pblk}+{len} on the device.")
        }
        Event::WritebackBegin { ino, index, pages } => {
            format!("{task} writes back {pages} pages of inode {ino} from page {index}.")
        }
        Event::WritebackEnd {
            ino,
            index,
            pages,
            errno: 0,
        } => {
            format!("Writeback of {pages} pages of inode {ino} from page {index} is done.")
        }
        Event::WritebackEnd {
            ino,
            index,
            pages,
            errno,
        } => format!(
            "Writeback of {pages} pages of inode {ino} from page {index} failed with error {errno}."
        ),
        Event::FolioDropped { ino, index, pages } => {
            format!("{pages} pages of inode {ino} from page {index} left the cache.")
        }
        Event::Throttled {
            pause_us,
            dirty,
            limit,
        } => {
            format!("{task} pauses {pause_us} us: {dirty} of {limit} pages are dirty.")
        }
        _ => return None,
    })
}

fn jbd2(event: &Event, task: &str) -> Option<String> {
    const STATES: [&str; 9] = [
        "runs",
        "is locked",
        "switches",
        "flushes ordered data",
        "writes its blocks to the log",
        "waits for its log copies",
        "writes its commit block",
        "calls back",
        "is finished",
    ];
    Some(match *event {
        Event::HandleStart { tid, credits, .. } => {
            format!("{task} starts a handle in transaction {tid} with {credits} credits.")
        }
        Event::HandleStop {
            tid,
            requested,
            dirtied,
            interval_us,
            ..
        } => format!(
            "{task} stops a handle of transaction {tid} after {interval_us} us: \
             {dirtied} of {requested} credits used."
        ),
        Event::HandleWait { tid, why } => match why {
            1 => format!("{task} waits for log space."),
            2 => format!("{task} waits: transaction {tid} is locked."),
            _ => format!("{task} waits: transaction {tid} is full."),
        },
        Event::TransactionState { tid, state, blocks } => {
            let what = STATES.get(state as usize).copied().unwrap_or("is lost");
            format!("Transaction {tid} {what} ({blocks} blocks).")
        }
        Event::BlockJoined { tid, block } => format!("Block {block} joins transaction {tid}."),
        Event::BlockForgotten { tid, block } => {
            format!("Transaction {tid} forgets block {block}.")
        }
        Event::BlockRevoked { tid, block } => format!("Transaction {tid} revokes block {block}."),
        Event::CommitWait { tid } => format!("{task} waits for the commit of transaction {tid}."),
        Event::CheckpointPicked { tid, block } => {
            format!("{task} checkpoints block {block} of transaction {tid}.")
        }
        Event::CheckpointWritten { tid, block } => {
            format!("Block {block} of transaction {tid} is at home.")
        }
        Event::CheckpointDropped { tid, block } => {
            format!("Block {block} leaves the checkpoint list of transaction {tid}.")
        }
        Event::TailAdvanced { tid, start, freed } => format!(
            "The log's tail moves to transaction {tid} at journal block {start}; \
             {freed} blocks are free again."
        ),
        _ => return None,
    })
}

fn journal(event: &Event) -> Option<String> {
    Some(match *event {
        Event::LogDescriptor { tid, jblock, tags } => format!(
            "A descriptor of transaction {tid} with {tags} tags goes to journal block {jblock}."
        ),
        Event::LogCopy {
            tid,
            jblock,
            home,
            flags,
        } => {
            let escaped = if flags & 1 == 0 { "" } else { ", escaped" };
            format!(
                "A copy of block {home} goes to journal block {jblock} \
                 (transaction {tid}{escaped})."
            )
        }
        Event::LogRevoke {
            tid,
            jblock,
            records,
        } => format!("{records} revoke records of transaction {tid} go to journal block {jblock}."),
        Event::LogCommit { tid, jblock } => {
            format!("The commit block of transaction {tid} goes to journal block {jblock}.")
        }
        Event::LogSuperblock { start: 0, .. } => {
            "The journal superblock is written: the log is empty.".to_owned()
        }
        Event::LogSuperblock { tid, start } => format!(
            "The journal superblock is written: the tail is transaction {tid} at block {start}."
        ),
        Event::LazyGroupBegin { group } => {
            format!("The inode table of group {group} is being zeroed.")
        }
        Event::LazyGroupEnd { group, took } => format!(
            "The inode table of group {group} is zero after {} us.",
            took.0 / 1000
        ),
        Event::LazyWait { group, wait } => format!(
            "ext4lazyinit waits {} ms before group {group}.",
            wait.0 / 1_000_000
        ),
        _ => return None,
    })
}

fn op_name(op: u8) -> &'static str {
    const NAMES: [&str; 5] = ["read", "write", "flush", "write-zeroes", "discard"];
    NAMES.get(op as usize).copied().unwrap_or("request")
}

fn power_cut(model: u8, lost: u64) -> String {
    const LOSSES: [&str; 4] = [
        "nothing",
        "everything unflushed",
        "a random part",
        "a chosen part",
    ];
    let loss = LOSSES.get(model as usize).unwrap_or(&"all but a prefix");
    format!("Power is cut; {loss} of the cache is lost ({lost} writes).")
}

fn device(event: &Event) -> Option<String> {
    Some(match *event {
        Event::BioQueued {
            bio,
            lba,
            sectors,
            flags,
            role,
        } => {
            let pre = if flags & 1 == 0 { "" } else { " after a flush" };
            let fua = if flags & 2 == 0 { "" } else { " with FUA" };
            format!(
                "Bio {bio}: {} of sectors {lba}+{sectors}{pre}{fua} is submitted.",
                op_name(role >> 5)
            )
        }
        Event::BioMerged { bio, lba, sectors } => {
            format!("Bio {bio} (sectors {lba}+{sectors}) is merged into a request.")
        }
        Event::RequestIssued {
            request,
            lba,
            sectors,
            op,
        } => {
            format!(
                "The device gets request {request}: {} {lba}+{sectors}.",
                op_name(op)
            )
        }
        Event::RequestDone {
            request,
            lba,
            sectors,
            op,
        } => {
            format!(
                "Request {request} is done: {} {lba}+{sectors}.",
                op_name(op)
            )
        }
        Event::ReachedCache { lba, sectors, .. } => {
            format!("Sectors {lba}+{sectors} are in the device's cache.")
        }
        Event::ReachedMedium { lba, sectors, .. } => {
            format!("Sectors {lba}+{sectors} are on the medium.")
        }
        Event::Flushed { records, bytes } => {
            format!("The device's cache is empty: {records} writes, {bytes} bytes became durable.")
        }
        Event::RequestFailed {
            request,
            lba,
            sectors,
            op,
        } => {
            format!("Request {request} failed: {} {lba}+{sectors}.", op_name(op))
        }
        Event::PowerCut { model, lost } => power_cut(model, u64::from(lost)),
        Event::Edited { lba, sectors } => format!("Sectors {lba}+{sectors} were edited."),
        Event::ErrorInjected { lba, sectors, op } => {
            format!("An error is injected: {} {lba}+{sectors}.", op_name(op))
        }
        _ => return None,
    })
}

fn structures(event: &Event) -> Option<String> {
    Some(match *event {
        Event::InodeChanged { ino, tid, block } => {
            format!("Inode {ino} changed in its table block {block} (transaction {tid}).")
        }
        Event::InodeAllocated { ino, mode } => {
            format!("Inode {ino} is allocated with mode {mode:o}.")
        }
        Event::InodeFreed { ino } => format!("Inode {ino} is freed."),
        Event::BlocksAllocated {
            ino,
            block,
            len,
            meta,
        } => {
            let kind = if meta == 0 { "data" } else { "metadata" };
            format!("Blocks {block}+{len} are allocated to inode {ino} for {kind}.")
        }
        Event::BlocksFreed { ino, block, len } => {
            format!("Blocks {block}+{len} of inode {ino} are freed.")
        }
        Event::ExtentSplit { ino, depth, block } => {
            format!("The extent tree of inode {ino} gets block {block}; its depth is {depth}.")
        }
        Event::HtreeSplit { ino, lblk, levels } => {
            format!("The index of directory {ino} gets file block {lblk}; it has {levels} levels.")
        }
        Event::GroupChanged {
            group,
            free_blocks,
            free_inodes,
            ..
        } => {
            format!("Group {group} has {free_blocks} free blocks and {free_inodes} free inodes.")
        }
        Event::ChecksumFailed { block, ino } => {
            format!("The checksum of block {block} (inode {ino}) does not match.")
        }
        _ => return None,
    })
}

fn recovery(event: &Event) -> Option<String> {
    Some(match *event {
        Event::ScanStep { tid, jblock, ty } => {
            let what = [
                "",
                "descriptor",
                "commit block",
                "superblock",
                "superblock",
                "revoke block",
            ]
            .get(ty as usize)
            .copied()
            .unwrap_or("block");
            format!("Scan: journal block {jblock} is a {what} of transaction {tid}.")
        }
        Event::RevokeFound { tid, block } => {
            format!("Block {block} is revoked up to transaction {tid}.")
        }
        Event::Replayed { tid, jblock, home } => {
            format!("Journal block {jblock} is copied home to block {home} (transaction {tid}).")
        }
        Event::ScanStopped { tid, jblock, why } => {
            let why = [
                "no journal header",
                "another sequence number",
                "a bad checksum",
            ]
            .get(why as usize)
            .copied()
            .unwrap_or("the end of the log");
            format!("The scan ends before transaction {tid} at journal block {jblock}: {why}.")
        }
        Event::OrphanProcessed { ino, truncated: 1 } => {
            format!("Orphan inode {ino} is truncated to its size.")
        }
        Event::OrphanProcessed { ino, .. } => format!("Orphan inode {ino} is deleted."),
        Event::MountDone { errno: 0, replayed } => {
            format!("Mounted; {replayed} transactions were replayed.")
        }
        Event::MountDone { errno, .. } => format!("The mount failed with error {errno}."),
        _ => return None,
    })
}

fn sched(event: &Event, task: &str) -> Option<String> {
    Some(match *event {
        Event::TaskOnCpu { cpu, .. } => format!("{task} runs on CPU {cpu}."),
        Event::TaskPreempted { cpu, .. } => format!("{task} loses CPU {cpu} to another task."),
        Event::TaskBlocked { .. } => format!("{task} blocks."),
        Event::TaskWoken { .. } => format!("{task} is woken."),
        Event::TaskStarted { .. } => format!("{task} starts."),
        Event::TaskEnded { .. } => format!("{task} ends."),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Tid;

    #[test]
    fn every_kind_has_a_sentence_of_its_own() {
        for kind in 0..u16::MAX {
            let record = Record {
                kind,
                ..Record::default()
            };
            let Some(event) = record.event() else { break };
            let text = sentence(&record, "dd");
            assert!(
                text.ends_with('.') && text.contains(' '),
                "{}: {text}",
                event.name()
            );
        }
    }

    #[test]
    fn reads_as_in_the_design() {
        let event = Event::LogCommit {
            tid: Tid(8),
            jblock: 77,
        };
        let bits = event.pack();
        let record = Record {
            time: 3_201_440_000,
            kind: event.kind(),
            lo: bits as u64,
            hi: (bits >> 64) as u64,
            ..Record::default()
        };
        assert_eq!(time_text(record.time), "3.201 440 s");
        let want = "The commit block of transaction 8 goes to journal block 77.";
        assert_eq!(sentence(&record, "jbd2/vda-8"), want);
    }
}
