//! Damaged disks neither panic nor run on. Agreement with Linux is tested in `tests/interop`.

use super::*;
use crate::base::rng::SplitMix64;

#[test]
fn random_bytes_are_refused() {
    let mut rng = SplitMix64::new(11);
    for _ in 0..200 {
        let bytes: Vec<u8> = (0..8192).map(|_| rng.next_u64() as u8).collect();
        assert!(Reader::open(bytes.as_slice()).is_err());
    }
    assert!(Reader::open([].as_slice()).is_err());
}
