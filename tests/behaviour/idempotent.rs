//! Records with results: of several callers with one key one runs, and the others get its result.

use crate::support::{SHORT, fresh_name, in_time, pass, span, until, waiting_at};
use locker::{Error, ErrorKind, Guard, KeyPart, Locker, OnceKeep, Result};
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
    idempotent, lockers:
    all_callers_get_the_result_of_one,
    other_values_are_a_conflict,
    failed_run_is_followed_and_not_kept,
    without_keeping_those_that_waited_get_the_result,
    result_is_kept_for_its_time,
    large_result_is_a_conflict_and_no_second_run,
    crashed_run_is_refused_while_its_result_would_be_kept,
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn once(locker: &Locker, name: &str) -> OnceKeep {
    locker.once(name).keep(DAY).lease(Duration::from_secs(10))
}

/// Runs something that succeeds at once. Returns the fence of the run that has succeeded.
async fn succeed(record: OnceKeep) -> Result<u64> {
    in_time("a result", record.run(async |run: &Guard| Ok::<_, Error>(run.fence()))).await
}

/// Starts a run that returns what it is told, or fails if it is told nothing. Returns its fence.
async fn told<T>(record: OnceKeep) -> (u64, oneshot::Sender<T>, JoinHandle<Result<T>>)
where
    T: serde::Serialize + serde::de::DeserializeOwned + Send + Sync + 'static,
{
    let (sender, begun) = oneshot::channel();
    let (tell, told) = oneshot::channel();
    let run = tokio::spawn(async move {
        let body = async move |run: &Guard| {
            sender.send(run.fence()).unwrap();
            told.await.map_err(|_| failure())
        };
        record.run(body).await
    });
    (in_time("the run", begun).await.unwrap(), tell, run)
}

/// An error of the application.
fn failure() -> Error {
    Locker::memory().lock("").permits(2).acquire_blocking().unwrap_err()
}

pub(crate) async fn all_callers_get_the_result_of_one(lockers: [Locker; 3]) {
    let (name, runs) = (fresh_name(), Arc::new(AtomicUsize::new(0)));
    let callers: Vec<JoinHandle<Result<String>>> = (0..12)
        .map(|at| {
            let (record, runs) = (once(&lockers[at % 3], &name), Arc::clone(&runs));
            tokio::spawn(async move {
                let body = async move |_: &Guard| {
                    runs.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    Ok::<_, Error>(format!("größe {at}"))
                };
                record.run(body).await
            })
        })
        .collect();
    let mut results = Vec::new();
    for caller in callers {
        results.push(in_time("all callers", caller).await.unwrap().unwrap());
    }
    results.dedup();
    assert_eq!((results.len(), runs.load(Ordering::SeqCst)), (1, 1), "{results:?}");
    let later = once(&lockers[1], &name).run(async |_: &Guard| Err::<String, _>(failure())).await;
    assert_eq!(later.unwrap(), results[0]);
}

pub(crate) async fn other_values_are_a_conflict([one, other, _]: [Locker; 3]) {
    let name = fresh_name();
    let with = |locker: &Locker, parts: &[&dyn KeyPart]| once(locker, &name).same(parts);
    let (fence, tell, run) = told(with(&one, &[&4001, &"100"])).await;
    let conflict = async |record| {
        let error = succeed(record).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.message().contains("must be the same"), "{error}");
    };
    let others: [&[&dyn KeyPart]; 3] = [&[&4001, &"200"], &[&"100", &4001], &[]];
    for parts in others {
        conflict(with(&other, parts)).await;
    }
    let agreeing = tokio::spawn(succeed(with(&other, &[&4001, &"100"])));
    waiting_at(&one, "once", &name, 1).await;
    tell.send(fence).unwrap();
    assert_eq!(in_time("the run", run).await.unwrap().unwrap(), fence);
    assert_eq!(agreeing.await.unwrap().unwrap(), fence);
    conflict(with(&other, &[&4001, &"200"])).await;
    assert_eq!(succeed(with(&other, &[&4001, &"100"])).await.unwrap(), fence);
    assert_eq!(succeed(once(&other, &name)).await.unwrap(), fence, "it asks for nothing");
}

pub(crate) async fn failed_run_is_followed_and_not_kept([one, other, _]: [Locker; 3]) {
    let name = fresh_name();
    let (fence, tell, run) = told::<u64>(once(&one, &name)).await;
    let next = tokio::spawn(succeed(once(&other, &name)));
    waiting_at(&one, "once", &name, 1).await;
    drop(tell);
    assert_eq!(in_time("the failure", run).await.unwrap().unwrap_err().kind(), ErrorKind::Misused);
    let kept = next.await.unwrap().unwrap();
    assert!(kept > fence);
    assert_eq!(succeed(once(&one, &name)).await.unwrap(), kept);
}

