//! The machine: clock, device, memory, and a mounted file system; mkfs, mount, unmount.
//!
//! Knows nothing of experiments. Dropping a machine drops its tasks and leaves the disk as it is.

#[cfg(test)]
mod vfs_tests;

use crate::base::Nanos;
use crate::block::{Device, DeviceConfig, Phase, Queue, Store};
use crate::format::ext4::SuperBlock;
use crate::fs::common::{FsError, FsResult};
use crate::fs::ext4::mkfs::MkfsImage;
use crate::fs::ext4::{CostTable, Ext4, MountConfig, MountOptions};
use crate::fs::jbd2::JournalCosts;
use crate::mm::{Sysctls, Vm};
use crate::sim::Sim;
use crate::trace::Category;
use crate::vfs::{Fs, Vfs};
use std::rc::Rc;

/// What a machine is made from.
#[derive(Clone, Debug)]
pub struct MachineConfig {
    /// Seed of all random streams.
    pub seed: u64,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Memory in bytes.
    pub ram: u64,
    /// The device.
    pub device: DeviceConfig,
    /// Dirty limits and intervals.
    pub sysctls: Sysctls,
    /// Wall clock at virtual time 0, seconds since 1970.
    pub wall_clock: u64,
}

/// 2026-01-01 00:00:00 UTC: the wall clock of a run that does not say otherwise.
pub const WALL_CLOCK: u64 = 1_767_225_600;

/// The parts of a machine, for tasks that run on it.
#[derive(Clone)]
pub struct Hardware {
    /// Clock and tasks.
    pub sim: Sim,
    /// The device's request queue.
    pub queue: Rc<Queue>,
    /// Memory.
    pub vm: Rc<Vm>,
    /// Wall clock at virtual time 0, seconds since 1970.
    pub wall_clock: u64,
}

/// A machine; taking it down stops all its tasks.
pub struct Machine {
    /// Its parts.
    pub hw: Hardware,
    /// What it was made from.
    pub config: MachineConfig,
}

impl std::ops::Deref for Machine {
    type Target = Hardware;
    fn deref(&self) -> &Hardware {
        &self.hw
    }
}

impl Machine {
    /// A machine with an empty device.
    pub fn boot(config: MachineConfig) -> Machine {
        let store = Store::new(config.device.size / 512, config.device.fill);
        Machine::boot_with(config, store)
    }

    /// A machine whose device holds `store`.
    pub fn boot_with(config: MachineConfig, store: Store) -> Machine {
        let sim = Sim::new(config.seed, config.cpus);
        let rng = sim.rng("device.latency");
        let device = Device::with_store(config.device.clone(), store, rng);
        let queue = Queue::new(&sim, device);
        let vm = Vm::new(&sim, config.ram);
        vm.set_sysctls(config.sysctls);
        let hw = Hardware {
            sim,
            queue,
            vm,
            wall_clock: config.wall_clock,
        };
        Machine { hw, config }
    }

    /// Turns the recording of events on, with a budget in bytes.
    pub fn record(&self, budget: usize) {
        let all = Category::ALL.iter().filter(|c| **c != Category::Sched);
        self.sim
            .trace()
            .set_recorded(all.fold(0, |mask, c| mask | c.bit()));
        self.sim.trace().set_budget(budget);
    }

    /// Puts a new file system on the device, outside of virtual time.
    pub fn mkfs(&self, image: &MkfsImage) {
        apply_mkfs(self.queue.device_mut().store_mut(), image);
    }

    /// Now.
    pub fn now(&self) -> Nanos {
        self.sim.now()
    }

    /// Hash of everything that happened: the device log and the events.
    pub fn digest(&self) -> String {
        let log = self.queue.device().log().digest();
        let now = self.sim.now().0;
        format!(
            "{:016x}",
            crate::base::rng::mix64(log ^ crate::base::rng::mix64(now))
        )
    }
}

impl Hardware {
    /// Mounts the device.
    pub async fn mount(&self, options: &str) -> FsResult<Rc<Vfs>> {
        let opts = MountOptions::parse(options).map_err(FsError::Unsupported)?;
        self.queue.set_phase(Phase::Mount);
        let config = MountConfig {
            sim: self.sim.clone(),
            queue: Rc::clone(&self.queue),
            vm: Rc::clone(&self.vm),
            opts,
            wall_clock_base: self.wall_clock * 1_000_000_000,
            cost: CostTable::MODELLED,
            journal_costs: JournalCosts::LINUX,
            device: "vda".to_string(),
            mount_point: "/mnt".to_string(),
            journal_queue: None,
        };
        let fs = Ext4::mount(config).await?;
        self.queue.set_phase(Phase::Work);
        Ok(Vfs::new(Fs::Ext4(fs)))
    }

    /// Unmounts; everything is on the medium afterwards.
    pub async fn umount(&self, vfs: &Rc<Vfs>) -> FsResult<()> {
        self.queue.set_phase(Phase::Umount);
        vfs.release_all().await?;
        let Fs::Ext4(fs) = vfs.fs();
        fs.umount().await
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.sim.shutdown();
        self.vm.tear_down();
    }
}

/// Writes a new file system to a store.
pub fn apply_mkfs(store: &mut Store, image: &MkfsImage) {
    let bs = u64::from(image.block_size);
    for (start, blocks) in &image.zero {
        store.zero(start * bs, blocks * bs);
    }
    let mut buf = vec![0u8; bs as usize];
    for (block, payload) in &image.blocks {
        payload.fill(&mut buf);
        store.write_bytes(block * bs, &buf);
    }
}

/// The superblock of a device, if there is an ext4 on it.
pub fn probe(store: &Store) -> Option<SuperBlock> {
    let mut bytes = [0u8; 1024];
    store.read_bytes(1024, &mut bytes);
    SuperBlock::decode_unchecked(&bytes).ok()
}
