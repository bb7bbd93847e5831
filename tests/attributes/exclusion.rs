//! Calls on one argument never overlap, calls on different arguments do.

use crate::support::{Done, LOCKER};
use locker::lock_on_argument;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    thread,
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::Barrier,
    task::JoinSet,
};

/// A section that fails when two calls are inside at once.
#[derive(Default)]
struct Alone {
    inside: AtomicU32,
    visits: AtomicU32,
}

impl Alone {
    fn enter(&self) {
        assert_eq!(self.inside.fetch_add(1, SeqCst), 0, "two calls are inside");
        self.visits.fetch_add(1, SeqCst);
    }

    fn leave(&self) {
        self.inside.fetch_sub(1, SeqCst);
    }
}

#[lock_on_argument(args(account), timeout = "5m", locker = LOCKER)]
async fn visit(account: u64, alone: Arc<Alone>) -> Done {
    assert_eq!(account, 1);
    alone.enter();
    tokio::task::yield_now().await;
    alone.leave();
    Ok(())
}

#[lock_on_argument(args(account), timeout = "5m", locker = LOCKER)]
fn plain_visit(account: u64, alone: &Alone) -> Done {
    assert_eq!(account, 1);
    alone.enter();
    thread::yield_now();
    alone.leave();
    Ok(())
}

#[lock_on_argument(args(account), locker = LOCKER)]
async fn meet(account: u64, all: Arc<Barrier>) -> Done<u64> {
    all.wait().await;
    Ok(account)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_on_one_argument_never_overlap() {
    let (alone, mut calls) = (Arc::<Alone>::default(), JoinSet::new());
    for _ in 0..1000 {
        calls.spawn(visit(1, alone.clone()));
    }
    calls.join_all().await.into_iter().collect::<Done>().unwrap();
    assert_eq!(alone.visits.load(SeqCst), 1000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_on_different_arguments_run_together() {
    let (all, mut calls) = (Arc::new(Barrier::new(1000)), JoinSet::new());
    for account in 0..1000 {
        calls.spawn(meet(account, all.clone()));
    }
    assert_eq!(calls.join_all().await.into_iter().map(Result::unwrap).sum::<u64>(), 499_500);
}

/// Calls a plain function from this thread and from two others, so that some calls wait.
fn visit_from_many_threads() {
    let alone = Alone::default();
    let visits = || (0..100).try_for_each(|_| plain_visit(1, &alone));
    thread::scope(|scope| {
        let others = [scope.spawn(visits), scope.spawn(visits)];
        visits().unwrap();
        for other in others {
            other.join().unwrap().unwrap();
        }
    });
    assert_eq!(alone.visits.load(SeqCst), 300);
}

fn plain_functions_in(runtime: &Runtime) {
    runtime.block_on(async { visit_from_many_threads() });
    runtime.block_on(async { tokio::spawn(async { visit_from_many_threads() }).await.unwrap() });
}

#[test]
fn plain_functions_exclude_in_any_runtime() {
    visit_from_many_threads();
    plain_functions_in(&Builder::new_current_thread().build().unwrap());
    plain_functions_in(&Builder::new_current_thread().enable_all().build().unwrap());
    plain_functions_in(&Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap());
}

#[lock_on_argument(name = "exclusion.transfer", each(from, to), timeout = "5m", locker = LOCKER)]
async fn transfer(from: u64, to: u64, alone: Arc<Alone>) -> Done {
    assert_ne!(from, to);
    alone.enter();
    tokio::task::yield_now().await;
    alone.leave();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opposite_transfers_never_deadlock() {
    let (alone, mut calls) = (Arc::<Alone>::default(), JoinSet::new());
    for _ in 0..250 {
        calls.spawn(transfer(1, 2, alone.clone()));
        calls.spawn(transfer(2, 1, alone.clone()));
    }
    calls.join_all().await.into_iter().collect::<Done>().unwrap();
    assert_eq!(alone.visits.load(SeqCst), 500);
}
