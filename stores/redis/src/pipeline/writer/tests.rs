use super::*;
use crate::codec::lock;
use locker_core::{id::Id, primitives::HoldRequest};
use std::sync::Arc;
use tokio::sync::oneshot::{self, Receiver};

type Replied = Receiver<RedisResult<Value>>;

/// Adds a release of the lock at `key` to the pending calls.
fn release(writer: &mut Writer, key: &str) -> Replied {
    let release = HoldRequest::Release { id: Id::random(), tombstone: false, once: None };
    let invocation = lock::invocation(&Key::new(key), &release, &Arc::from("channel"));
    let invocation = Arc::new(invocation.first().expect("the quick script"));
    let (reply, replied) = oneshot::channel();
    let batch = invocation.batch();
    writer.pending.push_back(Call { payload: Payload::Script(invocation, batch), reply });
    replied
}

fn ping(writer: &mut Writer) -> Replied {
    let (reply, replied) = oneshot::channel();
    writer.pending.push_back(Call { payload: Payload::Command(redis::cmd("PING")), reply });
    replied
}

/// Gathers frames. Returns how many calls are in each of them, and the frames.
fn written(writer: &mut Writer) -> (Vec<usize>, Vec<Frame>) {
    let frames = writer.gather();
    assert_eq!(writer.commands(&frames).len(), frames.len());
    (frames.iter().map(Frame::len).collect(), frames)
}

fn texts(texts: &[&str]) -> Value {
    Value::Array(texts.iter().map(|text| Value::BulkString(text.as_bytes().to_vec())).collect())
}

fn text(replied: &mut Replied) -> Option<Value> {
    replied.try_recv().ok().map(Result::unwrap)
}

#[test]
fn undone_call_is_sent_before_later_ones() {
    let mut writer = Writer::default();
    let (mut a, mut b) = (release(&mut writer, "a"), release(&mut writer, "b"));
    let (sizes, frames) = written(&mut writer);
    assert_eq!(sizes, [2]);
    let (mut later, _apart) = (release(&mut writer, "a"), release(&mut writer, "c"));
    assert_eq!(written(&mut writer).0, [1], "the call for another key");
    writer.finish(frames, Ok(vec![texts(&["", "released"])]));
    assert_eq!((text(&mut a), text(&mut b)), (None, Some(Value::BulkString(b"released".into()))));
    let (sizes, frames) = written(&mut writer);
    assert_eq!(sizes, [1, 1]);
    writer.finish(frames, Ok(vec![Value::Int(1), Value::Int(2)]));
    assert_eq!((text(&mut a), text(&mut later)), (Some(Value::Int(1)), Some(Value::Int(2))));
}

#[test]
fn batch_does_not_cross_another_call() {
    let mut writer = Writer::default();
    let _replies = (release(&mut writer, "a"), release(&mut writer, "b"), ping(&mut writer));
    let _behind = (release(&mut writer, "c"), release(&mut writer, "d"));
    assert_eq!(written(&mut writer).0, [2, 1, 2]);
}

#[test]
fn writer_waits_for_half_of_the_unanswered_calls() {
    let mut writer = Writer::default();
    let mut calls: Vec<_> = (0..8).map(|number| release(&mut writer, &number.to_string())).collect();
    assert_eq!(writer.wanted(0), 0);
    let (_, first) = written(&mut writer);
    for number in 8..11 {
        calls.push(release(&mut writer, &number.to_string()));
    }
    assert_eq!((writer.wanted(0), writer.wanted(1)), (0, 1), "three behind eight");
    calls.push(ping(&mut writer));
    assert_eq!((writer.wanted(1), writer.wanted(MAX_WRITES)), (0, usize::MAX), "four behind eight");
    writer.finish(first, Ok(vec![texts(&["released"; 8])]));
    assert_eq!(written(&mut writer).0, [3, 1]);
    assert_eq!(writer.unanswered, 4);
}

