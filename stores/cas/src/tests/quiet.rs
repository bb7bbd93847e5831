//! What goes on, and what does not, while the store may have lost grants.

use super::*;
use locker_core::primitives::{HoldRequest, counter, semaphore::Permits};
use std::future::Future;

const HOUR: Duration = Duration::from_secs(3600);

fn try_for(store: &CasStore<Fake>, kind: HoldKind) -> Request {
    kind.acquire(Id::random_in(store.backend.inbox()), LEASE, None)
}

fn renew(id: Id) -> Request {
    Request::Lock(HoldRequest::Renew { id, lease: LEASE, once: None })
}

fn is_refused(reply: &Result<Reply>) -> bool {
    let Err(error) = reply else { return false };
    assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Unavailable, true), "{error:?}");
    assert!(error.message().contains("nothing is granted for another"), "{error:?}");
    error.retry_after().is_some_and(|after| after > HOUR / 2 && after <= HOUR)
}

fn is_queued(reply: &Result<Reply>) -> bool {
    matches!(reply, Ok(Reply::Queued { recheck_after: Some(_), .. }))
}

#[test]
fn nothing_is_granted_in_a_quiet_time() {
    let store = store(&world(), "quiet=1h");
    let semaphore = HoldKind::Semaphore { permits: 1, size: 2 };
    for (name, kind) in [("lock", HoldKind::Lock), ("permits", semaphore), ("record", HoldKind::Record)] {
        let key = Key::new(name);
        for _ in 0..2 {
            assert!(is_refused(&call(&store, &key, &try_for(&store, kind))), "{name}");
        }
        let waits = kind.acquire(Id::random_in(store.backend.inbox()), LEASE, WAIT);
        for _ in 0..2 {
            let reply = call(&store, &key, &waits);
            assert!(is_queued(&reply), "{name}: {reply:?}");
        }
    }
    let add = Request::Counter(counter::Request::Add { id: Id::random(), by: 3 });
    assert_eq!(call(&store, &Key::new("counter"), &add).unwrap(), Reply::Value(3));
    let quota = Quota::gcra(1, Duration::from_secs(60));
    let take = rate_limiter::Request::Take {
        id: Id::random(),
        tokens: 1,
        quota,
        wait: None,
        patience: Duration::ZERO,
    };
    let reply = call(&store, &Key::new("limiter"), &Request::RateLimiter(take));
    assert!(matches!(reply, Ok(Reply::Admitted { .. })), "{reply:?}");
}

/// The value may be older than the release of that hold, and than a grant to another.
#[test]
fn hold_by_name_is_not_given_again_in_a_quiet_time() {
    let (store, name) = (store(&world(), ""), Id::of("client"));
    let id = || Id::random_in(store.backend.inbox());
    let lock = || Request::Lock(HoldRequest::Acquire { id: id(), lease: LEASE, wait: None, ask: Some(name) });
    let ask = Permits { size: 1, permits: 1, key: name };
    let permit = || Request::Semaphore(HoldRequest::Acquire { id: id(), lease: LEASE, wait: None, ask });
    let (locks, permits) = (Key::new("lock"), Key::new("permit"));
    for _ in 0..2 {
        fence(call(&store, &locks, &lock()));
        fence(call(&store, &permits, &permit()));
    }
    store.backend.begin_epoch(HOUR);
    for (key, request) in [(&locks, lock()), (&permits, permit())] {
        let reply = call(&store, key, &request);
        assert!(is_refused(&reply), "{reply:?}");
    }
    assert!(matches!(call(&store, &locks, &renew(name)), Ok(Reply::Renewed { .. })));
}

/// The holder renews and releases, others join the queue and leave it. The head of the queue is told when to ask.
#[test]
fn holders_and_queues_go_on_in_a_quiet_time() {
    let (world, key) = (world(), Key::new("lock"));
    let (one, other) = (store(&world, ""), store(&world, ""));
    let (holder, request) = acquire(&one, WAIT);
    let first = fence(call(&one, &key, &request));
    let (head, head_waits) = acquire(&other, WAIT);
    assert!(is_queued(&call(&other, &key, &head_waits)));
    one.backend.begin_epoch(HOUR);

    assert_eq!(call(&one, &key, &renew(holder)).unwrap(), Reply::Renewed { fence: first });
    let reply = call(&one, &key, &try_for(&one, HoldKind::Lock));
    assert!(matches!(reply, Ok(Reply::Busy { .. })), "{reply:?}");
    let (left, left_waits) = acquire(&one, WAIT);
    assert!(is_queued(&call(&one, &key, &left_waits)));
    let cancel = Request::Lock(HoldRequest::Cancel { id: left, tombstone: false });
    assert_eq!(call(&one, &key, &cancel).unwrap(), Reply::Cancelled);

    let mailbox = other.mailboxes().subscribe(head);
    assert_eq!(call(&one, &key, &release(holder)).unwrap(), Reply::Released);
    let signal = next(mailbox);
    assert!(matches!(signal, Signal::Recheck { within } if within > HOUR / 2), "{signal:?}");
    assert!(is_queued(&call(&other, &key, &head_waits)));
    assert_eq!(call(&one, &key, &renew(holder)).unwrap(), Reply::Lost);

    let mailbox = other.mailboxes().subscribe(head);
    one.backend.begin_epoch(Duration::ZERO);
    // The process of another caller learns of the epoch by its first answer. The head of the queue is served first.
    let last = acquire(&one, WAIT).1;
    eventually("the end of the quiet time", || {
        assert!(is_queued(&call(&one, &key, &last)));
        one.backend.epoch().quiet.is_none().then_some(())
    });
    assert!(is_queued(&call(&one, &key, &last)));
    let signal = next(mailbox);
    assert!(matches!(signal, Signal::Granted { fence } if fence > first), "{signal:?}");
}

