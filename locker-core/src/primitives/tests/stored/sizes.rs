//! The sizes of stored states, on which the longest queues depend.

use super::{Act, Machine, decode, encode};
use crate::{
    id::Id,
    primitives::{
        any::Request,
        hold_kind::HoldKind,
        protocol::Wait,
        rwlock::Mode,
        value::{MAX_VALUE, Value},
    },
};
use serde::{Deserialize, de::value::SeqDeserializer};
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

/// JSON has no bytes.
#[test]
fn bytes_are_read_from_numbers() {
    let read = |bytes: Vec<u8>| {
        let numbers = SeqDeserializer::<_, serde::de::value::Error>::new(bytes.into_iter());
        Value::deserialize(numbers)
    };
    for bytes in [vec![], vec![1, 2, 3], vec![7; MAX_VALUE]] {
        assert_eq!(read(bytes.clone()).unwrap().as_bytes(), bytes);
    }
    let error = read(vec![7; MAX_VALUE + 1]).unwrap_err().to_string();
    assert_eq!(error, "invalid length 524289, expected at most 524288 bytes");
}