/// More calls than one write takes are never pending. A writer that waits for more would spin on the thread that
/// renews.
#[test]
fn full_write_is_sent_despite_unanswered_calls() {
    let mut writer = Writer { unanswered: 3 * MAX_WRITE, ..Writer::default() };
    assert_eq!(writer.wanted(MAX_WRITES - 1), MAX_WRITE);
    let _replies: Vec<_> = (0..MAX_WRITE).map(|_| ping(&mut writer)).collect();
    assert_eq!(writer.wanted(MAX_WRITES - 1), 0);
}

#[test]
fn batch_has_a_maximum_size() {
    let mut writer = Writer::default();
    let _replies: Vec<_> =
        (0..MAX_BATCH + 2).map(|number| release(&mut writer, &number.to_string())).collect();
    assert_eq!(written(&mut writer).0, [MAX_BATCH, 2]);
}

#[test]
fn writer_drops_calls_without_a_caller() {
    let mut writer = Writer::default();
    drop((release(&mut writer, "a"), ping(&mut writer)));
    assert!(writer.gather().is_empty());
    let a = release(&mut writer, "a");
    let _b = release(&mut writer, "b");
    let (_, frames) = written(&mut writer);
    drop(a);
    writer.finish(frames, Ok(vec![texts(&["", ""])]));
    assert_eq!(written(&mut writer).0, [1], "only the call with a caller");
}

#[test]
fn broken_connection_fails_all_calls() {
    let mut writer = Writer::default();
    let mut all = [release(&mut writer, "a"), release(&mut writer, "b"), ping(&mut writer)];
    let (_, frames) = written(&mut writer);
    let reset = || redis::RedisError::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
    writer.finish(frames, Err(reset()));
    assert!(all.iter_mut().all(|replied| replied.try_recv().unwrap().is_err()));
    let _a = release(&mut writer, "a");
    assert_eq!(written(&mut writer).0, [1]);
}

#[test]
fn crossslot_error_ends_batching() {
    let mut writer = Writer::default();
    let _replies = (release(&mut writer, "a"), release(&mut writer, "b"));
    let (_, frames) = written(&mut writer);
    let refusal = redis::parse_redis_value(b"-CROSSSLOT Keys in request don't hash to the same slot\r\n");
    writer.finish(frames, Ok(vec![refusal.unwrap()]));
    let _c = release(&mut writer, "c");
    assert_eq!(written(&mut writer).0, [1, 1, 1]);
}

#[test]
fn queue_wakes_the_writer_for_enough_calls() {
    let queue = Queue::default();
    let push = || {
        let payload = Payload::Command(redis::cmd("PING"));
        queue.push(Call { payload, reply: oneshot::channel().0 });
    };
    let mut two = Box::pin(queue.until(2));
    assert!(two.as_mut().now_or_never().is_none());
    push();
    assert!(two.as_mut().now_or_never().is_none(), "one is not enough");
    push();
    two.now_or_never().expect("two are");
    queue.until(2).now_or_never().expect("they are still there");
    let mut taken = VecDeque::new();
    queue.take(1, &mut taken);
    assert_eq!(taken.len(), 1);
    push();
    queue.take(8, &mut taken);
    assert_eq!(taken.len(), 3);
    let mut one = Box::pin(queue.until(1));
    assert!(one.as_mut().now_or_never().is_none(), "no call wakes the writer before it wants some");
    push();
    one.now_or_never().expect("one is");
}

/// For example if one key has another type. The calls are sent one by one this time, and batched again later.
#[test]
fn another_error_of_a_batch_keeps_batching() {
    let mut writer = Writer::default();
    let _replies = (release(&mut writer, "a"), release(&mut writer, "b"));
    let (_, frames) = written(&mut writer);
    let refusal = redis::parse_redis_value(b"-WRONGTYPE Operation against a key\r\n");
    writer.finish(frames, Ok(vec![refusal.unwrap()]));
    assert_eq!(written(&mut writer).0, [1, 1]);
    let _later = (release(&mut writer, "c"), release(&mut writer, "d"));
    assert_eq!(written(&mut writer).0, [2]);
}
