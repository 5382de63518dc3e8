//! Zeroing a range of the device (kernel `block/blk-lib.c`): with the command for it where the device has one, else
//! by writing pages of zeroes.

use super::bio::{Bio, IoError, Op};
use super::queue::{Batch, Queue};
use crate::base::{Lba, Payload};
use crate::sim::WaitReason;
use std::rc::Rc;

/// Most pages of one bio (kernel `BIO_MAX_VECS`).
const PAGES_MAX: u32 = 256;
const SECTORS_PER_PAGE: u32 = 4096 / 512;

impl Queue {
    /// Carries out a bio of `Bio::write_zeroes` on any device and blocks until it is done (kernel
    /// `blkdev_issue_zeroout`).
    pub async fn issue_zeroout(self: &Rc<Self>, zero: Bio) -> Result<(), IoError> {
        debug_assert_eq!(zero.op, Op::WriteZeroes, "only zeroing has this way out");
        if self.has_write_zeroes() {
            return self.run(zero).await.map(|_| ());
        }
        let batch = Batch::new(&self.sim);
        let plug = self.plug();
        let mut from = 0;
        while from < zero.sectors {
            let n = (zero.sectors - from).min(PAGES_MAX * SECTORS_PER_PAGE);
            self.submit_batch(write_of(&zero, from, n), &batch);
            from += n;
        }
        plug.finish();
        batch.wait(WaitReason::Queue).await
    }
}

/// `n` sectors of `zero` after its first `from`, as an ordinary write of zeroes.
fn write_of(zero: &Bio, from: u32, n: u32) -> Bio {
    let unit = 512 << n.trailing_zeros().min(SECTORS_PER_PAGE.trailing_zeros());
    let units = vec![Payload::Zero; (n * 512 / unit) as usize];
    let mut bio = Bio::write(Lba(zero.lba.0 + u64::from(from)), unit, units, zero.role)
        .flags(zero.flags)
        .segments(n.div_ceil(SECTORS_PER_PAGE) as u16);
    (bio.ino, bio.tid) = (zero.ino, zero.tid);
    bio
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Device, DeviceConfig, Role};
    use crate::sim::Sim;

    /// 2 MiB and a half block over garbage: zeroes there, garbage on both sides, the same on both kinds of device.
    #[test]
    fn a_device_without_the_command_gets_writes_of_zeroes() {
        for (device, ops) in [
            ("hdd,fill=garbage", Op::Write),
            ("sata-ssd,fill=garbage", Op::WriteZeroes),
        ] {
            let sim = Sim::new(1, 2);
            let config = DeviceConfig::parse(device, 1 << 30).unwrap();
            let queue = Queue::new(&sim, Device::new(config, sim.rng("device.latency")));
            let q = Rc::clone(&queue);
            let got = sim.block_on("t", async move {
                let zero = Bio::write_zeroes(Lba(80), 4096 + 4, Role::Itable);
                q.issue_zeroout(zero).await?;
                q.run(Bio::read(Lba(79), 4096 + 6, 512, Role::Itable)).await
            });
            let units = got.unwrap().unwrap().into_vec();
            let zeroes: Vec<bool> = units.iter().map(|u| u.same(&Payload::Zero)).collect();
            assert!(!zeroes[0] && !zeroes[4096 + 5], "{device}");
            assert!(zeroes[1..=4096 + 4].iter().all(|z| *z), "{device}");
            let device = queue.device();
            let mut records = device.log().records();
            assert!(records.all(|(_, r)| r.op == ops), "{ops:?}");
        }
    }
}
