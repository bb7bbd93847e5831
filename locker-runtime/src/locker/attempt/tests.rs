use super::*;
use crate::stores::Memory;
use futures_util::FutureExt;
use locker_core::{
    id::Id,
    mailboxes::Mailboxes,
    primitives::{HoldRequest, Notification, Request, barrier},
    store::{Calling, Store},
    sync::{Mutex, lock},
};
use std::{fmt, sync::Arc};

/// A store across a network that replies to some calls in its own way, and records its requests.
struct Remote<F> {
    memory: Memory,
    answer: F,
    asked: Arc<Mutex<Vec<Request>>>,
}

impl<F> fmt::Debug for Remote<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").finish_non_exhaustive()
    }
}

impl<F> Store for Remote<F>
where
    F: Fn(&Memory, &Request) -> Option<Result<Reply>> + Send + Sync + 'static,
{
    fn call<'a>(&'a self, key: &'a Key, request: &'a Request) -> Calling<'a> {
        lock(&self.asked).push(request.clone());
        match (self.answer)(&self.memory, request) {
            Some(answer) => Calling::answered(answer),
            None => self.memory.call(key, request),
        }
    }

    fn mailboxes(&self) -> &Mailboxes {
        self.memory.mailboxes()
    }
}

type Asked = Arc<Mutex<Vec<Request>>>;

fn remote(
    answer: impl Fn(&Memory, &Request) -> Option<Result<Reply>> + Send + Sync + 'static,
) -> (Locker, Asked) {
    let asked = Asked::default();
    (Locker::with_defaults(Remote { memory: Memory::new(), answer, asked: Arc::clone(&asked) }), asked)
}

/// The attempts that were cancelled.
fn cancelled(asked: &Asked) -> Vec<Id> {
    let of = |request: &Request| match *request {
        Request::Lock(HoldRequest::Cancel { id, .. }) => Some(id),
        _ => None,
    };
    lock(asked).iter().filter_map(of).collect()
}

async fn until(condition: impl Fn() -> bool) {
    locker_harness::until("it", async || condition()).await;
}

#[tokio::test]
async fn mailbox_closes_before_the_cancel() {
    let open = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&open);
    let (locker, asked) = remote(move |memory, request| {
        if let Request::Lock(HoldRequest::Cancel { id, .. }) = *request {
            lock(&seen).push(memory.mailboxes().is_open(id));
        }
        None
    });
    let guard = locker.lock("a").acquire().await.unwrap();
    let mut waiting = Box::pin(locker.lock("a").acquire());
    assert!(waiting.as_mut().now_or_never().is_none());
    drop(waiting);
    until(|| !cancelled(&asked).is_empty()).await;
    assert_eq!(*lock(&open), [false]);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn timeout_is_confirmed_by_the_cancel() {
    let (locker, asked) = remote(|_, _| None);
    let _guard = locker.lock("a").acquire().await.unwrap();
    let error = locker.lock("a").timeout(Duration::from_millis(20)).acquire().await.unwrap_err();
    assert_eq!((error.kind(), error.is_certain()), (ErrorKind::TimedOut, true), "{error}");
    assert_eq!(cancelled(&asked).len(), 1, "it has left the queue");
    locker.settled().await;
    assert_eq!(cancelled(&asked).len(), 1, "once");
}

