//! Extended attributes in inodes and blocks.

use super::{FindingKind, Fsck, Go};
use crate::base::ReadAt;
use crate::format::ext4::xattr::{self, XattrEntry, XattrHeader};
use crate::format::{Corrupt, CorruptKind};

/// Checks hash and place of each entry whose value is in place; hash 0 is accepted in inodes. `room` is the end of
/// the values, as their offsets count.
fn check_hashes(
    entries: &[XattrEntry<'_>],
    room: usize,
    zero_is_fine: bool,
) -> Result<(), Corrupt> {
    for e in entries.iter().filter(|e| e.e_value_inum == 0) {
        if usize::from(e.e_value_offs) + e.e_value_size as usize > room {
            let kind = CorruptKind::XattrValue {
                offset: e.e_value_offs,
                size: e.e_value_size,
            };
            return Err(Corrupt::new(kind, e.offset));
        }
        let computed = xattr::entry_hash(e.name, e.value);
        let stored = e.e_hash;
        let fine = stored == computed
            || (stored == 0 && zero_is_fine)
            || stored == xattr::entry_hash_signed(e.name, e.value);
        if !fine {
            let kind = CorruptKind::XattrHash { stored, computed };
            return Err(Corrupt::new(kind, e.offset));
        }
    }
    Ok(())
}

impl<R: ReadAt + ?Sized> Fsck<'_, R> {
    /// Checks the in-inode area.
    pub(super) fn check_ibody(&mut self, ino: u32, area: &[u8]) -> Go {
        let checked = xattr::ibody_entries(area)
            .and_then(|e| check_hashes(&e, area.len().saturating_sub(4), true));
        match checked {
            Ok(()) => Some(()),
            Err(corrupt) => self.find(1, FindingKind::InodeXattr { ino, corrupt }),
        }
    }

    /// Checks the attribute block of an inode the first time it is seen and counts the reference; the clusters it
    /// adds to the inode.
    pub(super) fn check_xattr_block(&mut self, ino: u32, block: u64) -> Option<u64> {
        if block == 0 {
            return Some(0);
        }
        if !self.sb.blocks_valid(block, 1) {
            self.find(1, FindingKind::XattrBlockLocation { ino, block })?;
            return Some(0);
        }
        if let Some(seen) = self.xattr_blocks.get_mut(&block) {
            seen.1 += 1;
            return Some(1);
        }
        if !self.claim(block) {
            let blocks = block.to_string();
            self.find(1, FindingKind::MultiplyClaimed { ino, blocks })?;
        }
        let b = self.block(block);
        let checked = XattrHeader::decode(&b).and_then(|h| {
            xattr::csum_verify(&self.csum, block, &b)?;
            check_hashes(&xattr::block_entries(&b)?, b.len(), false)?;
            Ok(h)
        });
        match checked {
            Ok(h) => {
                self.xattr_blocks.insert(block, (h.h_refcount, 1));
            }
            Err(c) => {
                let corrupt = c.at(block);
                self.find(1, FindingKind::XattrBlock { ino, corrupt })?;
            }
        }
        Some(1)
    }

    /// Compares reference counts at the end of pass 1.
    pub(super) fn check_xattr_refcounts(&mut self) -> Go {
        for (block, (stored, counted)) in std::mem::take(&mut self.xattr_blocks) {
            if stored != counted {
                let kind = FindingKind::XattrRefcount {
                    block,
                    stored,
                    counted,
                };
                self.find(1, kind)?;
            }
        }
        Some(())
    }
}
