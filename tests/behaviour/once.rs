//! Records: of several callers one runs in a slot, and its success counts for all.

use crate::support::{SHORT, fresh_name, in_time, pass, span, until, waiting_at};
use locker::{Error, ErrorKind, Guard, Locker, OncePer, Result};
use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{sync::oneshot, task::JoinHandle};

laws_of! {
    once, lockers:
    one_of_many_callers_runs,
    callers_are_skipped_after_a_success,
    failed_run_is_followed_by_the_next_caller,
    dropped_run_is_followed_by_the_next_caller,
    run_of_a_process_that_is_gone_is_followed,
    lost_run_is_dropped_and_followed,
    next_slot_runs_again,
    refused_slot_runs_never_again,
    dropped_run_is_as_a_crash_if_those_are_refused,
    caller_that_does_not_wait_times_out,
    deleted_record_runs_again,
}

/// No test lasts until the end of such a slot, but for one minute a year.
const YEAR: Duration = Duration::from_secs(366 * 24 * 60 * 60);

fn once(locker: &Locker, name: &str) -> OncePer {
    locker.once(name).per(YEAR).lease(Duration::from_secs(10))
}

/// Runs something that succeeds at once.
async fn succeed(record: OncePer) -> Result<Option<u64>> {
    in_time("a run or a skip", record.run(async |run: &Guard| Ok::<_, Error>(run.fence()))).await
}

/// Starts a run that lasts until its task is aborted. Returns its fence.
async fn hanging(record: OncePer) -> (u64, JoinHandle<Result<Option<()>>>) {
    let (sender, begun) = oneshot::channel();
    let run = tokio::spawn(async move {
        let body = async move |run: &Guard| {
            sender.send(run.fence()).unwrap();
            pending::<Result<()>>().await
        };
        record.run(body).await
    });
    (in_time("the run", begun).await.unwrap(), run)
}

pub(crate) async fn one_of_many_callers_runs(lockers: [Locker; 3]) {
    let (name, runs) = (fresh_name(), Arc::new(AtomicUsize::new(0)));
    let callers: Vec<JoinHandle<Result<Option<u64>>>> = (0..12)
        .map(|at| {
            let (record, runs) = (once(&lockers[at % 3], &name), Arc::clone(&runs));
            tokio::spawn(async move {
                let body = async move |run: &Guard| {
                    runs.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    Ok::<_, Error>(run.fence())
                };
                record.run(body).await
            })
        })
        .collect();
    let mut ran = 0;
    for caller in callers {
        ran += usize::from(in_time("all callers", caller).await.unwrap().unwrap().is_some());
    }
    assert_eq!((ran, runs.load(Ordering::SeqCst)), (1, 1));
}

pub(crate) async fn callers_are_skipped_after_a_success([one, other, _]: [Locker; 3]) {
    let name = fresh_name();
    assert!(succeed(once(&one, &name)).await.unwrap().is_some());
    for locker in [&one, &other, &one] {
        assert_eq!(succeed(once(locker, &name).timeout(Duration::ZERO)).await.unwrap(), None);
    }
    assert!(succeed(once(&one, &fresh_name())).await.unwrap().is_some(), "another name");
}

pub(crate) async fn failed_run_is_followed_by_the_next_caller([one, other, _]: [Locker; 3]) {
    let name = fresh_name();
    let (fail, asked) = oneshot::channel::<()>();
    let record = once(&one, &name);
    let first = tokio::spawn(async move {
        let body = async move |run: &Guard| {
            asked.await.unwrap();
            Err::<u64, _>(run.check().err().unwrap_or_else(misused))
        };
        record.run(body).await
    });
    let key = one.admin().key("once", &name);
    until("the run", async || {
        one.admin().inspect(&key).await.unwrap().is_some_and(|state| !state.holders.is_empty())
    })
    .await;
    let next = tokio::spawn(succeed(once(&other, &name)));
    waiting_at(&one, "once", &name, 1).await;
    fail.send(()).unwrap();
    assert_eq!(in_time("the failure", first).await.unwrap().unwrap_err().kind(), ErrorKind::Misused);
    assert!(next.await.unwrap().unwrap().is_some());
}

/// An error of the application.
fn misused() -> Error {
    Locker::memory().lock("").permits(2).acquire_blocking().unwrap_err()
}

