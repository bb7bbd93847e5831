//! Changes of a server that end the connection to it: another master, a demotion, an eviction policy.

use super::{Connection, Connector};
use crate::handshake::{self, EVICTION};
use locker_core::{background, clock::Timestamp};
use redis::{Cmd, Value};
use std::{future::pending, time::Duration};

/// The time between two questions for the role of a server that may be demoted.
const ROLE_INTERVAL: Duration = Duration::from_secs(1);

impl Connector {
    /// Waits until another server is the master. Only for servers that may change without an end of the connection.
    pub(super) async fn replaced(&self, connection: &Connection) {
        tokio::select! {
            () = self.discovery.has_left(&connection.server) => {}
            () = self.demoted(connection), if self.discovery.may_move() => {}
        }
    }

    /// Waits until the server says that it is a replica.
    async fn demoted(&self, connection: &Connection) {
        let mut looks = Looks::every(ROLE_INTERVAL);
        loop {
            looks.next().await;
            if self.ask(connection, handshake::question()).await.is_some_and(handshake::is_replica) {
                return;
            }
        }
    }

    /// Waits until the server drops locks when its memory is full. Only in strict mode, which promises more.
    pub(super) async fn evicting(&self, connection: &Connection) {
        let Some(interval) = self.eviction_interval else { return pending().await };
        let mut looks = Looks::every(interval);
        loop {
            looks.next().await;
            let policy = match EVICTION.read(self.ask(connection, EVICTION.question()).await) {
                Some(policy) => policy,
                None => EVICTION.read_other(self.ask(connection, EVICTION.other_question()).await).flatten(),
            };
            if handshake::check_eviction(policy).is_err() {
                return;
            }
        }
    }

    /// Sends a question. Returns `None` if it was refused or not answered.
    async fn ask(&self, connection: &Connection, question: Cmd) -> Option<Value> {
        connection.call(question, Timestamp::now() + self.command_timeout).await.ok()?.ok()
    }
}

/// The times at which a server is asked again.
struct Looks {
    interval: Duration,
    last: Timestamp,
}

impl Looks {
    fn every(interval: Duration) -> Self {
        Self { interval, last: Timestamp::now() }
    }

    async fn next(&mut self) {
        self.last = (self.last + self.interval).max(Timestamp::now());
        background::sleep_until(self.last).await;
    }
}
