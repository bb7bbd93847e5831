//! What the fuzz targets call. A broken law is a panic.

use super::{
    backend::Message,
    entry::{Entry, HIGHEST_FENCE, Stamped, Stored},
    messages,
};
use locker_core::{
    error::ErrorKind,
    key::Key,
    primitives::{Context, Notification, Reply, Request, samples},
};
use std::time::Duration;

/// The bytes by which one request may make a value longer, if the value has none to double.
const GROWTH: usize = 256;

/// Reads a stored value. One that can be read takes every request, and can be written and read again.
///
/// # Panics
/// If a law is broken.
pub fn stored_entry(bytes: &[u8]) {
    let stored = match Stored::from_bytes(bytes) {
        Ok(stored) => stored,
        Err(error) => return assert_eq!(error.kind(), ErrorKind::Conflict),
    };
    assert!(Stamped::of(bytes).is_some_and(|stamped| stamped.at == stored.stamp));
    let body = written(&stored.entry);
    assert!(body.len() <= stored.body.len(), "a value grows as it is read");
    let again = Stored { body, ..stored.clone() }.to_bytes();
    assert_eq!(Stored::nonce_of(Some(&again)), Some(stored.nonce));
    assert_eq!(Stored::from_bytes(&again).expect("what was written is read").to_bytes(), again);
    // Nothing follows the highest fence.
    if stored.entry.last_fence().max(stored.stamp.as_micros()) > HIGHEST_FENCE - 10_000_000 {
        return;
    }
    for request in samples::requests() {
        step(&stored, &request);
    }
}

/// Returns the bytes of an entry, which are the same after they were read.
fn written(entry: &Entry) -> Vec<u8> {
    let body = entry.to_bytes();
    let stored = Stored { body: body.clone(), ..Stored::default() };
    let read = Stored::from_bytes(&stored.to_bytes()).expect("what was written is read");
    assert_eq!(read.entry.to_bytes(), body);
    body
}

fn step(stored: &Stored, request: &Request) {
    let (key, mut notifications) = (Key::new("a"), Vec::new());
    let mut entry = stored.entry.clone();
    let mut context = Context::new(&key, stored.stamp + Duration::from_secs(1), &mut notifications);
    context.inbox = Some(1);
    let (now, fence) = (context.now, entry.last_fence());
    let reply = entry.step(request, &mut context);
    assert!(entry.last_fence() >= fence, "a fence goes back: {request:?}");
    if let Reply::Granted { fence } = reply {
        assert!(entry.last_fence() >= fence, "a fence is forgotten: {request:?}");
    }
    let len = written(&entry).len();
    assert!(len <= 2 * stored.body.len() + GROWTH, "a value grows by {len} bytes: {request:?}");
    let _ = (entry.holds_for(now), entry.lasts(now), entry.holds(), entry.exclusive_holder());
    let inspected = entry.step(&Request::Inspect, &mut Context::new(&key, now, &mut Vec::new()));
    assert!(matches!(inspected, Reply::Inspected(_) | Reply::Unknown), "{inspected:?}");
    deliver(&key, &notifications);
}

/// Reads a message. The notifications in it can be written and read again.
///
/// # Panics
/// If a law is broken.
pub fn messages(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let Some(notifications) = messages::read(text) else { return };
    assert!(notifications.len() < text.split('\n').count());
    if let Some(Notification { key, .. }) = notifications.first() {
        let own = |message: &Message| {
            let to = notifications.iter().filter(|notification| notification.id.inbox() == message.to);
            assert_eq!(messages::read(&message.text), Some(to.cloned().collect()));
        };
        messages::write(key, notifications.iter()).iter().for_each(own);
    }
}

/// Writes notifications, which are all read by one process each.
fn deliver(key: &Key, notifications: &[Notification]) {
    let messages = messages::write(key, notifications.iter());
    for message in &messages {
        assert!(message.text.chars().all(|letter| letter == '\n' || !letter.is_control()));
    }
    let read = messages.iter().map(|message| messages::read(&message.text).expect("it was written").len());
    assert_eq!(read.sum::<usize>(), notifications.len());
}

#[cfg(test)]
mod tests {
    use locker_harness::corpus;

    #[test]
    fn corpus_of_entries_keeps_the_laws() {
        corpus("stored_entry", super::stored_entry);
    }

    #[test]
    fn corpus_of_messages_keeps_the_laws() {
        corpus("messages", super::messages);
    }
}
