//! The time-slot limiter: so many `go` per slot, of all servers that tell each other.

use super::socket::{Publisher, Subscriber};
use crate::{metrics::Slot, server::Server};
use bytes::Bytes;
use locker_runtime::{ErrorKind, RateLimiter, primitives::rate_limiter::Quota};
use std::{sync::Arc, time::Duration};

/// A name that no client can use: it has a slash.
const NAME: &str = "zeromq/time-slots";

pub(super) const TOPIC: &str = "go";

#[derive(Debug)]
pub(super) struct Slots {
    server: Arc<Server>,
    limiter: RateLimiter,
    waits: bool,
    publisher: Option<Publisher>,
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
                    tracing::warn!(%error, "the time-slot limiter");
                }
                false
            }
        };
        if let Some(publisher) = self.publisher.as_ref().filter(|_| go) {
            publisher.publish(vec![Bytes::from_static(TOPIC.as_bytes()), self.own.clone()]);
        }
        self.server.metrics.slot(if go { Slot::Go } else { Slot::Sorry });
        go
    }

    /// Sends away who cannot even ask.
    pub(super) fn refuse(&self) -> bool {
        self.server.metrics.slot(Slot::Sorry);
        false
    }

    /// Counts the `go`s of the peers; in a full slot they change nothing any more.
    pub(super) async fn listen(&self, peers: Subscriber) {
        let limiter = self.limiter.clone().timeout(Duration::ZERO);
        while let Some(frames) = peers.next().await {
            let [topic, from] = &frames[..] else { continue };
            if topic != TOPIC.as_bytes() || *from == self.own {
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
