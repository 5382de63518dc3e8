//! Fast commit records: `struct ext4_fc_tl` and its bodies of `fs/ext4/fast_commit.h`. Little-endian.
//!
//! A fast commit is a run of tag-length-value records in the area at the end of the log: HEAD, changes, TAIL. TAIL
//! holds the transaction id and a crc32c (seed `!0`... running) of all bytes since HEAD up to the crc itself.

use crate::base::bytes;
use crate::format::cast;
use crate::format::{Corrupt, CorruptKind};

/// Bytes of tag and length.
pub const EXT4_FC_TAG_BASE_LEN: usize = 4;

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FcRecord {
    /// Extent of `ino` added: entry of a leaf (12 bytes, [`crate::format::ext4::Extent`] layout).
    AddRange {
        /// Inode.
        ino: u32,
        /// First logical block.
        lblk: u32,
        /// Length as stored in `ee_len` (above 32768: unwritten).
        raw_len: u16,
        /// First physical block.
        pblk: u64,
    },
    /// Range removed.
    DelRange {
        /// Inode.
        ino: u32,
        /// First logical block.
        lblk: u32,
        /// Blocks.
        len: u32,
    },
    /// Name created for a new inode.
    Creat(FcDentry),
    /// Name linked.
    Link(FcDentry),
    /// Name removed.
    Unlink(FcDentry),
    /// The inode as it is in the inode table.
    Inode {
        /// Inode.
        ino: u32,
        /// Raw inode bytes.
        raw: Vec<u8>,
    },
    /// Fills the block.
    Pad,
    /// End of a fast commit.
    Tail {
        /// Transaction.
        tid: u32,
        /// crc32c of the records.
        crc: u32,
    },
    /// Start of a fast commit.
    Head {
        /// Fast commit features.
        features: u32,
        /// Transaction.
        tid: u32,
    },
}

/// Body of the directory entry records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FcDentry {
    /// Directory.
    pub parent_ino: u32,
    /// Inode the name points to.
    pub ino: u32,
    /// The name.
    pub name: Vec<u8>,
}

const TAG_ADD_RANGE: u16 = 1;
const TAG_DEL_RANGE: u16 = 2;
const TAG_CREAT: u16 = 3;
const TAG_LINK: u16 = 4;
const TAG_UNLINK: u16 = 5;
const TAG_INODE: u16 = 6;
const TAG_PAD: u16 = 7;
const TAG_TAIL: u16 = 8;
const TAG_HEAD: u16 = 9;

impl FcRecord {
    /// Decodes the record at `at` of `b`: the record and the offset after it.
    pub fn decode(b: &[u8], at: usize) -> Result<(FcRecord, usize), Corrupt> {
        let tag = bytes::le16(b, at);
        let len = bytes::le16(b, at.saturating_add(2));
        let start = at.saturating_add(EXT4_FC_TAG_BASE_LEN);
        let end = start.saturating_add(usize::from(len));
        let bad = || Corrupt::new(CorruptKind::FastCommitTag { tag, len }, cast::len32(at));
        let body = b.get(start..end).ok_or_else(bad)?;
        let record = match tag {
            TAG_ADD_RANGE if len == 16 => FcRecord::AddRange {
                ino: bytes::le32(body, 0),
                lblk: bytes::le32(body, 4),
                raw_len: bytes::le16(body, 8),
                pblk: cast::join32(u32::from(bytes::le16(body, 10)), bytes::le32(body, 12)),
            },
            TAG_DEL_RANGE if len == 12 => FcRecord::DelRange {
                ino: bytes::le32(body, 0),
                lblk: bytes::le32(body, 4),
                len: bytes::le32(body, 8),
            },
            TAG_CREAT | TAG_LINK | TAG_UNLINK if len > 8 && len <= 8 + 255 => {
                let dentry = FcDentry {
                    parent_ino: bytes::le32(body, 0),
                    ino: bytes::le32(body, 4),
                    name: body.get(8..).unwrap_or(&[]).to_vec(),
                };
                match tag {
                    TAG_CREAT => FcRecord::Creat(dentry),
                    TAG_LINK => FcRecord::Link(dentry),
                    _ => FcRecord::Unlink(dentry),
                }
            }
            TAG_INODE if len >= 4 + 128 => FcRecord::Inode {
                ino: bytes::le32(body, 0),
                raw: body.get(4..).unwrap_or(&[]).to_vec(),
            },
            TAG_PAD => FcRecord::Pad,
            TAG_TAIL if len >= 8 => FcRecord::Tail {
                tid: bytes::le32(body, 0),
                crc: bytes::le32(body, 4),
            },
            TAG_HEAD if len == 8 => FcRecord::Head {
                features: bytes::le32(body, 0),
                tid: bytes::le32(body, 4),
            },
            _ => return Err(bad()),
        };
        Ok((record, end))
    }

