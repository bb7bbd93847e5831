//! The session of this process with one server: its connections, mailboxes and settings.

use super::{
    connection::{ConnectionHandle, Connector},
    errors, handshake,
    push_receiver::{PushReceiver, RunMessages},
    script::{Invocation, ScriptReply},
};
use crate::{
    clock::Timestamp, error::Result, id::Id, key::Key, mailboxes::Mailboxes, stores::opening::Opening,
};
use redis::Client;
use std::{
    collections::HashSet,
    sync::{Arc, Weak, atomic::AtomicBool},
    time::Duration,
};

/// The maximum time for connecting.
const MAX_CONNECT: Duration = Duration::from_secs(5);

/// The minimum time for connecting, also for callers with shorter timeouts: a few round trips.
const MIN_CONNECT: Duration = Duration::from_secs(1);

/// A session with one server.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) connection: ConnectionHandle,
    pub(super) receiver: Arc<PushReceiver>,
    pub(super) channel: Arc<str>,
    pub(super) command_timeout: Duration,
}

impl Session {
    /// Starts to connect in the background.
    pub(super) fn start(
        client: Client,
        address: String,
        opening: &Opening,
        store: Weak<dyn RunMessages>,
    ) -> Self {
        let command_timeout = opening.redis.command_timeout;
        let receiver = Arc::new(PushReceiver::new(store));
        let channel = format!("locker:push:{}", Id::random());
        let connector = Connector {
            client,
            address,
            channel: channel.clone(),
            // A little less than the caller's timeout, so that its error has the reason. Later callers may wait longer.
            connect_timeout: (connect_timeout(opening) * 9 / 10).max(MIN_CONNECT),
            reconnect_timeout: (command_timeout * 2).clamp(MIN_CONNECT, MAX_CONNECT),
            command_timeout,
            checks: handshake::Checks {
                allow_eviction: opening.redis.allow_eviction,
                prefix: opening.prefix.clone(),
            },
            receiver: Arc::clone(&receiver),
            knows_scripts: AtomicBool::new(false),
        };
        let connection = ConnectionHandle::open(connector);
        Self { connection, receiver, channel: channel.into(), command_timeout }
    }

    pub(super) fn mailboxes(&self) -> &Mailboxes {
        &self.receiver.mailboxes
    }

    /// Calls a script. Waits for the reply until `by`.
    pub(super) async fn invoke(&self, invocation: Invocation, by: Timestamp) -> Result<ScriptReply> {
        let connection = self.connection.local(by.since(Timestamp::now())).await?;
        let invocation = Arc::new(invocation);
        match connection.run(&invocation, by).await? {
            Err(error) if errors::is_unknown_script(&error) => {
                // The server has done nothing, and may have lost more than scripts.
                if self.connection.forget_scripts() {
                    self.receiver.resync();
                }
                ScriptReply::of_call(Box::pin(connection.run_in_full(&invocation, by)).await?)
            }
            reply => ScriptReply::of_call(reply),
        }
    }

    /// Returns every key that starts with `prefix`, without helper keys.
    pub(super) async fn scan(&self, prefix: &str) -> Result<Vec<Key>> {
        let pattern: String = prefix.chars().flat_map(escaped).chain(['*']).collect();
        let connection = self.connection.main(self.command_timeout).await?;
        let (mut cursor, mut keys) = (0_u64, HashSet::new());
        loop {
            let mut command = redis::cmd("SCAN");
            command.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1000);
            let reply = connection.call(command, Timestamp::now() + self.command_timeout).await?;
            let reply = reply.map_err(|error| errors::of_call(&error))?;
            let (next, found): (u64, Vec<Vec<u8>>) = redis::from_redis_value(reply)
                .map_err(|error| errors::unexpected_reply(&error.to_string()))?;
            // The keys of this crate are texts.
            let found = found.into_iter().filter_map(|key| String::from_utf8(key).ok());
            keys.extend(found.filter(|key| !key.contains(['{', '}'])).map(|key| Key::new(&key)));
            cursor = next;
            if cursor == 0 {
                return Ok(keys.into_iter().collect());
            }
        }
    }
}

/// Returns how long opening a store waits for the connection.
pub(super) fn connect_timeout(opening: &Opening) -> Duration {
    if opening.timeout.is_zero() { MAX_CONNECT } else { MAX_CONNECT.min(opening.timeout) }
}

/// Escapes characters that have a meaning in patterns.
fn escaped(letter: char) -> impl Iterator<Item = char> {
    ['\\'].into_iter().filter(move |_| "\\*?[]".contains(letter)).chain([letter])
}
