//! Decode and encode on images that mke2fs made: the same bytes come back, and every checksum holds.

use super::ext4::dirent::{self, Dirents};
use super::ext4::extent::{self, decode_node};
use super::ext4::group_desc::{block_bitmap_csum_verify, inode_bitmap_csum_verify};
use super::ext4::inode::{xattr_area, EXT4_EXTENTS_FL, EXT4_INDEX_FL};
use super::ext4::{dx, xattr, CsumCtx, ExtentNode, GroupDesc, RawInode, SuperBlock};
use super::jbd2::JournalSuperblock;
use crate::base::rng::SplitMix64;
use std::path::Path;
use std::process::Command;

/// An image of mke2fs with some files in it and htrees made by e2fsck; `None` where they are not installed.
fn image(opts: &str, dir: &Path) -> Option<Vec<u8>> {
    let path = dir.with_extension("img");
    let _ = std::fs::remove_file(&path);
    let made = Command::new("/usr/sbin/mke2fs")
        .args(["-q", "-F", "-d"])
        .arg(dir)
        .args(opts.split_whitespace())
        .arg(&path)
        .arg("24M")
        .output()
        .ok()?;
    assert!(made.status.success(), "{opts}: {made:?}");
    let _ = Command::new("/usr/sbin/e2fsck")
        .arg("-fyD")
        .arg(&path)
        .output()
        .ok()?;
    let b = std::fs::read(&path).unwrap();
    let _ = std::fs::remove_file(&path);
    Some(b)
}

fn same(what: &str, before: &[u8], after: &[u8]) {
    let at = before.iter().zip(after).position(|(a, b)| a != b);
    assert_eq!(at, None, "{what}: first difference");
}

struct Image<'a> {
    b: &'a [u8],
    sb: SuperBlock,
    ctx: CsumCtx,
    bs: usize,
    inodes: u32,
    htrees: u32,
}

