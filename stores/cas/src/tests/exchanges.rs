//! How often the backend is asked, what for, and what a lost answer costs.

use super::{fake::Fault, *};
use crate::{store::shared, time::Basis};
use locker_core::primitives::event;

/// A store whose key is known, and the exchanges with its backend.
struct Counted {
    store: Arc<CasStore<Fake>>,
    key: Key,
}

impl Counted {
    fn new(parameters: &str) -> Self {
        Self { store: store(&world(), parameters), key: Key::new("lock") }
    }

    /// Makes a call. Returns its result, and the exchanges and writes that it took.
    fn call(&self, request: &Request) -> (Result<Reply>, u64, u64) {
        let backend = &self.store.backend;
        let (exchanges, writes) = (backend.gate().passed(), backend.writes());
        let reply = call(&self.store, &self.key, request);
        (reply, backend.gate().passed() - exchanges, backend.writes() - writes)
    }

    fn cost(&self, request: &Request) -> (u64, u64) {
        let (reply, exchanges, writes) = self.call(request);
        reply.unwrap();
        (exchanges, writes)
    }
}

#[test]
fn calls_take_few_exchanges() {
    for (clock, first) in [("clock=served", (1, 1)), ("clock=ticked", (2, 1))] {
        let counted = Counted::new(clock);
        let (holder, request) = acquire(&counted.store, None);
        assert_eq!(counted.cost(&request), first, "{clock}: the first call at a key");
        let (waiter, waits) = acquire(&counted.store, WAIT);
        let asked = Instant::now();
        assert_eq!(counted.cost(&waits), (1, 1), "{clock}: a place in the queue");
        let (exchanges, writes) = counted.cost(&waits);
        assert!(writes == 0 && exchanges <= 1, "{clock}");
        if asked.elapsed() < Duration::from_millis(500) {
            assert_eq!(exchanges, 0, "{clock}: what was just seen is enough for a waiter");
        }
        assert_eq!(counted.cost(&Request::Inspect), (1, 0), "{clock}: a look");
        assert_eq!(counted.cost(&acquire(&counted.store, None).1), (1, 0), "{clock}: a try");
        let renew = HoldKind::Lock.renew(holder, LEASE);
        assert_eq!(counted.cost(&renew), (1, 1), "{clock}: a renewal");
        assert_eq!(counted.cost(&HoldKind::Lock.cancel(waiter, false)), (1, 1), "{clock}: a cancel");
        assert_eq!(counted.cost(&release(holder)), (1, 1), "{clock}: a release");
    }
}

/// Another process has written since. What the refused write or comparison brings is as new as can be.
#[test]
fn calls_at_an_old_value_take_one_exchange_more() {
    for clock in ["clock=served", "clock=ticked"] {
        let world = world();
        let (other, key) = (store(&world, clock), Key::new("lock"));
        let counted = Counted { store: store(&world, clock), key: key.clone() };
        let (holder, request) = acquire(&counted.store, None);
        counted.cost(&request);
        let renew = HoldKind::Lock.renew(holder, LEASE);
        for (request, cost) in [
            (Request::Inspect, (1, 0)),
            (acquire(&counted.store, None).1, (1, 0)),
            (acquire(&counted.store, WAIT).1, (2, 1)),
            (renew, (2, 1)),
        ] {
            assert!(matches!(call(&other, &key, &acquire(&other, WAIT).1), Ok(Reply::Queued { .. })));
            assert_eq!(counted.cost(&request), cost, "{clock}: {request:?}");
        }
    }
}

/// What finds nothing leaves nothing: a page and a search for deadlocks look at many keys.
#[test]
fn unused_names_get_no_value() {
    let id = Id::random();
    for clock in ["clock=served", "clock=ticked"] {
        for request in [Request::Inspect, Request::Delete(IdempotencyKey::new(id)), release(id)] {
            assert_eq!(Counted::new(clock).cost(&request), (1, 0), "{clock}: {request:?}");
        }
    }
}

/// What is over is removed by the next write, and not by a look.
#[test]
fn look_at_permits_that_are_over_writes_nothing() {
    let counted = Counted::new("");
    let kind = HoldKind::Semaphore { size: 2, permits: 1 };
    let id = || Id::random_in(counted.store.backend.inbox());
    for lease in [LEASE, Duration::from_millis(1)] {
        let (reply, ..) = counted.call(&kind.acquire(id(), lease, None));
        fence(reply);
    }
    eventually("the end of a hold", || match counted.call(&Request::Inspect) {
        (Ok(Reply::Inspected(seen)), 1, 0) => (seen.holders.len() == 1).then_some(()),
        other => panic!("{other:?}"),
    });
}

