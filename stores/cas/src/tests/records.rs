use super::*;
use locker_core::primitives::{
    MAX_VALUE, Value,
    record::{self, AfterCrash, Ask, Slots},
};

const HOUR: Duration = Duration::from_secs(3600);

fn begin(store: &CasStore<Fake>, slots: Option<Slots>) -> (Id, Request) {
    let id = Id::random_in(store.backend.inbox());
    let ask = Ask { slots, digest: None, after_crash: AfterCrash::RunAgain };
    (id, Request::Record(ask.begin(id, LEASE, None)))
}

fn finish(id: Id, bytes: usize) -> Request {
    let value = Value::new(vec![7; bytes]).expect("a value");
    Request::Record(record::Request::Finish { id, value, keep: HOUR })
}

/// Former versions read all other values.
#[test]
fn values_with_a_record_alone_have_the_new_format() {
    let store = store(&world(), "");
    let marks = |key: &Key| store.backend.value(key.as_str()).1[..3].to_vec();
    let (record, lock) = (Key::new("record"), Key::new("lock"));
    assert!(matches!(call(&store, &record, &begin(&store, None).1), Ok(Reply::Begun { .. })));
    fence(call(&store, &lock, &acquire(&store, None).1));
    assert_eq!((marks(&record), marks(&lock)), (b"L\x03\x03".to_vec(), b"L\x02\x02".to_vec()));
    let delete = Request::Delete(IdempotencyKey { attempt: Id::random(), retried: true });
    assert_eq!(call(&store, &record, &delete).unwrap(), Reply::Deleted);
    assert_eq!(marks(&record), b"L\x02\x02");
}

/// Its lease does not, so that a holder in a process that is paused with all others keeps it.
#[test]
fn slots_go_on_while_no_process_is_connected() {
    let (store, key) = (store(&world(), "clock=ticked"), Key::new("record"));
    let slots = Some(Slots::new(HOUR));
    let (one, request) = begin(&store, slots);
    let Ok(Reply::Begun { slot: Some(first), fence, missed: 0 }) = call(&store, &key, &request) else {
        panic!("not begun")
    };
    store.backend.add_gap(3 * HOUR);
    let (_, other) = begin(&store, slots);
    assert!(matches!(call(&store, &key, &other), Ok(Reply::Busy { .. })), "the lease goes on");
    assert_eq!(call(&store, &key, &HoldKind::Lock.renew(one, LEASE)).unwrap(), Reply::WrongKind);
    assert_eq!(call(&store, &key, &kind().renew(one, LEASE)).unwrap(), Reply::Renewed { fence });
    assert_eq!(call(&store, &key, &finish(one, 5)).unwrap(), Reply::Recorded);
    let (_, again) = begin(&store, slots);
    let Ok(Reply::Begun { slot: Some(next), missed, .. }) = call(&store, &key, &again) else {
        panic!("not begun")
    };
    assert_eq!((next, missed), (first + 3 * HOUR, 2));
}

fn kind() -> HoldKind {
    HoldKind::Record
}

#[test]
fn largest_result_is_kept_and_returned() {
    for clock in ["served", "ticked"] {
        let (store, key) = (store(&world(), &format!("clock={clock}")), Key::new("record"));
        let (one, request) = begin(&store, None);
        assert!(matches!(call(&store, &key, &request), Ok(Reply::Begun { .. })));
        let bytes = MAX_VALUE;
        for _ in 0..2 {
            assert_eq!(call(&store, &key, &finish(one, bytes)).unwrap(), Reply::Recorded);
        }
        let Ok(Reply::Finished { value }) = call(&store, &key, &begin(&store, None).1) else {
            panic!("not finished")
        };
        assert_eq!(value.as_bytes(), vec![7; bytes]);
    }
}
