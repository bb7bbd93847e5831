//! The time-slot limiter: so many `go` per slot, of all servers that tell each other.

use super::socket::{Publisher, Subscriber};
use crate::{metrics::Slot, server::Server};
use bytes::Bytes;
use locker_runtime::{ErrorKind, RateLimiter, primitives::rate_limiter::Quota};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// A name that no client can use: it has a slash.
const NAME: &str = "zeromq/time-slots";

pub(super) const TOPIC: &str = "go";

/// How many publishers are remembered: each start of a peer is another one.
const REMEMBERED: usize = 1024;

#[derive(Debug)]
pub(super) struct Slots {
    server: Arc<Server>,
    limiter: RateLimiter,
    waits: bool,
    publisher: Option<Publisher>,
    /// How many it was told.
    told: Mutex<u64>,
    /// So that a server which has itself among its peers counts nothing twice.
    own: Bytes,
}

impl Slots {
    pub(super) fn new(
        server: Arc<Server>,
        quota: Quota,
        grace: Duration,
        publisher: Option<Publisher>,
    ) -> Self {
        let limiter = server.locker.rate_limiter(NAME, quota).timeout(grace);
        Self {
            server,
            limiter,
            waits: !grace.is_zero(),
            publisher,
            told: Mutex::default(),
            own: uuid::Uuid::new_v4().to_string().into(),
        }
    }

    /// Whether a `sorry` may be held back.
    pub(super) fn may_wait(&self) -> bool {
        self.waits
    }

    /// Whether one more may pass.
    ///
    /// # Cancel safety
    /// Cancel safe: a turn that has not come is given back.
    pub(super) async fn ask(&self) -> bool {
        let go = match self.limiter.acquire().await {
            Ok(_) => true,
            Err(error) => {
                if error.kind() != ErrorKind::Limited {
                    self.server.store_failed(&error);
                }
                false
            }
        };
        if let Some(publisher) = self.publisher.as_ref().filter(|_| go) {
            self.tell(publisher);
        }
        self.server.metrics.slot(if go { Slot::Go } else { Slot::Sorry });
        go
    }

    /// In the order of their numbers.
    fn tell(&self, publisher: &Publisher) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        *told += 1;
        let number = told.to_be_bytes().to_vec().into();
        publisher.publish(vec![Bytes::from_static(TOPIC.as_bytes()), self.own.clone(), number]);
    }

    /// Sends away who cannot even ask.
    pub(super) fn refuse(&self) -> bool {
        self.server.metrics.slot(Slot::Sorry);
        false
    }

    /// Counts the `go`s of the peers; in a full slot they change nothing any more.
    pub(super) async fn listen(&self, peers: Subscriber) {
        let limiter = self.limiter.clone().timeout(Duration::ZERO);
        let mut heard = Heard::default();
        while let Some(frames) = peers.next().await {
            let [topic, from, number] = &frames[..] else { continue };
            if topic != TOPIC.as_bytes() || *from == self.own || !heard.is_news(from, number) {
                continue;
            }
            match limiter.acquire().await {
                Ok(_) => self.server.metrics.slot(Slot::Peer),
                Err(error) if error.kind() == ErrorKind::Limited => {}
                Err(error) => tracing::warn!(%error, "a peer's go was not counted"),
            }
        }
    }
}

/// The last number of each publisher: who is a peer by two names or addresses tells everything twice.
#[derive(Debug, Default)]
struct Heard(HashMap<Bytes, u64>);

impl Heard {
    fn is_news(&mut self, from: &Bytes, number: &[u8]) -> bool {
        let Ok(number) = number.try_into().map(u64::from_be_bytes) else { return false };
        if self.0.len() == REMEMBERED && !self.0.contains_key(from) {
            self.0.clear();
        }
        let last = self.0.entry(from.clone()).or_default();
        let news = number > *last;
        *last = number.max(*last);
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_twice_is_heard_once() {
        let mut heard = Heard::default();
        let mut hear = |from: &'static str, number: u64| {
            heard.is_news(&Bytes::from_static(from.as_bytes()), &number.to_be_bytes())
        };
        assert_eq!(
            [1, 1, 2, 3, 2, 3, 5].map(|number| hear("a", number)),
            [true, false, true, true, false, false, true]
        );
        assert!(hear("b", 2) && !hear("b", 1));
        assert!(!heard.is_news(&Bytes::from_static(b"a"), b"6"));
        for other in 0..2 * REMEMBERED as u64 {
            assert!(heard.is_news(&Bytes::from(other.to_string()), &[1; 8]));
        }
        assert!(heard.0.len() <= REMEMBERED);
    }
}
