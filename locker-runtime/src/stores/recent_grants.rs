//! The grants that have reached their waiters of this process lately.

use crate::{
    clock::Timestamp,
    id::{Id, IdMap},
};
use std::time::Duration;

/// How long a grant is remembered: longer than a replaced connection lives on.
const REMEMBER: Duration = Duration::from_secs(60);

/// The most that counts of the time between two grants. A process that was stopped for minutes reads the messages that
/// arrived meanwhile only afterwards.
const LONGEST_STEP: Duration = Duration::from_secs(1);

/// Grants that have reached their waiter by a message or a reply. A second message for the same grant may come after
/// the waiter has closed its mailbox, and must not end the hold.
#[derive(Debug, Default)]
pub(crate) struct RecentGrants {
    grants: IdMap<Grant>,
    last: Timestamp,
    /// The time that counts.
    ran: Duration,
}

#[derive(Debug)]
struct Grant {
    fence: u64,
    /// On the clock of `ran`.
    until: Duration,
}

impl RecentGrants {
    /// Records that the attempt `id` has received the grant with this fence.
    pub(crate) fn record(&mut self, id: Id, fence: u64) {
        self.record_at(Timestamp::now(), id, fence);
    }

    fn record_at(&mut self, now: Timestamp, id: Id, fence: u64) {
        self.ran += now.since(self.last).min(LONGEST_STEP);
        self.last = now;
        if self.grants.len() >= self.grants.capacity() {
            self.grants.retain(|_, grant| grant.until > self.ran);
        }
        let until = self.ran + REMEMBER;
        let grant = self.grants.entry(id).or_insert(Grant { fence, until });
        // The message for an older grant may come later.
        *grant = Grant { fence: grant.fence.max(fence), until };
    }

    /// Returns whether the attempt `id` has received this grant or a later one.
    pub(crate) fn has(&self, id: Id, fence: u64) -> bool {
        self.grants.get(&id).is_some_and(|grant| grant.fence >= fence)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.grants.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records as many grants as make the map remove what is over.
    fn record_many(recent: &mut RecentGrants, now: Timestamp) {
        for _ in 0..1_000 {
            recent.record_at(now, Id::random(), 1);
        }
    }

    #[test]
    fn a_stopped_process_forgets_no_grant() {
        let (mut recent, now, id) = (RecentGrants::default(), Timestamp::now(), Id::random());
        recent.record_at(now, id, 7);
        record_many(&mut recent, now + Duration::from_secs(600));
        assert!(recent.has(id, 7) && !recent.has(id, 8));
    }

    #[test]
    fn old_grants_are_forgotten() {
        let (mut recent, now, id) = (RecentGrants::default(), Timestamp::now(), Id::random());
        recent.record_at(now, id, 7);
        for second in 0..=REMEMBER.as_secs() {
            recent.record_at(now + Duration::from_secs(second), Id::random(), 1);
        }
        record_many(&mut recent, now + REMEMBER);
        assert!(!recent.has(id, 7));
    }
}
