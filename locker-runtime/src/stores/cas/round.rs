//! One round at a key: the requests that have gathered, carried out on a copy of the known value.

use super::{
    backend::{ABSENT, Epoch, Inbox, Version},
    entry::{Entry, Stored},
    observed::Observed,
};
use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    id::Id,
    in_flight::InFlightCall,
    key::Key,
    primitives::{Context, HoldRequest, Notification, Reply, Request, Signal},
};
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a waiter keeps its place between two requests.
pub(super) const WAITER_TTL: Duration = Duration::from_secs(30);

/// A request that waits for its round.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) request: Request,
    /// The caller. `None` for requests of the store itself.
    pub(super) answer: Option<oneshot::Sender<Result<Reply>>>,
    /// The only version at which the request is carried out; at any other it is dropped.
    pub(super) only_at: Option<Version>,
    /// Counts a request of the store itself as background work until it is done.
    pub(super) _in_flight: Option<InFlightCall>,
}

impl Job {
    /// Returns a request of the store itself.
    pub(super) fn own(request: Request, only_at: Option<Version>) -> Self {
        Self { request, answer: None, only_at, _in_flight: None }
    }

    /// Returns whether the store or a caller that has not given up waits for the answer.
    pub(super) fn is_wanted(&self) -> bool {
        self.answer.as_ref().is_none_or(|answer| !answer.is_closed())
    }

    pub(super) fn answer(self, result: Result<Reply>) {
        if let Some(answer) = self.answer {
            // An error means that the caller has gone.
            let _ = answer.send(result);
        }
    }
}

/// The value of a key as this process knows it.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) version: Version,
    pub(super) stored: Stored,
    pub(super) observed: Observed,
    /// The local time at which the value was there.
    pub(super) seen: Timestamp,
    /// The id of the epoch in which it was there. The same version may belong to another value in another epoch.
    epoch: i64,
}

impl Known {
    /// Returns whether the value, or its absence, was seen.
    pub(super) fn has_value(&self) -> bool {
        self.seen > Timestamp::default()
    }

    /// Forgets the value, but not what was observed about its time.
    pub(super) fn forget_value(&mut self) {
        (self.version, self.stored, self.seen) = (ABSENT, Stored::default(), Timestamp::default());
    }

    /// Forgets the value of another epoch. Returns whether there was one.
    pub(super) fn enter(&mut self, epoch: i64) -> bool {
        let is_of_another = self.has_value() && self.epoch != epoch;
        if is_of_another {
            self.forget_value();
        }
        self.epoch = epoch;
        is_of_another
    }
}

/// The times of one round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// On the clock of this process, before anything is sent.
    pub(super) local: Timestamp,
    /// On the clock of the key: no later than it is.
    pub(super) now: Timestamp,
    pub(super) spread: Duration,
    pub(super) fence_floor: u64,
    pub(super) epoch: Epoch,
}

/// The process that runs the round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) key: &'a Key,
    pub(super) inbox: Inbox,
    /// Inboxes that no process listens to.
    pub(super) gone: &'a [Inbox],
    /// The maximum of bytes of the body of a value.
    pub(super) limit: usize,
}

/// The result of a round, if its value is written.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) replies: Vec<Result<Reply>>,
    pub(super) notifications: Vec<Notification>,
    /// The new entry and its bytes. `None` if it equals the known one.
    pub(super) changed: Option<(Entry, Vec<u8>)>,
    pub(super) moment: Moment,
    /// The attempts that get a grant by a reply, though a message may tell them of it, too.
    pub(super) told_twice: Vec<(Id, u64)>,
}

/// Which requests are refused, because the value would become too large.
#[derive(Clone, Copy, PartialEq)]
enum Refused {
    None,
    /// Those that join a queue.
    NewPlaces,
    /// Those that neither keep nor end what is there.
    Growth,
    All,
}

impl Refused {
    fn includes(self, request: &Request, has_place: bool) -> bool {
        match self {
            Self::None => false,
            Self::NewPlaces => request.waiter().is_some() && !has_place,
            Self::Growth => match request {
                Request::Lock(request) => matches!(request, HoldRequest::Acquire { .. }),
                Request::Semaphore(request) => matches!(request, HoldRequest::Acquire { .. }),
                Request::Inspect | Request::Delete(_) => false,
                _ => true,
            },
            Self::All => true,
        }
    }
}

impl Round {
    pub(super) fn run(known: &Known, jobs: &[Job], moment: Moment, place: Place<'_>) -> Self {
        let mut round = Self::try_run(known, jobs, moment, place, Refused::None);
        for refused in [Refused::NewPlaces, Refused::Growth, Refused::All] {
            let len = round.changed.as_ref().map_or(0, |(_, body)| body.len());
            // What is too large already may become smaller.
            if len <= place.limit || len <= known.stored.body.len() {
                break;
            }
            round = Self::try_run(known, jobs, moment, place, refused);
        }
        round
    }

