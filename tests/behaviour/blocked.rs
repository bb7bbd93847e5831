//! The laws of what stood in the way of a call, and of what operators see of it.

use crate::support::{GENEROUS, MINUTE, MINUTE_LEFT, fresh_name, in_time, queued, until};
use locker::{Blocked, Error, ErrorKind, Key, Locker, lock_on_argument};
use std::time::Duration;

/// The shortest wait whose error names the holders.
const SECOND: Duration = Duration::from_secs(1);

/// Makes calls until the error of one has what `of` returns: a busy store may tell too late, and notes come to it in
/// the background.
async fn told<T>(mut call: impl AsyncFnMut() -> Error, of: impl Fn(&Blocked) -> Option<T>) -> (Error, T) {
    in_time("what stood in the way", async {
        loop {
            let error = call().await;
            if let Some(told) = error.blocked().and_then(&of) {
                return (error, told);
            }
        }
    })
    .await
}

pub(crate) async fn timeouts_name_the_holder(locker: Locker) {
    let (name, process) = (fresh_name(), format!(":{}", std::process::id()));
    let held = locker.lock(&name).lease(MINUTE).acquire().await.unwrap();
    let mut line = 0;
    let call = async || {
        line = line!() + 1;
        locker.lock(&name).timeout(SECOND).acquire().await.unwrap_err()
    };
    let (error, holder) =
        told(call, |blocked| blocked.holders().first().filter(|one| one.note.is_some()).cloned()).await;
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!((holder.fence, holder.permits, holder.function), (held.fence(), 1, None));
    let note = holder.note.unwrap();
    assert!(note.ends_with(&process), "{note}");
    assert!(holder.age.is_none_or(|age| age < GENEROUS), "{error}");
    assert!(holder.time_left.unwrap() <= MINUTE_LEFT, "{error}");
    let blocked = error.blocked().unwrap();
    assert_eq!(blocked.holders().len(), 1);
    assert_eq!(blocked.place(), Some(&*format!("{}:{line}", file!())));
    let message = error.message();
    assert!(message.starts_with("not acquired within 1s: held by ") && message.contains(&note), "{message}");
    assert!(message.ends_with(&format!("asked at {}:{line}", file!())), "{message}");
    held.release().await.unwrap();
}

pub(crate) async fn timeouts_count_the_waiters_ahead(locker: Locker) {
    let name = fresh_name();
    let _held = (
        locker.lock(&name).lease(MINUTE).acquire().await.unwrap(),
        locker.semaphore(&name, 1).lease(MINUTE).acquire().await.unwrap(),
    );
    for kind in ["lock", "semaphore"] {
        let request = || if kind == "lock" { locker.lock(&name) } else { locker.semaphore(&name, 1) };
        let mut waiting = Vec::new();
        for ahead in 0..3 {
            let call = async || request().timeout(SECOND).acquire().await.unwrap_err();
            let (_, seen) = told(call, Blocked::ahead).await;
            assert_eq!(seen, ahead, "{kind}");
            waiting.push(queued(&locker, kind, &name, request().timeout(Duration::MAX).acquire()).await);
        }
    }
}

pub(crate) async fn exhausted_retries_name_the_holder(locker: Locker) {
    let name = fresh_name();
    let held = locker.semaphore(&name, 2).permits(2).lease(MINUTE).acquire().await.unwrap();
    let request = || locker.semaphore(&name, 2).max_retry(3).retry_delay(SECOND / 2 + SECOND / 10);
    let call = async || request().timeout(MINUTE).acquire().await.unwrap_err();
    let (error, holder) = told(call, |blocked| blocked.holders().first().cloned()).await;
    assert_eq!(error.kind(), ErrorKind::RetriesExhausted);
    assert_eq!((holder.fence, holder.permits), (held.fence(), 2));
}

/// The line of the function below.
const WITHDRAW: u32 = line!() + 3;

#[lock_on_argument(expr = 60, timeout = 1, args(card), locker = locker, name = "blocked.withdraw")]
async fn withdraw(locker: &Locker, card: String, body: impl Future<Output = ()>) -> locker::Result<()> {
    let _ = card;
    body.await;
    Ok(())
}

/// Of an attribute, the holder and the place are known by the function.
pub(crate) async fn timeouts_name_the_function(locker: Locker) {
    let card = fresh_name();
    let body = async {
        let call = async || {
            // A task of its own: the body would wait for itself.
            let (locker, card) = (locker.clone(), card.clone());
            let call = tokio::spawn(async move { withdraw(&locker, card, async {}).await });
            call.await.unwrap().unwrap_err()
        };
        let known =
            |blocked: &Blocked| blocked.holders().first().filter(|one| one.function.is_some()).cloned();
        let (error, holder) = told(call, known).await;
        assert_eq!(holder.function.as_deref(), Some("blocked.withdraw"));
        assert_eq!((holder.file.as_deref(), holder.line), (Some(file!()), Some(WITHDRAW)));
        let place = format!("{}:{WITHDRAW}", file!());
        assert_eq!(error.blocked().unwrap().place(), Some(&*place));
        assert!(error.message().contains(&format!("in blocked.withdraw ({place})")), "{error}");

        let admin = locker.admin();
        let explanation = admin.explain(&admin.key_on("blocked.withdraw", &[&card])).await.unwrap();
        assert_eq!(explanation.function().map(|function| function.line), Some(WITHDRAW));
        assert_eq!(explanation.holders()[0].fence, holder.fence);
    };
    withdraw(&locker, card.clone(), body).await.unwrap();
}

async fn listed(locker: &Locker, key: &Key) -> Vec<String> {
    let seen = locker.admin().inspect(key).await.unwrap().expect("it is held");
    seen.waiters.iter().map(ToString::to_string).collect()
}

pub(crate) async fn waiters_are_listed_in_order(locker: Locker) {
    let name = fresh_name();
    let _held = (
        locker.lock(&name).lease(MINUTE).acquire().await.unwrap(),
        locker.write_lock(&name).lease(MINUTE).acquire().await.unwrap(),
    );
    for kind in ["lock", "rwlock"] {
        let request = || if kind == "lock" { locker.lock(&name) } else { locker.read_lock(&name) };
        let (key, mut waiting, mut ids) = (locker.admin().key(kind, &name), Vec::new(), Vec::new());
        for _ in 0..4 {
            waiting.push(queued(&locker, kind, &name, request().timeout(MINUTE).acquire()).await);
            let all = listed(&locker, &key).await;
            assert_eq!((all.len(), &all[..ids.len()]), (waiting.len(), &ids[..]), "{kind}");
            ids = all;
        }
        drop(waiting.remove(1));
        ids.remove(1);
        until("one has left", async || listed(&locker, &key).await == ids).await;
        let explained = locker.admin().explain(&key).await.unwrap();
        assert_eq!((explained.waiting(), explained.waiters().len(), explained.holders().len()), (3, 3, 1));
    }
}

pub(crate) async fn key_that_nobody_holds_is_explained(locker: Locker) {
    let admin = locker.admin();
    let key = admin.key("lock", &fresh_name());
    let explained = admin.explain(&key).await.unwrap();
    assert!(explained.holders().is_empty() && explained.waiting() == 0);
    assert_eq!(explained.to_string(), format!("{key}\nnot held"));
}
