use super::*;
use futures_util::FutureExt;
use locker_core::{
    primitives::{HoldRequest, Notification, Request, barrier},
    store::Store,
    sync::{Mutex, lock},
};
use locker_harness::{ScriptedStore, Step, is_renewal};
use std::sync::Arc;

fn remote() -> (Locker, ScriptedStore) {
    let store = ScriptedStore::remote();
    (Locker::with_defaults(store.clone()), store)
}

fn is_cancel(request: &Request) -> bool {
    matches!(request, Request::Lock(HoldRequest::Cancel { .. }))
}

async fn until(condition: impl Fn() -> bool) {
    locker_harness::until("it", async || condition()).await;
}

#[tokio::test]
async fn mailbox_closes_before_the_cancel() {
    let open = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&open);
    let (locker, store) = remote();
    let memory = store.memory().clone();
    store.on_call(move |request| {
        if let Request::Lock(HoldRequest::Cancel { id, .. }) = *request {
            lock(&seen).push(memory.mailboxes().is_open(id));
        }
        Step::CarryOut
    });
    let guard = locker.lock("a").acquire().await.unwrap();
    let mut waiting = Box::pin(locker.lock("a").acquire());
    assert!(waiting.as_mut().now_or_never().is_none());
    drop(waiting);
    until(|| store.count(is_cancel) > 0).await;
    assert_eq!(*lock(&open), [false]);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn timeout_is_confirmed_by_the_cancel() {
    let (locker, store) = remote();
    let _guard = locker.lock("a").acquire().await.unwrap();
    let error = locker.lock("a").timeout(Duration::from_millis(20)).acquire().await.unwrap_err();
    assert_eq!((error.kind(), error.is_certain()), (ErrorKind::TimedOut, true), "{error}");
    assert_eq!(store.count(is_cancel), 1, "it has left the queue");
    locker.settled().await;
    assert_eq!(store.count(is_cancel), 1, "once");
}

/// The attempt is granted after it has left, and the cancel, which goes on in the background, gives that back.
#[tokio::test]
async fn silent_store_makes_a_timeout_unavailable() {
    let (locker, store) = remote();
    store.fail(is_cancel, Error::new(ErrorKind::Unavailable, "the reply was lost").unknown());
    let guard = locker.lock("a").acquire().await.unwrap();
    let error = locker.lock("a").timeout(Duration::from_millis(20)).acquire().await.unwrap_err();
    assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Unavailable, false), "{error}");
    guard.release().await.unwrap();
    store.recover();
    locker.settled().await;
    locker.lock("a").timeout(Duration::ZERO).acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn last_try_in_the_queue_is_cancelled() {
    for answer in [
        Ok(Reply::Busy { retry_after: Duration::ZERO }),
        Err(Error::new(ErrorKind::Unavailable, "it is loading")),
        Err(Error::new(ErrorKind::Misused, "it may not be")),
    ] {
        let given = answer.clone();
        let (locker, store) = remote();
        let memory = store.memory().clone();
        store.on_call(move |request| match *request {
            Request::Lock(HoldRequest::Acquire { id, wait: None, .. }) => {
                // The holder hands the lock off to this attempt, which does not read its mailbox any more.
                let signal = Signal::HandedOff { fence: 7, until: Timestamp::NEVER };
                drop(memory.mailboxes().deliver(Notification { key: Key::new("lock:a"), id, signal }));
                Step::Answer(given.clone())
            }
            _ => Step::CarryOut,
        });
        let guard = locker.lock("a").acquire().await.unwrap();
        let waiting = locker.lock("a").max_retry(2).retry_delay(Duration::from_millis(20));
        let error = waiting.acquire().await.unwrap_err();
        assert_eq!(error.kind(), answer.map_or_else(|error| error.kind(), |_| ErrorKind::RetriesExhausted));
        until(|| store.count(is_cancel) == 1).await;
        guard.release().await.unwrap();
    }
}