impl Image<'_> {
    fn block(&self, n: u64) -> &[u8] {
        &self.b[n as usize * self.bs..][..self.bs]
    }

    fn check(&mut self) {
        let mut sb = self.b[1024..2048].to_vec();
        self.sb.encode(&mut sb);
        same("superblock", &self.b[1024..2048], &sb);
        let size = usize::from(self.sb.desc_size());
        let gdt = self.sb.descriptor_block(0) as usize * self.bs;
        for group in 0..self.sb.groups_count() {
            let raw = self.b[gdt + group as usize * size..][..size].to_vec();
            let d = GroupDesc::decode(&raw, self.sb.desc_size());
            let mut out = raw.clone();
            d.encode_with_csum(&self.ctx, group, &mut out, self.sb.desc_size());
            same("group descriptor", &raw, &out);
            if d.bg_flags & 2 == 0 {
                let map = self.block(d.bg_block_bitmap);
                block_bitmap_csum_verify(&self.ctx, &self.sb, group, &d, map).unwrap();
            }
            if d.bg_flags & 1 == 0 {
                let map = self.block(d.bg_inode_bitmap);
                inode_bitmap_csum_verify(&self.ctx, &self.sb, group, &d, map).unwrap();
            }
            let used = self.sb.s_inodes_per_group - d.bg_itable_unused;
            for i in 0..if d.bg_flags & 1 == 0 { used } else { 0 } {
                let ino = group * self.sb.s_inodes_per_group + i + 1;
                self.check_inode(
                    ino,
                    d.bg_inode_table as usize * self.bs
                        + i as usize * usize::from(self.sb.inode_size()),
                );
            }
        }
    }

    fn check_inode(&mut self, ino: u32, at: usize) {
        let raw = &self.b[at..at + usize::from(self.sb.inode_size())];
        RawInode::csum_verify(&self.ctx, ino, raw).unwrap();
        let inode = RawInode::decode(raw).unwrap();
        let mut out = raw.to_vec();
        inode.encode(&mut out);
        same("inode", raw, &out);
        let mut rewritten = raw.to_vec();
        RawInode::csum_set(&self.ctx, ino, &mut rewritten);
        if inode.i_links_count > 0 {
            same("inode checksum", raw, &rewritten);
            self.inodes += 1;
        }
        xattr::ibody_entries(xattr_area(raw)).unwrap();
        if inode.has_flag(EXT4_EXTENTS_FL) {
            self.check_node(&inode.i_block, ino, &inode, None);
        }
    }

    fn check_node(&mut self, node: &[u8], ino: u32, inode: &RawInode, depth: Option<u16>) {
        let (h, n) = decode_node(node, depth, (0, self.sb.s_blocks_count)).unwrap();
        let mut out = node.to_vec();
        h.encode(&mut out);
        match n {
            ExtentNode::Leaf(list) => {
                for (i, e) in (0..).zip(&list) {
                    e.encode(&mut out, i);
                    for lblk in 0..u64::from(e.len) {
                        if inode.is_dir() {
                            self.check_dir_block(
                                e.pblk + lblk,
                                u64::from(e.lblk) + lblk,
                                ino,
                                inode,
                            );
                        }
                    }
                }
            }
            ExtentNode::Index(list) => {
                for (i, e) in (0..).zip(&list) {
                    e.encode(&mut out, i);
                    let child = self.block(e.leaf).to_vec();
                    extent::csum_verify(&self.ctx, ino, inode.i_generation, &child).unwrap();
                    self.check_node(&child, ino, inode, Some(h.eh_depth - 1));
                }
            }
        }
        same("extent node", node, &out);
    }

    fn check_dir_block(&mut self, pblk: u64, lblk: u64, ino: u32, inode: &RawInode) {
        let b = self.block(pblk).to_vec();
        let mut out = b.clone();
        for d in Dirents::new(&b) {
            let d = d.unwrap();
            dirent::put_dirent(&mut out, d.offset, d.inode, d.rec_len, d.name, d.file_type);
        }
        if inode.has_flag(EXT4_INDEX_FL) && lblk == 0 {
            let at = dx::entries_offset(&b).unwrap();
            dx::csum_verify(&self.ctx, ino, inode.i_generation, &b, at).unwrap();
            let entries = dx::decode_entries(&b, at, self.ctx.metadata_csum).unwrap();
            for (i, e) in (0..).zip(entries) {
                dx::set_dx_entry(&mut out, at, i, e);
            }
            self.htrees += 1;
        } else {
            dirent::csum_verify(&self.ctx, ino, inode.i_generation, &b).unwrap();
            dirent::csum_set(&self.ctx, ino, inode.i_generation, &mut out);
        }
        same("directory block", &b, &out);
    }
}

