//! What the fuzz target calls. A broken law is a panic.

use super::{
    connection::Event,
    gauge::Text,
    handshake::Identity,
    keys::{Keys, key_of},
    mails::texts,
    ops::{self, ANY, Done, Kind, Op},
    stored::{lasts, stored, value},
    wire::{self, Reader, Stat, next_frame},
};
use locker_cas::Stamped;

/// Reads what a server has sent as each of the answers that this store asks for.
///
/// # Panics
/// If a law is broken.
pub fn zookeeper_answer(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some(frame)) = next_frame(&mut rest) {
        assert!(frame.len() + rest.len() + 4 <= bytes.len());
    }
    let _ = Identity::read(bytes);
    let _ = Event::read(&mut Reader(bytes));
    let _ = Stat::read(&mut Reader(bytes));
    for name in wire::texts(&mut Reader(bytes)).into_iter().flatten() {
        named(&name);
    }
    transaction(bytes);
    node(bytes);
}

/// A transaction is carried out as a whole or not at all.
fn transaction(bytes: &[u8]) {
    let asked = [
        Op::Check("/a".into(), ANY),
        Op::create("/b", b"", Kind::Kept),
        Op::set("/b", b"x", 0),
        Op::Delete("/c".into(), 1),
    ];
    match ops::answer(&asked, bytes) {
        Some(Done::All(stats)) => assert_eq!(stats.len(), asked.len()),
        Some(Done::Nothing(place, failure)) => {
            assert!(place < asked.len() && failure.error.message().contains(asked[place].path()));
        }
        None => {}
    }
}

/// Reads what is in a node as a value, as a mail and as a time.
fn node(bytes: &[u8]) {
    let again = stored(lasts(bytes), &value(bytes.to_vec()));
    assert_eq!((lasts(&again), value(again.to_vec())), (lasts(bytes), value(bytes.to_vec())));
    let _ = Stamped::of(&value(bytes.to_vec()));
    let _ = Text::read(bytes);
    texts(bytes).for_each(|text| locker_cas::fuzz::messages(text.as_bytes()));
}

/// Reads the name of a value's node.
fn named(name: &str) {
    if let Some(key) = key_of(name)
        && let Ok(place) = Keys::new("/root").place(&key)
    {
        let own = place.value.rsplit('/').next().and_then(key_of);
        assert_eq!(own, Some(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Body, put_frame};
    use locker_harness::corpus;

    #[test]
    fn corpus_of_answers_keeps_the_laws() {
        corpus("zookeeper_answer", zookeeper_answer);
    }

    #[test]
    fn answers_of_any_form_keep_the_laws() {
        let answer = Body::default().int(13).flag(false).int(0).int(-1).flag(false).int(-103).int(-103);
        let names = Body::default().int(3).text("a%2Fb").text("%").text("%zz");
        let mut frames = Vec::new();
        put_frame(&mut frames, &[1, 2], b"x");
        for valid in [answer.0, names.0, frames, b"1764 0".to_vec()] {
            for _ in 0..2_000 {
                let mut bytes = valid.clone();
                for _ in 0..fastrand::usize(..4) {
                    let at = fastrand::usize(..bytes.len());
                    bytes[at] = fastrand::u8(..);
                }
                bytes.truncate(fastrand::usize(..=bytes.len()).max(1));
                zookeeper_answer(&bytes);
            }
            zookeeper_answer(&valid);
        }
    }
}