/// A late copy of the final check would count a caller that has left.
#[tokio::test]
async fn barrier_timeout_leaves_a_tombstone() {
    for (lost, kind) in [(1, ErrorKind::TimedOut), (usize::MAX, ErrorKind::Unavailable)] {
        let (locker, store) = remote();
        let mut lost = 0..lost;
        store.on_call(move |request| match request {
            Request::Barrier(barrier::Request::Arrive { wait: None, .. }) if lost.next().is_some() => {
                Step::Answer(Err(Error::new(ErrorKind::Unavailable, "the connection was reset").unknown()))
            }
            _ => Step::CarryOut,
        });
        let error = locker.barrier("a", 2).wait(Duration::from_millis(20)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let refused = |request: &Request| {
            matches!(request, Request::Barrier(barrier::Request::Cancel { tombstone: true, .. }))
        };
        until(|| store.count(refused) > 0).await;
    }
}

#[tokio::test]
async fn place_in_the_queue_outlives_the_retry_delay() {
    let (locker, store) = remote();
    let _guard = locker.lock("a").acquire().await.unwrap();
    let mut waiting = Box::pin(locker.lock("a").max_retry(2).retry_delay(Duration::from_secs(40)).acquire());
    assert!(waiting.as_mut().now_or_never().is_none());
    let last = store.requests().pop();
    let Some((_, Request::Lock(HoldRequest::Acquire { wait: Some(wait), .. }))) = last else {
        panic!("{last:?}")
    };
    assert_eq!(wait.live, Some(Duration::from_secs(120)));
}

#[tokio::test]
async fn renewal_with_a_higher_fence_is_a_loss() {
    let (locker, store) = remote();
    store.on_call(|request| {
        let later = Step::Answer(Ok(Reply::Renewed { fence: u64::MAX }));
        if is_renewal(request) { later } else { Step::CarryOut }
    });
    let guard = locker.lock("a").lease(Duration::from_millis(300)).acquire().await.unwrap();
    guard.lost().await;
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn releases_wait_for_a_store_that_rejects_logins() {
    let (locker, store) = remote();
    let (released, dropped) =
        (locker.lock("a").acquire().await.unwrap(), locker.lock("b").acquire().await.unwrap());
    store.fail(|_| true, Error::new(ErrorKind::Misused, "the password is wrong").unsent());
    let error = released.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misused, "the caller of release gets the error at once");
    drop(dropped);
    let before = store.count(|_| true);
    until(|| store.count(|_| true) > before + 3).await;
    store.recover();
    for name in ["a", "b"] {
        locker.lock(name).acquire().await.unwrap().release().await.unwrap();
    }
}

fn is_inspection(request: &Request) -> bool {
    matches!(request, Request::Inspect)
}

/// Programs that poll for a lock make many short waits.
#[tokio::test]
async fn short_wait_asks_for_no_holder() {
    let (locker, store) = remote();
    let guard = locker.lock("a").acquire().await.unwrap();
    let millis = Duration::from_millis;
    for timeout in [0, 20, 900] {
        let before = store.requests().len();
        let error = locker.lock("a").timeout(millis(timeout)).acquire().await.unwrap_err();
        assert_eq!((error.kind(), error.blocked()), (ErrorKind::TimedOut, None));
        let asked = store.requests().split_off(before);
        assert!(asked.len() <= 2, "an acquire, and a cancel if it was queued: {asked:?}");
    }
    let request = locker.lock("a").max_retry(2).retry_delay(millis(20));
    let error = request.acquire().await.unwrap_err();
    assert_eq!((error.kind(), error.blocked()), (ErrorKind::RetriesExhausted, None));
    assert_eq!(store.count(is_inspection), 0);
    guard.release().await.unwrap();
}

/// The store still has the place in the queue then.
#[tokio::test]
async fn long_wait_asks_before_its_cancel() {
    let (locker, store) = remote();
    let guard = locker.lock("a").acquire().await.unwrap();
    let before = store.requests().len();
    let error = locker.lock("a").timeout(EXPLAINED_AFTER).acquire().await.unwrap_err();
    assert!(error.kind() == ErrorKind::TimedOut && error.blocked().is_some(), "{error}");
    let asked: Vec<_> = store.requests().split_off(before).into_iter().map(|(_, request)| request).collect();
    let [Request::Lock(HoldRequest::Acquire { .. }), Request::Inspect, last] = &asked[..] else {
        panic!("{asked:?}")
    };
    assert!(is_cancel(last), "{last:?}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn error_goes_on_without_an_answer() {
    let (locker, store) = remote();
    let guard = locker.lock("a").acquire().await.unwrap();
    store.on_call(|request| if is_inspection(request) { Step::Hang } else { Step::CarryOut });
    let error = locker.lock("a").timeout(EXPLAINED_AFTER).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let blocked = error.blocked().unwrap();
    assert_eq!((blocked.holders().len(), blocked.ahead()), (0, None));
    assert!(blocked.place().is_some_and(|place| place.contains("attempt")), "{error}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn outage_names_no_holder() {
    let (locker, store) = remote();
    let guard = locker.lock("a").acquire().await.unwrap();
    store.fail(is_cancel, Error::new(ErrorKind::Unavailable, "the reply was lost").unknown());
    let error = locker.lock("a").timeout(EXPLAINED_AFTER).acquire().await.unwrap_err();
    assert_eq!((error.kind(), error.blocked()), (ErrorKind::Unavailable, None));
    store.recover();
    guard.release().await.unwrap();
    locker.settled().await;
}
