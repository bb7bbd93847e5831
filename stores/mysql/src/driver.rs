//! What MySQL does in its own way for the connections of a store.

use super::{batch, errors::PRODUCT, session::Session, shared::Shared};
use locker_cas::served::{Driver, Job, Lanes, Server};
use locker_core::error::Result;
use std::sync::Arc;

/// The longest key: an entry of the index has at most 3,072 bytes.
const MAX_KEY: usize = 2_000;
/// The largest value.
const MAX_VALUE: usize = 4 << 20;
/// What a packet has besides a value.
const BESIDE_A_VALUE: usize = 512 << 10;

impl Driver for Shared {
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
        Session::open(&self.target, self.lane(), self.losses.subscribe()).await
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
