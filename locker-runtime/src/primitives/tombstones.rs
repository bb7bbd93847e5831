//! Ids that are refused for a while, because an attempt of theirs may still arrive.

use super::{IdempotencyKey, remembered::ReplyCache};
use crate::{clock::Timestamp, id::Id};

pub(crate) type Tombstones = ReplyCache<()>;

impl Tombstones {
    pub(crate) fn add(&mut self, id: Id, now: Timestamp) {
        self.keep(id, (), now);
    }

    /// Whether a copy comes after one that was repeated; from such a one on, all do.
    pub(crate) fn is_late(&mut self, once: Option<IdempotencyKey>, now: Timestamp) -> bool {
        let Some(IdempotencyKey { attempt, repeated }) = once else { return false };
        let late = self.has(attempt);
        if repeated {
            self.add(attempt, now);
        }
        late
    }
}