    fn try_run(known: &Known, jobs: &[Job], moment: Moment, place: Place<'_>, refused: Refused) -> Self {
        let mut entry = known.stored.entry.clone();
        let (mut replies, mut notifications) = (Vec::with_capacity(jobs.len()), Vec::new());
        let (mut has_changed, mut told_twice, mut must_write) = (false, Vec::new(), false);
        for Job { request, .. } in jobs {
            let waiter = request.waiter();
            let seat = waiter.and_then(|id| entry.place(id));
            if refused.includes(request, seat.is_some()) {
                replies.push(Err(too_large(place.limit)));
                continue;
            }
            // A waiter that only shows that it lives changes nothing while its place lasts long enough.
            let before = seat.filter(|until| *until > moment.now + WAITER_TTL / 2).map(|_| entry.clone());
            let (notified, was_used) = (notifications.len(), entry.is_used());
            let quiet = moment.epoch.quiet;
            let earlier = quiet.map(|_| entry.clone());
            let reply = entry.step(request, &mut context(moment, place, quiet, &mut notifications));
            if let Some((earlier, left)) = earlier.zip(quiet)
                && refuses(&earlier, &entry, request, &reply, moment, place)
            {
                entry = earlier;
                notifications.truncate(notified);
                replies.push(Err(Error::nothing_is_granted(left)));
                continue;
            }
            match (before, &reply) {
                (Some(before), Reply::Queued { .. }) if notifications.len() == notified => entry = before,
                _ => has_changed = true,
            }
            // A write shows whether the epoch is still the known one, which a comparison does not.
            must_write |= asks_by_name(request) && matches!(reply, Reply::Granted { .. });
            if let (Some(id), Reply::Granted { fence }, true) = (acquirer(request), &reply, was_used) {
                told_twice.push((id, *fence));
            }
            replies.push(Ok(reply));
        }
        let body = if has_changed { Some(entry.to_bytes()) } else { None };
        let changed = body.filter(|body| must_write || *body != known.stored.body).map(|body| (entry, body));
        Self { replies, notifications, changed, moment, told_twice }
    }

    /// Returns whether a caller or a waiter relies on the value as soon as it is told: then a crash of the server must
    /// not lose it. What may be lost costs others at most a lease.
    pub(super) fn must_be_durable(&self) -> bool {
        let is_relied_on = |reply: &Result<Reply>| {
            !matches!(
                reply,
                Err(_)
                    | Ok(Reply::Queued { .. }
                        | Reply::Busy { .. }
                        | Reply::Released
                        | Reply::NotHeld
                        | Reply::Lost
                        | Reply::Cancelled
                        | Reply::Admitted { .. }
                        | Reply::Limited { .. }
                        | Reply::WrongKind
                        | Reply::Unknown
                        | Reply::Inspected(_))
            )
        };
        let is_handed_off =
            |notification: &Notification| matches!(notification.signal, Signal::HandedOff { .. });
        self.replies.iter().any(is_relied_on) || self.notifications.iter().any(is_handed_off)
    }
}

fn context<'a>(
    moment: Moment,
    place: Place<'a>,
    quiet: Option<Duration>,
    notifications: &'a mut Vec<Notification>,
) -> Context<'a> {
    Context {
        key: place.key,
        now: moment.now,
        floor: moment.fence_floor,
        spread: moment.spread,
        inbox: Some(place.inbox),
        // In a quiet time nothing is handed to them, so their waiters keep their places.
        gone: if quiet.is_some() { &[] } else { place.gone },
        quiet,
        notifications,
    }
}

/// Returns whether a request is refused that a step has carried out in a quiet time: it would have been granted at
/// another time, and its caller does not wait; or it got a hold of its name that may have been released since. A step
/// that grants all the same is undone.
fn refuses(
    earlier: &Entry,
    entry: &Entry,
    request: &Request,
    reply: &Reply,
    moment: Moment,
    place: Place<'_>,
) -> bool {
    let has_granted = entry.last_fence() > earlier.last_fence();
    debug_assert!(!has_granted, "{request:?} is granted in a quiet time");
    has_granted
        || asks_by_name(request) && matches!(reply, Reply::Granted { .. })
        || matches!(reply, Reply::Busy { .. })
            && matches!(
                earlier.clone().step(request, &mut context(moment, place, None, &mut Vec::new())),
                Reply::Granted { .. }
            )
}

fn asks_by_name(request: &Request) -> bool {
    match request {
        Request::Lock(HoldRequest::Acquire { ask, .. }) => ask.is_some(),
        Request::Semaphore(HoldRequest::Acquire { id, ask, .. }) => ask.key != *id,
        _ => false,
    }
}

fn acquirer(request: &Request) -> Option<Id> {
    match request {
        Request::Lock(HoldRequest::Acquire { id, .. })
        | Request::Semaphore(HoldRequest::Acquire { id, .. }) => Some(*id),
        _ => None,
    }
}

fn too_large(limit: usize) -> Error {
    let message =
        format!("the value of the key would be larger than {limit} bytes: too many callers wait at it");
    Error::new(ErrorKind::Unavailable, message)
}
