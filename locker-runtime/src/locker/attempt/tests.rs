use super::*;
use crate::{
    id::Id,
    mailboxes::Mailboxes,
    primitives::{HoldRequest, Notification, Request, barrier},
    store::{Calling, Store},
    stores::Memory,
    sync::{Mutex, lock},
};
use futures_util::FutureExt;
use std::{fmt, sync::Arc};

/// A store across a network that answers some calls in its own way, and notes what it was asked.
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

/// The attempts that were taken back.
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
async fn nobody_can_be_handed_anything_when_the_attempt_is_taken_back() {
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
async fn the_last_try_of_one_who_was_in_line_is_taken_back_whatever_was_answered() {
    for answer in [
        Ok(Reply::Busy { retry_after: Duration::ZERO }),
        Err(Error::new(ErrorKind::Unavailable, "it is loading")),
        Err(Error::new(ErrorKind::Misused, "it may not be")),
    ] {
        let given = answer.clone();
        let (locker, asked) = remote(move |memory, request| match *request {
            Request::Lock(HoldRequest::Acquire { id, wait: None, .. }) => {
                // The holder has handed it over to this one, who will not look any more.
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

/// A copy of the last question that comes late would count for somebody who has left.
#[tokio::test]
async fn who_leaves_a_barrier_is_refused_when_a_copy_of_its_last_question_may_still_come() {
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
async fn a_place_in_line_is_kept_until_the_next_try() {
    let (locker, asked) = remote(|_, _| None);
    let _guard = locker.lock("a").acquire().await.unwrap();
    let mut waiting = Box::pin(locker.lock("a").max_retry(2).retry_delay(Duration::from_secs(40)).acquire());
    assert!(waiting.as_mut().now_or_never().is_none());
    let last = lock(&asked).pop();
    let Some(Request::Lock(HoldRequest::Acquire { wait: Some(wait), .. })) = last else { panic!("{last:?}") };
    assert_eq!(wait.live, Some(Duration::from_secs(120)));
}

#[tokio::test]
async fn a_hold_that_was_granted_anew_behind_its_back_is_lost() {
    let (locker, _) = remote(|_, request| {
        matches!(request, Request::Lock(HoldRequest::Renew { .. }))
            .then_some(Ok(Reply::Renewed { fence: u64::MAX }))
    });
    let guard = locker.lock("a").lease(Duration::from_millis(300)).acquire().await.unwrap();
    guard.lost().await;
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn what_is_given_back_is_given_back_as_soon_as_there_is_somebody_to_say_it_to() {
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
    assert_eq!(error.kind(), ErrorKind::Misused, "whoever releases is told at once");
    drop(dropped);
    let before = lock(&asked).len();
    until(|| lock(&asked).len() > before + 3).await;
    *lock(&down) = false;
    for name in ["a", "b"] {
        locker.lock(name).acquire().await.unwrap().release().await.unwrap();
    }
}
