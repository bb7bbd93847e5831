//! Calls that go on while servers and networks fail.

use super::{Party, fresh, in_time, until, write};
use crate::backend::{Backend, Message, Outcome, Version};
use locker_core::{error::ErrorKind, id::Id, key::Key};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

const AGAIN: &[u8] = b"again";

/// Writes until a write succeeds. Returns the version.
///
/// # Panics
/// If an error is not temporary.
pub async fn write_again<B: Backend>(party: &Party<B>, key: &Key) -> Version {
    let mut expected = 0;
    loop {
        match in_time("an answer", party.backend.exchange(write(key, expected, AGAIN))).await {
            Ok(Outcome::Matched { version, .. }) => return version,
            Ok(Outcome::Differs { version, .. }) => expected = version,
            Ok(ticked @ Outcome::Ticked(_)) => panic!("{ticked:?}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

/// The limit of an answer for [`silent_connections_are_replaced`]: a sixth of it is long for a busy machine.
pub const SILENCE: Duration = Duration::from_secs(12);

/// If all connections are silent, one write shows it, and the next is answered. `silence` makes those that are open
/// silent; new ones have to work.
///
/// # Panics
/// If not.
pub async fn silent_connections_are_replaced<B: Backend>(party: &Party<B>, silence: impl FnOnce()) {
    let key = fresh("silent");
    let version = party.write(write(&key, 0, b"x")).await;
    silence();
    let outcome = party.backend.exchange(write(&key, version, b"y")).await;
    assert!(outcome.as_ref().is_err_and(|error| !error.is_certain()), "{outcome:?}");
    let outcome = party.backend.exchange(write(&key, version, b"z")).await;
    assert!(outcome.is_ok(), "{outcome:?}");
}

/// Sends to `other` until it hears something.
///
/// # Panics
/// If it hears nothing for long.
pub async fn hear_again<B: Backend>(one: &Party<B>, other: &Party<B>) {
    let text = Id::random().to_string();
    until("a message", async || {
        let message = Message { to: other.backend.inbox(), text: text.clone() };
        let _ = one.backend.send(vec![message]).await;
        other.texts().contains(&text)
    })
    .await;
}

/// Writes one key without a pause until `is_over`. Returns how many outcomes were unknown.
///
/// # Panics
/// If an answer does not agree with what the server has: an error that is certain means that nothing was written.
pub async fn write_through<B: Backend>(party: &Party<B>, key: &Key, is_over: &AtomicBool) -> usize {
    let (mut round, mut uncertain) = (0_u64, 0);
    let mut known = write_again(party, key).await;
    // The values that the server may have.
    let mut possible = vec![AGAIN.to_vec()];
    while !is_over.load(Ordering::Acquire) {
        round += 1;
        let value = round.to_string().into_bytes();
        match in_time("an answer", party.backend.exchange(write(key, known, &value))).await {
            Ok(Outcome::Matched { version, .. }) => (known, possible) = (version, vec![value]),
            Ok(Outcome::Differs { version, value: present }) => {
                let present = present.expect("nothing removes it");
                assert!(possible.contains(&present), "{present:?} of {possible:?}");
                (known, possible) = (version, vec![present]);
            }
            Ok(ticked @ Outcome::Ticked(_)) => panic!("{ticked:?}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
                if !error.is_certain() {
                    uncertain += 1;
                    possible.push(value);
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
    uncertain
}
