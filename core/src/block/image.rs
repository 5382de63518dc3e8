//! Disks as raw bytes: import, export of non-zero runs, synchronous reading.

use super::bio::SECTOR_SIZE;
use super::store::{Fill, Store};
use crate::base::payload::PAGE_SIZE;
use crate::base::{Lba, Payload, ReadAt};

impl ReadAt for Store {
    fn size(&self) -> u64 {
        self.sectors() * SECTOR_SIZE
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) {
        self.read_bytes(offset, out);
    }
}

impl Store {
    /// A disk with the contents of a raw image; its size is rounded up to whole sectors.
    pub fn from_bytes(image: &[u8]) -> Store {
        let mut store = Store::new((image.len() as u64).div_ceil(SECTOR_SIZE), Fill::Zero);
        store.load(0, image);
        store
    }

    /// Loads a part of a raw image at `offset`; zeroes take no memory. For images larger than memory, call it for the
    /// runs of a sparse file.
    pub fn load(&mut self, offset: u64, bytes: &[u8]) {
        self.write_bytes(offset, bytes);
    }

    /// Makes `len` bytes at `offset` read as zero, outside of any log; both are multiples of a sector.
    pub fn zero(&mut self, offset: u64, len: u64) {
        let lba = Lba(offset / SECTOR_SIZE);
        self.fill_unlogged(lba, len / SECTOR_SIZE, Fill::Zero);
    }

    /// Calls `f` with all pages that hold anything but zeroes, ascending: (offset, bytes). The last page is cut at the
    /// end of the disk. Never-written garbage counts as zeroes unless `with_fill`.
    pub fn export<E>(
        &self,
        with_fill: bool,
        mut f: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut buf = [0; PAGE_SIZE];
        let mut emit = |page: u64, payload: &Payload, size: u64| {
            if matches!(payload, Payload::Zero) {
                return Ok(());
            }
            payload.fill(&mut buf);
            let offset = page * PAGE_SIZE as u64;
            let n = (size - offset).min(PAGE_SIZE as u64) as usize;
            if buf[..n].iter().all(|b| *b == 0) {
                return Ok(());
            }
            f(offset, &buf[..n])
        };
        if with_fill && self.fill() != Fill::Zero {
            for page in 0..self.pages() {
                emit(page, &self.get(page as u32), self.size())?;
            }
            return Ok(());
        }
        for page in self.written_pages() {
            emit(u64::from(page), &self.get(page), self.size())?;
        }
        Ok(())
    }

    /// The whole disk as bytes; for small disks.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![0; self.size() as usize];
        self.read_bytes(0, &mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::SplitMix64;

    #[test]
    fn export_of_an_import_is_the_image() {
        let mut rng = SplitMix64::new(4);
        let mut image = vec![0u8; 300 * 1024 + 512];
        for _ in 0..40 {
            let at = rng.below(image.len() as u64) as usize;
            image[at] = rng.next_u64() as u8;
        }
        let last = image.len() - 1;
        image[last] = 7;
        let store = Store::from_bytes(&image);
        let mut copy = vec![0u8; image.len()];
        let done: Result<(), ()> = store.export(false, |offset, bytes| {
            let at = offset as usize;
            copy[at..at + bytes.len()].copy_from_slice(bytes);
            Ok(())
        });
        assert!(done.is_ok() && copy == image && store.to_bytes() == image);
        assert!(store.entries() <= 41);
    }
}
