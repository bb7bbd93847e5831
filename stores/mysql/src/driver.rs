//! What the connections of one store share.

use super::{
    batch,
    errors::PRODUCT,
    facts::Facts,
    session::{Session, Use},
    url::Target,
};
use locker_cas::{
    Draw,
    served::{self, CONNECT_LIMIT, Job, Lanes, Server},
};
use locker_core::{
    clock::Timestamp,
    error::Result,
    sync::{Mutex, lock},
};
use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};
use tokio::sync::watch;

/// What the connections of one store share.
pub(super) struct Driver {
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

/// The longest key: an entry of the index has at most 3,072 bytes.
const MAX_KEY: usize = 2_000;
/// The largest value.
const MAX_VALUE: usize = 4 << 20;
/// What a packet has besides a value.
const BESIDE_A_VALUE: usize = 512 << 10;

impl Driver {
    pub(super) fn new(target: Target, draw: Draw) -> Self {
        Self {
            server: Server::new(target.address.clone(), draw),
            target,
            facts: Mutex::default(),
            losses: watch::Sender::new(0),
            heard: Mutex::default(),
            has_told: AtomicBool::new(false),
        }
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

impl served::Driver for Driver {
    type Session = Session;
    const NAME: &'static str = "mysql";
    const PRODUCT: &'static str = PRODUCT;
    const MAX_KEY: usize = MAX_KEY;

    fn server(&self) -> &Server {
        &self.server
    }

    fn lanes(&self) -> Lanes {
        // How soon writes are on the disk is a matter of the whole server.
        Lanes { durable: self.target.lanes, quick: 0 }
    }

    fn max_value_len(&self) -> usize {
        // A value has two letters for each byte.
        self.facts().map_or(MAX_VALUE, |facts| MAX_VALUE.min((facts.packet - BESIDE_A_VALUE) / 2))
    }

    async fn connect(&self) -> Result<Session> {
        Session::open(&self.target, Use::Lane, CONNECT_LIMIT, self.losses.subscribe()).await
    }

    async fn do_jobs(this: Arc<Self>, session: Arc<Session>, _durable: bool, jobs: Vec<Job>) -> bool {
        batch::do_jobs(&this, &session, jobs).await
    }

    fn is_closed(session: &Session) -> bool {
        session.is_closed()
    }

    async fn ended(session: &Session) {
        session.ended().await;
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server.fmt(f)
    }
}
