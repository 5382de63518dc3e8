//! Synchronous reading of a disk's bytes: stores, crash images, files in memory.

/// Something with bytes at offsets, for code that inspects a disk outside of virtual time.
pub trait ReadAt {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// Copies the bytes at `offset..`; past the end they are zero.
    fn read_at(&self, offset: u64, out: &mut [u8]);
}

impl ReadAt for [u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) {
        let start = usize::try_from(offset).map_or(self.len(), |o| o.min(self.len()));
        let n = out.len().min(self.len() - start);
        out[..n].copy_from_slice(&self[start..start + n]);
        out[n..].fill(0);
    }
}

impl ReadAt for Vec<u8> {
    fn size(&self) -> u64 {
        self.as_slice().size()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) {
        self.as_slice().read_at(offset, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_past_the_end_are_zero() {
        let v = vec![1u8, 2, 3];
        let mut out = [9; 4];
        v.read_at(1, &mut out);
        assert_eq!(out, [2, 3, 0, 0]);
        v.read_at(u64::MAX, &mut out);
        assert_eq!(out, [0; 4]);
    }
}
