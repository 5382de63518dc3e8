//! What others may see of the tasks: views, frames, locks held, the wait graph.

use super::executor::{Sim, Slot, State};
use super::task::{Frame, LockRank, TaskId, TaskState, TaskView, WaitReason};
use crate::base::Nanos;
use std::rc::Rc;

impl Sim {
    /// All tasks that have not ended.
    pub fn tasks(&self) -> Vec<TaskView> {
        let tasks = self.0.tasks.borrow();
        let live = tasks.iter().enumerate().skip(1);
        live.filter(|(_, t)| t.state != State::Done)
            .map(|(i, t)| self.view(i, t))
            .collect()
    }

    /// One task, also after its end.
    pub fn task(&self, id: TaskId) -> Option<TaskView> {
        let tasks = self.0.tasks.borrow();
        let slot = tasks.get(id.0 as usize)?;
        Some(self.view(id.0 as usize, slot))
    }

    fn view(&self, i: usize, t: &Slot) -> TaskView {
        let state = match t.state {
            State::Polling | State::OnCpu => TaskState::OnCpu,
            State::Queued => TaskState::Runnable,
            State::Blocked(why) => TaskState::Blocked(why),
            State::Done => TaskState::Done,
        };
        let running = match t.state {
            State::Polling | State::OnCpu => self.0.now.get().saturating_sub(t.on_cpu_since),
            _ => 0,
        };
        TaskView {
            id: TaskId(i as u32),
            name: Rc::clone(&t.name),
            class: t.class,
            state,
            since: Nanos(t.since),
            cpu: t.cpu,
            cpu_time: Nanos(t.cpu_time + running),
            nvcsw: t.nvcsw,
            nivcsw: t.nivcsw,
            frames: t.frames.clone(),
            held: t.held.clone(),
        }
    }

    /// Puts a label on the current task's frame stack until the value is dropped.
    pub fn frame(&self, label: &'static str) -> Frame {
        let task = self.current();
        if let Some(t) = self.0.tasks.borrow_mut().get_mut(task.0 as usize) {
            t.frames.push(label);
        }
        Frame {
            sim: self.clone(),
            task,
        }
    }

    pub(super) fn pop_frame(&self, task: TaskId) {
        if let Some(t) = self.0.tasks.borrow_mut().get_mut(task.0 as usize) {
            t.frames.pop();
        }
    }

    /// Notes that the current task took a lock; asserts the order of ranks in debug builds.
    pub(super) fn note_lock(&self, task: TaskId, rank: LockRank, why: WaitReason) {
        let mut tasks = self.0.tasks.borrow_mut();
        if let Some(t) = tasks.get_mut(task.0 as usize) {
            t.held.push((rank, why));
        }
    }

    /// Asserts in debug builds that the current task may take a lock of `rank`.
    pub(super) fn check_rank(&self, rank: LockRank, why: WaitReason) {
        if cfg!(debug_assertions) {
            let tasks = self.0.tasks.borrow();
            let me = &tasks[self.current().0 as usize];
            if let Some((top, held)) = me.held.iter().max_by_key(|(r, _)| *r) {
                assert!(
                    *top <= rank,
                    "{} takes {rank:?} ({why}) while it holds {top:?} ({held})",
                    me.name
                );
            }
        }
    }

    pub(super) fn note_unlock(&self, task: TaskId, rank: LockRank, why: WaitReason) {
        let mut tasks = self.0.tasks.borrow_mut();
        if let Some(t) = tasks.get_mut(task.0 as usize) {
            if let Some(i) = t.held.iter().rposition(|h| *h == (rank, why)) {
                t.held.remove(i);
            }
        }
    }

    /// The wait graph as text, the target first.
    pub fn wait_graph(&self, target: TaskId) -> String {
        use std::fmt::Write as _;
        let mut out = format!("stuck at {} ns\n", self.0.now.get());
        let mut views = self.tasks();
        views.sort_by_key(|v| v.id != target);
        for v in views {
            let state = match v.state {
                TaskState::Blocked(why) => format!("waits for {why}"),
                TaskState::Runnable => "waits for a CPU".to_owned(),
                TaskState::OnCpu => "runs".to_owned(),
                TaskState::Done => "has ended".to_owned(),
            };
            let _ = write!(
                out,
                "{} ({:?}) {state} since {} ns",
                v.name, v.class, v.since
            );
            if !v.frames.is_empty() {
                let _ = write!(out, ", in {}", v.frames.join(" > "));
            }
            for (rank, why) in &v.held {
                let _ = write!(out, ", holds {rank:?} ({why})");
            }
            out.push('\n');
        }
        out
    }
}
