//! Holds that are renewed in time, whatever else the process does: what takes long runs on other threads, and what many
//! waiters ask costs little.

use super::*;
use locker_runtime::Guard;

/// A locker with a hold whose lease is 2 s, at a name of its own.
struct Holding {
    store: Arc<CasStore<Fake>>,
    guard: Guard,
    world: String,
}

impl Holding {
    fn new(parameters: &str) -> Self {
        let world = format!("renewals-{}", world());
        let store = store(&world, parameters);
        let locker = Locker::builder().store(Arc::clone(&store)).lease(Duration::from_secs(2));
        let locker = locker.build_blocking().unwrap();
        let guard = locker.lock("other").acquire_blocking().unwrap();
        Self { store, guard, world }
    }

    /// Does something again and again until the hold would have ended twice.
    fn lives_through(&self, mut act: impl FnMut()) -> Result<(), String> {
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(5) {
            act();
            self.guard.check().map_err(|_| format!("lost after {:?}", started.elapsed()))?;
        }
        Ok(())
    }

    fn call_all(&self, key: &Key, requests: &[Request]) {
        for reply in block_on(join_all(requests.iter().map(|request| self.store.call(key, request)))) {
            reply.unwrap();
        }
    }

    /// Requests of waiters at one key, of which the first one is served.
    fn crowd(&self, count: usize) -> Vec<Request> {
        let id = || Id::random_in(self.store.backend.inbox());
        (0..count).map(|_| HoldKind::Lock.acquire(id(), Duration::from_secs(600), WAIT)).collect()
    }
}

#[test]
fn crowd_delays_no_renewal() {
    while_the_machine_runs(|| {
        let (holding, key) = (Holding::new(""), Key::new("hot"));
        let crowd = holding.crowd(8_000);
        holding.call_all(&key, &crowd);
        holding.lives_through(|| holding.call_all(&key, &crowd))
    });
}

/// In a quiet time each request is carried out on a value that must not change by it.
#[test]
fn quiet_time_delays_no_renewal() {
    while_the_machine_runs(|| {
        let (holding, key) = (Holding::new(""), Key::new("hot"));
        let crowd = holding.crowd(8_000);
        holding.call_all(&key, &crowd);
        // Another process tells the world of it, and this one learns of it from its next answer.
        let other = fake::open(&format!("{}?quiet=1m", holding.world), &Opening::default()).unwrap();
        let lived = holding.lives_through(|| holding.call_all(&key, &crowd));
        drop(other);
        lived
    });
}

/// Messages of a megabyte, which each write and read copies.
#[test]
fn large_values_delay_no_renewal() {
    let key = Key::new("large");
    let message: Arc<str> = "x".repeat(3 << 20).into();
    let send = || {
        let once = locker_core::primitives::IdempotencyKey { attempt: Id::random(), retried: false };
        let (message, keep) = (Arc::clone(&message), Duration::from_secs(600));
        Request::Event(locker_core::primitives::event::Request::Send { once, message, keep })
    };
    let reset = || {
        let once = locker_core::primitives::IdempotencyKey { attempt: Id::random(), retried: false };
        Request::Event(locker_core::primitives::event::Request::Reset { once })
    };
    while_the_machine_runs(|| {
        let holding = Holding::new("largest=4000000");
        holding.lives_through(|| {
            holding.call_all(&key, &[send()]);
            holding.call_all(&key, &[reset()]);
        })
    });
}

/// They ask one after the other, and nothing has changed: the backend is asked for all of them, and sends nothing. They
/// are few enough to ask within the time after which they would say that they live, which is a write.
#[test]
fn waiters_that_ask_again_read_little() {
    let (store, key) = (store(&world(), ""), Key::new("hot"));
    fence(call(&store, &key, &acquire(&store, None).1));
    let all: Vec<_> = (0..200).map(|_| acquire(&store, WAIT)).collect();
    block_on(join_all(all.iter().map(|(_, request)| store.call(&key, request))));
    let (read, writes) = (store.backend.bytes_read(), store.backend.writes());
    for (_, request) in &all {
        assert!(matches!(call(&store, &key, request), Ok(Reply::Queued { .. })));
    }
    assert_eq!(store.backend.bytes_read(), read, "bytes of values that it knows");
    assert_eq!(store.backend.writes(), writes);
}
