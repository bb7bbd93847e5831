//! Ids that are refused for a while, because an attempt of theirs may still arrive.

use super::TOMBSTONE;
use crate::{clock::Timestamp, id::Id};
use std::collections::{HashSet, VecDeque};

#[derive(Clone, Debug, Default)]
pub(crate) struct Tombstones {
    ids: HashSet<Id>,
    order: VecDeque<(Timestamp, Id)>,
}

impl Tombstones {
    pub(crate) fn add(&mut self, id: Id, now: Timestamp) {
        if self.ids.insert(id) {
            self.order.push_back((now + TOMBSTONE, id));
        }
    }

    pub(crate) fn has(&self, id: Id) -> bool {
        self.ids.contains(&id)
    }

    pub(crate) fn forget_until(&mut self, now: Timestamp) {
        while self.order.front().is_some_and(|(until, _)| *until <= now) {
            if let Some((_, id)) = self.order.pop_front() {
                self.ids.remove(&id);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(crate) fn next_end(&self) -> Option<Timestamp> {
        self.order.front().map(|(until, _)| *until)
    }
}
