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
    /// The time of day, if it is not `now`.
    pub(crate) wall: Option<Timestamp>,
    pub(crate) spread: Duration,
    pub(crate) floor: u64,
    pub(crate) inbox: Option<u32>,
    pub(crate) gone: Vec<u32>,
    pub(crate) quiet: Option<Duration>,
    pub(crate) notifications: Vec<Notification>,
    key: Key,
}

pub(crate) const HERE: Option<Wait> = Some(Wait { live: None, fair: true });
pub(crate) const AWAY: Option<Wait> = Some(Wait { live: Some(Duration::from_secs(30)), fair: true });

impl<S: State> Bench<S> {
    pub(crate) fn new() -> Self {
        let now = Timestamp::from_micros(1_000_000_000);
        Self {
            state: S::default(),
            now,
            wall: None,
            spread: Duration::ZERO,
            floor: 0,
            inbox: None,
            gone: Vec::new(),
            quiet: None,
            notifications: Vec::new(),
            key: Key::new("k"),
        }
    }

    /// Lets `step` change the state.
    pub(crate) fn with<R>(&mut self, step: impl FnOnce(&mut S, &mut Context<'_>) -> R) -> R {
        let Self { state, now, wall, spread, floor, inbox, gone, quiet, notifications, key } = self;
        let mut context = Context::new(key, *now, notifications);
        context.floor = context.floor.max(*floor);
        (context.spread, context.inbox, context.gone) = (*spread, *inbox, gone);
        context.quiet = *quiet;
        context.wall = wall.unwrap_or(*now);
        step(state, &mut context)
    }

    pub(crate) fn ask(&mut self, request: &S::Request) -> Reply {
        self.with(|state, context| state.step(request, context))
    }

    pub(crate) fn pass(&mut self, millis: u64) {
        self.advance(Duration::from_millis(millis));
    }

    pub(crate) fn advance(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    pub(crate) fn tick(&mut self) {
        self.with(State::tick);
    }

    /// Returns the ids that were notified since the last call.
    pub(crate) fn notified(&mut self) -> Vec<Id> {
        self.notifications.drain(..).map(|notification| notification.id).collect()
    }
}

/// Returns the name that models have for this reply.
pub(crate) fn name(reply: &Reply) -> &'static str {
    match reply {
        Reply::Granted { .. } => "granted",
        Reply::Queued { .. } => "queued",
        Reply::Busy { .. } => "busy",
        Reply::Released => "released",
        Reply::NotHeld => "not held",
        Reply::Renewed { .. } => "renewed",
        Reply::Lost => "lost",
        Reply::Cancelled => "cancelled",
        _ => "other",
    }
}
