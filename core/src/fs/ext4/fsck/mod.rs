//! Checks an ext4 image the way e2fsck's passes 0 to 5 do, without changing it.
//!
//! Knows no journal contents: an image whose journal needs recovery is checked as it lies, with a note.
//!
//! Invariants:
//! 1. Work is bounded by the size of the file system whatever the bytes say (`budget`).
//! 2. A clean image gives no finding at all.
//! 3. Findings come in the order of e2fsck's passes.

mod clusters;
mod finding;
mod htree;
mod map;
mod pass0;
mod pass1;
mod pass2;
mod pass34;
mod pass5;
#[cfg(test)]
mod tests;
mod xattrs;

pub use finding::{Finding, FindingKind, Severity};

use crate::base::ReadAt;
use crate::format::ext4::{CsumCtx, Extent, GroupDesc, SuperBlock};
use clusters::Clusters;
use std::collections::{BTreeMap, BTreeSet};

/// Findings kept before the check gives up.
const FINDINGS_MAX: usize = 10_000;

/// Checks `disk`; an empty list means that it is consistent.
pub fn check<R: ReadAt + ?Sized>(disk: &R) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(sb) = pass0::super_block(disk, &mut findings) {
        let mut f = Fsck::new(disk, &sb, findings);
        // `None` is an early end; the reason is among the findings.
        let _ = f.run();
        findings = f.findings;
    }
    findings.sort_by_key(|f| f.pass);
    findings
}

/// The check stops when a pass gives `None`.
type Go = Option<()>;

/// An inode in use.
#[derive(Clone, Copy, Debug)]
struct Node {
    ino: u32,
    /// `EXT4_FT_*`.
    file_type: u8,
    links: u16,
    /// Names that point to it.
    counted: u32,
    /// No directory points to it: reserved, journal, orphan file, xattr value, orphan.
    special: bool,
}

/// A directory to be read in pass 2.
#[derive(Debug)]
struct Dir {
    ino: u32,
    generation: u32,
    indexed: bool,
    blocks: u32,
    extents: Vec<Extent>,
    /// Inline directories: `i_block` and the value of `system.data`.
    inline: Option<([u8; 60], Vec<u8>)>,
    dot_dot: u32,
    /// Directory that names it, 0 for none.
    parent: u32,
}

struct Fsck<'a, R: ?Sized> {
    disk: &'a R,
    sb: SuperBlock,
    csum: CsumCtx,
    descs: Vec<GroupDesc>,
    findings: Vec<Finding>,
    used: Clusters,
    nodes: Vec<Node>,
    dirs: Vec<Dir>,
    /// Attribute blocks: stored and counted references.
    xattr_blocks: BTreeMap<u64, (u32, u32)>,
    orphans: BTreeSet<u32>,
    /// Blocks that maps may still name.
    budget: u64,
}

impl<'a, R: ReadAt + ?Sized> Fsck<'a, R> {
    fn new(disk: &'a R, sb: &SuperBlock, findings: Vec<Finding>) -> Fsck<'a, R> {
        Fsck {
            disk,
            sb: *sb,
            csum: sb.csum_ctx(),
            descs: Vec::new(),
            findings,
            used: Clusters::new(sb),
            nodes: Vec::new(),
            dirs: Vec::new(),
            xattr_blocks: BTreeMap::new(),
            orphans: BTreeSet::new(),
            budget: sb.s_blocks_count.saturating_mul(2).max(1 << 16),
        }
    }

    fn run(&mut self) -> Go {
        self.pass0()?;
        self.pass1()?;
        self.pass2()?;
        self.pass3()?;
        self.pass4()?;
        self.pass5()
    }

    /// Adds a finding; ends the check when it is fatal or one too many.
    fn find(&mut self, pass: u8, kind: FindingKind) -> Go {
        if self.findings.len() >= FINDINGS_MAX {
            let count = FINDINGS_MAX as u32;
            let kind = FindingKind::TooManyFindings { count };
            self.findings.push(Finding { pass, kind });
            return None;
        }
        let fatal = kind.severity() == Severity::Fatal;
        self.findings.push(Finding { pass, kind });
        (!fatal).then_some(())
    }

    fn block_size(&self) -> usize {
        self.sb.block_size() as usize
    }

    fn block(&self, block: u64) -> Vec<u8> {
        let mut b = vec![0; self.block_size()];
        self.read(block, 0, &mut b);
        b
    }

    /// Reads bytes from `offset` within `block` on.
    fn read(&self, block: u64, offset: u64, out: &mut [u8]) {
        let at = block
            .saturating_mul(u64::from(self.sb.block_size()))
            .saturating_add(offset);
        self.disk.read_at(at, out);
    }

    /// Marks the cluster of `block` used; false if something else uses it already.
    fn claim(&mut self, block: u64) -> bool {
        self.used.claim(&self.sb, block)
    }

    fn node_index(&self, ino: u32) -> Option<usize> {
        self.nodes.binary_search_by_key(&ino, |n| n.ino).ok()
    }

    fn dir_index(&self, ino: u32) -> Option<usize> {
        self.dirs.binary_search_by_key(&ino, |d| d.ino).ok()
    }
}
