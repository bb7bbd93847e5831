//! What the fuzz target calls. A broken law is a panic.

use super::{
    clock::Text,
    keys::{Keys, end_of_prefix, successor},
    mails::texts,
    messages::{
        AuthenticateAnswer, KeepAliveAnswer, KeyValue, LeaseGrantAnswer, RangeAnswer, StatusAnswer,
        TimeToLiveAnswer, TxnAnswer, WatchAnswer,
    },
    session::State,
    watch::Seen,
};
use locker_cas::{Basis, Outcome, Stamped};
use prost::Message;

/// Reads an answer of etcd as each of those that this store asks for.
///
/// # Panics
/// If a law is broken.
pub fn etcd_reply(bytes: &[u8]) {
    let _ = decoded::<AuthenticateAnswer>(bytes);
    let _ = decoded::<KeepAliveAnswer>(bytes);
    let _ = decoded::<LeaseGrantAnswer>(bytes);
    let _ = decoded::<StatusAnswer>(bytes).map(|answer| answer.revision());
    let _ = decoded::<TimeToLiveAnswer>(bytes);
    if let Some(answer) = decoded::<RangeAnswer>(bytes) {
        answer.kvs.iter().for_each(value);
    }
    if let Some(answer) = decoded::<TxnAnswer>(bytes) {
        transaction(&answer);
    }
    if let Some(answer) = decoded::<WatchAnswer>(bytes) {
        watched(answer);
    }
}

/// Returns the answer, if these bytes are one. It can be written and read again.
fn decoded<A: Message + Default + PartialEq>(bytes: &[u8]) -> Option<A> {
    let answer = A::decode(bytes).ok()?;
    assert!(A::decode(&*answer.encode_to_vec()).is_ok_and(|again| again == answer));
    Some(answer)
}

fn transaction(answer: &TxnAnswer) {
    let read = answer.read(0);
    let version = read.map_or(0, |kv| kv.mod_revision);
    for (expected, basis) in [(0, Basis::Served), (7, Basis::Life(1)), (version, Basis::Life(1))] {
        match answer.outcome(expected, &basis, None) {
            Outcome::Ticked(_) => assert_eq!((version, basis), (expected, Basis::Life(1))),
            Outcome::Differs { version: seen, value } => {
                assert_eq!((seen, value.as_ref()), (version, read.map(|kv| &kv.value)));
            }
            matched @ Outcome::Matched { .. } => panic!("a refused write has matched: {matched:?}"),
        }
    }
    answer.responses.iter().filter_map(|answer| answer.range.as_ref()?.kvs.first()).for_each(value);
    let (cluster, revision) = answer.header.map_or((0, 0), |header| (header.cluster_id, header.revision));
    connections(cluster, revision);
}

/// A process that has seen the revision connects again, to this cluster and to another one.
fn connections(cluster: u64, revision: i64) {
    let mut state = State::default();
    assert!(!state.meet(cluster, revision, true, 0), "the first cluster is no other one");
    let is_known = cluster != 0;
    assert!(!(is_known && state.meet(cluster, revision, true, revision)), "nothing has happened");
    assert!(!is_known || state.meet(cluster.wrapping_add(1), revision, true, revision));
}

fn watched(answer: WatchAnswer) {
    let (mail, len) = (answer.watch_id, answer.events.len());
    let other = Seen::of(answer.clone(), mail.wrapping_add(1));
    assert!(other.changes.is_empty() && other.next.is_none());
    other.tick.iter().for_each(value);
    let Seen { changes, next, tick } = Seen::of(answer, mail);
    assert!(tick.is_none() && changes.len() <= len);
    if let (Some(last), Some(next)) = (changes.last(), next) {
        assert!(next > last.mod_revision || next == i64::MAX, "a change is heard again");
    }
    changes.iter().for_each(value);
}

/// Reads what is under a key as a time, as a value and as a mail.
fn value(kv: &KeyValue) {
    if let Some(text) = Text::read(&kv.value) {
        assert_eq!(Text::read(&text.bytes()), Some(text));
    }
    let _ = Stamped::of(&kv.value);
    texts(&kv.value).for_each(|text| locker_cas::fuzz::messages(text.as_bytes()));
    assert!(*successor(&kv.key) > *kv.key);
    let keys = Keys::new("p");
    if let Some(text) = keys.text(&kv.key) {
        assert_eq!(*keys.key(text), *kv.key);
        assert!(*end_of_prefix(&keys.key("")) > *kv.key);
    }
}

#[cfg(test)]
mod tests {
    use locker_harness::corpus;

    #[test]
    fn corpus_of_answers_keeps_the_laws() {
        corpus("etcd_reply", super::etcd_reply);
    }
}
