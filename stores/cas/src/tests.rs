mod clocks;
mod crowds;
mod elsewhere;
mod exchanges;
mod quiet;
mod records;
mod renewals;
mod silence;
mod stamps;

use super::{
    backend::{Backend, Outcome, Received, Write},
    entry::Stored,
    fake,
    fake::Fake,
    round::WAITER_TTL,
    store::CasStore,
};
use futures_util::{FutureExt, future::join_all};
use locker_core::{
    blocking::block_on,
    clock::Timestamp,
    error::{ErrorKind, Result},
    id::Id,
    key::Key,
    mailboxes::Mailbox,
    primitives::{
        GRANT_WINDOW, HoldKind, HoldRequest, IdempotencyKey, Reply, Request, Signal, Wait, counter,
        rate_limiter::{self, Quota},
    },
    store::{Description, Store, opening::Opening},
    sync::lock,
};
use locker_harness::{GENEROUS, eventually, while_the_machine_runs};
use locker_runtime::Locker;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

const LEASE: Duration = Duration::from_secs(60);
const WAIT: Option<Wait> = Some(Wait { live: Some(WAITER_TTL), fair: true });

/// A name of a world that no other test uses.
fn world() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed).to_string()
}

fn store(world: &str, parameters: &str) -> Arc<CasStore<Fake>> {
    let mut opening = Opening::default();
    opening.network.command_timeout = GENEROUS;
    fake::open(&format!("{world}?{parameters}"), &opening).unwrap()
}

fn call(store: &CasStore<Fake>, key: &Key, request: &Request) -> Result<Reply> {
    block_on(store.call(key, request))
}

fn acquire(store: &CasStore<Fake>, wait: Option<Wait>) -> (Id, Request) {
    let id = Id::random_in(store.backend.inbox());
    (id, HoldKind::Lock.acquire(id, LEASE, wait))
}

fn release(id: Id) -> Request {
    Request::Lock(HoldRequest::Release { id, tombstone: false, once: None })
}

fn fence(reply: Result<Reply>) -> u64 {
    match reply {
        Ok(Reply::Granted { fence }) => fence,
        other => panic!("{other:?}"),
    }
}

fn next(mut mailbox: Mailbox<'_>) -> Signal {
    let mut context = Context::from_waker(Waker::noop());
    eventually("a signal", || match mailbox.poll_next(&mut context) {
        Poll::Ready(signal) => Some(signal),
        Poll::Pending => None,
    })
}

/// A text that is told again costs one exchange: its version is known.
#[test]
fn repeated_text_is_written_without_a_read() {
    let world = world();
    let (one, other) = (store(&world, ""), store(&world, ""));
    let tell = |store: &CasStore<Fake>, text: &str| {
        let (subject, text) = ("waits:1".to_owned(), text.to_owned());
        block_on(store.describe("p", &[Description { subject, text, keep: LEASE }])).unwrap();
        store.backend.bytes_read()
    };
    let texts = |store: &CasStore<Fake>| block_on(store.descriptions("p", &["waits:1".to_owned()])).unwrap();
    assert_eq!(tell(&one, "first"), tell(&one, "second"));
    tell(&other, "third");
    tell(&one, "fourth");
    assert_eq!(texts(&other), [Some("fourth".to_owned())]);
}

