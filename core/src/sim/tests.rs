use super::sync::{Completion, Lock, Mailbox, Mutex, RwLock, WaitQueue};
use super::*;
use crate::base::{Ino, Nanos};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

type Log = Rc<RefCell<Vec<(u64, String)>>>;

fn note(log: &Log, sim: &Sim, what: &str) {
    log.borrow_mut().push((sim.now().0, what.to_owned()));
}

#[test]
fn a_lone_task_charges_in_place() {
    let sim = Sim::new(1, 1);
    let s = sim.clone();
    let end = sim.block_on("t", async move {
        for _ in 0..1000 {
            s.charge(Nanos(7)).await;
        }
        s.now()
    });
    assert_eq!(end, Ok(Nanos(7000)));
}

#[test]
fn two_tasks_on_two_cpus_overlap_and_on_one_they_take_turns() {
    for (cpus, end) in [(2, 10_000_000), (1, 20_000_000)] {
        let sim = Sim::new(1, cpus);
        for name in ["a", "b"] {
            let s = sim.clone();
            sim.spawn(name, TaskClass::User, async move {
                for _ in 0..1000 {
                    s.charge(Nanos(10_000)).await;
                }
            });
        }
        assert_eq!(sim.run_until(Nanos::from_secs(1)), RunState::Idle);
        let last = [1, 2].map(|i| sim.task(TaskId(i)).unwrap());
        assert_eq!(last[0].since.max(last[1].since), Nanos(end));
        assert_eq!(last[0].cpu_time, Nanos(10_000_000));
        assert_eq!(last[0].nivcsw > 0, cpus == 1);
    }
}

#[test]
fn stepping_equals_running_through() {
    let run = |step: Option<u64>| {
        let sim = Sim::new(3, 2);
        let log: Log = Rc::default();
        let lock = Lock::new(&sim, LockRank::Inode, WaitReason::InodeLock(Ino(5)));
        for i in 0..5u64 {
            let (s, l, lock) = (sim.clone(), Rc::clone(&log), lock.clone());
            sim.spawn("t", TaskClass::User, async move {
                let mut rng = s.rng(&format!("t{i}"));
                for _ in 0..50 {
                    s.charge(Nanos(rng.below(5000))).await;
                    let guard = lock.lock().await;
                    s.sleep(Nanos(rng.below(3000)), WaitReason::Timer).await;
                    note(&l, &s, &format!("{i}"));
                    drop(guard);
                }
            });
        }
        match step {
            None => assert_eq!(sim.run_until(Nanos::from_secs(1)), RunState::Idle),
            Some(n) => while sim.run_events(n) == RunState::Budget {},
        }
        let out = log.borrow().clone();
        assert_eq!(out.len(), 250);
        out
    };
    let whole = run(None);
    assert_eq!(whole, run(Some(1)));
    assert_eq!(whole, run(Some(17)));
}

#[test]
fn cutting_time_into_slices_changes_nothing() {
    let run = |step: u64| {
        let sim = Sim::new(3, 1);
        let log: Log = Rc::default();
        for i in 0..3 {
            let (s, l) = (sim.clone(), Rc::clone(&log));
            sim.spawn("t", TaskClass::User, async move {
                for _ in 0..400 {
                    s.charge(Nanos(10_001 + i)).await;
                    note(&l, &s, &format!("{i}"));
                }
            });
        }
        let mut t = Nanos::ZERO;
        while sim.run_until(t) != RunState::Idle {
            t += Nanos(step);
        }
        let out = log.borrow().clone();
        out
    };
    assert_eq!(run(1_000_000_000), run(777));
}

#[test]
fn lock_is_handed_over_in_order() {
    let sim = Sim::new(1, 4);
    let log: Log = Rc::default();
    let lock = Lock::new(&sim, LockRank::Inode, WaitReason::InodeLock(Ino(5)));
    for i in 0..4u64 {
        let (s, l, lock) = (sim.clone(), Rc::clone(&log), lock.clone());
        sim.spawn("t", TaskClass::User, async move {
            s.charge(Nanos(10 * (i + 1))).await;
            for _ in 0..2 {
                let guard = lock.lock().await;
                note(&l, &s, &format!("{i}"));
                s.charge(Nanos(1000)).await;
                drop(guard);
            }
        });
    }
    sim.run_until(Nanos(1_500));
    assert_eq!(lock.waiters(), 3);
    sim.run_until(Nanos::from_secs(1));
    let order: String = log.borrow().iter().map(|(_, s)| s.as_str()).collect();
    assert_eq!(order, "01230123");
    assert!(!lock.is_locked());
}

