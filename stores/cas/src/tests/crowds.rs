//! Values that become large: many waiters, many holders.

use super::*;
use locker_core::primitives::rwlock::Mode;

/// How much later than its lease the hold of a dead holder may end on a store whose processes move the clock on: twice
/// as far as the clock goes on without a tick, and a while for this machine.
const LATE: Duration = Duration::from_secs(4);

#[test]
fn dead_holder_before_a_crowd_ends_in_time() {
    for waiters in [10, 200] {
        let (world, key) = (world(), Key::new("crowd"));
        let gone = store(&world, "clock=ticked");
        let id = Id::random_in(gone.backend.inbox());
        fence(call(&gone, &key, &HoldKind::Lock.acquire(id, Duration::from_secs(5), None)));
        drop(gone);
        let store = store(&world, "clock=ticked");
        let all: Vec<_> = (0..waiters).map(|_| acquire(&store, WAIT)).collect();
        for (_, request) in &all {
            assert!(matches!(call(&store, &key, request), Ok(Reply::Queued { .. })));
        }
        let (started, (first, waits)) = (Instant::now(), &all[0]);
        let mut mailbox = store.mailboxes().subscribe(*first);
        eventually("the end of the dead holder's lease", || {
            // Others come and go, so that the value is written again and again.
            let (other, request) = acquire(&store, WAIT);
            call(&store, &key, &request).unwrap();
            call(&store, &key, &HoldKind::Lock.cancel(other, false)).unwrap();
            let reply = call(&store, &key, waits).unwrap();
            let signal = mailbox.poll_next(&mut Context::from_waker(Waker::noop()));
            let is_granted = matches!(reply, Reply::Granted { .. })
                || matches!(signal, Poll::Ready(Signal::HandedOff { .. }));
            is_granted.then_some(())
        });
        assert!(
            started.elapsed() < Duration::from_secs(5) + LATE,
            "{waiters} waiters: {:?}",
            started.elapsed()
        );
    }
}

/// The same with many other keys, of which each is used once.
#[test]
fn dead_holder_ends_in_time_beside_many_keys() {
    let (world, key) = (world(), Key::new("dead"));
    let gone = store(&world, "clock=ticked");
    let id = Id::random_in(gone.backend.inbox());
    fence(call(&gone, &key, &HoldKind::Lock.acquire(id, Duration::from_secs(2), None)));
    drop(gone);
    let store = store(&world, "clock=ticked");
    let (_, waits) = acquire(&store, WAIT);
    let (started, mut count) = (Instant::now(), 0);
    eventually("the end of the dead holder's lease", || {
        let keys: Vec<_> = (0..1_000).map(|at| Key::new(&format!("other {}", count + at))).collect();
        count += 1_000;
        block_on(join_all(keys.iter().map(|other| store.call(other, &Request::Inspect))));
        matches!(call(&store, &key, &waits), Ok(Reply::Granted { .. })).then_some(())
    });
    assert!(started.elapsed() < Duration::from_secs(2) + LATE, "{:?} beside {count} keys", started.elapsed());
}

#[test]
fn fences_rise_above_many_grants_of_one_write() {
    let (world, key) = (world(), Key::new("readers"));
    let one = store(&world, "clock=ticked&delay=10ms");
    let kind = HoldKind::ReadWrite(Mode::Read);
    let ids: Vec<Id> = (0..8_000).map(|_| Id::random_in(one.backend.inbox())).collect();
    let requests: Vec<_> = ids.iter().map(|id| kind.acquire(*id, LEASE, None)).collect();
    let replies = block_on(join_all(requests.iter().map(|request| one.call(&key, request))));
    let highest = replies.into_iter().map(fence).max().unwrap();
    let releases: Vec<_> = ids.iter().map(|id| kind.release(*id, false)).collect();
    block_on(join_all(releases.iter().map(|request| one.call(&key, request))));
    one.backend.remove(key.as_str());
    let other = store(&world, "clock=ticked");
    let kind = HoldKind::ReadWrite(Mode::Write);
    let next = fence(call(&other, &key, &kind.acquire(Id::random_in(other.backend.inbox()), LEASE, None)));
    assert!(next > highest, "{next} after {highest}");
}

#[test]
fn full_value_refuses_no_renewal() {
    let (store, key) = (store(&world(), "delay=20ms&largest=2000"), Key::new("full"));
    let kind = HoldKind::Semaphore { size: 1000, permits: 1 };
    let more = || kind.acquire(Id::random_in(store.backend.inbox()), LEASE, None);
    let id = Id::random_in(store.backend.inbox());
    fence(call(&store, &key, &kind.acquire(id, LEASE, None)));
    let mut count = 0;
    while call(&store, &key, &more()).is_ok() {
        count += 1;
        assert!(count < 200);
    }
    // The later ones share a round, while the first one is under way.
    let requests = [Request::Inspect, kind.renew(id, LEASE), more()];
    let replies = block_on(join_all(requests.iter().map(|request| store.call(&key, request))));
    assert!(matches!(replies[1], Ok(Reply::Renewed { .. })), "{replies:?}");
    assert!(replies[2].as_ref().is_err_and(|error| error.kind() == ErrorKind::Unavailable), "{replies:?}");
}

/// Processes that write one key without a pause leave room for another one.
#[test]
fn busy_processes_starve_nobody() {
    const MOST: u64 = 1_000;
    let (world, key, is_over) = (world(), Key::new("busy"), AtomicBool::new(false));
    let process = || store(&world, "delay=4ms");
    let add = |store: &CasStore<Fake>| {
        call(store, &key, &Request::Counter(counter::Request::Add { id: Id::random(), by: 1 }))
    };
    let waited = thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let store = process();
                while !is_over.load(Ordering::Relaxed) {
                    add(&store).unwrap();
                }
            });
        }
        let store = process();
        let waited: Result<Vec<u64>> = (0..100)
            .map(|_| {
                let before = store.backend.writes();
                add(&store).map(|_| store.backend.writes() - before)
            })
            .collect();
        is_over.store(true, Ordering::Relaxed);
        waited.unwrap()
    });
    assert!(waited.iter().all(|writes| *writes < MOST), "writes until each was carried out: {waited:?}");
}
