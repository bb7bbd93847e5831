//! One state with a clock that the test moves.

use crate::{
    clock::Timestamp,
    id::Id,
    key::Key,
    primitives::{
        protocol::{Notification, Reply, Wait},
        state::{Context, State},
    },
};
use std::time::Duration;

pub(crate) struct Bench<S> {
    pub(crate) state: S,
    pub(crate) now: Timestamp,
    pub(crate) notifications: Vec<Notification>,
    key: Key,
}

pub(crate) const HERE: Option<Wait> = Some(Wait { live: None, fair: true });
pub(crate) const AWAY: Option<Wait> = Some(Wait { live: Some(Duration::from_secs(30)), fair: true });

impl<S: State> Bench<S> {
    pub(crate) fn new() -> Self {
        let now = Timestamp::from_micros(1_000_000_000);
        Self { state: S::default(), now, notifications: Vec::new(), key: Key::new("k") }
    }

    pub(crate) fn ask(&mut self, request: &S::Request) -> Reply {
        let Self { state, key, now, notifications } = self;
        state.step(request, &mut Context { key, now: *now, notifications })
    }

    pub(crate) fn pass(&mut self, millis: u64) {
        self.advance(Duration::from_millis(millis));
    }

    pub(crate) fn advance(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    pub(crate) fn tick(&mut self) {
        let Self { state, key, now, notifications } = self;
        state.tick(&mut Context { key, now: *now, notifications });
    }

    /// Returns the ids that were notified since the last call.
    pub(crate) fn notified(&mut self) -> Vec<Id> {
        self.notifications.drain(..).map(|notification| notification.id).collect()
    }
}
