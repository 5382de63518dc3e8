//! The structure inspector: what the bytes of a block say.

use super::time::{log_line, names};
use super::view::{Field, Inspect, LogLine, Selection};
use super::Observer;
use crate::base::bytes;
use crate::block::{DeviceLog, Store};
use crate::format::ext4::extent::{decode_node, ExtentHeader, ExtentNode};
use crate::format::ext4::{dirent, GroupDesc, RawInode, SuperBlock};
use crate::format::jbd2::{
    BlockTags, CommitBlock, JournalHeader, JournalSuperblock, JBD2_COMMIT_BLOCK,
    JBD2_DESCRIPTOR_BLOCK, JBD2_REVOKE_BLOCK,
};
use crate::format::{Field as DiskField, FieldValue};
use crate::fs::ext4::reader::Reader;
use crate::observe::layout::role;
use crate::sim::Sim;
use std::fmt::Write as _;

/// Sentences of a block's life that are shown.
const BIOGRAPHY_MAX: usize = 64;

impl Observer {
    /// Decodes what a selection leads to.
    pub(super) fn inspect(&self, sim: &Sim, log: &DeviceLog, what: &Selection) -> Inspect {
        let store = self.disk.cursor().store();
        let mut out =
            decode(store, &self.layout, what, |b| self.role_of(b)).unwrap_or_else(|reason| {
                Inspect {
                    title: reason,
                    ..Inspect::default()
                }
            });
        if out.block > 0 || matches!(what, Selection::Block(0)) {
            out.biography = self.biography(sim, out.block);
            if let Some(t) = self.disk.last_write(log, out.block) {
                let _ = write!(out.title, " Last written at {:.6} s.", t.as_secs_f64());
            }
        }
        out
    }

    /// Everything that happened to a block up to the instant.
    fn biography(&self, sim: &Sim, block: u64) -> Vec<LogLine> {
        let mut out = Vec::new();
        sim.trace().scan(0, |_, record| {
            if record.at() > self.at || out.len() >= BIOGRAPHY_MAX {
                return false;
            }
            if record.event().is_some_and(|e| names(&e).0 == Some(block)) {
                out.extend(log_line(sim, record));
            }
            true
        });
        out
    }
}

type Layout = crate::observe::layout::Layout;

/// Decodes a selection on any disk. The error is a sentence for the title.
pub(super) fn decode(
    store: &Store,
    layout: &Layout,
    what: &Selection,
    role_of: impl Fn(u64) -> u8,
) -> Result<Inspect, String> {
    let reader = Reader::open(store).map_err(|e| format!("The superblock can't be read: {e}."))?;
    let bs = u64::from(layout.block_size());
    match what {
        Selection::Super => Ok(super_block(&reader, store, bs)),
        Selection::Group(g) => group(&reader, *g, bs),
        Selection::Inode(ino) => inode(&reader, *ino),
        Selection::Path(p) => {
            let path = crate::workload::ops::percent_decode(p);
            let found = reader
                .lookup(&path, false)
                .map_err(|e| format!("{p}: {e}."))?;
            inode(&reader, found.ino)
        }
        Selection::JournalBlock(n) => {
            let block = layout
                .journal_block(*n)
                .ok_or(format!("The journal has no block {n}."))?;
            Ok(journal_block(&reader, layout, *n, block.0))
        }
        Selection::Tid(tid) => Err(format!(
            "Transaction {tid}: choose one of its blocks in the ring."
        )),
        Selection::Block(b) => block(&reader, layout, *b, role_of(*b)),
    }
}

type R<'a> = Reader<'a, Store>;

fn text(v: &FieldValue) -> (String, String) {
    match v {
        FieldValue::Number(n) => (format!("{n:#x}"), n.to_string()),
        FieldValue::Bytes(b) => {
            let hex: String = b.iter().take(16).fold(String::new(), |mut s, x| {
                let _ = write!(s, "{x:02x}");
                s
            });
            let printable = b
                .iter()
                .take_while(|x| **x != 0)
                .all(|x| x.is_ascii_graphic() || *x == b' ');
            let word: String = b
                .iter()
                .take_while(|x| **x != 0)
                .map(|x| *x as char)
                .collect();
            (
                hex.clone(),
                if printable && !word.is_empty() {
                    word
                } else {
                    hex
                },
            )
        }
        FieldValue::Words(w) => {
            let list: Vec<String> = w.iter().take(8).map(|x| format!("{x:08x}")).collect();
            (list.join(" "), list.join(" "))
        }
    }
}