#[test]
fn readers_share_and_writers_do_not_starve() {
    let sim = Sim::new(1, 8);
    let log: Log = Rc::default();
    let rw = RwLock::new(&sim, LockRank::DataSem, WaitReason::Other("i_data_sem"));
    for (i, write) in [false, false, true, false, false].into_iter().enumerate() {
        let (s, l, rw) = (sim.clone(), Rc::clone(&log), rw.clone());
        sim.spawn("t", TaskClass::User, async move {
            s.charge(Nanos(1 + i as u64)).await;
            if write {
                let _g = rw.write().await;
                note(&l, &s, "w");
                s.charge(Nanos(100)).await;
            } else {
                let _g = rw.read().await;
                note(&l, &s, "r");
                s.charge(Nanos(100)).await;
            }
        });
    }
    sim.run_until(Nanos::from_secs(1));
    let times: Vec<u64> = log.borrow().iter().map(|(t, _)| *t).collect();
    assert_eq!(times, [1, 2, 102, 202, 202]);
    assert!(rw.try_write().is_some());
}

#[test]
fn waits_with_deadline_and_completion() {
    let sim = Sim::new(1, 2);
    let q = Rc::new(WaitQueue::new(&sim));
    let c = Rc::new(Completion::new(&sim));
    let (s, q2, c2) = (sim.clone(), Rc::clone(&q), Rc::clone(&c));
    sim.spawn("waker", TaskClass::Kthread, async move {
        s.sleep(Nanos(500), WaitReason::Timer).await;
        assert!(q2.wake_one());
        s.sleep(Nanos(500), WaitReason::Timer).await;
        c2.complete();
    });
    let s = sim.clone();
    let got = sim.block_on("main", async move {
        let first = q.wait_deadline(WaitReason::LogSpace, Nanos(100)).await;
        let at = s.now();
        let second = q.wait_deadline(WaitReason::LogSpace, Nanos(9000)).await;
        let then = s.now();
        c.wait(WaitReason::Timer).await;
        (first, at, second, then, s.now())
    });
    assert_eq!(got, Ok((false, Nanos(100), true, Nanos(500), Nanos(1000))));
}

#[test]
fn deadlock_is_reported_with_its_graph_and_daemons_do_not_hide_it() {
    let sim = Sim::new(1, 2);
    let s = sim.clone();
    sim.spawn("flusher", TaskClass::Kworker, async move {
        loop {
            s.sleep(Nanos::from_secs(5), WaitReason::Timer).await;
        }
    });
    let lock = Lock::new(&sim, LockRank::Inode, WaitReason::InodeLock(Ino(12)));
    let (l2, s) = (lock.clone(), sim.clone());
    sim.spawn("holder", TaskClass::User, async move {
        let _g = l2.lock().await;
        let _f = s.frame("ext4_sync_file");
        s.block(WaitReason::LogSpace, None).await;
    });
    let s = sim.clone();
    let r = sim.block_on("victim", async move {
        s.charge(Nanos(5)).await;
        let _g = lock.lock().await;
    });
    let text = r.unwrap_err().text;
    assert!(
        text.contains("victim (User) waits for lock of inode 12 since 5 ns"),
        "{text}"
    );
    assert!(
        text.contains("in ext4_sync_file, holds Inode (lock of inode 12)"),
        "{text}"
    );
    // The machine goes on: a daemon's wait is no deadlock for others.
    assert_eq!(sim.block_on("other", async { 7 }), Ok(7));
}

