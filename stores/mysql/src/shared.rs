//! What the connections of one store share.

use super::{facts::Facts, session::Use, url::Target};
use locker_cas::{Draw, served::Server};
use locker_core::{
    clock::Timestamp,
    sync::{Mutex, lock},
};
use std::{fmt, sync::atomic::AtomicBool, time::Duration};
use tokio::sync::watch;

/// What the connections of one store share.
pub(super) struct Shared {
    pub(super) target: Target,
    pub(super) server: Server,
    facts: Mutex<Option<Facts>>,
    /// Counts the connections that have ended: all may have.
    pub(super) losses: watch::Sender<u64>,
    heard: Mutex<Heard>,
    /// Whether it was told that processes of other users cannot be woken.
    pub(super) has_told: AtomicBool,
}

/// The messages that were heard and not removed yet.
#[derive(Default)]
struct Heard {
    ids: Vec<u64>,
    /// When some were last removed.
    removed: Timestamp,
}

/// Each removal waits for the disk.
const REMOVAL_INTERVAL: Duration = Duration::from_secs(1);
/// The statements that wait for messages name all that were heard.
const MANY: usize = 500;

impl Shared {
    pub(super) fn new(target: Target, answer_limit: Duration, draw: Draw) -> Self {
        Self {
            server: Server::new(target.address.clone(), answer_limit, draw),
            target,
            facts: Mutex::default(),
            losses: watch::Sender::new(0),
            heard: Mutex::default(),
            has_told: AtomicBool::new(false),
        }
    }

    /// Returns the use of a lane's connection.
    pub(super) fn lane(&self) -> Use {
        Use::Lane(self.server.answer_limit())
    }

    /// Returns what is known of the server. `None` before the first connection.
    pub(super) fn facts(&self) -> Option<Facts> {
        lock(&self.facts).clone()
    }

    pub(super) fn learn(&self, facts: Facts) {
        *lock(&self.facts) = Some(facts);
    }

    /// Forgets what was heard over a former connection. A server that has lost writes gives their ids again.
    pub(super) fn hear_anew(&self) {
        *lock(&self.heard) = Heard::default();
    }

    /// Notes that a message was heard.
    pub(super) fn hear(&self, id: u64) {
        lock(&self.heard).ids.push(id);
    }

    /// Returns the ids of the messages that were heard and are still there.
    pub(super) fn heard(&self) -> Vec<u64> {
        lock(&self.heard).ids.clone()
    }

    /// Returns the ids of messages that are to be removed now. Empty if it is too early.
    pub(super) fn removable(&self) -> Vec<u64> {
        let (mut heard, now) = (lock(&self.heard), Timestamp::now());
        let interval = if heard.ids.len() < MANY { REMOVAL_INTERVAL } else { REMOVAL_INTERVAL / 10 };
        if heard.ids.is_empty() || now.since(heard.removed) < interval {
            return Vec::new();
        }
        heard.removed = now;
        heard.ids.clone()
    }

    /// Notes that these are gone.
    pub(super) fn removed(&self, ids: &[u64]) {
        lock(&self.heard).ids.retain(|id| !ids.contains(id));
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server.fmt(f)
    }
}
