//! The queue, cancellation, expiry and the mailboxes under the thread interleavings that shuttle generates.
//!
//! `scripts/interleavings.sh` runs them, from `tests/interleavings.rs`: the unit tests beside them need many crates,
//! which would be compiled once more.

use super::Shards;
use crate::{
    clock::Timestamp,
    id::Id,
    key::Key,
    primitives::{HoldKind, Reply, Signal, Wait},
};
use shuttle::{
    Runner,
    future::block_on,
    scheduler::{PctScheduler, RandomScheduler},
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(1);
const START: Timestamp = Timestamp::from_micros(1_000_000_000);
const SCHEDULES: usize = 20_000;

const TWO: HoldKind = HoldKind::Semaphore { size: 2, permits: 1 };

/// The tests, with their names.
pub const ALL: [(&str, fn()); 6] = [
    ("every_waiter_is_served", every_waiter_is_served),
    ("unfair_callers_are_all_served", unfair_callers_are_all_served),
    ("no_permit_idles_while_unfair_callers_wait", no_permit_idles_while_unfair_callers_wait),
    ("cancelled_waiter_blocks_no_caller", cancelled_waiter_blocks_no_caller),
    ("mailbox_closed_before_cancel_loses_nothing", mailbox_closed_before_cancel_loses_nothing),
    ("expired_lease_serves_the_next_waiter", expired_lease_serves_the_next_waiter),
];

struct World {
    store: Shards,
    key: Key,
    kind: HoldKind,
    inside: AtomicUsize,
    both: Barrier,
}

impl World {
    fn of(kind: HoldKind) -> Arc<Self> {
        let (inside, both) = (AtomicUsize::new(0), Barrier::new(2));
        Arc::new(Self { store: Shards::default(), key: Key::new("k"), kind, inside, both })
    }

    fn ask(&self, id: u128, fair: bool) -> Reply {
        let request = self.kind.acquire(Id::from(id), LEASE, Some(Wait { live: None, fair }));
        self.store.call(&self.key, &request, START)
    }

    fn release(&self, id: u128) -> Reply {
        self.store.call(&self.key, &self.kind.release(Id::from(id), false), START)
    }

    fn cancel(&self, id: u128) {
        self.store.call(&self.key, &self.kind.cancel(Id::from(id), false), START);
    }

    /// Waits for the lock as the locker's loop does.
    fn acquire(&self, id: u128, fair: bool) {
        let mut mailbox = self.store.mailboxes.subscribe(Id::from(id));
        while !matches!(self.ask(id, fair), Reply::Granted { .. }) {
            if matches!(block_on(mailbox.next()), Signal::HandedOff { .. }) {
                return;
            }
        }
    }

    fn hold_and_release(&self, id: u128, fair: bool) {
        self.acquire(id, fair);
        let most = if self.kind == TWO { 2 } else { 1 };
        assert!(self.inside.fetch_add(1, Ordering::SeqCst) < most, "more than {most} hold at once");
        thread::yield_now();
        self.inside.fetch_sub(1, Ordering::SeqCst);
        assert_eq!(self.release(id), Reply::Released);
    }

    /// Holds until another caller holds, too.
    fn hold_beside_another(&self, id: u128, fair: bool) {
        self.acquire(id, fair);
        self.both.wait();
        assert_eq!(self.release(id), Reply::Released);
    }

    fn assert_forgotten(&self) {
        assert!(self.store.parts.iter().all(|shard| crate::sync::lock(shard).len() == 0), "state is left");
        assert!(self.store.mailboxes.is_empty(), "mailboxes are left");
    }
}

/// Runs the parts as threads under many schedules. Shuttle reports a waiter that is never woken as a deadlock.
fn check(kind: HoldKind, parts: &'static [fn(&World)]) {
    let run = move || {
        let world = World::of(kind);
        let threads: Vec<_> = parts
            .iter()
            .map(|part| {
                let world = Arc::clone(&world);
                thread::spawn(move || part(&world))
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        world.assert_forgotten();
    };
    let mut config = shuttle::Config::default();
    config.stack_size = 0x8_0000;
    Runner::new(RandomScheduler::new(SCHEDULES), config.clone()).run(run);
    Runner::new(PctScheduler::new(3, SCHEDULES), config).run(run);
}

fn every_waiter_is_served() {
    check(
        HoldKind::Lock,
        &[
            |world| world.hold_and_release(1, true),
            |world| world.hold_and_release(2, true),
            |world| world.hold_and_release(3, true),
        ],
    );
}

fn unfair_callers_are_all_served() {
    check(
        HoldKind::Lock,
        &[
            |world| world.hold_and_release(1, false),
            |world| world.hold_and_release(2, false),
            |world| world.hold_and_release(3, true),
        ],
    );
}

fn no_permit_idles_while_unfair_callers_wait() {
    check(
        TWO,
        &[
            |world| world.hold_and_release(1, false),
            |world| world.hold_and_release(2, false),
            |world| world.hold_beside_another(3, false),
            |world| world.hold_beside_another(4, false),
        ],
    );
}

fn cancelled_waiter_blocks_no_caller() {
    check(
        HoldKind::Lock,
        &[
            |world| world.hold_and_release(1, true),
            |world| {
                let _mailbox = world.store.mailboxes.subscribe(Id::from(2));
                world.ask(2, true);
                thread::yield_now();
                world.cancel(2);
            },
            |world| world.hold_and_release(3, true),
        ],
    );
}

fn mailbox_closed_before_cancel_loses_nothing() {
    check(
        HoldKind::Lock,
        &[
            |world| world.hold_and_release(1, true),
            |world| {
                let mailbox = world.store.mailboxes.subscribe(Id::from(2));
                world.ask(2, true);
                drop(mailbox);
                thread::yield_now();
                world.cancel(2);
            },
            |world| world.hold_and_release(3, false),
        ],
    );
}

fn expired_lease_serves_the_next_waiter() {
    check(
        HoldKind::Lock,
        &[
            |world| {
                world.ask(1, true);
                // It stops here: once it has the lock, its lease expires.
                world.store.tick(START + LEASE);
            },
            |world| {
                let mut mailbox = world.store.mailboxes.subscribe(Id::from(2));
                while !matches!(world.ask(2, true), Reply::Granted { .. }) {
                    world.store.tick(START + LEASE);
                    if matches!(block_on(mailbox.next()), Signal::HandedOff { .. }) {
                        break;
                    }
                }
                world.cancel(2);
                world.cancel(1);
            },
        ],
    );
}