/// Three processes, of which every third request, answer or message gets lost or comes late.
#[test]
fn each_request_is_carried_out_once() {
    let (world, key) = (world(), Key::new("limited"));
    let stores: Vec<_> = (0..3).map(|_| store(&world, "faults=30&delay=1ms")).collect();
    let quota = Quota::fixed_window(1_000_000, Duration::from_secs(24 * 3600));
    let take = |_| {
        Request::RateLimiter(rate_limiter::Request::Take {
            id: Id::random(),
            tokens: 1,
            quota,
            patience: Duration::ZERO,
            wait: None,
        })
    };
    let (mut done, mut unknown, mut refused) = (0, 0, 0);
    let started = Instant::now();
    while done < 300 || refused < 10 {
        assert!(started.elapsed() < locker_harness::GENEROUS, "{done} done, {refused} refused");
        let requests: Vec<Request> = (0..30).map(take).collect();
        let calls = requests.iter().enumerate().map(|(at, request)| stores[at % 3].call(&key, request));
        for reply in block_on(join_all(calls)) {
            match reply {
                Ok(Reply::Admitted { .. }) => done += 1,
                Err(error) if error.is_certain() => refused += 1,
                Err(_) => unknown += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    let calm = store(&world, "");
    let Ok(Reply::Inspected(state)) = call(&calm, &key, &Request::Inspect) else { panic!("no state") };
    let used = state.used.unwrap();
    assert!((done..=done + unknown).contains(&used), "{used} used, {done} done, {unknown} unknown");
}

/// Three processes with two threads each, of which every tenth exchange goes wrong.
#[test]
fn exclusion_survives_lost_answers() {
    for clock in ["served", "ticked"] {
        let url = format!("fake://exclusion-{}?clock={clock}&faults=10", world());
        let (inside, last, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                let locker = Locker::builder().url(url.as_str()).timeout(Duration::from_secs(60));
                // A waiter whose message was lost asks again when the lease of the holder is over.
                let locker = locker.lease(Duration::from_secs(2));
                let locker = locker.build_blocking().unwrap();
                let work = || {
                    let locker = locker.clone();
                    let (inside, last, done) = (&inside, &last, &done);
                    move || {
                        while done.load(Ordering::SeqCst) < 100 {
                            let Ok(guard) = locker.lock("one").acquire_blocking() else { continue };
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                            let before = last.swap(guard.fence(), Ordering::SeqCst);
                            assert!(guard.fence() > before, "{} after {before}", guard.fence());
                            thread::yield_now();
                            assert!(guard.check().is_ok(), "it was lost within a lease");
                            inside.fetch_sub(1, Ordering::SeqCst);
                            done.fetch_add(1, Ordering::SeqCst);
                            // A release whose outcome is unknown is retried in the background.
                            drop(guard.release_blocking());
                        }
                    }
                };
                scope.spawn(work());
                scope.spawn(work());
            }
        });
        assert!(done.load(Ordering::SeqCst) >= 100);
    }
}

#[test]
fn asking_again_writes_nothing() {
    let (store, key) = (store(&world(), ""), Key::new("lock"));
    fence(call(&store, &key, &acquire(&store, WAIT).1));
    let (_, waits) = acquire(&store, WAIT);
    let queued = call(&store, &key, &waits).unwrap();
    assert!(matches!(queued, Reply::Queued { ahead: 0, .. }), "{queued:?}");
    let before = store.backend.writes();
    for _ in 0..3 {
        let queued = call(&store, &key, &waits).unwrap();
        assert!(matches!(queued, Reply::Queued { ahead: 0, .. }), "{queued:?}");
        call(&store, &key, &Request::Inspect).unwrap();
    }
    assert_eq!(store.backend.writes(), before);
}

#[test]
fn requests_that_gather_share_a_write() {
    let (store, key) = (store(&world(), ""), Key::new("lock"));
    let requests: Vec<Request> = (0..100).map(|_| acquire(&store, WAIT).1).collect();
    // None is carried out before all are made.
    store.backend.gate().close();
    let mut replies = join_all(requests.iter().map(|request| store.call(&key, request)));
    assert!(replies.poll_unpin(&mut Context::from_waker(Waker::noop())).is_pending());
    store.backend.gate().open();
    let replies = block_on(replies);
    let granted = replies.iter().filter(|reply| matches!(reply, Ok(Reply::Granted { .. }))).count();
    assert_eq!((replies.len(), granted), (100, 1));
    assert!(store.backend.writes() <= 2, "{} writes", store.backend.writes());
}

/// A waiter of the same process has nothing to confirm.
#[test]
fn hand_off_within_a_process_is_one_write() {
    let (store, key) = (store(&world(), ""), Key::new("lock"));
    let (holder, request) = acquire(&store, WAIT);
    let first = fence(call(&store, &key, &request));
    let (waiter, waits) = acquire(&store, WAIT);
    let mailbox = store.mailboxes().subscribe(waiter);
    assert!(matches!(call(&store, &key, &waits), Ok(Reply::Queued { .. })));
    let before = store.backend.writes();
    assert_eq!(call(&store, &key, &release(holder)).unwrap(), Reply::Released);
    let signal = next(mailbox);
    let Signal::HandedOff { fence, .. } = signal else { panic!("{signal:?}") };
    assert!(fence > first);
    assert_eq!(store.backend.writes(), before + 1);
}

/// The waiter has given up, and its cancel comes after the grant.
#[test]
fn late_cancel_hands_an_unwanted_grant_on() {
    let world = world();
    for of_this_process in [true, false] {
        let (one, other) = (store(&world, ""), store(&world, ""));
        let (key, of) =
            (Key::new(&format!("unwanted {of_this_process}")), if of_this_process { &one } else { &other });
        let (holder, request) = acquire(&one, WAIT);
        fence(call(&one, &key, &request));
        let (gives_up, request) = acquire(of, WAIT);
        assert!(matches!(call(of, &key, &request), Ok(Reply::Queued { .. })));
        let (waiter, waits) = acquire(&one, WAIT);
        let mailbox = one.mailboxes().subscribe(waiter);
        assert!(matches!(call(&one, &key, &waits), Ok(Reply::Queued { .. })));
        let started = Instant::now();
        assert_eq!(call(&one, &key, &release(holder)).unwrap(), Reply::Released);
        assert_eq!(call(of, &key, &HoldKind::Lock.cancel(gives_up, false)).unwrap(), Reply::Cancelled);
        let signal = next(mailbox);
        assert!(matches!(signal, Signal::HandedOff { .. } | Signal::Granted { .. }), "{signal:?}");
        assert!(started.elapsed() < GRANT_WINDOW, "it waited for the end of a grant");
    }
}

/// Whatever a message says that another process has sent, or made up.
#[test]
fn message_ends_no_hold() {
    let (store, key) = (store(&world(), ""), Key::new("lock"));
    let (holder, request) = acquire(&store, None);
    let fence = fence(call(&store, &key, &request));
    for text in [
        format!("lock\ngranted {holder} {fence}"),
        format!("lock\ngranted {holder} {}", fence + 1),
        format!("lock\nwake {holder} 0\ndeleted {holder} 0\nrecheck {holder} 0"),
    ] {
        store.receive(Received::Text(&text));
    }
    let renew = Request::Lock(HoldRequest::Renew { id: holder, lease: LEASE, once: None });
    assert_eq!(call(&store, &key, &renew).unwrap(), Reply::Renewed { fence });
}

#[test]
fn waiters_of_a_process_that_is_gone_are_skipped() {
    let permits = HoldKind::Semaphore { size: 1, permits: 1 };
    for (kind, fair) in [(HoldKind::Lock, true), (HoldKind::Lock, false), (permits, true), (permits, false)] {
        let world = world();
        let (holding, gone, waiting) = (store(&world, ""), store(&world, ""), store(&world, ""));
        let (key, wait) = (Key::new("key"), WAIT.map(|wait| Wait { fair, ..wait }));
        let id = |store: &CasStore<Fake>| Id::random_in(store.backend.inbox());
        let join = |store: &CasStore<Fake>, id| call(store, &key, &kind.acquire(id, LEASE, wait));
        let holder = id(&holding);
        fence(join(&holding, holder));
        for _ in 0..20 {
            assert!(matches!(join(&gone, id(&gone)), Ok(Reply::Queued { .. })));
        }
        let waiter = id(&waiting);
        let mailbox = waiting.mailboxes().subscribe(waiter);
        assert!(matches!(join(&waiting, waiter), Ok(Reply::Queued { .. })));
        drop(gone);
        let started = Instant::now();
        assert_eq!(call(&holding, &key, &kind.release(holder, false)).unwrap(), Reply::Released);
        let signal = next(mailbox);
        assert!(matches!(signal, Signal::Granted { .. } | Signal::Wake), "{kind:?}, {fair}: {signal:?}");
        assert!(started.elapsed() < GRANT_WINDOW, "it waited for the end of a grant");
    }
}

/// A process whose connection is replaced is taken for one that is gone. What it has confirmed is not taken back.
#[test]
fn confirmed_grant_is_not_taken_back() {
    let world = world();
    let (slow, quick, key) = (store(&world, ""), store(&world, ""), Key::new("lock"));
    let (holder, request) = acquire(&slow, WAIT);
    fence(call(&slow, &key, &request));
    let (waiter, waits) = acquire(&quick, WAIT);
    assert!(matches!(call(&quick, &key, &waits), Ok(Reply::Queued { .. })));
    quick.backend.stop_listening();
    slow.backend.gate().close_after_gone();
    assert_eq!(call(&slow, &key, &release(holder)).unwrap(), Reply::Released);
    // The request of the other process that takes the grant back is under way.
    let renew = Request::Lock(HoldRequest::Renew { id: waiter, lease: LEASE, once: None });
    let Ok(Reply::Renewed { fence: granted }) = call(&quick, &key, &renew) else { panic!("it was lost") };
    slow.backend.gate().let_pass();
    let Ok(Reply::Busy { .. }) = call(&slow, &key, &acquire(&slow, None).1) else {
        panic!("it was taken back")
    };
    assert_eq!(call(&quick, &key, &renew).unwrap(), Reply::Renewed { fence: granted });
}

#[test]
fn known_value_is_compared_before_a_reply() {
    let world = world();
    let (one, other, key) = (store(&world, ""), store(&world, ""), Key::new("lock"));
    let fence = fence(call(&one, &key, &acquire(&one, None).1));
    let evict = Request::Lock(HoldRequest::Evict { of: None, up_to: fence });
    assert_eq!(call(&other, &key, &evict).unwrap(), Reply::Released);
    let seen = call(&one, &key, &Request::Inspect).unwrap();
    assert_eq!(seen, Reply::Unknown);
}

#[test]
fn only_what_callers_rely_on_is_durable() {
    let (store, key) = (store(&world(), ""), Key::new("lock"));
    let (holder, request) = acquire(&store, WAIT);
    fence(call(&store, &key, &request));
    assert!(store.backend.was_durable(), "a grant");
    let (waiter, waits) = acquire(&store, WAIT);
    let mailbox = store.mailboxes().subscribe(waiter);
    assert!(matches!(call(&store, &key, &waits), Ok(Reply::Queued { .. })));
    assert!(!store.backend.was_durable(), "a place in the queue");
    assert_eq!(call(&store, &key, &release(holder)).unwrap(), Reply::Released);
    assert!(store.backend.was_durable(), "a hand-off");
    assert!(matches!(next(mailbox), Signal::HandedOff { .. }));
    assert_eq!(call(&store, &key, &release(waiter)).unwrap(), Reply::Released);
    assert!(!store.backend.was_durable(), "a release");
}

/// A connection that is replaced is not the end of a process: for long its waiters would be passed over.
#[test]
fn process_that_listens_again_gets_hand_offs() {
    let (world, key) = (world(), Key::new("lock"));
    let (holding, away) = (store(&world, ""), store(&world, ""));
    let is_handed_over = || {
        let (holder, request) = acquire(&holding, WAIT);
        fence(call(&holding, &key, &request));
        let (waiter, waits) = acquire(&away, WAIT);
        let _mailbox = away.mailboxes().subscribe(waiter);
        assert!(matches!(call(&away, &key, &waits), Ok(Reply::Queued { .. })));
        assert_eq!(call(&holding, &key, &release(holder)).unwrap(), Reply::Released);
        let seen = call(&holding, &key, &Request::Inspect);
        let is_held = matches!(&seen, Ok(Reply::Inspected(seen)) if !seen.holders.is_empty());
        call(&away, &key, &Request::Lock(HoldRequest::Cancel { id: waiter, tombstone: false })).unwrap();
        is_held
    };
    assert!(is_handed_over());
    away.backend.stop_listening();
    assert!(!is_handed_over());
    away.backend.listen_again();
    let since = Instant::now();
    eventually("a hand-off to the process that listens again", || is_handed_over().then_some(()));
    assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
}

#[test]
fn waiters_beyond_the_largest_value_are_refused() {
    let (store, key) = (store(&world(), "largest=2000"), Key::new("lock"));
    let (holder, request) = acquire(&store, WAIT);
    fence(call(&store, &key, &request));
    let mut waiters = Vec::new();
    let error = loop {
        let (id, request) = acquire(&store, WAIT);
        match call(&store, &key, &request) {
            Ok(_) => waiters.push((id, request)),
            Err(error) => break error,
        }
        assert!(waiters.len() < 200);
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.is_certain() && error.message().contains("larger than"), "{error}");
    assert!(waiters.len() > 20, "{}", waiters.len());
    // Who has a place keeps it, and everything goes on.
    let (first, again) = &waiters[0];
    assert!(matches!(call(&store, &key, again), Ok(Reply::Queued { ahead: 0, .. })));
    let mailbox = store.mailboxes().subscribe(*first);
    assert_eq!(call(&store, &key, &release(holder)).unwrap(), Reply::Released);
    assert!(matches!(next(mailbox), Signal::HandedOff { .. }));
    assert!(matches!(call(&store, &key, &acquire(&store, WAIT).1), Ok(Reply::Queued { .. })));
}

#[test]
fn unreadable_values_are_conflicts() {
    let (store, key) = (store(&world(), ""), Key::new("lock"));
    let own = acquire(&store, WAIT).1;
    fence(call(&store, &key, &own));
    let look = || block_on(store.backend.exchange(Write::look(key.clone()))).unwrap();
    let Outcome::Differs { value: Some(good), .. } = look() else { panic!("a value") };
    let damaged = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let values = [
        (Vec::new(), "not of this library"),
        (b"L".to_vec(), "not of this library"),
        (damaged(0, b'X'), "not of this library"),
        (damaged(1, 0), "written by an earlier version"),
        (damaged(2, 9), "written by a later version"),
        (good[..good.len() - 1].to_vec(), "damaged"),
    ];
    for (value, why) in values {
        let Outcome::Differs { version, .. } = look() else { panic!("a value") };
        let write = Write { expected: version, value: Some(value.clone()), ..Write::look(key.clone()) };
        block_on(store.backend.exchange(write)).unwrap();
        let error = call(&store, &key, &acquire(&store, None).1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{value:?}: {error}");
        assert!(error.is_certain() && error.message().contains(why), "{error}");
    }
}

/// The process that comes back has seen neither the other fences nor the removal.
#[test]
fn fences_rise_over_removed_values() {
    for clock in ["clock=ticked", "clock=served"] {
        let world = world();
        let (one, other, key) = (store(&world, clock), store(&world, clock), Key::new("lock"));
        fence(call(&one, &Key::new("another lock"), &acquire(&one, None).1));
        let mut last = 0;
        for _ in 0..20 {
            let (holder, request) = acquire(&other, None);
            let fence = fence(call(&other, &key, &request));
            assert!(fence > std::mem::replace(&mut last, fence), "{clock}");
            assert_eq!(call(&other, &key, &release(holder)).unwrap(), Reply::Released);
        }
        other.backend.remove("lock");
        let (holder, request) = acquire(&one, None);
        assert!(fence(call(&one, &key, &request)) > last, "{clock}");
        assert_eq!(call(&one, &key, &release(holder)).unwrap(), Reply::Released);
    }
}

/// The time of a limit is ahead of that of a lock by all the time in which no process was connected.
#[test]
fn limiter_at_the_key_of_a_lock_ends_no_hold() {
    let (store, key) = (store(&world(), "clock=ticked&delay=20ms"), Key::new("both"));
    store.backend.add_gap(2 * LEASE);
    let take = || {
        Request::RateLimiter(rate_limiter::Request::Take {
            id: Id::random(),
            tokens: 1,
            quota: Quota::fixed_window(10, LEASE),
            patience: Duration::ZERO,
            wait: None,
        })
    };
    assert!(matches!(call(&store, &Key::new("limit"), &take()), Ok(Reply::Admitted { .. })));
    fence(call(&store, &key, &acquire(&store, None).1));
    assert_eq!(call(&store, &key, &take()).unwrap(), Reply::WrongKind);
    // The later two share a round, while the first one is under way.
    let requests = [Request::Inspect, acquire(&store, None).1, take()];
    let replies = block_on(join_all(requests.iter().map(|request| store.call(&key, request))));
    assert!(matches!(replies[1], Ok(Reply::Busy { .. })), "{replies:?}");
    assert_eq!(*replies[2].as_ref().unwrap(), Reply::WrongKind);
}

/// A limit goes on while no process is connected, and a hold does not.
#[test]
fn gaps_refill_limits_and_end_no_hold() {
    let (store, key) = (store(&world(), "clock=ticked"), Key::new("limit"));
    let take = || {
        let quota = Quota::token_bucket(1, 2 * LEASE);
        let (id, patience) = (Id::random(), Duration::ZERO);
        Request::RateLimiter(rate_limiter::Request::Take { id, tokens: 1, quota, patience, wait: None })
    };
    let (holder, request) = acquire(&store, None);
    let fence = fence(call(&store, &Key::new("lock"), &request));
    assert!(matches!(call(&store, &key, &take()), Ok(Reply::Admitted { .. })));
    assert!(matches!(call(&store, &key, &take()), Ok(Reply::Limited { .. })));
    store.backend.add_gap(2 * LEASE);
    assert!(matches!(call(&store, &key, &take()), Ok(Reply::Admitted { .. })));
    let renew = Request::Lock(HoldRequest::Renew { id: holder, lease: LEASE, once: None });
    assert_eq!(call(&store, &Key::new("lock"), &renew).unwrap(), Reply::Renewed { fence });
}

#[test]
fn lists_come_in_pages() {
    let store = store(&world(), "");
    let locker = Locker::builder().store(Arc::clone(&store)).build_blocking().unwrap();
    let names: Vec<String> = (0..25).map(|number| format!("n{number:02}")).collect();
    let mut guards: Vec<_> = names.iter().map(|name| locker.lock(name).acquire_blocking().unwrap()).collect();
    for guard in guards.drain(..10) {
        guard.release_blocking().unwrap();
    }
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = block_on(store.page("lock:", after.as_deref(), 4)).unwrap();
        assert!(page.keys.len() == 4 || page.next.is_none(), "only the last page may have fewer");
        assert!(page.keys.len() <= 4);
        listed.extend(page.keys.iter().map(|key| key.as_str().to_owned()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let expected: Vec<_> = names[10..].iter().map(|name| format!("lock:{name}")).collect();
    assert_eq!(listed, expected);
}

/// A process may lead again and again, and tells a text about each term.
#[test]
fn versions_of_texts_that_are_over_are_forgotten() {
    let store = store(&world(), "");
    let locker = Locker::builder().store(Arc::clone(&store)).build_blocking().unwrap();
    for _ in 0..300 {
        let body = async |_: &locker_runtime::Guard| {
            locker_core::background::sleep(Duration::from_millis(10)).await;
            Ok::<_, locker_core::error::Error>(())
        };
        block_on(locker.elect("a").run(body)).unwrap();
    }
    let told = lock(&store.told).len();
    assert!(told < 280, "{told} versions after 300 terms that are over");
}
