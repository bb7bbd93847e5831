//! What PostgreSQL does in its own way for the connections of a store.

use super::{
    batch,
    session::{Session, Use},
    shared::Shared,
};
use locker_cas::served::{Distance, Driver, Job, Lanes, Server};
use locker_core::error::Result;
use std::sync::{Arc, atomic::Ordering};

/// The longest key: an entry of the index has at most a third of a page.
const MAX_KEY: usize = 2_000;
/// The largest value.
const MAX_VALUE: usize = 4 << 20;

impl Driver for Shared {
    type Session = Session;
    const NAME: &'static str = "postgres";
    const PRODUCT: &'static str = "PostgreSQL";
    const MAX_KEY: usize = MAX_KEY;

    fn server(&self) -> &Server {
        &self.server
    }

    fn lanes(&self) -> Lanes {
        Lanes { durable: self.target.lanes, quick: 1 }
    }

    fn max_value_len(&self) -> usize {
        MAX_VALUE
    }

    async fn connect(&self) -> Result<Session> {
        Session::open(&self.target, &self.target.config, &self.named, Use::Lane).await
    }

    async fn do_jobs(this: Arc<Self>, session: Arc<Session>, durable: bool, jobs: Vec<Job>) -> bool {
        batch::do_jobs(&this, &session, durable && this.target.durable, jobs).await
    }

    fn is_closed(session: &Session) -> bool {
        session.is_closed()
    }

    async fn ended(session: &Session) {
        session.ended().await;
    }

    fn distance(&self, session: &Session) -> Option<Distance> {
        // A pool of connections may give the connection to others after the first answer.
        let answer_time = session.answer_time().filter(|_| self.named.load(Ordering::Acquire))?;
        Some(Distance { round_trip: self.server.round_trip()?, answer_time })
    }
}
