//! Blocking calls on threads that are about to end or that park themselves.

use locker::{Guard, Locker, stores::Memory};
use locker_harness::{GENEROUS, eventually};
use std::{
    sync::mpsc::{self, Receiver},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Takes a lock when its thread ends, after everything the thread used later is gone.
struct AtTheEnd(Locker, mpsc::Sender<bool>);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        let held = self.0.lock("at the end").acquire_blocking().is_ok_and(|guard| guard.is_held());
        self.1.send(held).unwrap();
    }
}

thread_local! {
    static LAST: std::cell::OnceCell<AtTheEnd> = const { std::cell::OnceCell::new() };
}

/// Starts a thread that is about to end and has made blocking calls. The thread-locals of those calls will be gone.
fn ending(locker: Locker) -> (JoinHandle<()>, Receiver<bool>) {
    let (sender, held) = mpsc::channel();
    let (done, all_but_the_end) = mpsc::channel();
    let ending = thread::spawn(move || {
        assert!(LAST.with(|last| last.set(AtTheEnd(locker.clone(), sender))).is_ok());
        drop(locker.lock("before").acquire_blocking().unwrap());
        locker.event("never").wait_blocking(Duration::from_millis(1)).unwrap_err();
        done.send(()).unwrap();
    });
    all_but_the_end.recv().unwrap();
    (ending, held)
}

#[test]
fn a_lock_can_be_taken_while_a_thread_ends() {
    let (ending, held) = ending(Locker::memory());
    ending.join().unwrap();
    assert_eq!(held.recv(), Ok(true));
}

/// Returns a locker, its store, which counts holders and waiters, and a guard of its lock.
fn held() -> (Locker, Memory, Guard) {
    let store = Memory::new();
    let locker = Locker::builder().store(store.clone()).timeout(GENEROUS).build_blocking().unwrap();
    let guard = locker.lock("at the end").acquire_blocking().unwrap();
    (locker, store, guard)
}

fn hand_over(store: &Memory, guard: Guard) {
    eventually("a waiter", || (store.users() == 2).then_some(()));
    guard.release_blocking().unwrap();
}

#[test]
fn a_lock_can_be_waited_for_while_a_thread_ends() {
    let (locker, store, guard) = held();
    let (ending, held) = ending(locker);
    hand_over(&store, guard);
    assert_eq!(held.recv(), Ok(true));
    ending.join().unwrap();
}

/// A thread that was unparked before a blocking call does not park after it.
#[test]
fn blocking_call_keeps_the_unpark_token() {
    let (locker, store, guard) = held();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            thread::current().unpark();
            drop(locker.lock("at the end").acquire_blocking().unwrap());
            let parked = Instant::now();
            thread::park_timeout(GENEROUS);
            parked.elapsed() < GENEROUS
        });
        hand_over(&store, guard);
        assert!(waiting.join().unwrap());
    });
}
