//! The data of a server.

use crate::strict::reference::Record;
use locker_core::{
    id::Id,
    primitives::{AnyState, State as _, lock},
};
use std::hash::{Hash, Hasher};

/// What a server keeps, and a replica copies.
#[derive(Clone, Debug)]
pub(super) struct Data {
    pub(super) record: Option<Record>,
    pub(super) state: AnyState,
    /// The waiters in the order in which they came.
    pub(super) queue: Vec<u128>,
}

impl Data {
    pub(super) fn empty() -> Self {
        Self { record: None, state: AnyState::Lock(lock::State::default()), queue: Vec::new() }
    }

    /// Follows the queue of the state.
    pub(super) fn follow(&mut self, ids: impl Iterator<Item = Id>) {
        let AnyState::Lock(state) = &self.state else { return };
        let waits = |id: &u128| state.place(Id::from(*id)).is_some();
        self.queue.retain(waits);
        for id in ids.map(u128::from).filter(waits) {
            if !self.queue.contains(&id) {
                self.queue.push(id);
            }
        }
    }
}

/// Fences, and the times of waiters, which live longer than the model, make no difference.
impl Hash for Data {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.record.hash(hasher);
        let AnyState::Lock(state) = &self.state else { return };
        state.holder().map(|(holder, _, until)| (u128::from(holder), until)).hash(hasher);
        self.queue.hash(hasher);
    }
}
