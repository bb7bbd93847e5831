//! What the connections of one store share.

use super::{
    batch,
    errors::PRODUCT,
    facts::Facts,
    session::{Idle, Session},
    url::Target,
};
use locker_cas::{
    Draw,
    served::{self, CONNECT_LIMIT, Job, Lanes, Server},
};
use locker_core::{
    error::Result,
    sync::{Mutex, lock},
};
use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
};
use tokio::sync::watch;

/// What the connections of one store share.
pub(super) struct Driver {
    pub(super) target: Target,
    pub(super) server: Server,
    facts: Mutex<Option<Facts>>,
    /// Counts the connections that have ended: all may have.
    pub(super) losses: watch::Sender<u64>,
    /// The ids of messages that were heard and not removed yet.
    pub(super) heard: Mutex<Vec<u64>>,
    /// Whether it was told that processes of other users cannot be woken.
    pub(super) has_told: AtomicBool,
}

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
        *lock(&self.facts)
    }

    pub(super) fn learn(&self, facts: Facts) {
        *lock(&self.facts) = Some(facts);
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
        Session::open(&self.target, Idle::Day, CONNECT_LIMIT, self.losses.subscribe()).await
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
