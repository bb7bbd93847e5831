//! The sizes of stored states, on which the longest queues depend.

use super::{Act, Machine, decode, encode};
use crate::{
    id::Id,
    primitives::{any::Request, hold_kind::HoldKind, protocol::Wait, rwlock::Mode},
};
use std::time::Duration;

const WAITERS: usize = 1_000;

/// Returns the bytes per waiter of a long queue.
fn bytes_per_waiter(kind: HoldKind) -> usize {
    let wait = Some(Wait { live: Some(Duration::from_secs(30)), fair: true });
    let act = |number: usize| {
        let lease = Duration::from_millis(10_500);
        let inbox = u32::try_from(number % 7).expect("a small number");
        let request: Request = kind.acquire(Id::random_in(inbox), lease, wait);
        let pause = Duration::from_micros(37);
        let spread = Duration::from_millis(1);
        Act { pause, back: Duration::ZERO, spread, inbox: Some(1), gone: &[], request: Some(request) }
    };
    let acts: Vec<Act> = (0..=WAITERS).map(act).collect();
    let mut machine = Machine::for_acts(&acts);
    for act in &acts {
        machine.act(act);
    }
    assert_eq!(machine.state.users(), 1 + WAITERS);
    let bytes = encode(&machine.state);
    assert_eq!(decode(&bytes).map(|state| state.users()), Ok(1 + WAITERS));
    bytes.len().div_ceil(WAITERS)
}

#[test]
fn waiters_are_small() {
    let lock = bytes_per_waiter(HoldKind::Lock);
    assert!(lock < 45, "{lock}");
    let semaphore = bytes_per_waiter(HoldKind::Semaphore { size: 3, permits: 3 });
    assert!(semaphore < 65, "{semaphore}");
    let writer = bytes_per_waiter(HoldKind::ReadWrite(Mode::Write));
    assert!(writer < 80, "{writer}");
}