/// A backend may remove the value as early as the one before, if nothing but places in the queue has changed.
#[test]
fn only_waits_leave_the_end_of_a_value_as_it_was() {
    let counted = Counted::new("");
    let only_waits = |request: &Request| {
        counted.cost(request);
        counted.store.backend.gate().last().only_waits
    };
    let (holder, request) = acquire(&counted.store, None);
    let (waiter, waits) = acquire(&counted.store, WAIT);
    assert!(!only_waits(&request), "a grant");
    assert!(only_waits(&waits), "a place in the queue");
    assert!(!only_waits(&HoldKind::Lock.renew(holder, LEASE)), "a renewal");
    assert!(only_waits(&HoldKind::Lock.cancel(waiter, false)), "a place that is given up");
    assert!(!only_waits(&HoldKind::Lock.cancel(waiter, true)), "a tombstone lasts");
    let (_, waits) = acquire(&counted.store, WAIT);
    assert!(only_waits(&waits), "another place");
    assert!(!only_waits(&release(holder)), "a hand-off");
    let counted = Counted { key: Key::new("other"), ..counted };
    for by in [1, 2] {
        counted.cost(&Request::Counter(counter::Request::Add { id: Id::random(), by }));
        assert!(!counted.store.backend.gate().last().only_waits, "what is no hold lasts, too");
    }
}

/// A write that was refused was not carried out, and its caller learns that at once.
#[test]
fn refused_write_is_not_repeated() {
    let counted = Counted::new("");
    let (_, request) = acquire(&counted.store, None);
    counted.store.backend.gate().fail([Fault::Refused]);
    let (reply, exchanges, writes) = counted.call(&request);
    let error = reply.unwrap_err();
    assert!(error.kind() == ErrorKind::Unavailable && error.is_certain(), "{error}");
    assert_eq!((exchanges, writes), (0, 0));
    assert_eq!(counted.cost(&request), (1, 1));
}

#[test]
fn lost_answer_is_looked_up() {
    let counted = Counted::new("");
    let fail = |faults: [Fault; 2], request: &Request| {
        counted.store.backend.gate().fail(faults);
        counted.call(request)
    };
    let (holder, request) = acquire(&counted.store, None);
    let (reply, exchanges, writes) = fail([Fault::AnswerLost, Fault::None], &request);
    fence(reply);
    assert_eq!((exchanges, writes), (2, 1), "the nonce is found");
    let renew = HoldKind::Lock.renew(holder, LEASE);
    let (reply, exchanges, writes) = fail([Fault::RequestLost, Fault::None], &renew);
    assert!(matches!(reply, Ok(Reply::Renewed { .. })), "{reply:?}");
    assert_eq!((exchanges, writes), (3, 1), "it is sent again");
    let (reply, exchanges, writes) = fail([Fault::RequestLost, Fault::RequestLost], &release(holder));
    assert_eq!((reply.unwrap(), exchanges, writes), (Reply::Released, 4, 1), "the look was lost, too");
}

/// Whether the own write came before that of the other process is not to be found out.
#[test]
fn lost_answer_beside_another_write_is_unknown() {
    let world = world();
    let (other, key) = (store(&world, ""), Key::new("lock"));
    let counted = Counted { store: store(&world, ""), key: key.clone() };
    let (holder, request) = acquire(&counted.store, None);
    counted.cost(&request);
    assert!(matches!(call(&other, &key, &acquire(&other, WAIT).1), Ok(Reply::Queued { .. })));
    counted.store.backend.gate().fail([Fault::RequestLost]);
    let (reply, exchanges, writes) = counted.call(&HoldKind::Lock.renew(holder, LEASE));
    let error = reply.unwrap_err();
    assert!(error.kind() == ErrorKind::Unavailable && !error.is_certain(), "{error}");
    assert_eq!((exchanges, writes), (2, 0));
}

/// A comparison changes nothing, so that its outcome is certain, and one repetition does no harm.
#[test]
fn comparison_is_repeated_once() {
    let counted = Counted::new("");
    let look = |faults: &[Fault]| {
        for fault in faults {
            counted.store.backend.gate().fail([*fault]);
        }
        counted.call(&Request::Inspect)
    };
    let (_, request) = acquire(&counted.store, None);
    counted.cost(&request);
    let (reply, exchanges, _) = look(&[Fault::AnswerLost]);
    assert!(matches!(reply, Ok(Reply::Inspected(_))) && exchanges == 2, "{reply:?}");
    let (reply, exchanges, _) = look(&[Fault::RequestLost, Fault::AnswerLost]);
    assert!(reply.unwrap_err().is_certain() && exchanges == 2);
    let (reply, exchanges, _) = look(&[Fault::Refused]);
    assert!(reply.unwrap_err().is_certain() && exchanges == 0, "a refusal is no lost answer");
}

