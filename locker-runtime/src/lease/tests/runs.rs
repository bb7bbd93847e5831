//! Runs of records on a store that is slow or fails.

use crate::{handles::OncePer, lease::Guard, locker::Locker};
use locker_core::{
    error::{Error, ErrorKind, Result},
    primitives::{HoldRequest, Request, record},
};
use locker_harness::{ScriptedStore, Step, until};
use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{sync::oneshot, time::timeout};

const YEAR: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Short, because tests wait for its end.
const LEASE: Duration = Duration::from_millis(300);

fn is_finish(request: &Request) -> bool {
    matches!(request, Request::Record(record::Request::Finish { .. }))
}

fn is_beginning(request: &Request) -> bool {
    matches!(request, Request::Record(record::Request::Hold(HoldRequest::Acquire { .. })))
}

fn is_renewal(request: &Request) -> bool {
    matches!(request, Request::Record(record::Request::Hold(HoldRequest::Renew { .. })))
}

fn remote() -> (ScriptedStore, Locker) {
    let store = ScriptedStore::remote();
    (store.clone(), Locker::with_defaults(store))
}

fn once(locker: &Locker) -> OncePer {
    locker.once("a").per(YEAR).lease(LEASE)
}

async fn succeed(record: OncePer) -> Result<Option<u64>> {
    record.run(async |run: &Guard| Ok::<_, Error>(run.fence())).await
}

fn cut() -> Error {
    Error::new(ErrorKind::Unavailable, "cut")
}

/// Delays the first answer to such a request until it is told so.
fn delay_the_first(store: &ScriptedStore, is_meant: fn(&Request) -> bool) -> oneshot::Sender<()> {
    let (answer, told) = oneshot::channel();
    let mut told = Some(told);
    store.on_call(move |request| match told.take_if(|_| is_meant(request)) {
        Some(told) => Step::Delay(Box::pin(ready(())), Box::pin(async { drop(told.await) })),
        None => Step::CarryOut,
    });
    answer
}

/// Another caller has succeeded since: the body must not begin.
#[tokio::test(flavor = "multi_thread")]
async fn answer_that_comes_after_the_lease_begins_nothing() {
    let (store, locker) = remote();
    let answer = delay_the_first(&store, is_beginning);
    let bodies = Arc::new(AtomicUsize::new(0));
    let (record, counted) = (once(&locker), Arc::clone(&bodies));
    let late = tokio::spawn(async move {
        let body = async move |_: &Guard| Ok::<_, Error>(counted.fetch_add(1, Ordering::SeqCst));
        record.run(body).await
    });
    until("the call", async || store.count(is_beginning) > 0).await;
    assert!(succeed(once(&locker)).await.unwrap().is_some());
    answer.send(()).unwrap();
    assert_eq!((late.await.unwrap().unwrap(), bodies.load(Ordering::SeqCst)), (None, 0));
}

/// Such as by a password that is being changed.
#[tokio::test(flavor = "multi_thread")]
async fn success_that_the_store_refuses_for_now_is_repeated() {
    let (store, locker) = remote();
    store.fail(is_finish, Error::new(ErrorKind::Misused, "WRONGPASS").unsent());
    assert!(succeed(once(&locker)).await.unwrap().is_some());
    store.recover();
    locker.settled().await;
    assert_eq!(succeed(once(&locker)).await.unwrap(), None);
}

/// Nothing has begun since.
#[tokio::test(flavor = "multi_thread")]
async fn success_counts_after_an_outage_that_outlasts_the_lease() {
    let (store, locker) = remote();
    let run = once(&locker).run(async |run: &Guard| {
        store.fail(|_| true, cut());
        Ok::<_, Error>(run.fence())
    });
    assert!(run.await.unwrap().is_some());
    tokio::time::sleep(2 * LEASE).await;
    store.recover();
    locker.settled().await;
    assert_eq!(succeed(once(&locker)).await.unwrap(), None);
}

/// A renewal finds the run gone that has succeeded.
#[tokio::test(flavor = "multi_thread")]
async fn run_that_has_succeeded_is_not_told_as_lost() {
    let (store, locker) = remote();
    let answer = delay_the_first(&store, is_finish);
    let (mut hold, mut renewed) = (None, 0);
    // The wait for the answer and the renewal come after a third of it.
    let run = once(&locker).lease(10 * LEASE).run(async |run: &Guard| {
        (hold, renewed) = (Some(run.hold()), store.count(is_renewal));
        Ok::<_, Error>(run.fence())
    });
    assert!(run.await.unwrap().is_some());
    let hold = hold.unwrap();
    until("a renewal", async || store.count(is_renewal) > renewed).await;
    assert!(timeout(LEASE, hold.lost()).await.is_err(), "the renewal told it as lost");
    answer.send(()).unwrap();
    locker.settled().await;
    assert!(timeout(LEASE, hold.lost()).await.is_err(), "it was told as lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_for_a_run_has_no_number_of_attempts() {
    let locker = Locker::builder().url("memory://").max_retry(1).build().await.unwrap();
    let (end, ended) = oneshot::channel::<()>();
    let (begin, runs) = oneshot::channel::<()>();
    let record = once(&locker);
    let run = tokio::spawn(async move {
        let body = async move |_: &Guard| {
            begin.send(()).unwrap();
            drop(ended.await);
            Ok::<_, Error>(())
        };
        record.run(body).await
    });
    runs.await.unwrap();
    let waiter = tokio::spawn(succeed(once(&locker)));
    let key = locker.admin().key("once", "a");
    until("the other one waits", async || {
        locker.admin().inspect(&key).await.unwrap().is_some_and(|seen| seen.waiting > 0)
    })
    .await;
    end.send(()).unwrap();
    assert_eq!(run.await.unwrap().unwrap(), Some(()));
    assert_eq!(waiter.await.unwrap().unwrap(), None);
}