fn listed(fields: &[DiskField], base: u32) -> Vec<Field> {
    fields
        .iter()
        .map(|f| {
            let (raw, value) = text(&f.value);
            Field {
                name: f.name.to_string(),
                offset: base + f.offset,
                len: f.len,
                raw,
                value: format!("{value} - {}", f.doc),
                bad: false,
            }
        })
        .collect()
}

fn plain(name: &str, offset: u32, len: u32, raw: String, value: String) -> Field {
    Field {
        name: name.to_string(),
        offset,
        len,
        raw,
        value,
        bad: false,
    }
}

fn mark_bad(fields: &mut [Field], name: &str, bad: bool) {
    if let Some(f) = fields.iter_mut().find(|f| f.name == name) {
        f.bad = bad;
        if bad {
            f.value.push_str(" (does not match the computed checksum)");
        }
    }
}

fn super_block(reader: &R<'_>, store: &Store, bs: u64) -> Inspect {
    let mut bytes = vec![0u8; 1024];
    store.read_bytes(1024, &mut bytes);
    let mut fields = listed(&reader.sb.fields(), 0);
    mark_bad(
        &mut fields,
        "s_checksum",
        reader.sb.csum_verify(&bytes).is_err(),
    );
    Inspect {
        title: format!(
            "Superblock: {} blocks of {bs} bytes.",
            reader.sb.s_blocks_count
        ),
        structure: "struct ext4_super_block".into(),
        endian: "little".into(),
        block: 1024 / bs,
        offset: (1024 % bs) as u32,
        bytes,
        fields,
        ..Inspect::default()
    }
}

fn group(reader: &R<'_>, g: u32, bs: u64) -> Result<Inspect, String> {
    let sb: &SuperBlock = &reader.sb;
    if g >= sb.groups_count() {
        return Err(format!(
            "There is no group {g}; the last one is {}.",
            sb.groups_count() - 1
        ));
    }
    let size = sb.desc_size();
    let block = sb.descriptor_block(g / sb.descs_per_block());
    let at = (g % sb.descs_per_block()) * u32::from(size);
    let content = reader.block(block);
    let bytes = content[at as usize..at as usize + usize::from(size)].to_vec();
    let desc = reader.group_desc(g);
    let mut fields = listed(&desc.fields(), 0);
    let bad = GroupDesc::csum_verify(&sb.csum_ctx(), g, &bytes, size).is_err();
    mark_bad(&mut fields, "bg_checksum", bad);
    let _ = bs;
    Ok(Inspect {
        title: format!(
            "Descriptor of group {g}: {} blocks free.",
            desc.bg_free_blocks_count
        ),
        structure: "struct ext4_group_desc".into(),
        endian: "little".into(),
        block,
        offset: at,
        bytes,
        fields,
        links: vec![
            (
                "block bitmap".into(),
                Selection::Block(desc.bg_block_bitmap),
            ),
            (
                "inode bitmap".into(),
                Selection::Block(desc.bg_inode_bitmap),
            ),
            ("inode table".into(), Selection::Block(desc.bg_inode_table)),
        ],
        ..Inspect::default()
    })
}

fn inode(reader: &R<'_>, ino: u32) -> Result<Inspect, String> {
    let (block, at) = reader
        .inode_place(ino)
        .ok_or(format!("There is no inode {ino}."))?;
    let i = reader
        .inode_unverified(ino)
        .map_err(|e| format!("Inode {ino}: {e}."))?;
    let mut fields = listed(&i.raw.fields(), 0);
    let bad = RawInode::csum_verify(&reader.sb.csum_ctx(), ino, &i.bytes).is_err();
    mark_bad(&mut fields, "i_checksum", bad);
    let mut links = Vec::new();
    if let Ok((pieces, tree)) = reader.pieces(&i) {
        for p in pieces.iter().take(32) {
            let state = if p.unwritten { "unwritten, " } else { "" };
            links.push((
                format!("{state}file block {} + {}", p.lblk, p.len),
                Selection::Block(p.pblk),
            ));
        }
        links.extend(
            tree.iter()
                .take(32)
                .map(|b| ("extent tree".to_string(), Selection::Block(*b))),
        );
    }
    Ok(Inspect {
        title: format!(
            "Inode {ino}: mode {:o}, {} bytes.",
            i.raw.i_mode, i.raw.i_size
        ),
        structure: "struct ext4_inode".into(),
        endian: "little".into(),
        block,
        offset: at,
        bytes: i.bytes,
        fields,
        links,
        ..Inspect::default()
    })
}

