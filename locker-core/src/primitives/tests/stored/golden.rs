//! The format of stored states: one state of each primitive, as it is in the stores of running systems.
//!
//! A difference means that a running system cannot read what it wrote before. Therefore:
//!
//! - The variants of `AnyState` and of the enums in its states are stored as numbers, and the fields without their
//!   names. New variants are appended.
//! - Any other change is a new format. It gets a new number, with which the stores begin each value. The code that
//!   reads the present format stays, with these files and a test that only reads them. The new format has files of its
//!   own.

use super::{Act, Machine, decode, encode, requests::id};
use crate::id::Id;
use crate::primitives::{
    any::Request,
    barrier, counter, event, latch,
    parts::{hold_request::HoldRequest, idempotency::IdempotencyKey},
    protocol::{Reply, Wait},
    rate_limiter::{self, Quota},
    record::{self, AfterCrash, Ask, Slots},
    semaphore::Permits,
    value::Value,
    watchdog,
};
use std::{fmt::Write, path::PathBuf, time::Duration};

const LEASE: Duration = Duration::from_millis(10_500);
const WAIT: Option<Wait> = Some(Wait { live: Some(Duration::from_secs(30)), fair: true });
const RETRIED: IdempotencyKey = IdempotencyKey { attempt: Id::ZERO, retried: true };

/// A lock or a semaphore with a hold, two waiters with a gap between them, a tombstone and a late copy.
fn held<A: Copy>(ask: impl Fn(u8) -> A, request: fn(HoldRequest<A>) -> Request) -> Vec<Request> {
    let acquire =
        |number| HoldRequest::Acquire { id: id(number), lease: LEASE, wait: WAIT, ask: ask(number) };
    let hold = |number| HoldRequest::Renew { id: id(number), lease: LEASE, once: Some(RETRIED) };
    let cancel = |number, tombstone| HoldRequest::Cancel { id: id(number), tombstone };
    let acts = [
        acquire(0),
        acquire(1),
        acquire(2),
        acquire(3),
        acquire(4),
        cancel(3, false),
        cancel(5, true),
        hold(0),
        HoldRequest::Release { id: id(0), tombstone: false, once: None },
    ];
    acts.into_iter().map(request).collect()
}

/// The name under which an attempt holds.
fn name(number: u8) -> Option<Id> {
    (number == 4).then(|| id(30))
}

/// A record with a run, an outcome that is unknown, a result with a waiter that has not asked again, a waiter, and a
/// tombstone.
fn runs() -> Vec<Request> {
    let slots = Some(Slots { from: Duration::from_millis(3), ..Slots::new(Duration::from_millis(20)) });
    let ask = Ask { slots, digest: Some(id(40)), after_crash: AfterCrash::Refuse { keep: LEASE } };
    let begin = |number, lease| HoldRequest::Acquire { id: id(number), lease, wait: WAIT, ask };
    let finish = record::Request::Finish {
        id: id(0),
        value: Value::new("größer".as_bytes()).expect("a short value"),
        keep: LEASE,
    };
    let acts = [
        record::Request::Hold(begin(0, LEASE)),
        record::Request::Hold(begin(1, LEASE)),
        finish,
        record::Request::Hold(begin(4, Duration::from_millis(1))),
        record::Request::Hold(HoldRequest::Cancel { id: id(5), tombstone: true }),
        record::Request::Hold(begin(2, LEASE)),
        record::Request::Hold(begin(3, LEASE)),
    ];
    acts.into_iter().map(Request::Record).collect()
}

/// Each primitive with the requests that make its state.
fn states() -> [(&'static str, Vec<Request>); 9] {
    // The first in the queue has a name, too.
    let permits = |number| {
        let key = if number == 2 { id(31) } else { name(number).unwrap_or(id(number)) };
        Permits { size: 2, permits: 1, key }
    };
    let take = |number| rate_limiter::Request::Take {
        id: id(number),
        tokens: 1,
        quota: Quota::gcra(2, Duration::from_secs(3)),
        patience: LEASE,
        wait: WAIT,
    };
    let refuse = rate_limiter::Request::Cancel { id: id(7), tombstone: true };
    let limits = [take(0), take(1), take(2), take(3), refuse];
    let wait = |number| event::Request::Wait { id: id(number), wait: WAIT };
    let retried = |number| IdempotencyKey { attempt: id(number), retried: true };
    let send = |once| event::Request::Send { once, message: "größer".into(), keep: LEASE };
    let reset = event::Request::Reset { once: retried(20) };
    let events = [wait(0), wait(1), send(RETRIED), reset, wait(2), send(retried(21)), send(retried(22))];
    let kick = watchdog::Request::Kick { once: RETRIED, expires: LEASE };
    let watch = |number| watchdog::Request::Wait { id: id(number), wait: WAIT };
    let arrive =
        |number, parties| barrier::Request::Arrive { id: id(number), parties, wait: WAIT, once: true };
    let leave = barrier::Request::Cancel { id: id(7), tombstone: true };
    let repeated = |number| barrier::Request::Arrive { id: id(number), parties: 3, wait: WAIT, once: false };
    let down = |number| latch::Request::CountDown { id: id(number), count: 2 };
    let pass = |number, count| latch::Request::Wait { id: id(number), count, wait: WAIT };
    let add = |number, by| counter::Request::Add { id: id(number), by };
    let set = counter::Request::Set { once: RETRIED, value: -7 };
    [
        ("lock", held(name, Request::Lock)),
        ("semaphore", held(permits, Request::Semaphore)),
        ("rate_limiter", limits.map(Request::RateLimiter).to_vec()),
        ("event", events.map(Request::Event).to_vec()),
        ("watchdog", [kick, watch(0), watch(1)].map(Request::Watchdog).to_vec()),
        ("barrier", [arrive(0, 2), arrive(1, 2), leave, repeated(2)].map(Request::Barrier).to_vec()),
        ("latch", [pass(0, 2), down(1), down(2), pass(3, 4)].map(Request::Latch).to_vec()),
        ("counter", [add(0, 5), set, add(1, 1_000)].map(Request::Counter).to_vec()),
        ("record", runs()),
    ]
}

fn act(request: Request) -> Act {
    let (pause, back) = (Duration::from_millis(7), Duration::ZERO);
    let spread = Duration::from_millis(1);
    Act { pause, back, spread, inbox: Some(1), gone: &[], request: Some(request) }
}

#[test]
fn format_has_not_changed() {
    for (name, requests) in states() {
        let acts: Vec<Act> = requests.into_iter().map(act).collect();
        let mut machine = Machine::for_acts(&acts);
        for act in &acts {
            let reply = machine.act(act).reply;
            assert!(!matches!(reply, None | Some(Reply::WrongKind)), "{name}: {reply:?}");
        }
        let encoded = encode(&machine.state);
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/states/{name}.hex"));
        let file = std::fs::read_to_string(&path).unwrap_or_default();
        let stored = from_hex(&file);
        assert!(stored == encoded, "{} should be\n{}", path.display(), hex(&encoded));
        let mut read = Machine { state: decode(&stored).expect("the format is known"), now: machine.now };
        assert_eq!(encode(&read.state), stored);
        for act in &acts {
            assert_eq!(read.act(act), machine.act(act), "{name}: {act:?}");
        }
    }
}

/// 32 bytes per line.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(32) {
        for byte in line {
            write!(text, "{byte:02x}").expect("a text grows");
        }
        text.push('\n');
    }
    text
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
    let byte =
        |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16).expect("digits");
    digits.chunks(2).map(byte).collect()
}