    /// Tag and body bytes; `Pad` and `Tail` bodies are extended by the caller to fill the block.
    pub fn encode(&self) -> Vec<u8> {
        let (tag, body) = self.body();
        let mut out = Vec::with_capacity(body.len().saturating_add(EXT4_FC_TAG_BASE_LEN));
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&cast::lo16(cast::len32(body.len())).to_le_bytes());
        out.extend_from_slice(&body);
        out
    }

    fn body(&self) -> (u16, Vec<u8>) {
        fn words(words: &[u32]) -> Vec<u8> {
            words.iter().flat_map(|w| w.to_le_bytes()).collect()
        }
        fn dentry(d: &FcDentry) -> Vec<u8> {
            let mut v = words(&[d.parent_ino, d.ino]);
            v.extend_from_slice(&d.name);
            v
        }
        match self {
            FcRecord::AddRange {
                ino,
                lblk,
                raw_len,
                pblk,
            } => {
                let hi = cast::lo16(cast::hi32(*pblk));
                let mid = cast::join16(hi, *raw_len);
                (TAG_ADD_RANGE, words(&[*ino, *lblk, mid, cast::lo32(*pblk)]))
            }
            FcRecord::DelRange { ino, lblk, len } => (TAG_DEL_RANGE, words(&[*ino, *lblk, *len])),
            FcRecord::Creat(d) => (TAG_CREAT, dentry(d)),
            FcRecord::Link(d) => (TAG_LINK, dentry(d)),
            FcRecord::Unlink(d) => (TAG_UNLINK, dentry(d)),
            FcRecord::Inode { ino, raw } => {
                let mut v = words(&[*ino]);
                v.extend_from_slice(raw);
                (TAG_INODE, v)
            }
            FcRecord::Pad => (TAG_PAD, Vec::new()),
            FcRecord::Tail { tid, crc } => (TAG_TAIL, words(&[*tid, *crc])),
            FcRecord::Head { features, tid } => (TAG_HEAD, words(&[*features, *tid])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip() {
        let dentry = FcDentry {
            parent_ino: 2,
            ino: 12,
            name: b"name".to_vec(),
        };
        let all = [
            FcRecord::Head {
                features: 0,
                tid: 3,
            },
            FcRecord::AddRange {
                ino: 12,
                lblk: 7,
                raw_len: 40000,
                pblk: 1 << 40,
            },
            FcRecord::DelRange {
                ino: 12,
                lblk: 9,
                len: 1,
            },
            FcRecord::Creat(dentry.clone()),
            FcRecord::Link(dentry.clone()),
            FcRecord::Unlink(dentry),
            FcRecord::Inode {
                ino: 12,
                raw: vec![3; 160],
            },
            FcRecord::Tail { tid: 3, crc: 99 },
        ];
        let bytes: Vec<u8> = all.iter().flat_map(FcRecord::encode).collect();
        let mut at = 0;
        for want in &all {
            let (got, next) = FcRecord::decode(&bytes, at).unwrap();
            assert_eq!(&got, want);
            at = next;
        }
        assert!(FcRecord::decode(&bytes, at).is_err());
    }
}
