use super::*;
use crate::{id::Id, primitives::HoldRequest, stores::redis::lock};
use std::sync::Arc;
use tokio::sync::oneshot::{self, Receiver};

type Answered = Receiver<RedisResult<Value>>;

/// A release of the lock at `key`, left in line.
fn release(writer: &mut Writer, key: &str) -> Answered {
    let release = HoldRequest::Release { id: Id::random(), tombstone: false, once: None };
    let invocation = Arc::new(lock::invocation(&Key::new(key), &release, &Arc::from("channel")));
    let (answer, answered) = oneshot::channel();
    let batch = invocation.batch();
    writer.line.push_back(Call { content: Content::Script(invocation, batch), answer });
    answered
}

fn other(writer: &mut Writer) -> Answered {
    let (answer, answered) = oneshot::channel();
    writer.line.push_back(Call { content: Content::Command(redis::cmd("PING")), answer });
    answered
}

/// How many calls are in each command that can be written now, and the commands.
fn written(writer: &mut Writer) -> (Vec<usize>, Vec<Parcel>) {
    let parcels = writer.gather();
    assert_eq!(writer.pipeline(&parcels).len(), parcels.len());
    (parcels.iter().map(Parcel::len).collect(), parcels)
}

fn texts(texts: &[&str]) -> Value {
    Value::Array(texts.iter().map(|text| Value::BulkString(text.as_bytes().to_vec())).collect())
}

fn text(answered: &mut Answered) -> Option<Value> {
    answered.try_recv().ok().map(Result::unwrap)
}

#[test]
fn what_was_left_undone_is_called_again_before_what_came_later() {
    let mut writer = Writer::default();
    let (mut a, mut b) = (release(&mut writer, "a"), release(&mut writer, "b"));
    let (sizes, parcels) = written(&mut writer);
    assert_eq!(sizes, [2]);
    let (mut later, _apart) = (release(&mut writer, "a"), release(&mut writer, "c"));
    assert_eq!(written(&mut writer).0, [1], "the one about another key");
    writer.answer(parcels, Ok(vec![texts(&["", "released"])]));
    assert_eq!((text(&mut a), text(&mut b)), (None, Some(Value::BulkString(b"released".into()))));
    let (sizes, parcels) = written(&mut writer);
    assert_eq!(sizes, [1, 1]);
    writer.answer(parcels, Ok(vec![Value::Int(1), Value::Int(2)]));
    assert_eq!((text(&mut a), text(&mut later)), (Some(Value::Int(1)), Some(Value::Int(2))));
}

#[test]
fn nothing_is_put_together_past_what_stands_between() {
    let mut writer = Writer::default();
    let _waiting = (release(&mut writer, "a"), release(&mut writer, "b"), other(&mut writer));
    let _behind = (release(&mut writer, "c"), release(&mut writer, "d"));
    assert_eq!(written(&mut writer).0, [2, 1, 2]);
}

#[test]
fn more_is_written_only_when_much_has_gathered_beside_what_is_on_its_way() {
    let mut writer = Writer::default();
    let mut calls: Vec<_> = (0..8).map(|number| release(&mut writer, &number.to_string())).collect();
    assert_eq!(writer.wanted(0), 0);
    let (_, first) = written(&mut writer);
    for number in 8..11 {
        calls.push(release(&mut writer, &number.to_string()));
    }
    assert_eq!((writer.wanted(0), writer.wanted(1)), (0, 1), "three behind eight");
    calls.push(other(&mut writer));
    assert_eq!((writer.wanted(1), writer.wanted(UNANSWERED)), (0, usize::MAX), "four behind eight");
    writer.answer(first, Ok(vec![texts(&["released"; 8])]));
    assert_eq!(written(&mut writer).0, [3, 1]);
    assert_eq!(writer.on_their_way, 4);
}