/// What callers go by when they say that a store is silent, or where a time comes from.
#[test]
fn store_tells_of_its_backend() {
    let (counted, now) = (Counted::new(""), Timestamp::now());
    let (store, key) = (&counted.store, &counted.key);
    assert_eq!((store.name(), store.fence_is_time()), ("fake", true));
    assert!(!self::store(&world(), "clock=ticked").fence_is_time());
    assert!(!store.has_replied_since(key, now) && store.outage(key).is_none());
    store.backend.gate().fail([Fault::Refused]);
    assert!(counted.call(&acquire(store, None).1).0.is_err());
    assert!(!store.has_replied_since(key, now), "an outage is no reply");
    assert!(store.outage(key).is_some());
    counted.cost(&acquire(store, None).1);
    assert!(store.has_replied_since(key, now) && store.outage(key).is_none());
    assert!(!store.has_replied_since(key, Timestamp::now() + LEASE));
    let slow = Counted::new("delay=80ms");
    assert!(slow.store.expected_rtt(&slow.key) < Duration::from_millis(200));
    slow.cost(&acquire(&slow.store, None).1);
    assert!(slow.store.expected_rtt(&slow.key) >= Duration::from_millis(200));
}

/// Waiters of a process at one key ask together, those of other keys at other times of the half second.
#[test]
fn waiters_ask_again_in_groups() {
    let counted = Counted::new("");
    let (store, step) = (&counted.store, Duration::from_millis(50).as_micros());
    fence(call(store, &counted.key, &acquire(store, None).1));
    let mut groups = std::collections::BTreeSet::new();
    for number in 0..40 {
        let key = Key::new(&format!("lock {number}"));
        fence(call(store, &key, &acquire(store, None).1));
        for ahead in 0..3 {
            let before = Timestamp::now();
            let reply = call(store, &key, &acquire(store, WAIT).1);
            let Ok(Reply::Queued { recheck_after: Some(after), .. }) = reply else { panic!("{reply:?}") };
            let late = Timestamp::now().since(before) + Duration::from_millis(1);
            let least = Duration::from_millis(1_250) + ahead * Duration::from_micros(500);
            assert!((least..=least + Duration::from_millis(500)).contains(&after), "{after:?}");
            // When it asks, up to the time that the call took.
            let part = (before + after).as_micros() % 500_000 % u64::try_from(step).unwrap();
            let off = (u64::try_from(step).unwrap() - part) % u64::try_from(step).unwrap();
            assert!(u128::from(off) <= late.as_micros(), "{off} after {late:?}");
            groups.insert((before + after + late / 2).as_micros() % 500_000 / u64::try_from(step).unwrap());
        }
    }
    assert!(groups.len() >= 6, "{groups:?}");
}

/// What others have done is not known until the next answer, after a message about the key and after a gap.
#[test]
fn waiter_that_was_told_asks_the_backend() {
    let counted = Counted::new("");
    counted.cost(&acquire(&counted.store, None).1);
    let (_, waits) = acquire(&counted.store, WAIT);
    counted.cost(&waits);
    for received in [Received::Gap, Received::Text("lock\nwake 00000000000000000000000000000001 0")] {
        counted.store.receive(received);
        assert_eq!(counted.cost(&waits), (1, 0));
    }
}

/// A value may have come and gone since a key was seen to be absent, with higher fences than a clock that stands still
/// gives.
#[test]
fn absence_is_believed_for_a_while() {
    let cost_after = |is_held: bool, seconds| {
        let counted = Counted::new("clock=ticked");
        counted.cost(&if is_held { acquire(&counted.store, None).1 } else { Request::Inspect });
        let age = || lock(&counted.store.queues).age(&counted.key, Duration::from_secs(seconds));
        eventually("the end of the call", || age().then_some(()));
        counted.cost(&acquire(&counted.store, WAIT).1)
    };
    assert_eq!([0, 29, 31].map(|seconds| cost_after(false, seconds)), [(1, 1), (1, 1), (2, 1)]);
    assert_eq!(
        [0, 31].map(|seconds| cost_after(true, seconds)),
        [(1, 1), (1, 1)],
        "a version cannot come back"
    );
}