fn block(reader: &R<'_>, layout: &Layout, b: u64, role: u8) -> Result<Inspect, String> {
    let sb = &reader.sb;
    if b >= sb.s_blocks_count {
        return Err(format!(
            "There is no block {b}; the last one is {}.",
            sb.s_blocks_count - 1
        ));
    }
    if let Some(n) = layout.journal_index(b) {
        return Ok(journal_block(reader, layout, n, b));
    }
    let content = reader.block(b);
    let group = sb.group_of_block(b);
    let mut out = Inspect {
        title: format!("Block {b} in group {group}."),
        block: b,
        bytes: content.clone(),
        links: vec![(format!("group {group}"), Selection::Group(group))],
        ..Inspect::default()
    };
    match role {
        role::FREE => out.title = format!("Block {b} in group {group} is free."),
        role::BITMAP => {
            let used: u32 = content.iter().map(|x| x.count_ones()).sum();
            out.structure = "bitmap".into();
            out.fields.push(plain(
                "bits set",
                0,
                content.len() as u32,
                format!("{used:#x}"),
                used.to_string(),
            ));
        }
        role::ITABLE => itable_block(reader, b, &content, &mut out),
        role::TREE if bytes::le16(&content, 0) == 0xF30A => {
            extent_block(reader, &content, &mut out);
        }
        role::TREE => dir_block(&content, &mut out),
        _ => {}
    }
    Ok(out)
}

fn itable_block(reader: &R<'_>, b: u64, content: &[u8], out: &mut Inspect) {
    let sb = &reader.sb;
    let size = u32::from(sb.inode_size());
    let owner = (0..sb.groups_count()).find(|g| {
        let table = reader.group_desc(*g).bg_inode_table;
        (table..table + u64::from(sb.itable_blocks())).contains(&b)
    });
    let Some(g) = owner else {
        return;
    };
    let per = sb.inodes_per_block();
    let first =
        g * sb.s_inodes_per_group + ((b - reader.group_desc(g).bg_inode_table) as u32) * per + 1;
    out.structure = "struct ext4_inode[]".into();
    out.endian = "little".into();
    for i in 0..per {
        let at = i * size;
        let mode = bytes::le16(content, at as usize);
        if mode != 0 {
            let ino = first + i;
            out.fields.push(plain(
                &format!("inode {ino}"),
                at,
                size,
                format!("{mode:#o}"),
                "in use".into(),
            ));
            out.links
                .push((format!("inode {ino}"), Selection::Inode(ino)));
        }
    }
}

fn extent_block(reader: &R<'_>, content: &[u8], out: &mut Inspect) {
    out.structure = "struct ext4_extent_header".into();
    out.endian = "little".into();
    let bounds = (reader.sb.s_first_data_block, reader.sb.s_blocks_count);
    if let Ok(h) = ExtentHeader::decode(content) {
        for (name, at, v) in [
            ("eh_entries", 2, h.eh_entries),
            ("eh_max", 4, h.eh_max),
            ("eh_depth", 6, h.eh_depth),
        ] {
            out.fields
                .push(plain(name, at, 2, format!("{v:#x}"), v.to_string()));
        }
    }
    match decode_node(content, None, bounds) {
        Ok((_, ExtentNode::Leaf(list))) => {
            for (i, e) in list.iter().enumerate() {
                let state = if e.unwritten { ", unwritten" } else { "" };
                let value = format!("file blocks {} + {} at {}{state}", e.lblk, e.len, e.pblk);
                out.fields.push(plain(
                    "extent",
                    12 + i as u32 * 12,
                    12,
                    String::new(),
                    value,
                ));
                out.links
                    .push((format!("file block {}", e.lblk), Selection::Block(e.pblk)));
            }
        }
        Ok((_, ExtentNode::Index(list))) => {
            for (i, e) in list.iter().enumerate() {
                let value = format!("from file block {}: node {}", e.lblk, e.leaf);
                out.fields
                    .push(plain("index", 12 + i as u32 * 12, 12, String::new(), value));
                out.links
                    .push((format!("from {}", e.lblk), Selection::Block(e.leaf)));
            }
        }
        Err(e) => out.title = format!("{} {e}.", out.title),
    }
}

