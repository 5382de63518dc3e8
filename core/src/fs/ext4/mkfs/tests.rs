use super::*;

const GIB: u64 = 1 << 30;

fn make(opts: &str, size: u64) -> MkfsImage {
    mkfs(&MkfsOptions::parse(opts).unwrap(), size).unwrap()
}

/// Golden numbers of the reference image (mechanisms, B1): `mke2fs -t ext4` on 1 GiB.
#[test]
fn reference_image_of_one_gib() {
    let m = make("-b 4096", GIB);
    let sb = &m.super_block;
    assert_eq!((sb.groups_count(), sb.s_inodes_per_group), (8, 8192));
    assert_eq!(
        (sb.s_reserved_gdt_blocks, sb.s_r_blocks_count),
        (127, 13107)
    );
    assert_eq!(sb.s_blocks_count - sb.s_free_blocks_count, 12955);
    assert_eq!(sb.s_inodes_count - sb.s_free_inodes_count, 11);
    let d: Vec<_> = m
        .descs
        .iter()
        .map(|d| (d.bg_block_bitmap, d.bg_inode_bitmap, d.bg_inode_table))
        .collect();
    assert_eq!(d[0], (129, 137, 145));
    assert_eq!(d[7], (136, 144, 145 + 7 * 512));
    assert_eq!(
        SuperBlock::decode(&m.blocks[0].1.to_bytes(4096)[1024..]),
        Ok(*sb)
    );
}

#[test]
fn sizes_from_tiny_to_16_tib() {
    for shift in 20..=44u32 {
        let m = make("", 1 << shift);
        let sb = &m.super_block;
        assert_eq!(sb.s_inodes_count, sb.s_inodes_per_group * sb.groups_count());
        let free: u64 = m
            .descs
            .iter()
            .map(|d| u64::from(d.bg_free_blocks_count))
            .sum();
        assert_eq!(free, sb.s_free_blocks_count, "2^{shift}");
    }
    let small = mkfs(&MkfsOptions::parse("-b 1024").unwrap(), 16 * 1024);
    assert!(small.is_err());
}

#[test]
fn hostile_options_are_errors_not_panics() {
    let mut rng = crate::base::rng::SplitMix64::new(5);
    let words = [
        "-b 1024",
        "-b 2048",
        "-b 4096",
        "-I 128",
        "-I 1024",
        "-I 4096",
        "-i 1024",
        "-i 67108864",
        "-N 4000000000",
        "-N 1",
        "-N 100",
        "-g 256",
        "-g 32768",
        "-g 8184",
        "-G 1",
        "-G 2147483648",
        "-G 64",
        "-m 50",
        "-m 0",
        "-O ^extent,^64bit",
        "-O ^flex_bg",
        "-O meta_bg,^resize_inode",
        "-O bigalloc",
        "-O sparse_super2",
        "-O ^sparse_super",
        "-O ^has_journal",
        "-O orphan_file",
        "-O ^metadata_csum,uninit_bg",
        "-O none",
        "-O inline_data",
        "-O fast_commit",
        "-t ext2",
        "-t ext3",
        "-C 1048576",
        "-J size=1",
        "-J size=4",
        "-J size=1024",
        "-E packed_meta_blocks=1",
        "-E stride=4096",
        "-E resize=4000000000",
        "-E num_backup_sb=0",
        "-E num_backup_sb=1",
        "-E desc_size=1024",
        "-E orphan_file_size=2M",
        "-J location=1",
    ];
    let mut made = 0;
    for _ in 0..400 {
        let n = rng.below(6);
        let text: Vec<&str> = (0..n)
            .map(|_| words[rng.below(words.len() as u64) as usize])
            .collect();
        let opts = MkfsOptions::parse(&text.join(" ")).unwrap();
        let size = rng.next_u64() >> (30 + rng.below(24));
        if let Ok(m) = mkfs(&opts, size) {
            made += 1;
            let end = m.super_block.s_blocks_count;
            assert!(m.blocks.iter().all(|b| b.0 < end), "{text:?} {size}");
        }
    }
    assert!(made > 40, "{made}");
}
