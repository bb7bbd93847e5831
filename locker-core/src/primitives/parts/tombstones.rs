//! Ids that are rejected for a while, because a copy of their request may still arrive.

use super::{idempotency::IdempotencyKey, reply_cache::ReplyCache};
use crate::{clock::Timestamp, id::Id};

/// Rejected ids, and when each may be forgotten.
pub type Tombstones = ReplyCache<()>;

impl Tombstones {
    pub(crate) fn add(&mut self, id: Id, now: Timestamp) {
        self.keep(id, (), now);
    }

    /// Returns whether an earlier copy of this request was a retry; every copy after a retry is late.
    pub fn is_late(&mut self, once: Option<IdempotencyKey>, now: Timestamp) -> bool {
        let Some(IdempotencyKey { attempt, retried }) = once else { return false };
        let late = self.has(attempt);
        if retried {
            self.add(attempt, now);
        }
        late
    }
}