#[test]
#[should_panic(expected = "while it holds")]
#[cfg(debug_assertions)]
fn lock_ranks_are_checked() {
    let sim = Sim::new(1, 1);
    let high = Lock::new(&sim, LockRank::Buffer, WaitReason::Other("buffer"));
    let low = Lock::new(&sim, LockRank::Inode, WaitReason::InodeLock(Ino(1)));
    let _ = sim.block_on("t", async move {
        let _a = high.lock().await;
        let _b = low.lock().await;
    });
}

#[test]
fn dropping_at_every_step_is_safe() {
    struct Bell(Rc<Cell<u32>>);
    impl Drop for Bell {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    for steps in 0..120 {
        let sim = Sim::new(1, 1);
        let drops = Rc::new(Cell::new(0));
        let m = Rc::new(Mutex::new(&sim, LockRank::Leaf, WaitReason::Queue, 0u32));
        let inbox = Rc::new(Mailbox::new(&sim));
        for i in 0..4u64 {
            let (s, m, b, inbox) = (
                sim.clone(),
                Rc::clone(&m),
                Bell(Rc::clone(&drops)),
                Rc::clone(&inbox),
            );
            sim.spawn("t", TaskClass::User, async move {
                let _b = b;
                for _ in 0..4 {
                    let mut v = m.lock().await;
                    s.sleep(Nanos(3 + i), WaitReason::Timer).await;
                    *v += 1;
                    inbox.push(*v);
                }
            });
        }
        let i2 = Rc::clone(&inbox);
        sim.spawn("r", TaskClass::Kworker, async move {
            loop {
                i2.recv(WaitReason::Other("work")).await;
            }
        });
        sim.run_events(steps);
        sim.shutdown();
        assert_eq!(drops.get(), 4);
        assert_eq!(sim.events_pending(), 0);
    }
}

#[test]
fn interrupts_run_in_order_and_outside_of_tasks() {
    let sim = Sim::new(1, 1);
    let log: Log = Rc::default();
    let (l, s) = (Rc::clone(&log), sim.clone());
    let irq = sim.register_irq(move |arg| {
        assert_eq!(s.current(), TaskId::IRQ);
        note(&l, &s, &format!("irq{arg}"));
    });
    sim.raise_at(Nanos(20), irq, 1);
    let (l, s) = (Rc::clone(&log), sim.clone());
    sim.call_at(Nanos(10), move || note(&l, &s, "call"));
    sim.raise_at(Nanos(20), irq, 2);
    assert_eq!(sim.run_until(Nanos(15)), RunState::Reached);
    assert_eq!(sim.now(), Nanos(15));
    assert_eq!(sim.run_until(Nanos(30)), RunState::Idle);
    let got: Vec<_> = log.borrow().clone();
    let want = [(10, "call"), (20, "irq1"), (20, "irq2")];
    assert_eq!(got, want.map(|(t, s)| (t, s.to_owned())));
}

#[test]
fn join_and_costs() {
    let sim = Sim::new(1, 1);
    sim.set_costs(Costs::LINUX);
    let s = sim.clone();
    let child = sim.spawn("child", TaskClass::Kthread, async move {
        s.sleep(Nanos(100), WaitReason::Timer).await;
    });
    let s = sim.clone();
    let end = sim.block_on("parent", async move {
        s.join(child).await;
        s.join(child).await;
        s.now()
    });
    // wake 2500, sleep 100, wake 2500; then the parent is switched to after its own start and block.
    assert!(end.unwrap() > Nanos(5_100));
}

#[test]
fn fuzzed_schedules_differ_but_repeat() {
    let run = |fuzz| {
        let sim = Sim::new(1, 8);
        sim.set_schedule_fuzz(fuzz);
        let log: Log = Rc::default();
        for i in 0..8 {
            let (s, l) = (sim.clone(), Rc::clone(&log));
            sim.spawn("t", TaskClass::User, async move {
                note(&l, &s, &format!("{i}"));
            });
        }
        sim.run_until(Nanos(1));
        let out: String = log.borrow().iter().map(|(_, s)| s.as_str()).collect();
        out
    };
    assert_eq!(run(None), "01234567");
    assert_eq!(run(Some(9)), run(Some(9)));
    assert_ne!(run(Some(9)), run(Some(10)));
}
