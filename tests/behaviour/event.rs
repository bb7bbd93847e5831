//! Laws of the event.

use crate::support::{GENEROUS, SHORT, SOON, fresh_name, in_time, pass, queued, span, until};
use locker::{ErrorKind, Locker};
use std::time::Duration;

pub(crate) async fn send_reaches_present_and_later_waiters(locker: Locker) {
    let name = fresh_name();
    let event = locker.event(&name);
    let mut waiting = Vec::new();
    for _ in 0..5 {
        waiting.push(queued(&locker, "event", &name, event.wait(GENEROUS)).await);
    }
    event.send("ready").await.unwrap();
    for waiter in waiting {
        assert_eq!(in_time("a waiter", waiter).await.unwrap(), "ready");
    }
    assert_eq!(event.wait(Duration::ZERO).await.unwrap(), "ready");
}

pub(crate) async fn a_second_send_is_a_conflict_until_the_reset(locker: Locker) {
    let event = locker.event(&fresh_name());
    event.send("one").await.unwrap();
    assert_eq!(event.send("two").await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(event.wait(GENEROUS).await.unwrap(), "one");
    event.reset().await.unwrap();
    assert_eq!(event.wait(Duration::ZERO).await.unwrap_err().kind(), ErrorKind::TimedOut);
    event.send("two").await.unwrap();
    assert_eq!(event.wait(GENEROUS).await.unwrap(), "two");
}

pub(crate) async fn a_wait_ends_at_its_timeout(locker: Locker) {
    let event = locker.event(&fresh_name());
    let error = in_time("the time-out", event.wait(SHORT)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.to_string().contains("not sent within 400ms"), "{error}");
    let error = event.wait(Duration::from_secs(1 << 40)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misused);
}

pub(crate) async fn no_wait_misses_a_send(locker: Locker) {
    for round in 0..50 {
        let (name, message) = (fresh_name(), round.to_string());
        let (waiter, sender) = (locker.clone(), locker.clone());
        let (one, two) = (name.clone(), message.clone());
        let wait = tokio::spawn(async move { waiter.event(&one).wait(GENEROUS).await });
        let send = tokio::spawn(async move { sender.event(&name).send(&two).await });
        in_time("the send", send).await.unwrap().unwrap();
        assert_eq!(in_time("the wait", wait).await.unwrap().unwrap(), message);
    }
}

/// A waiter gets the message that was sent while it waited, though the event is reset and sent again before it is
/// polled.
pub(crate) async fn waiter_gets_its_message_despite_later_sends(locker: Locker) {
    let name = fresh_name();
    let event = locker.event(&name);
    let one = queued(&locker, "event", &name, event.wait(SOON)).await;
    event.send("first").await.unwrap();
    event.reset().await.unwrap();
    let two = queued(&locker, "event", &name, event.wait(SOON)).await;
    event.clone().keep(Duration::from_millis(1)).send("second").await.unwrap();
    until("the second being forgotten", async || event.wait(Duration::ZERO).await.is_err()).await;
    event.send("third").await.unwrap();
    assert_eq!(one.await.unwrap(), "first");
    assert_eq!(two.await.unwrap(), "second");
    assert_eq!(event.wait(Duration::ZERO).await.unwrap(), "third");
}

/// The name is deleted after the send and before the waiter is polled.
pub(crate) async fn waiter_gets_its_message_despite_deletion(locker: Locker) {
    let (admin, name) = (locker.admin(), fresh_name());
    let event = locker.event(&name);
    let waiting = queued(&locker, "event", &name, event.wait(SOON)).await;
    event.send("gone").await.unwrap();
    assert!(admin.delete(&admin.key("event", &name)).await.unwrap());
    assert_eq!(waiting.await.unwrap(), "gone");
    assert_eq!(event.wait(Duration::ZERO).await.unwrap_err().kind(), ErrorKind::TimedOut);
    event.send("again").await.unwrap();
}

pub(crate) async fn sent_event_is_kept_for_its_keep_time(locker: Locker) {
    let event = locker.event(&fresh_name()).keep(span());
    event.send("").await.unwrap();
    pass(span());
    until("the event being forgotten", async || event.wait(Duration::ZERO).await.is_err()).await;
    event.send("again").await.unwrap();
    assert!(event.keep(Duration::ZERO).send("x").await.unwrap_err().to_string().contains("keep"));
}

pub(crate) async fn blocking_calls_work(locker: Locker) {
    let event = locker.event(&fresh_name());
    let waiter = event.clone();
    let waiting = std::thread::spawn(move || waiter.wait_blocking(GENEROUS));
    event.send_blocking("hello").unwrap();
    crate::support::until("the thread has it", async || waiting.is_finished()).await;
    assert_eq!(waiting.join().unwrap().unwrap(), "hello");
    event.reset_blocking().unwrap();
}
