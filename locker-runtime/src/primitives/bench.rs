//! For tests: one state with a clock that the test moves.

use super::{Context, Notification, Reply, State, Wait};
use crate::{clock::Timestamp, id::Id, key::Key};
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
        self.now = self.now + Duration::from_millis(millis);
    }

    pub(crate) fn tick(&mut self) {
        let Self { state, key, now, notifications } = self;
        state.tick(&mut Context { key, now: *now, notifications });
    }

    /// Who was pushed something since the last look.
    pub(crate) fn pushed(&mut self) -> Vec<Id> {
        self.notifications.drain(..).map(|push| push.id).collect()
    }
}
