//! What `lua/strict.lua` and the strict scripts do, around the step in Rust.

use locker_core::{
    clock::Timestamp,
    key::Key,
    primitives::{AnyState, Context, HoldRequest, Notification, Reply, Request, State as _, record},
};
use std::time::Duration;

/// The record of the epoch, as it is kept beside the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct Record {
    /// Changes whenever the server may have lost writes.
    pub(in super::super) epoch: u64,
    /// The time of the first call in this epoch.
    pub(in super::super) began: Timestamp,
    /// The longest lease of all lockers that have called.
    pub(in super::super) longest: Duration,
}

/// A rule that a test leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Bug {
    /// No strict mode.
    NeverQuiet,
    /// Data without a record are taken for those of this epoch.
    MissingRecordIsOpen,
    /// The time of the first epoch counts for all.
    LaterEpochOpensEarly,
    /// The end of a hold makes the next waiter the holder.
    HandsOver,
    /// A hold that the data show is granted to an attempt that asks again, or to its name.
    GrantsAgain,
    /// Every hold that the data show may be renewed.
    RenewsAll,
    /// A longer lease of a later locker is not recorded.
    ForgetsLongest,
}

/// The settings of a locker in strict mode.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Rules {
    pub(in super::super) longest: Duration,
    pub(in super::super) slack: Duration,
    pub(in super::super) bug: Option<Bug>,
}

/// The answer of a server in strict mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Answer {
    Reply(Reply),
    /// Nothing is granted for this time, and nothing has changed.
    Quiet(Duration),
}

impl Rules {
    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Brings the record up to date. Returns how long nothing may be granted.
    fn look(&self, record: &mut Option<Record>, epoch: u64, now: Timestamp) -> Option<Duration> {
        let before = *record;
        let known = before.unwrap_or(Record { epoch, began: Timestamp::default(), longest: self.longest });
        let longest = known.longest.max(self.longest);
        let is_new = known.epoch != epoch || before.is_none() && !self.has(Bug::MissingRecordIsOpen);
        let began = match before {
            Some(known) if self.has(Bug::LaterEpochOpensEarly) => known.began,
            _ if is_new => now,
            _ => known.began,
        };
        let longest = if self.has(Bug::ForgetsLongest) { self.longest } else { longest };
        *record = Some(Record { epoch, began, longest });
        let left = (began + longest + self.slack).since(now);
        (!left.is_zero() && !self.has(Bug::NeverQuiet)).then_some(left)
    }

    /// Carries out a request for a lock or a semaphore, at a server in this epoch.
    pub(in super::super) fn call(
        &self,
        record: &mut Option<Record>,
        epoch: u64,
        state: &mut AnyState,
        request: &Request,
        (key, now): (&Key, Timestamp),
    ) -> (Answer, Vec<Notification>) {
        let mut notifications = Vec::new();
        let mut context = Context::new(key, now, &mut notifications);
        let Some(left) = self.look(record, epoch, now) else {
            let reply = state.step(request, &mut context);
            return (Answer::Reply(reply), notifications);
        };
        let began = record.map_or(now, |record| record.began);
        let shown = shown_end(state, request, now);
        match request_of(request) {
            Kind::Acquire if shown.is_some() && !self.has(Bug::GrantsAgain) => {
                return (Answer::Quiet(left), notifications);
            }
            // A former master may have given the hold to another since, if it would have ended there by itself before
            // that master stopped.
            Kind::Renew
                if shown.is_some_and(|end| end <= began + self.slack) && !self.has(Bug::RenewsAll) =>
            {
                return (Answer::Reply(Reply::Lost), notifications);
            }
            Kind::Other if self.has(Bug::HandsOver) => {}
            _ => context.quiet = Some(left),
        }
        let reply = state.step(request, &mut context);
        let is_quiet = matches!(reply, Reply::Busy { .. }) && is_free(state, request);
        (if is_quiet { Answer::Quiet(left) } else { Answer::Reply(reply) }, notifications)
    }
}

enum Kind {
    Acquire,
    Renew,
    Other,
}

fn request_of(request: &Request) -> Kind {
    match request {
        Request::Lock(HoldRequest::Acquire { .. })
        | Request::Semaphore(HoldRequest::Acquire { .. })
        | Request::Record(record::Request::Hold(HoldRequest::Acquire { .. })) => Kind::Acquire,
        // A run that may be over has no success either.
        Request::Lock(HoldRequest::Renew { .. })
        | Request::Semaphore(HoldRequest::Renew { .. })
        | Request::Record(
            record::Request::Hold(HoldRequest::Renew { .. }) | record::Request::Finish { .. },
        ) => Kind::Renew,
        _ => Kind::Other,
    }
}

/// Returns the end of the hold that the request is for, if the data show one.
fn shown_end(state: &AnyState, request: &Request, now: Timestamp) -> Option<Timestamp> {
    let name = match request {
        Request::Lock(HoldRequest::Acquire { id, ask, .. }) => ask.unwrap_or(*id),
        Request::Semaphore(HoldRequest::Acquire { ask, .. }) => ask.key,
        Request::Lock(HoldRequest::Renew { id, .. })
        | Request::Semaphore(HoldRequest::Renew { id, .. })
        | Request::Record(
            record::Request::Hold(HoldRequest::Acquire { id, .. } | HoldRequest::Renew { id, .. })
            | record::Request::Finish { id, .. },
        ) => *id,
        _ => return None,
    };
    let ends = match state {
        AnyState::Lock(state) => state.holder().into_iter().map(|(holder, _, end)| (holder, end)).collect(),
        AnyState::Semaphore(state) => {
            state.holders().into_iter().map(|(holder, _, _, end)| (holder, end)).collect::<Vec<_>>()
        }
        AnyState::Record(state) => state.run().into_iter().map(|run| (run, state.held_until())).collect(),
        _ => return None,
    };
    ends.into_iter().find_map(|(holder, end)| (holder == name && end > now).then_some(end))
}

/// Whether a caller that does not wait got nothing though only the time is in its way.
fn is_free(state: &AnyState, request: &Request) -> bool {
    match (state, request) {
        (AnyState::Lock(state), _) => state.holder().is_none(),
        (AnyState::Record(state), _) => state.run().is_none(),
        (AnyState::Semaphore(state), Request::Semaphore(HoldRequest::Acquire { ask, .. })) => {
            let taken: u64 = state.holders().into_iter().map(|(_, _, permits, _)| permits).sum();
            state.inspect(Timestamp::default()).size.is_some_and(|size| taken + ask.permits <= size)
        }
        _ => false,
    }
}