#[test]
fn images_of_mke2fs_round_trip() {
    let dir = std::env::temp_dir().join(format!("fsglass-format-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("many")).unwrap();
    for i in 0..400 {
        std::fs::write(dir.join(format!("many/some name {i}")), b"text").unwrap();
    }
    std::fs::write(dir.join("big"), vec![1; 2_000_000]).unwrap();
    let mut tried = 0;
    for opts in [
        "-t ext4",
        "-t ext4 -b 4096 -O metadata_csum_seed,orphan_file",
        "-t ext4 -b 2048 -O inline_data",
        "-t ext4 -O ^metadata_csum,uninit_bg",
        "-t ext4 -O ^64bit -I 128",
        "-t ext4 -I 1024",
        "-t ext3",
        "-t ext2 -b 4096",
    ] {
        let Some(b) = image(opts, &dir) else {
            println!("SKIP: mke2fs or e2fsck is not installed");
            break;
        };
        let sb = SuperBlock::decode(&b[1024..2048]).unwrap();
        let mut i = Image {
            b: &b,
            sb,
            ctx: sb.csum_ctx(),
            bs: sb.block_size() as usize,
            inodes: 0,
            htrees: 0,
        };
        i.check();
        assert!(i.inodes > 400, "{opts}");
        assert!(i.htrees > 0 || !opts.contains("ext4"), "{opts}");
        if sb.s_journal_inum != 0 && opts.contains("ext4") {
            let first =
                super::ext4::Extent::decode(&sb.s_jnl_blocks.map(u32::to_le_bytes).concat(), 0);
            let raw = i.block(first.pblk).to_vec();
            let mut out = raw.clone();
            JournalSuperblock::decode(&raw).unwrap().encode(&mut out);
            same("journal superblock", &raw, &out);
        }
        tried += 1;
    }
    std::fs::remove_dir_all(&dir).unwrap();
    println!("{tried} images round-tripped");
}

/// Every decoder on random bytes, with lengths from empty to a block.
#[test]
fn random_bytes_never_panic() {
    use super::jbd2;
    let mut rng = SplitMix64::new(77);
    for round in 0..4000u32 {
        let len = [0, 1, 12, 60, 127, 128, 129, 160, 256, 1024, 4096][rng.below(11) as usize];
        let mut b: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
        // Half of the time with the magic that lets decoding go on.
        if round % 2 == 0 {
            crate::base::bytes::put_le16(&mut b, 0, 0xF30A);
            crate::base::bytes::put_le16(&mut b, 0x38, 0xEF53);
        } else if round % 3 == 0 {
            crate::base::bytes::put_be32(&mut b, 0, jbd2::JBD2_MAGIC_NUMBER);
            crate::base::bytes::put_be32(&mut b, 4, 4);
        }
        if let Ok(sb) = SuperBlock::decode_unchecked(&b) {
            let n = rng.next_u64();
            let _ = (
                sb.gdt_blocks(),
                sb.base_meta_blocks(n as u32),
                sb.descriptor_block(n as u32),
            );
            let _ = (
                sb.locate_inode(n as u32),
                sb.group_of_block(n),
                sb.cluster_in_group(n),
            );
            let _ = (
                sb.clusters_in_group(n as u32),
                sb.itable_blocks(),
                sb.feature_names(),
            );
        }
        let ctx = CsumCtx {
            metadata_csum: true,
            ..CsumCtx::NONE
        };
        let inode = RawInode::decode_lenient(&b);
        let _ = (
            RawInode::decode(&b),
            inode.rdev(),
            inode.mtime(),
            RawInode::csum(&ctx, 1, &b),
        );
        let _ = decode_node(&b, None, (0, u64::MAX));
        let _ = extent::csum_verify(&ctx, 1, 2, &b);
        let _ = Dirents::new(&b).count();
        let _ = (dirent::has_tail(&b), dirent::csum_verify(&ctx, 1, 2, &b));
        let _ = dx::DxRootInfo::decode(&b, true);
        let _ = dx::decode_entries(&b, dx::DX_ROOT_ENTRIES, true);
        let _ = dx::csum_verify(&ctx, 1, 2, &b, dx::DX_NODE_ENTRIES);
        let _ = (
            xattr::ibody_entries(&b),
            xattr::block_entries(&b),
            xattr::XattrHeader::decode(&b),
        );
        let _ = super::ext4::inline_data::system_data(&b);
        let _ = super::ext4::acl::disk_to_xattr(&b);
        let _ = super::ext4::orphan_file::entries(&b).count();
        journal_decoders(&b, round, rng.below(64) as usize);
    }
}

fn journal_decoders(b: &[u8], round: u32, record_at: usize) {
    use super::jbd2::{
        self, fast_commit::FcRecord, BlockTags, CommitBlock, JournalHeader, TagFormat,
    };
    let f = TagFormat {
        csum_v3: round & 4 == 0,
        csum_v2: round & 8 == 0,
        bit64: round & 16 == 0,
    };
    let _ = (
        JournalSuperblock::decode(b),
        JournalHeader::decode(b),
        CommitBlock::decode(b),
    );
    let _ = (BlockTags::new(b, f).count(), jbd2::decode_revokes(b, f));
    let _ = (
        jbd2::block_csum_verify(f, 1, b),
        FcRecord::decode(b, record_at),
    );
}