/// The attempt is granted after it has left, and the cancel, which goes on in the background, gives that back.
#[tokio::test]
async fn silent_store_makes_a_timeout_unavailable() {
    let silent = Arc::new(Mutex::new(true));
    let is_silent = Arc::clone(&silent);
    let (locker, _) = remote(move |_, request| {
        let is_cancel = matches!(request, Request::Lock(HoldRequest::Cancel { .. }));
        let lost = || Err(Error::new(ErrorKind::Unavailable, "the reply was lost").unknown());
        (is_cancel && *lock(&is_silent)).then(lost)
    });
    let guard = locker.lock("a").acquire().await.unwrap();
    let error = locker.lock("a").timeout(Duration::from_millis(20)).acquire().await.unwrap_err();
    assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Unavailable, false), "{error}");
    guard.release().await.unwrap();
    *lock(&silent) = false;
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
        let (locker, asked) = remote(move |memory, request| match *request {
            Request::Lock(HoldRequest::Acquire { id, wait: None, .. }) => {
                // The holder hands the lock off to this attempt, which does not read its mailbox any more.
                let signal = Signal::HandedOff { fence: 7, until: Timestamp::NEVER };
                drop(memory.mailboxes().deliver(Notification { key: Key::new("lock:a"), id, signal }));
                Some(given.clone())
            }
            _ => None,
        });
        let guard = locker.lock("a").acquire().await.unwrap();
        let waiting = locker.lock("a").max_retry(2).retry_delay(Duration::from_millis(20));
        let error = waiting.acquire().await.unwrap_err();
        assert_eq!(error.kind(), answer.map_or_else(|error| error.kind(), |_| ErrorKind::RetriesExhausted));
        until(|| cancelled(&asked).len() == 1).await;
        guard.release().await.unwrap();
    }
}

/// A late copy of the final check would count a caller that has left.
#[tokio::test]
async fn barrier_timeout_leaves_a_tombstone() {
    for (lost, kind) in [(1, ErrorKind::TimedOut), (usize::MAX, ErrorKind::Unavailable)] {
        let lost = Mutex::new(lost);
        let (locker, asked) = remote(move |_, request| {
            let Request::Barrier(barrier::Request::Arrive { wait: None, .. }) = request else { return None };
            let left = lock(&lost).checked_sub(1)?;
            *lock(&lost) = left;
            Some(Err(Error::new(ErrorKind::Unavailable, "the connection was reset").unknown()))
        });
        let error = locker.barrier("a", 2).wait(Duration::from_millis(20)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let refused = |request: &Request| {
            matches!(request, Request::Barrier(barrier::Request::Cancel { tombstone: true, .. }))
        };
        until(|| lock(&asked).iter().any(refused)).await;
    }
}

#[tokio::test]
async fn place_in_the_queue_outlives_the_retry_delay() {
    let (locker, asked) = remote(|_, _| None);
    let _guard = locker.lock("a").acquire().await.unwrap();
    let mut waiting = Box::pin(locker.lock("a").max_retry(2).retry_delay(Duration::from_secs(40)).acquire());
    assert!(waiting.as_mut().now_or_never().is_none());
    let last = lock(&asked).pop();
    let Some(Request::Lock(HoldRequest::Acquire { wait: Some(wait), .. })) = last else { panic!("{last:?}") };
    assert_eq!(wait.live, Some(Duration::from_secs(120)));
}

#[tokio::test]
async fn renewal_with_a_higher_fence_is_a_loss() {
    let (locker, _) = remote(|_, request| {
        matches!(request, Request::Lock(HoldRequest::Renew { .. }))
            .then_some(Ok(Reply::Renewed { fence: u64::MAX }))
    });
    let guard = locker.lock("a").lease(Duration::from_millis(300)).acquire().await.unwrap();
    guard.lost().await;
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn releases_wait_for_a_store_that_rejects_logins() {
    let down = Arc::new(Mutex::new(false));
    let is_down = Arc::clone(&down);
    let (locker, asked) = remote(move |_, _| {
        let error = Error::new(ErrorKind::Misused, "the password is wrong").unsent();
        lock(&is_down).then_some(Err(error))
    });
    let (released, dropped) =
        (locker.lock("a").acquire().await.unwrap(), locker.lock("b").acquire().await.unwrap());
    *lock(&down) = true;
    let error = released.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misused, "the caller of release gets the error at once");
    drop(dropped);
    let before = lock(&asked).len();
    until(|| lock(&asked).len() > before + 3).await;
    *lock(&down) = false;
    for name in ["a", "b"] {
        locker.lock(name).acquire().await.unwrap().release().await.unwrap();
    }
}
