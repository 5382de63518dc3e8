//! What forbids a mount: features by name, and options that exclude each other.

use super::{DataMode, ErrorsPolicy, MountOptions};
use crate::format::ext4::{features, FeatureSet, SuperBlock};
use crate::fs::common::{FsError, FsResult};

/// Incompatible features that are read and written.
const INCOMPAT: u32 = features::FILETYPE.mask
    | features::RECOVER.mask
    | features::META_BG.mask
    | features::EXTENTS.mask
    | features::BIT64.mask
    | features::FLEX_BG.mask
    | features::EA_INODE.mask
    | features::CSUM_SEED.mask
    | features::LARGEDIR.mask
    | features::INLINE_DATA.mask;

/// Incompatible features that are only read.
const INCOMPAT_RO: u32 = features::MMP.mask;

/// Read-only compatible features that are written.
const RO_COMPAT: u32 = features::SPARSE_SUPER.mask
    | features::LARGE_FILE.mask
    | features::HUGE_FILE.mask
    | features::GDT_CSUM.mask
    | features::DIR_NLINK.mask
    | features::EXTRA_ISIZE.mask
    | features::METADATA_CSUM.mask
    | features::PROJECT.mask
    | features::ORPHAN_PRESENT.mask;

/// What the options mean for this image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// Data mode in force.
    pub(crate) data_mode: DataMode,
    /// `errors=` in force.
    pub(crate) errors: ErrorsPolicy,
    /// The journal is to be loaded.
    pub(crate) journal: bool,
}

/// Refuses features that are not supported, by name (kernel `ext4_feature_set_ok`).
pub(crate) fn check_features(sb: &SuperBlock, read_only: bool) -> FsResult<()> {
    let refuse = |set, mask, why: &str| {
        let names = features::names(set, mask).join(", ");
        Err(FsError::Unsupported(format!("feature {names}{why}")))
    };
    let unknown = sb.s_feature_incompat & !(INCOMPAT | INCOMPAT_RO);
    if unknown != 0 {
        return refuse(FeatureSet::Incompat, unknown, "");
    }
    if read_only {
        return Ok(());
    }
    let only_read = sb.s_feature_incompat & INCOMPAT_RO;
    if only_read != 0 {
        return refuse(FeatureSet::Incompat, only_read, " (mount read-only)");
    }
    let unknown = sb.s_feature_ro_compat & !RO_COMPAT;
    if unknown != 0 {
        return refuse(FeatureSet::RoCompat, unknown, " (mount read-only)");
    }
    Ok(())
}

fn conflict(text: &str) -> FsError {
    FsError::Unsupported(text.to_owned())
}

/// Combines options with the superblock's defaults and checks them against each other.
pub(crate) fn resolve_options(sb: &SuperBlock, o: &MountOptions) -> FsResult<Resolved> {
    let has_journal = sb.has(features::HAS_JOURNAL);
    let needs_recovery = sb.has(features::RECOVER);
    if has_journal && o.noload && needs_recovery && !o.read_only {
        return Err(conflict(
            "noload on a file system that needs recovery (mount read-only)",
        ));
    }
    let journal = has_journal && !o.noload;
    if !journal {
        if o.data_mode.is_some() && !has_journal {
            return Err(conflict("data= on a file system without journal"));
        }
        if o.journal_async_commit || o.journal_checksum {
            return Err(conflict(
                "journal_async_commit or journal_checksum without journal",
            ));
        }
    }
    let stored = match (sb.s_default_mount_opts >> 5) & 3 {
        1 => DataMode::Journal,
        3 => DataMode::Writeback,
        _ => DataMode::Ordered,
    };
    let data_mode = if journal {
        o.data_mode.unwrap_or(stored)
    } else {
        DataMode::Writeback
    };
    if data_mode == DataMode::Journal && o.delalloc == Some(true) {
        return Err(conflict("data=journal together with delalloc"));
    }
    if journal && data_mode == DataMode::Ordered && o.journal_async_commit {
        return Err(conflict("journal_async_commit together with data=ordered"));
    }
    let stored = match sb.s_errors {
        2 => ErrorsPolicy::RemountRo,
        3 => ErrorsPolicy::Panic,
        _ => ErrorsPolicy::Continue,
    };
    Ok(Resolved {
        data_mode,
        errors: o.errors.unwrap_or(stored),
        journal,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sb() -> SuperBlock {
        let mut sb = SuperBlock::zeroed();
        sb.set_feature(features::HAS_JOURNAL, true);
        sb
    }

    #[test]
    fn unknown_features_are_named() {
        let mut s = sb();
        s.set_feature(features::CASEFOLD, true);
        let e = check_features(&s, true).expect_err("casefold");
        assert!(e.to_string().contains("casefold"), "{e}");
        let mut s = sb();
        s.set_feature(features::BIGALLOC, true);
        check_features(&s, true).expect("read-only");
        let e = check_features(&s, false).expect_err("bigalloc");
        assert!(e.to_string().contains("bigalloc"), "{e}");
    }

    #[test]
    fn options_that_exclude_each_other() {
        let ok = |text: &str| {
            let o = MountOptions::parse(text).expect("known");
            resolve_options(&sb(), &o)
        };
        assert_eq!(ok("").expect("default").data_mode, DataMode::Ordered);
        assert_eq!(
            ok("data=journal").expect("journal").data_mode,
            DataMode::Journal
        );
        ok("data=journal,delalloc").expect_err("delalloc");
        ok("journal_async_commit").expect_err("async commit");
        ok("journal_async_commit,data=writeback").expect("writeback");
        let o = MountOptions::parse("data=ordered").expect("known");
        resolve_options(&SuperBlock::zeroed(), &o).expect_err("no journal");
    }
}