fn dir_block(content: &[u8], out: &mut Inspect) {
    out.structure = "struct ext4_dir_entry_2[]".into();
    out.endian = "little".into();
    for d in dirent::live_entries(content) {
        match d {
            Ok(d) => {
                let name = String::from_utf8_lossy(d.name).into_owned();
                let value = format!("inode {}, {} bytes", d.inode, d.rec_len);
                out.fields.push(plain(
                    &name,
                    d.offset,
                    d.rec_len,
                    format!("{:#x}", d.inode),
                    value,
                ));
                out.links.push((name, Selection::Inode(d.inode)));
            }
            Err(e) => {
                out.title = format!("{} {e}.", out.title);
                return;
            }
        }
    }
}

fn journal_block(reader: &R<'_>, layout: &Layout, n: u32, block: u64) -> Inspect {
    let content = reader.block(block);
    let mut out = Inspect {
        title: format!("Block {n} of the journal."),
        endian: "big".into(),
        block,
        bytes: content.clone(),
        ..Inspect::default()
    };
    let jsb = layout
        .journal_block(0)
        .map(|b| JournalSuperblock::decode(&reader.block(b.0)));
    let Some(Ok(jsb)) = jsb else {
        out.title = "The journal superblock can't be read.".to_string();
        return out;
    };
    if n == 0 {
        out.structure = "struct journal_superblock_s".into();
        out.fields = listed(&jsb.fields(), 0);
        return out;
    }
    let Some(h) = JournalHeader::decode(&content) else {
        out.title = format!("Block {n} of the journal: a copy of a block, or never used.");
        out.endian.clear();
        return out;
    };
    out.structure = "struct journal_header_s".into();
    out.fields.push(plain(
        "h_blocktype",
        4,
        4,
        format!("{:#x}", h.h_blocktype),
        h.h_blocktype.to_string(),
    ));
    out.fields.push(plain(
        "h_sequence",
        8,
        4,
        format!("{:#x}", h.h_sequence),
        h.h_sequence.to_string(),
    ));
    out.links.push((
        format!("transaction {}", h.h_sequence),
        Selection::Tid(h.h_sequence),
    ));
    control_block(&content, &jsb, h, n, &mut out);
    out
}

/// What a descriptor, commit or revoke block says beyond its header.
fn control_block(
    content: &[u8],
    jsb: &JournalSuperblock,
    h: JournalHeader,
    n: u32,
    out: &mut Inspect,
) {
    match h.h_blocktype {
        JBD2_DESCRIPTOR_BLOCK => {
            out.title = format!("Descriptor of transaction {}.", h.h_sequence);
            for (i, tag) in BlockTags::new(content, jsb.tag_format()).enumerate() {
                let value = format!("home block {}, flags {:#x}", tag.t_blocknr, tag.t_flags);
                out.fields
                    .push(plain("tag", 12, 0, format!("{:#x}", tag.t_checksum), value));
                let label = format!("journal block {} -> {}", n + 1 + i as u32, tag.t_blocknr);
                out.links.push((label, Selection::Block(tag.t_blocknr)));
            }
        }
        JBD2_COMMIT_BLOCK => {
            out.title = format!("Commit block of transaction {}.", h.h_sequence);
            if let Some(c) = CommitBlock::decode(content) {
                let when = format!("{}.{:09}", c.h_commit_sec, c.h_commit_nsec);
                out.fields.push(plain(
                    "h_chksum[0]",
                    16,
                    4,
                    format!("{:#x}", c.h_chksum[0]),
                    String::new(),
                ));
                out.fields.push(plain(
                    "h_commit_sec",
                    48,
                    8,
                    format!("{:#x}", c.h_commit_sec),
                    when,
                ));
            }
        }
        JBD2_REVOKE_BLOCK => out.title = format!("Revoke block of transaction {}.", h.h_sequence),
        _ => {}
    }
}