/// A waiter by name or out of order is not woken again and again.
#[test]
fn waiters_that_are_only_woken_rest_in_a_quiet_time() {
    let (world, key) = (world(), Key::new("lock"));
    let (one, other) = (store(&world, ""), store(&world, ""));
    let (holder, request) = acquire(&one, WAIT);
    fence(call(&one, &key, &request));
    let (waiter, wait) =
        (Id::random_in(other.backend.inbox()), WAIT.map(|wait| Wait { fair: false, ..wait }));
    let waits = HoldKind::Lock.acquire(waiter, LEASE, wait);
    assert!(is_queued(&call(&other, &key, &waits)));
    one.backend.begin_epoch(HOUR);
    assert!(is_queued(&call(&one, &key, &acquire(&one, WAIT).1)));
    let mailbox = other.mailboxes().subscribe(waiter);
    assert_eq!(call(&one, &key, &release(holder)).unwrap(), Reply::Released);
    assert!(matches!(next(mailbox), Signal::Recheck { .. }));
    assert!(is_queued(&call(&other, &key, &waits)));
    one.backend.begin_epoch(Duration::ZERO);
    eventually("a grant", || match call(&other, &key, &waits) {
        Ok(Reply::Granted { .. }) => Some(()),
        reply => {
            assert!(is_queued(&reply));
            None
        }
    });
}

/// Both processes know that the lock is free. The epoch begins before they ask.
#[test]
fn grant_of_an_earlier_epoch_does_nothing() {
    let (world, key) = (world(), Key::new("lock"));
    let (one, other) = (store(&world, ""), store(&world, ""));
    for store in [&one, &other] {
        let (holder, request) = acquire(store, WAIT);
        fence(call(store, &key, &request));
        assert_eq!(call(store, &key, &release(holder)).unwrap(), Reply::Released);
    }
    one.backend.begin_epoch(HOUR);
    for store in [&one, &other] {
        assert_eq!(store.backend.epoch().quiet, None);
        assert!(is_refused(&call(store, &key, &try_for(store, HoldKind::Lock))));
    }
    assert!(is_queued(&call(&one, &key, &acquire(&one, WAIT).1)));
}

/// The server lost the write that the process knows, and made another one with the same version.
#[test]
fn value_of_an_earlier_epoch_is_not_used() {
    let (world, key) = (world(), Key::new("lock"));
    let (one, other) = (store(&world, ""), store(&world, ""));
    let (holder, request) = acquire(&one, WAIT);
    fence(call(&one, &key, &request));
    let (_, held) = one.backend.value("lock");
    assert_eq!(call(&one, &key, &release(holder)).unwrap(), Reply::Released);
    let (version, _) = one.backend.value("lock");
    other.backend.begin_epoch(Duration::ZERO);
    other.backend.set_value("lock", version, held);
    assert_eq!(call(&one, &Key::new("another"), &Request::Inspect).unwrap(), Reply::Unknown);
    let reply = call(&one, &key, &try_for(&one, HoldKind::Lock));
    assert!(matches!(reply, Ok(Reply::Busy { .. })), "{reply:?}");
}

/// Answers and requests get lost or come late, and epochs begin.
#[test]
fn lost_answers_grant_nothing_in_a_quiet_time() {
    let (world, key) = (world(), Key::new("lock"));
    let (one, other) = (store(&world, "faults=50"), store(&world, "faults=50"));
    for _ in 0..60 {
        one.backend.begin_epoch(Duration::ZERO);
        eventually("both know", || {
            for store in [&one, &other] {
                let _ = call(store, &key, &Request::Inspect);
            }
            (one.backend.epoch().quiet.is_none() && other.backend.epoch().quiet.is_none()).then_some(())
        });
        let ask = |store: &Arc<CasStore<Fake>>| {
            let (store, key, request) = (Arc::clone(store), key.clone(), try_for(store, HoldKind::Lock));
            thread::spawn(move || call(&store, &key, &request))
        };
        let asked = [ask(&one), ask(&other)];
        one.backend.begin_epoch(HOUR);
        let begun = Timestamp::now().as_micros();
        for reply in asked.map(|thread| thread.join().unwrap()) {
            // The step of a grant ran before the quiet time.
            assert!(!matches!(reply, Ok(Reply::Granted { fence }) if fence > begun + 1_000_000), "{reply:?}");
        }
        let evict = Request::Lock(HoldRequest::Evict { of: None, up_to: u64::MAX });
        eventually("the end of the hold", || call(&one, &key, &evict).ok());
    }
}

/// A caller that waits gets the lock when the quiet time is over, a caller that does not wait learns how long it lasts.
#[test]
fn callers_wait_for_the_end_of_a_quiet_time() {
    let started = Instant::now();
    let url = format!("fake://quiet-{}?quiet=1s", world());
    let locker = Locker::builder().url(url).timeout(locker_harness::GENEROUS).build_blocking().unwrap();
    let error = locker.lock("a").try_acquire_blocking().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.retry_after().is_some_and(|after| after <= Duration::from_secs(1)), "{error}");
    let error = locker.lock("a").timeout(Duration::from_millis(100)).acquire_blocking().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    let (lock, semaphore) = (locker.lock("a").acquire(), locker.semaphore("b", 2).acquire());
    let both: [std::pin::Pin<Box<dyn Future<Output = _> + Send>>; 2] = [Box::pin(lock), Box::pin(semaphore)];
    for held in block_on(join_all(both)) {
        drop(held.unwrap());
    }
    // The longest interval of waiters is 10 s.
    assert!((Duration::from_secs(1)..Duration::from_secs(8)).contains(&started.elapsed()), "{started:?}");
}
