//! A process that takes the clock of the store for behind: a pause of its machine may not count on its own clock.

use super::*;

const BEHIND: Duration = Duration::from_secs(30);

fn renewal(id: Id) -> Request {
    Request::Lock(HoldRequest::Renew { id, lease: LEASE, once: None })
}

/// Asserts that the holder of the lock has its whole lease.
fn has_all(store: &CasStore<Fake>, key: &Key) {
    let seen = call(store, key, &Request::Inspect).unwrap();
    let Reply::Inspected(seen) = seen else { panic!("{seen:?}") };
    let left = seen.holders[0].time_left.unwrap();
    assert!(left > LEASE / 10 * 9, "{left:?} of {LEASE:?} are left");
}

/// A hold of 60 s ended after 30 s, while its holder relied on it.
#[test]
fn grant_by_a_clock_that_is_behind_is_unknown() {
    let (store, key) = (store(&world(), ""), Key::new("lock"));
    let (holder, request) = acquire(&store, None);
    store.backend.set_clock_back(BEHIND);
    let error = call(&store, &key, &request).unwrap_err();
    assert!(error.kind() == ErrorKind::Unavailable && !error.is_certain(), "{error}");
    // As the locker does: it repeats the request, and renews what an earlier copy was granted.
    let fence = fence(call(&store, &key, &request));
    assert_eq!(call(&store, &key, &renewal(holder)).unwrap(), Reply::Renewed { fence });
    has_all(&store, &key);
    // A renewal that seems to change nothing.
    store.backend.set_clock_back(BEHIND);
    let before = store.backend.writes();
    let error = call(&store, &key, &renewal(holder)).unwrap_err();
    assert!(!error.is_certain() && store.backend.writes() == before, "{error}");
    assert_eq!(call(&store, &key, &renewal(holder)).unwrap(), Reply::Renewed { fence });
}

/// A renewal counts from the time of the store, even if this process has missed a part of it.
#[test]
fn promise_counts_from_a_tick_that_was_missed() {
    let (store, key) = (store(&world(), "clock=ticked"), Key::new("lock"));
    let (holder, request) = acquire(&store, None);
    let fence = fence(call(&store, &key, &request));
    let stamp = || Stored::from_bytes(&store.backend.value(key.as_str()).1).unwrap().stamp;
    let granted = stamp();
    store.backend.move_time_on(BEHIND);
    assert_eq!(call(&store, &key, &renewal(holder)).unwrap(), Reply::Renewed { fence });
    assert!(stamp() > granted + BEHIND / 2, "{:?} later", stamp().since(granted));
}

/// A waiter of the same process is not told of an end that it would rely on.
#[test]
fn hand_off_by_a_clock_that_is_behind_is_a_grant() {
    let (store, key) = (store(&world(), ""), Key::new("lock"));
    let (holder, request) = acquire(&store, WAIT);
    fence(call(&store, &key, &request));
    let (waiter, waits) = acquire(&store, WAIT);
    let mailbox = store.mailboxes().subscribe(waiter);
    assert!(matches!(call(&store, &key, &waits), Ok(Reply::Queued { .. })));
    store.backend.set_clock_back(BEHIND);
    let error = call(&store, &key, &release(holder)).unwrap_err();
    assert!(!error.is_certain(), "{error}");
    let signal = next(mailbox);
    let Signal::Granted { fence } = signal else { panic!("{signal:?}") };
    assert_eq!(call(&store, &key, &renewal(waiter)).unwrap(), Reply::Renewed { fence });
    has_all(&store, &key);
}
