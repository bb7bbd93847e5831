//! Processes that receive grants and do nothing: a host has lost its power, or a process is stopped.

use super::*;
use locker_core::primitives::rwlock::Mode;

/// A silent process with waiters at the head of the queue, the holder before them, and a waiter behind them.
struct Scene {
    living: Arc<CasStore<Fake>>,
    silent: Arc<CasStore<Fake>>,
    key: Key,
    kind: HoldKind,
    holder: Id,
    next: (Id, Request),
}

impl Scene {
    fn new(clock: &str, kind: HoldKind, silent_waiters: usize) -> Self {
        Self::held_as(clock, kind, kind, silent_waiters)
    }

    /// The holder holds something else than what the waiters wait for.
    fn held_as(clock: &str, held: HoldKind, kind: HoldKind, silent_waiters: usize) -> Self {
        let world = world();
        let [silent, living] = [(); 2].map(|()| store(&world, &format!("clock={clock}")));
        let key = Key::new("hot");
        let holder = Id::random_in(living.backend.inbox());
        fence(call(&living, &key, &held.acquire(holder, LEASE, None)));
        let waits = |store: &CasStore<Fake>| {
            let id = Id::random_in(store.backend.inbox());
            (id, kind.acquire(id, LEASE, WAIT))
        };
        let crowd: Vec<_> = (0..silent_waiters).map(|_| waits(&silent).1).collect();
        block_on(join_all(crowd.iter().map(|request| silent.call(&key, request))));
        let next = waits(&living);
        assert!(matches!(call(&living, &key, &next.1), Ok(Reply::Queued { .. })));
        Self { living, silent, key, kind, holder, next }
    }

    /// Returns how long after the release the living waiter is served, which asks when it is told to.
    fn serves_after(&self) -> Duration {
        let mailbox = self.living.mailboxes().subscribe(self.next.0);
        call(&self.living, &self.key, &self.kind.release(self.holder, false)).unwrap();
        let released = Instant::now();
        loop {
            match call(&self.living, &self.key, &self.next.1).unwrap() {
                Reply::Granted { .. } => break,
                Reply::Queued { recheck_after, .. } => thread::sleep(recheck_after.unwrap()),
                other => panic!("{other:?}"),
            }
            assert!(released.elapsed() < locker_harness::GENEROUS, "it is not served");
        }
        drop(mailbox);
        released.elapsed()
    }
}

/// A grant window, and the time until the next waiter asks. On a clock that ticks, the window is longer.
fn most(clock: &str) -> Duration {
    let late = Duration::from_millis(1_500);
    GRANT_WINDOW + late + if clock == "ticked" { Duration::from_secs(3) } else { Duration::ZERO }
}

fn costs_one_window(clock: &str, what: &str, scene: impl Fn() -> Scene) {
    while_the_machine_runs(|| {
        let waited = scene().serves_after();
        if waited < most(clock) { Ok(()) } else { Err(format!("{clock}, {what}: a silence cost {waited:?}")) }
    });
}

fn kinds() -> [HoldKind; 3] {
    [HoldKind::Lock, HoldKind::Semaphore { size: 1, permits: 1 }, HoldKind::ReadWrite(Mode::Write)]
}

#[test]
fn silent_process_costs_one_window() {
    for clock in ["served", "ticked"] {
        for (kind, count) in kinds().into_iter().flat_map(|kind| [1, 64, 640].map(|count| (kind, count))) {
            costs_one_window(clock, &format!("{kind:?} with {count} waiters"), || {
                Scene::new(clock, kind, count)
            });
        }
    }
}

/// Waiters by name are woken and not granted.
#[test]
fn woken_process_that_is_silent_costs_one_window() {
    for clock in ["served", "ticked"] {
        costs_one_window(clock, "64 waiters by name", || {
            let scene = Scene::new(clock, HoldKind::Lock, 0);
            let wakes: Vec<_> = (0..64)
                .map(|_| {
                    let id = Id::random_in(scene.silent.backend.inbox());
                    HoldKind::Lock.acquire_named(id, Some(Id::random()), LEASE, WAIT)
                })
                .collect();
            block_on(join_all(wakes.iter().map(|request| scene.silent.call(&scene.key, request))));
            let next = Id::random_in(scene.living.backend.inbox());
            let next = (next, HoldKind::Lock.acquire(next, LEASE, WAIT));
            // The waiter ahead of the silent ones leaves.
            call(&scene.living, &scene.key, &HoldKind::Lock.cancel(scene.next.0, false)).unwrap();
            assert!(matches!(call(&scene.living, &scene.key, &next.1), Ok(Reply::Queued { .. })));
            Scene { next, ..scene }
        });
    }
}

/// Its process was only stopped: its waiters queue again, and are served.
#[test]
fn waiters_of_a_process_that_was_silent_are_served() {
    let scene = Scene::new("served", HoldKind::Lock, 3);
    scene.serves_after();
    let (id, request) = acquire(&scene.silent, WAIT);
    let mailbox = scene.silent.mailboxes().subscribe(id);
    assert!(matches!(call(&scene.silent, &scene.key, &request), Ok(Reply::Queued { .. })));
    assert_eq!(call(&scene.living, &scene.key, &release(scene.next.0)).unwrap(), Reply::Released);
    // The other waiters of that process, which it had before, have come first.
    let granted = eventually("its turn", || match call(&scene.silent, &scene.key, &request).unwrap() {
        Reply::Granted { fence } => Some(fence),
        _ => None,
    });
    assert!(granted > 0);
    drop(mailbox);
}

/// Eight permits are granted at once to waiters of one silent process.
#[test]
fn silent_process_with_many_permits_costs_one_window() {
    let semaphore = |permits| HoldKind::Semaphore { size: 8, permits };
    costs_one_window("served", "8 permits", || Scene::held_as("served", semaphore(8), semaphore(1), 20));
}

/// The process has two waiters. The first one let its grant pass, and the second one asks: it has its place, and is
/// told so.
#[test]
fn process_that_asks_again_is_not_silent() {
    for clock in ["served", "ticked"] {
        let scene = Scene::new(clock, HoldKind::Lock, 1);
        let Scene { living, silent, key, next, .. } = &scene;
        let (id, behind) = acquire(silent, WAIT);
        assert!(matches!(call(silent, key, &behind), Ok(Reply::Queued { .. })));
        scene.serves_after();
        // The process goes on. A request that only says that it waits is not the first one after the value was read.
        let waits = || assert!(matches!(call(silent, key, &behind), Ok(Reply::Queued { .. })));
        waits();
        let mailbox = silent.mailboxes().subscribe(id);
        waits();
        assert_eq!(call(living, key, &release(next.0)).unwrap(), Reply::Released);
        let signal = self::next(mailbox);
        assert!(
            matches!(signal, Signal::Granted { .. }),
            "the lock is free, and its only waiter has spoken: {signal:?}"
        );
    }
}
