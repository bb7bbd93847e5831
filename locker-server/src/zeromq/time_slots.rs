//! The time-slot limiter: answers `go` a fixed number of times per slot, together with its peers.

use super::socket::{Publisher, Subscriber};
use crate::{api::name::TIME_SLOTS, metrics::SlotEvent, server::Server, sync::lock};
use bytes::Bytes;
use locker_runtime::{ErrorKind, RateLimiter, primitives::rate_limiter::Quota};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

pub(super) const TOPIC: &str = "go";

/// How many publishers are remembered. Each start of a peer is another publisher.
const REMEMBERED: usize = 1024;

#[derive(Debug)]
pub(super) struct TimeSlots {
    server: Arc<Server>,
    limiter: RateLimiter,
    has_grace: bool,
    publisher: Option<Publisher>,
    /// The number of grants published so far.
    published: Mutex<u64>,
    /// The id of this publisher, so that a server that is its own peer counts nothing twice.
    id: Bytes,
}

impl TimeSlots {
    pub(super) fn new(
        server: Arc<Server>,
        quota: Quota,
        grace: Duration,
        publisher: Option<Publisher>,
    ) -> Self {
        let limiter = server.service.locker().rate_limiter(TIME_SLOTS, quota).timeout(grace);
        Self {
            server,
            limiter,
            has_grace: !grace.is_zero(),
            publisher,
            published: Mutex::default(),
            id: uuid::Uuid::new_v4().to_string().into(),
        }
    }

    /// Returns `true` if a `sorry` may be delayed.
    pub(super) fn may_wait(&self) -> bool {
        self.has_grace
    }

    /// Requests to pass. Returns `true` for `go`, `false` for `sorry`.
    ///
    /// # Cancel safety
    /// Cancel safe: a pending reservation is returned.
    pub(super) async fn request(&self) -> bool {
        let go = match self.limiter.acquire().await {
            Ok(_) => true,
            Err(error) => {
                if error.kind() != ErrorKind::Limited {
                    self.server.service.log_store_error(&error);
                }
                false
            }
        };
        if let Some(publisher) = self.publisher.as_ref().filter(|_| go) {
            self.publish(publisher);
        }
        self.server.metrics.slot(if go { SlotEvent::Go } else { SlotEvent::Sorry });
        go
    }

    /// Publishes a grant. The lock keeps grants in the order of their numbers.
    fn publish(&self, publisher: &Publisher) {
        let mut count = lock(&self.published);
        *count += 1;
        let number = count.to_be_bytes().to_vec().into();
        publisher.publish(vec![Bytes::from_static(TOPIC.as_bytes()), self.id.clone(), number]);
    }

    /// Counts a `sorry` for a request that is beyond a cap.
    pub(super) fn refuse(&self) -> bool {
        self.server.metrics.slot(SlotEvent::Sorry);
        false
    }

    /// Counts the grants of the peers. In a full slot they change nothing.
    pub(super) async fn count_peers(&self, peers: Subscriber) {
        let limiter = self.limiter.clone().timeout(Duration::ZERO);
        let mut seen = SeenGrants::default();
        while let Some(frames) = peers.next().await {
            let [topic, from, number] = &frames[..] else { continue };
            if topic != TOPIC.as_bytes() || *from == self.id || !seen.is_new(from, number) {
                continue;
            }
            match limiter.acquire().await {
                Ok(_) => self.server.metrics.slot(SlotEvent::Peer),
                Err(error) if error.kind() == ErrorKind::Limited => {}
                Err(error) => tracing::warn!(%error, "cannot count the grant of a peer"),
            }
        }
    }
}

/// The last number of each publisher. A peer with two names or addresses delivers everything twice.
#[derive(Debug, Default)]
struct SeenGrants(HashMap<Bytes, u64>);

impl SeenGrants {
    fn is_new(&mut self, from: &Bytes, number: &[u8]) -> bool {
        let Ok(number) = number.try_into().map(u64::from_be_bytes) else { return false };
        if self.0.len() == REMEMBERED && !self.0.contains_key(from) {
            self.0.clear();
        }
        let last = self.0.entry(from.clone()).or_default();
        let new = number > *last;
        *last = number.max(*last);
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_grants_count_once() {
        let mut seen = SeenGrants::default();
        let mut see = |from: &'static str, number: u64| {
            seen.is_new(&Bytes::from_static(from.as_bytes()), &number.to_be_bytes())
        };
        assert_eq!(
            [1, 1, 2, 3, 2, 3, 5].map(|number| see("a", number)),
            [true, false, true, true, false, false, true]
        );
        assert!(see("b", 2) && !see("b", 1));
        assert!(!seen.is_new(&Bytes::from_static(b"a"), b"6"));
        for other in 0..2 * REMEMBERED as u64 {
            assert!(seen.is_new(&Bytes::from(other.to_string()), &[1; 8]));
        }
        assert!(seen.0.len() <= REMEMBERED);
    }
}
