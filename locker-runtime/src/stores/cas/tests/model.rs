//! A lock on a store without a clock, in a model of several processes whose clocks have any offset and a slightly
//! different rate.

use super::super::{entry::Stored, observed::Observed};
use crate::{
    clock::{Timestamp, lease_deadline},
    id::Id,
    key::Key,
    primitives::{Context, HoldKind, HoldRequest, Reply, Request},
};
use proptest::prelude::*;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(10);

/// A process, with its clock and what it has seen.
#[derive(Clone, Debug)]
struct Process {
    offset: u64,
    /// How many millionths the clock is too fast.
    drift: i64,
    seen: usize,
    observed: Observed,
    holds: Option<Hold>,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    id: Id,
    /// The end as the holder knows it, on its own clock.
    until: Timestamp,
}

impl Process {
    /// Returns the local time at the real time `real`, both in microseconds.
    fn local(&self, real: u64) -> Timestamp {
        let drift = i128::from(real) * i128::from(self.drift) / 1_000_000;
        let micros = i128::from(real + self.offset) + drift;
        Timestamp::from_micros(u64::try_from(micros).unwrap())
    }
}

#[derive(Clone, Copy, Debug)]
enum Act {
    /// Sees the present value.
    See,
    Acquire,
    Renew,
    Release,
}

fn acts() -> impl Strategy<Value = Vec<(usize, u64, u64, Act)>> {
    let act = prop_oneof![
        Just(Act::See),
        Just(Act::Acquire),
        Just(Act::Acquire),
        Just(Act::Renew),
        Just(Act::Release)
    ];
    let pause = prop_oneof![0..1_000_u64, 0..2_000_000_u64, 0..30_000_000_u64];
    let write = prop_oneof![0..1_000_u64, 0..3_000_000_u64];
    prop::collection::vec((0..4_usize, pause, write, act), 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn no_promise_ends_early(
        clocks in prop::collection::vec((0..u64::from(u32::MAX) * 1_000_000, -500..500_i64), 4),
        acts in acts(),
    ) {
        let key = Key::new("lock");
        let mut processes: Vec<Process> = clocks
            .into_iter()
            .map(|(offset, drift)| Process { offset, drift, seen: 0, observed: Observed::default(), holds: None })
            .collect();
        // The versions of the value; the first is the absent one.
        let mut values = vec![Stored::default()];
        let mut real = 1_000_000;
        for (who, pause, write, act) in acts {
            real += pause;
            let latest = values.len() - 1;
            let process = &mut processes[who];
            let local = process.local(real);
            if process.seen < latest {
                let value = &values[latest];
                process.observed.see(&value.entry, value.stamp, local);
                process.seen = latest;
            }
            let known = &values[process.seen];
            let now = if process.seen == 0 { local } else { process.observed.now(local) }.max(known.stamp);
            let id = process.holds.map_or_else(Id::random, |hold| hold.id);
            let request = match act {
                Act::See => continue,
                Act::Acquire if process.holds.is_some_and(|hold| hold.until > local) => continue,
                Act::Acquire => HoldKind::Lock.acquire(Id::random(), LEASE, None),
                Act::Renew => Request::Lock(HoldRequest::Renew { id, lease: LEASE, once: None }),
                Act::Release => Request::Lock(HoldRequest::Release { id, tombstone: false, once: None }),
            };
            let mut entry = known.entry.clone();
            let mut notifications = Vec::new();
            let reply = entry.step(&request, &mut Context::new(&key, now, &mut notifications));
            // The write arrives later, and nobody else writes in between.
            real += write;
            let at_write = processes.iter().map(|process| process.local(real)).collect::<Vec<_>>();
            match reply {
                Reply::Granted { .. } => {
                    for (other, process) in processes.iter().enumerate() {
                        let is_held = process.holds.is_some_and(|hold| hold.until > at_write[other]);
                        prop_assert!(other == who || !is_held, "{who} got it from {other} early");
                    }
                    let Request::Lock(HoldRequest::Acquire { id, .. }) = request else { unreachable!() };
                    processes[who].holds = Some(Hold { id, until: lease_deadline(local, LEASE) });
                }
                Reply::Renewed { .. } => {
                    processes[who].holds = Some(Hold { id, until: lease_deadline(local, LEASE) });
                }
                Reply::Released | Reply::Lost | Reply::NotHeld => processes[who].holds = None,
                _ => {}
            }
            let body = entry.to_bytes();
            values.push(Stored { entry, body, stamp: now, nonce: 0 });
            let value = values.last().unwrap();
            processes[who].observed.see(&value.entry, value.stamp, local);
            processes[who].seen = values.len() - 1;
        }
    }
}

/// The value of the second hold was stamped by a process that had seen the first one late.
#[test]
fn time_is_that_of_the_promise_that_is_known_worst() {
    let (key, id) = (Key::new("semaphore"), Id::random);
    let at = |secs: u64| Timestamp::from_micros(secs * 1_000_000);
    let (mut entry, mut observed) = (Stored::default().entry, Observed::default());
    for (stamp, local) in [(at(1_000), at(100)), (at(1_020), at(150))] {
        let request = HoldKind::Semaphore { size: 2, permits: 1 }.acquire(id(), LEASE * 6, None);
        let reply = entry.step(&request, &mut Context::new(&key, stamp, &mut Vec::new()));
        assert!(matches!(reply, Reply::Granted { .. }), "{reply:?}");
        observed.see(&entry, stamp, local);
    }
    assert_eq!(entry.promises().len(), 2);
    // The second one lasts for a minute from the moment at which it was seen.
    assert_eq!(observed.now(at(150)), at(1_020));
    assert_eq!(observed.now(at(209)), at(1_079));
}
