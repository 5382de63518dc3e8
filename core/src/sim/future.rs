//! The two futures that suspend a task: holding the CPU for a while, and blocking.

use super::executor::Sim;
use super::task::WaitReason;
use crate::base::Nanos;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// CPU time being spent; see [`Sim::charge`].
#[must_use = "CPU time passes only when awaited"]
pub struct Charge<'a> {
    pub(super) sim: &'a Sim,
    pub(super) cost: Nanos,
    pub(super) armed: bool,
}

impl Future for Charge<'_> {
    type Output = ();

    #[inline]
    fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if this.armed || this.sim.charge_in_place(this.cost) {
            return Poll::Ready(());
        }
        this.armed = true;
        this.sim.charge_suspended(this.cost);
        Poll::Pending
    }
}

/// A blocked task; ends at the first [`Sim::wake`] or at the deadline, if there is one.
#[must_use = "a task blocks only when this is awaited"]
pub struct Block<'a> {
    pub(super) sim: &'a Sim,
    pub(super) why: WaitReason,
    pub(super) deadline: Option<Nanos>,
    pub(super) armed: bool,
}

impl Future for Block<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if this.armed {
            return Poll::Ready(());
        }
        this.armed = true;
        this.sim.block_current(this.why, this.deadline);
        Poll::Pending
    }
}