#[test]
fn clock_that_was_forgotten_is_found() {
    let counted = Counted::new("clock=ticked");
    counted.cost(&acquire(&counted.store, WAIT).1);
    counted.store.backend.forget_clock();
    assert_eq!(counted.cost(&acquire(&counted.store, WAIT).1), (2, 1), "a look brings the time");
}

/// What a store is told of the holds in a value, which it may have to outlast.
#[test]
fn writes_say_how_long_holds_last() {
    let counted = Counted::new("");
    let holds = |request: &Request| {
        counted.cost(request);
        counted.store.backend.gate().last().holds
    };
    let (holder, request) = acquire(&counted.store, None);
    let most = LEASE + Duration::from_secs(1);
    assert!((LEASE..most).contains(&holds(&request)));
    let waiting = holds(&acquire(&counted.store, WAIT).1);
    assert!((LEASE / 2..=most).contains(&waiting), "{waiting:?}");
    assert!((LEASE..most).contains(&holds(&release(holder))), "handed off");
    let unheld = Counted { key: Key::new("counter"), store: Arc::clone(&counted.store) };
    unheld.cost(&Request::Counter(counter::Request::Add { id: Id::random(), by: 1 }));
    assert_eq!(counted.store.backend.gate().last().holds, Duration::ZERO);
}

/// A place at a key that has no value replaces none, whose end it could have.
#[test]
fn first_place_makes_a_value() {
    let counted = Counted::new("");
    let id = Id::random_in(counted.store.backend.inbox());
    let request = HoldKind::Semaphore { size: 0, permits: 1 }.acquire(id, LEASE, WAIT);
    let (reply, ..) = counted.call(&request);
    assert!(matches!(reply, Ok(Reply::Queued { .. })), "{reply:?}");
    assert!(!counted.store.backend.gate().last().only_waits);
}

/// A write counts only at the tick that its step has seen, a look at any.
#[test]
fn changes_name_the_tick() {
    let counted = Counted::new("clock=ticked");
    let basis = |request: &Request| {
        counted.cost(request);
        counted.store.backend.gate().last().basis
    };
    let is_tick = |basis: Basis| matches!(basis, Basis::Tick { .. } | Basis::Life(_));
    let (holder, request) = acquire(&counted.store, None);
    assert!(is_tick(basis(&request)), "a grant");
    assert!(is_tick(basis(&acquire(&counted.store, WAIT).1)), "a place in the queue");
    assert!(!is_tick(basis(&Request::Inspect)), "a look");
    assert!(is_tick(basis(&HoldKind::Lock.renew(holder, LEASE))), "a renewal");
}

#[test]
fn texts_last_as_long_as_they_are_to_be_kept() {
    let counted = Counted::new("");
    let text = Description { subject: "holder:1".to_owned(), text: "web-1".to_owned(), keep: LEASE };
    block_on(counted.store.describe("p", &[text])).unwrap();
    assert_eq!(counted.store.backend.gate().last().lasts, LEASE);
}

/// What is left of a deleted name is the answer to a request that may come once more.
#[test]
fn deleted_name_is_not_in_use() {
    let counted = Counted::new("");
    let once = |retried| IdempotencyKey { attempt: Id::random(), retried };
    let send = || {
        let (once, message) = (once(true), Arc::from("m"));
        Request::Event(event::Request::Send { once, message, keep: LEASE })
    };
    let delete = || counted.call(&Request::Delete(once(false))).0.unwrap();
    let seen = || counted.call(&Request::Inspect).0.unwrap();
    let listed = || block_on(counted.store.page("", None, 10)).unwrap().keys.len();
    for _ in 0..2 {
        counted.cost(&send());
        assert!(matches!(seen(), Reply::Inspected(_)) && listed() == 1);
        assert_eq!(delete(), Reply::Deleted);
        assert_eq!((seen(), listed(), delete()), (Reply::Unknown, 0, Reply::Unknown));
    }
}

#[test]
fn lockers_with_one_url_share_a_store() {
    let (url, world) = (|name: &str| format!("fake://{name}"), world());
    let open = |name: &str| {
        let backend = async { fake::backend_in(Arc::default(), "") };
        block_on(shared(&url(&format!("{world}-{name}")), &Opening::default(), backend)).unwrap()
    };
    let one = open("one");
    let other = open("other");
    assert!(Arc::ptr_eq(&open("one"), &one) && Arc::ptr_eq(&open("other"), &other));
    assert!(!Arc::ptr_eq(&one, &other));
    let inbox = one.id_prefix();
    drop(one);
    assert_ne!(open("one").id_prefix(), inbox, "nobody kept it open");
}

