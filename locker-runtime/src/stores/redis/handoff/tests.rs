use super::*;
use crate::{primitives::Wait, stores::Opening};
use futures_util::FutureExt;
use locker_harness::{RedisServer, Signal, in_time, until};

const LEASE: Duration = Duration::from_secs(60);

fn by() -> Timestamp {
    Timestamp::now() + Duration::from_secs(1)
}

fn acquire(id: Id) -> Request {
    HoldRequest::Acquire { id, lease: LEASE, wait: Some(Wait { live: None, fair: true }), ask: () }
}

/// As an executor does that polls the member between being passed over and the next one's turn.
#[tokio::test]
async fn a_member_that_is_passed_over_does_not_hold_with_the_next_one() {
    let Some(server) = RedisServer::start() else { return };
    let store = Redis::open(&server.url(), &Opening::default()).await.unwrap();
    let (key, [before, late, next]) = (Key::new("lock:a"), [(); 3].map(|()| Id::random()));
    store.lock(&key, &acquire(before), by()).await.unwrap();
    let _mailboxes = [late, next].map(|id| store.mail.boxes.subscribe(id));
    for id in [late, next] {
        let queued = store.lock(&key, &acquire(id), by()).await.unwrap();
        assert!(matches!(queued, Reply::Queued { .. }), "{queued:?}");
    }
    let release = HoldRequest::Release { id: before, tombstone: false, once: None };
    store.lock(&key, &release, by()).await.unwrap();
    until("the turn", async || matches!(store.runs.place(&key, late), Place::Holds { .. })).await;
    let Place::Holds { grant, fence } = store.runs.place(&key, late) else { panic!() };

    // One that has learnt by asking that it holds is passed over no more.
    assert_eq!(store.lock(&key, &acquire(late), by()).await.unwrap(), Reply::Granted { fence });
    let passed_over = |id| store.mail.boxes.take_back(id);
    assert_eq!(store.pass_on(&key, grant, Some(late), passed_over), Next::Gone);

    let confirm = HoldRequest::Renew { id: late, lease: LEASE, once: None };
    let mut confirming = Box::pin(store.lock(&key, &confirm, by()));
    server.signal(Signal::STOP);
    assert!(confirming.as_mut().now_or_never().is_none());
    server.signal(Signal::CONT);
    let passed = store.pass_on(&key, grant, Some(late), |_| true);
    assert!(matches!(passed, Next::Holds { member, .. } if member.id == next), "{passed:?}");
    assert_eq!(in_time("the confirmation", confirming).await.unwrap(), Reply::Lost, "both hold");
}

#[tokio::test]
async fn the_task_that_looks_at_names_ends_with_the_last_one() {
    let Some(server) = RedisServer::start() else { return };
    let store = Redis::open(&server.url(), &Opening::default()).await.unwrap();
    let key = Key::new("lock:a");
    for id in [Id::random(), Id::random()] {
        store.lock(&key, &acquire(id), by()).await.unwrap();
    }
    // Nobody waits: there is no mailbox.
    until("the look", async || !store.rechecks.knows(&key)).await;
    let rechecks = Arc::downgrade(&store.rechecks);
    let store = Arc::downgrade(&{ store });
    until("the end of the store", async || store.strong_count() == 0).await;
    until("the end of its task", async || rechecks.strong_count() == 0).await;
}
