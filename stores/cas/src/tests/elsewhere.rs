//! Holds in the sight of several processes, on both kinds of clocks.

use super::*;
use locker_laws as processes;

async fn on_each_clock(law: impl AsyncFn(&str)) {
    for clock in ["served", "ticked"] {
        law(&format!("fake://elsewhere-{}?clock={clock}&delay=3ms", world())).await;
    }
}

#[tokio::test]
async fn renewal_elsewhere_lasts() {
    on_each_clock(processes::renewal_elsewhere_lasts).await;
}

#[tokio::test]
async fn permit_of_a_dead_holder_comes_back() {
    on_each_clock(processes::permit_of_a_dead_holder_comes_back).await;
}

#[tokio::test]
async fn short_visits_do_not_keep_a_dead_holder() {
    on_each_clock(processes::short_visits_do_not_keep_a_dead_holder).await;
}

#[tokio::test]
async fn waiters_hear_of_other_processes() {
    on_each_clock(processes::waiters_hear_of_other_processes).await;
}

/// The time of a key goes on however often and by how many processes it is written: a counter forgets the replies to
/// old additions. Without that it would become full, and refuse for good.
#[test]
fn full_counter_recovers() {
    let (store, key) = (store(&world(), "clock=ticked&largest=20000"), Key::new("counter"));
    let add = || Request::Counter(counter::Request::Add { id: Id::random(), by: 1 });
    let mut added = 0;
    while call(&store, &key, &add()).is_ok() {
        added += 1;
        assert!(added < 5_000, "its value has a limit");
    }
    // Replies are kept for a minute.
    store.backend.add_gap(Duration::from_secs(61));
    assert_eq!(call(&store, &key, &add()).unwrap(), Reply::Value(added + 1));
}

#[test]
fn time_of_a_busy_key_goes_on() {
    let (world, key, is_over) = (world(), Key::new("busy"), AtomicBool::new(false));
    let look = store(&world, "clock=ticked");
    let add = |store: &CasStore<Fake>| {
        call(store, &key, &Request::Counter(counter::Request::Add { id: Id::random(), by: 1 })).unwrap()
    };
    let stamp = || Stored::from_bytes(&look.backend.value(key.as_str()).1).unwrap().stamp;
    add(&look);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let store = store(&world, "clock=ticked&delay=4ms");
                while !is_over.load(Ordering::Relaxed) {
                    add(&store);
                }
            });
        }
        let (before, started) = (stamp(), Instant::now());
        eventually("two seconds on the clock of the key", || {
            (stamp().since(before) > Duration::from_secs(2)).then_some(())
        });
        is_over.store(true, Ordering::Relaxed);
        // As far as it goes on without a tick.
        let gained = Duration::from_secs(2).saturating_sub(started.elapsed());
        assert!(gained <= Duration::from_secs(1), "it has gone ahead by {gained:?}");
    });
}

#[test]
fn keys_that_were_used_once_are_forgotten() {
    for clock in ["served", "ticked"] {
        let store = store(&world(), &format!("clock={clock}"));
        let keys: Vec<_> = (0..12_000).map(|at| Key::new(&format!("event {at}"))).collect();
        let send = |_: &Key| {
            let once = locker_core::primitives::IdempotencyKey { attempt: Id::random(), retried: false };
            let keep = Duration::from_secs(24 * 3600);
            Request::Event(locker_core::primitives::event::Request::Send {
                once,
                message: "done".into(),
                keep,
            })
        };
        let sends: Vec<_> = keys.iter().map(send).collect();
        // All at once would keep the background thread from other tests.
        for some in keys.iter().zip(&sends).collect::<Vec<_>>().chunks(100) {
            block_on(join_all(some.iter().map(|(key, send)| store.call(key, send))));
        }
        let remembered = lock(&store.queues).len();
        assert!(remembered <= 10_000, "{clock}: {remembered} keys");
    }
}

/// A waiter asks, and the answer to it is on its way for so long that the message about the release is there before.
#[test]
fn message_counts_beside_an_older_answer() {
    let world = world();
    let delay = Duration::from_millis(200);
    let [slow, quick] =
        [delay, Duration::ZERO].map(|delay| store(&world, &format!("delay={}ms", delay.as_millis())));
    let key = Key::new("hot");
    let (holder, request) = acquire(&quick, WAIT);
    fence(call(&quick, &key, &request));
    let id = Id::random_in(slow.backend.inbox());
    let waits = HoldKind::Lock.acquire_named(id, Some(Id::random()), LEASE, WAIT);
    let mailbox = slow.mailboxes().subscribe(id);
    assert!(matches!(call(&slow, &key, &waits), Ok(Reply::Queued { .. })));
    // What the slow process knows is too old to be used, and wrong: another one joins, which it is not told of.
    thread::sleep(Duration::from_millis(600));
    assert!(matches!(call(&quick, &key, &acquire(&quick, WAIT).1), Ok(Reply::Queued { .. })));
    thread::scope(|scope| {
        scope.spawn(|| call(&slow, &key, &waits));
        // In the middle of the way back.
        thread::sleep(delay * 3 / 4);
        call(&quick, &key, &release(holder)).unwrap();
    });
    assert_eq!(next(mailbox), Signal::Wake);
    let reply = call(&slow, &key, &waits).unwrap();
    assert!(
        matches!(reply, Reply::Granted { .. }),
        "a woken waiter is told to wait on, though the lock is free: {reply:?}"
    );
}