/// A caller learns that others are faster all the time, instead of waiting for ever.
#[test]
fn call_that_is_always_overtaken_fails() {
    let mut opening = Opening::default();
    opening.network.command_timeout = Duration::from_millis(30);
    let counted = Counted { store: fake::open(&world(), &opening).unwrap(), key: Key::new("lock") };
    let (holder, request) = acquire(&counted.store, None);
    counted.cost(&request);
    counted.store.backend.gate().fail([Fault::Overtaken; 4]);
    let renew = HoldKind::Lock.renew(holder, LEASE);
    let (reply, exchanges, _) = counted.call(&renew);
    assert!(matches!(reply, Ok(Reply::Renewed { .. })) && exchanges == 5, "{reply:?}");
    counted.store.backend.gate().fail([Fault::Overtaken; 10_000]);
    let (reply, exchanges, _) = counted.call(&renew);
    let error = reply.unwrap_err();
    assert!(error.kind() == ErrorKind::Unavailable && error.is_certain(), "{error}");
    assert!(error.message().contains("other processes write"), "{error}");
    assert!(exchanges > 5, "{exchanges}");
}

/// Its grant would last for a lease, and nobody would use it.
#[test]
fn caller_that_has_gone_is_not_tried_again() {
    let counted = Counted::new("");
    let (store, key) = (&counted.store, &counted.key);
    let (holder, request) = acquire(store, None);
    counted.cost(&request);
    counted.cost(&release(holder));
    store.backend.gate().close();
    store.backend.gate().fail([Fault::Overtaken]);
    let (_, request) = acquire(store, None);
    let mut gives_up = Box::pin(store.call(key, &request));
    assert!(gives_up.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(gives_up);
    store.backend.gate().let_pass();
    fence(counted.call(&acquire(store, None).1).0);
}

/// The lost write can have no effect any more, and was made for another epoch.
#[test]
fn lost_write_of_another_epoch_is_made_anew() {
    let counted = Counted::new("");
    let (holder, request) = acquire(&counted.store, None);
    counted.cost(&request);
    counted.store.backend.begin_epoch(Duration::ZERO);
    counted.store.backend.gate().fail([Fault::RequestLost]);
    let (reply, ..) = counted.call(&HoldKind::Lock.renew(holder, LEASE));
    assert!(matches!(reply, Ok(Reply::Renewed { .. })), "{reply:?}");
}

/// A backend may remove a value that is over, and no other.
#[test]
fn values_last_as_long_as_they_matter() {
    let counted = Counted::new("");
    let lasts = |request: &Request| {
        counted.cost(request);
        counted.store.backend.gate().last().lasts
    };
    let (holder, request) = acquire(&counted.store, None);
    let held = lasts(&request);
    assert!(held >= LEASE && lasts(&release(holder)) < held, "{held:?}");
    let permits = HoldKind::Semaphore { size: 3, permits: 1 };
    let counted = Counted { key: Key::new("permits"), store: Arc::clone(&counted.store) };
    let id = || Id::random_in(counted.store.backend.inbox());
    counted.cost(&permits.acquire(id(), LEASE, None));
    assert!(counted.store.backend.gate().last().lasts >= LEASE);
    let counted = Counted { key: Key::new("counter"), store: Arc::clone(&counted.store) };
    counted.cost(&Request::Counter(counter::Request::Add { id: Id::random(), by: 1 }));
    assert!(counted.store.backend.gate().last().lasts > Duration::from_hours(23), "a count lasts for a day");
}

/// The hold counts from the hand-off, on the clock of the waiter.
#[test]
fn hand_off_says_when_it_ends() {
    let counted = Counted::new("");
    let (holder, request) = acquire(&counted.store, None);
    counted.cost(&request);
    let (waiter, waits) = acquire(&counted.store, WAIT);
    let mailbox = counted.store.mailboxes().subscribe(waiter);
    counted.cost(&waits);
    let before = Timestamp::now();
    counted.cost(&release(holder));
    let after = Timestamp::now();
    let signal = next(mailbox);
    let Signal::HandedOff { until, .. } = signal else { panic!("{signal:?}") };
    let slack = Duration::from_millis(2);
    assert!((before + LEASE - slack..=after + LEASE + slack).contains(&until), "{until:?}");
}