/// Calls that come while it runs get its result, whichever process they are in; the next call runs.
pub(crate) async fn without_keeping_those_that_waited_get_the_result([one, other, third]: [Locker; 3]) {
    let name = fresh_name();
    let coalesced = |locker: &Locker| locker.once(&name).keep(Duration::ZERO);
    let (fence, tell, run) = told(coalesced(&one)).await;
    let waiting: Vec<_> =
        [&one, &other, &third, &other].map(|locker| tokio::spawn(succeed(coalesced(locker)))).into();
    waiting_at(&one, "once", &name, 4).await;
    tell.send(fence).unwrap();
    assert_eq!(in_time("the run", run).await.unwrap().unwrap(), fence);
    for waiter in waiting {
        assert_eq!(waiter.await.unwrap().unwrap(), fence);
    }
    assert!(succeed(coalesced(&other)).await.unwrap() > fence);
    assert!(succeed(once(&third, &name)).await.unwrap() > fence, "nothing is kept");
}

pub(crate) async fn result_is_kept_for_its_time([one, other, _]: [Locker; 3]) {
    let (name, keep) = (fresh_name(), span() * 4);
    let first = succeed(once(&one, &name)).await.unwrap();
    let other_name = fresh_name();
    let short = succeed(other.once(&other_name).keep(keep)).await.unwrap();
    pass(keep);
    let mut next = short;
    until("the end of the result", async || {
        next = succeed(one.once(&other_name).keep(keep)).await.unwrap();
        next > short
    })
    .await;
    assert_eq!(succeed(once(&other, &name)).await.unwrap(), first);
}

/// Its caller has it. The others learn that the call has run.
pub(crate) async fn large_result_is_a_conflict_and_no_second_run([one, other, _]: [Locker; 3]) {
    let large = async |record: OnceKeep, bytes: usize| {
        let body = async |_: &Guard| Ok::<_, Error>("x".repeat(bytes - 2));
        in_time("a large result", record.run(body)).await.map(|result| result.len() + 2)
    };
    let name = fresh_name();
    assert_eq!(large(once(&one, &name), 81_920).await.unwrap(), 81_920);
    let error = large(once(&other, &name), 81_920).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let why = "the call has run, and its result of 81920 bytes was not kept: at most 65536";
    assert!(error.message().contains(why), "{error}");
    for (bytes, most) in [(65_536, None), (524_288, Some(524_288))] {
        let name = fresh_name();
        let record = |locker: &Locker| match most {
            Some(most) => once(locker, &name).max_size(most),
            None => once(locker, &name),
        };
        assert_eq!(large(record(&one), bytes).await.unwrap(), bytes);
        assert_eq!(large(record(&other), 2).await.unwrap(), bytes, "it is kept");
    }
    let error = succeed(once(&one, &name).max_size(524_289)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misused);
    let name = fresh_name();
    succeed(once(&one, &name)).await.unwrap();
    let text = once(&other, &name).run(async |_: &Guard| Ok::<_, Error>(String::new()));
    let error = in_time("a result of another type", text).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Conflict && error.message().contains("another type"), "{error}");
}

pub(crate) async fn crashed_run_is_refused_while_its_result_would_be_kept([one, other, _]: [Locker; 3]) {
    let (name, lease) = (fresh_name(), span() * 4);
    let refusing = |locker: &Locker| once(locker, &name).refuse_after_crash();
    let record = refusing(&one).lease(lease).renew(false);
    let run = tokio::spawn(async move { record.run(async |_: &Guard| pending::<Result<u64>>().await).await });
    let key = one.admin().key("once", &name);
    until("the run", async || {
        one.admin().inspect(&key).await.unwrap().is_some_and(|state| !state.holders.is_empty())
    })
    .await;
    let next = tokio::spawn(succeed(refusing(&other)));
    waiting_at(&other, "once", &name, 1).await;
    pass(lease);
    assert_eq!(in_time("the refusal", next).await.unwrap().unwrap_err().kind(), ErrorKind::Lost);
    drop(in_time("the loss", run).await);
    assert_eq!(succeed(refusing(&one).timeout(SHORT)).await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(one.admin().delete(&key).await.unwrap());
    assert!(succeed(refusing(&one)).await.is_ok());
}
