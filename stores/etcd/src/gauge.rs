//! What the time with the gaps is at least: a lease of etcd measures what has passed since a moment that the clock
//! names.
//!
//! No host's clock enters. After a change of its leader, etcd counts from then, and less seems to have passed.

use super::{
    client::{Client, Repeat},
    errors::Failure,
    leases,
    messages::{LeaseId, TimeToLiveAnswer},
    watch::keep_alive,
};
use locker_core::{
    clock::Timestamp,
    sync::{Mutex, lock},
};
use std::{sync::Arc, time::Duration};

/// How long the lease lasts: of longer gaps nobody knows.
const LASTS: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// How often the process that ticks renews it.
const BEAT: Duration = Duration::from_secs(30);

/// How much less has passed than etcd says, at most: it counts whole seconds, and the tick that names the renewal comes
/// after it.
const SLACK: Duration = Duration::from_secs(3);

/// The lease, and what the time with the gaps was when it was last renewed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// 0 if there is none.
    pub(super) lease: i64,
    pub(super) at: Timestamp,
}

/// The lease that measures gaps.
pub(super) struct Gauge {
    client: Arc<Client>,
    /// That of the known tick.
    mark: Mutex<Mark>,
    /// When this process has last renewed it.
    renewed: Mutex<Timestamp>,
}

impl Gauge {
    pub(super) fn new(client: Arc<Client>) -> Self {
        Self { client, mark: Mutex::default(), renewed: Mutex::default() }
    }

    pub(super) fn mark(&self) -> Mark {
        *lock(&self.mark)
    }

    /// Takes over the mark of a tick.
    pub(super) fn note(&self, mark: Mark) {
        *lock(&self.mark) = mark;
    }

    /// Makes a lease that counts from now on, which is `at`.
    pub(super) async fn begin(&self, at: Timestamp) -> Result<Mark, Failure> {
        let (lease, _) = leases::grant_for(&self.client, LASTS.as_secs()).await?;
        Ok(Mark { lease, at })
    }

    /// Returns the mark for a tick that is written next. Renews the lease if it is time, and replaces one that is gone;
    /// it then counts from now on, which is `at`.
    pub(super) async fn keep(&self, at: Timestamp) -> Mark {
        let (mark, now) = (self.mark(), Timestamp::now());
        {
            let mut renewed = lock(&self.renewed);
            if now < *renewed + BEAT {
                return mark;
            }
            *renewed = now;
        }
        let member = Arc::clone(self.client.endpoints.current());
        match keep_alive(&self.client, &member, mark.lease).await {
            Ok(true) => Mark { at, ..mark },
            Ok(false) => self.begin(at).await.unwrap_or(mark),
            // An error is for the next time.
            Err(_) => mark,
        }
    }

    /// Returns what the time with the gaps is at least.
    pub(super) async fn least(&self) -> Timestamp {
        let Mark { lease, at } = self.mark();
        let path = "/etcdserverpb.Lease/LeaseTimeToLive";
        let answer = self.client.call::<_, TimeToLiveAnswer>(path, LeaseId { id: lease }, Repeat::Yes).await;
        at + answer.map_or(Duration::ZERO, passed)
    }
}

/// Returns what has passed of a lease at least. Of one that is gone, nobody knows.
fn passed(TimeToLiveAnswer { ttl, granted }: TimeToLiveAnswer) -> Duration {
    let passed = if ttl < 0 { 0 } else { u64::try_from(granted.saturating_sub(ttl)).unwrap_or(0) };
    Duration::from_secs(passed).saturating_sub(SLACK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_has_passed_than_etcd_says() {
        let of = |ttl, granted| passed(TimeToLiveAnswer { ttl, granted });
        assert_eq!(of(2_592_000, 2_592_000), Duration::ZERO);
        assert_eq!(of(2_588_400, 2_592_000), Duration::from_secs(3_597));
        assert_eq!(of(-1, 0), Duration::ZERO, "no such lease");
        assert_eq!(of(10, 0), Duration::ZERO);
    }
}