/// A longer one is never there: who waits for it goes round and round, and with it the thread that renews.
#[test]
fn a_full_line_is_written_however_much_is_on_its_way() {
    let mut writer = Writer { on_their_way: 3 * AT_ONCE, ..Writer::default() };
    assert_eq!(writer.wanted(UNANSWERED - 1), AT_ONCE);
    let _waiting: Vec<_> = (0..AT_ONCE).map(|_| other(&mut writer)).collect();
    assert_eq!(writer.wanted(UNANSWERED - 1), 0);
}

#[test]
fn a_script_makes_a_bounded_number_of_calls() {
    let mut writer = Writer::default();
    let _waiting: Vec<_> =
        (0..TOGETHER + 2).map(|number| release(&mut writer, &number.to_string())).collect();
    assert_eq!(written(&mut writer).0, [TOGETHER, 2]);
}

#[test]
fn what_nobody_waits_for_is_not_sent() {
    let mut writer = Writer::default();
    drop((release(&mut writer, "a"), other(&mut writer)));
    assert!(writer.gather().is_empty());
    let a = release(&mut writer, "a");
    let _b = release(&mut writer, "b");
    let (_, parcels) = written(&mut writer);
    drop(a);
    writer.answer(parcels, Ok(vec![texts(&["", ""])]));
    assert_eq!(written(&mut writer).0, [1], "only the one that is still waited for");
}

#[test]
fn a_broken_connection_is_told_to_all_and_blocks_nobody() {
    let mut writer = Writer::default();
    let mut all = [release(&mut writer, "a"), release(&mut writer, "b"), other(&mut writer)];
    let (_, parcels) = written(&mut writer);
    let reset = || redis::RedisError::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
    writer.answer(parcels, Err(reset()));
    assert!(all.iter_mut().all(|answered| answered.try_recv().unwrap().is_err()));
    let _a = release(&mut writer, "a");
    assert_eq!(written(&mut writer).0, [1]);
}

#[test]
fn a_server_that_refuses_several_slots_is_asked_one_by_one() {
    let mut writer = Writer::default();
    let _waiting = (release(&mut writer, "a"), release(&mut writer, "b"));
    let (_, parcels) = written(&mut writer);
    let refusal = redis::parse_redis_value(b"-CROSSSLOT Keys in request don't hash to the same slot\r\n");
    writer.answer(parcels, Ok(vec![refusal.unwrap()]));
    let _c = release(&mut writer, "c");
    assert_eq!(written(&mut writer).0, [1, 1, 1]);
}

#[test]
fn the_writer_is_woken_when_enough_wait_and_not_before() {
    let queue = Queue::default();
    let join = || {
        let content = Content::Command(redis::cmd("PING"));
        queue.join(Call { content, answer: oneshot::channel().0 });
    };
    let mut two = Box::pin(queue.until(2));
    assert!(two.as_mut().now_or_never().is_none());
    join();
    assert!(two.as_mut().now_or_never().is_none(), "one is not enough");
    join();
    two.now_or_never().expect("two are");
    queue.until(2).now_or_never().expect("they are still there");
    let mut taken = VecDeque::new();
    queue.take(1, &mut taken);
    assert_eq!(taken.len(), 1);
    join();
    queue.take(8, &mut taken);
    assert_eq!(taken.len(), 3);
    let mut one = Box::pin(queue.until(1));
    assert!(one.as_mut().now_or_never().is_none(), "nobody was woken while it was open how many are enough");
    join();
    one.now_or_never().expect("one is");
}

/// One key of another type, say: the calls are made one by one this time, and together again later.
#[test]
fn another_refusal_of_one_batch_ends_no_later_batch() {
    let mut writer = Writer::default();
    let _waiting = (release(&mut writer, "a"), release(&mut writer, "b"));
    let (_, parcels) = written(&mut writer);
    let refusal = redis::parse_redis_value(b"-WRONGTYPE Operation against a key\r\n");
    writer.answer(parcels, Ok(vec![refusal.unwrap()]));
    assert_eq!(written(&mut writer).0, [1, 1]);
    let _later = (release(&mut writer, "c"), release(&mut writer, "d"));
    assert_eq!(written(&mut writer).0, [2]);
}