pub(crate) async fn dropped_run_is_followed_by_the_next_caller([one, other, _]: [Locker; 3]) {
    let name = fresh_name();
    let (fence, run) = hanging(once(&one, &name)).await;
    let next = tokio::spawn(succeed(once(&other, &name)));
    waiting_at(&one, "once", &name, 1).await;
    run.abort();
    assert!(next.await.unwrap().unwrap().unwrap() > fence);
}

pub(crate) async fn run_of_a_process_that_is_gone_is_followed([one, other, _]: [Locker; 3]) {
    let (name, lease) = (fresh_name(), span() * 4);
    let (fence, run) = hanging(once(&one, &name).lease(lease).renew(false)).await;
    let next = tokio::spawn(succeed(once(&other, &name)));
    waiting_at(&other, "once", &name, 1).await;
    pass(lease);
    assert!(in_time("the next run", next).await.unwrap().unwrap().unwrap() > fence);
    let error = in_time("the loss", run).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_eq!(succeed(once(&one, &name)).await.unwrap(), None);
}

pub(crate) async fn lost_run_is_dropped_and_followed([one, other, _]: [Locker; 3]) {
    let name = fresh_name();
    let (fence, run) = hanging(once(&one, &name).lease(Duration::from_secs(3))).await;
    let key = other.admin().key("once", &name);
    assert!(other.admin().evict_up_to(&key, fence).await.unwrap());
    assert_eq!(in_time("the loss", run).await.unwrap().unwrap_err().kind(), ErrorKind::Lost);
    assert!(succeed(once(&other, &name)).await.unwrap().unwrap() > fence);
}

pub(crate) async fn next_slot_runs_again([one, other, _]: [Locker; 3]) {
    let (name, every) = (fresh_name(), span().max(Duration::from_secs(2)));
    let record = |locker: &Locker| locker.once(&name).per(every).lease(Duration::from_secs(10));
    let first = succeed(record(&one)).await.unwrap().unwrap();
    pass(every);
    let mut next = None;
    until("the next slot", async || {
        next = succeed(record(&other)).await.unwrap();
        next.is_some()
    })
    .await;
    assert!(next.unwrap() > first);
}

pub(crate) async fn refused_slot_runs_never_again([one, other, _]: [Locker; 3]) {
    let (name, lease) = (fresh_name(), span() * 4);
    let refusing = |locker: &Locker| once(locker, &name).refuse_after_crash();
    let (_, run) = hanging(refusing(&one).lease(lease).renew(false)).await;
    let next = tokio::spawn(succeed(refusing(&other)));
    waiting_at(&other, "once", &name, 1).await;
    pass(lease);
    let error = in_time("the refusal", next).await.unwrap().unwrap_err();
    assert!(error.kind() == ErrorKind::Lost && error.message().contains("nobody knows"), "{error}");
    drop(in_time("the loss", run).await);
    assert_eq!(succeed(refusing(&one)).await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(one.admin().delete(&one.admin().key("once", &name)).await.unwrap());
    assert!(succeed(refusing(&one)).await.unwrap().is_some());
}

/// Nobody knows how far its body came. One that fails says so.
pub(crate) async fn dropped_run_is_as_a_crash_if_those_are_refused([one, other, _]: [Locker; 3]) {
    let (name, lease) = (fresh_name(), span() * 4);
    let refusing = |locker: &Locker| once(locker, &name).refuse_after_crash().lease(lease);
    let failed = refusing(&one).run(async |_: &Guard| Err::<u64, _>(misused())).await;
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Misused);
    let (_, run) = hanging(refusing(&other)).await;
    let next = tokio::spawn(succeed(refusing(&one)));
    waiting_at(&one, "once", &name, 1).await;
    run.abort();
    assert!(in_time("the end of the run", run).await.unwrap_err().is_cancelled());
    pass(lease);
    assert_eq!(in_time("the refusal", next).await.unwrap().unwrap_err().kind(), ErrorKind::Lost);
}

pub(crate) async fn caller_that_does_not_wait_times_out([one, other, _]: [Locker; 3]) {
    let name = fresh_name();
    let (_, run) = hanging(once(&one, &name)).await;
    for timeout in [Duration::ZERO, SHORT] {
        let error = succeed(once(&other, &name).timeout(timeout)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
    run.abort();
}

pub(crate) async fn deleted_record_runs_again([one, other, _]: [Locker; 3]) {
    let name = fresh_name();
    let first = succeed(once(&one, &name)).await.unwrap().unwrap();
    assert!(other.admin().delete(&other.admin().key("once", &name)).await.unwrap());
    assert!(succeed(once(&other, &name)).await.unwrap().unwrap() > first);
}
