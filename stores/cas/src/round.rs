//! One round at a key: the requests that have gathered, carried out on a copy of the known value.

use super::{
    backend::{ABSENT, Epoch, Inbox, Version},
    entry::{Entry, Stored},
    time::Basis,
};
use locker_core::{
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    key::Key,
    primitives::{Context, HoldRequest, Notification, Reply, Request, Signal, record},
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
}

impl Job {
    /// Returns a request of the store itself.
    pub(super) fn own(request: Request, only_at: Option<Version>) -> Self {
        Self { request, answer: None, only_at }
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
#[derive(Debug, Default)]
pub(super) struct KnownValue {
    pub(super) version: Version,
    pub(super) stored: Stored,
    /// The local time at which the value was there.
    pub(super) seen: Timestamp,
    /// The id of the epoch in which it was there. The same version may belong to another value in another epoch.
    epoch: i64,
}

impl KnownValue {
    /// Returns whether the value, or its absence, was seen.
    pub(super) fn has_value(&self) -> bool {
        self.seen > Timestamp::default()
    }

    /// Records a value that was there at `seen`.
    pub(super) fn learn(&mut self, version: Version, stored: Stored, seen: Timestamp) {
        (self.version, self.stored, self.seen) = (version, stored, seen);
    }

    pub(super) fn forget_value(&mut self) {
        self.learn(ABSENT, Stored::default(), Timestamp::default());
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

    /// Returns whether the key counts the gaps of the store's clock, as what has no holder does.
    pub(super) fn counts_gaps(&self, jobs: &[Job]) -> bool {
        let of_requests = || jobs.iter().find_map(|job| job.request.counts_gaps());
        self.stored.entry.counts_gaps().or_else(of_requests).unwrap_or(false)
    }
}

/// The times of one round.
#[derive(Clone, Debug)]
pub(super) struct RoundTime {
    /// On the clock of this process, before anything is sent.
    pub(super) local: Timestamp,
    /// On the clock of the key: no later than it is.
    pub(super) now: Timestamp,
    /// The time of day, as this process knows it.
    pub(super) wall: Timestamp,
    pub(super) spread: Duration,
    pub(super) basis: Basis,
    pub(super) fence_floor: u64,
    pub(super) epoch: Epoch,
}

/// What a round needs to know beside requests, value and time.
#[derive(Clone, Debug)]
pub(super) struct Environment {
    pub(super) key: Key,
    pub(super) inbox: Inbox,
    /// Inboxes that no process listens to.
    pub(super) gone: Vec<Inbox>,
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
    pub(super) time: RoundTime,
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
                Request::Record(request) => {
                    matches!(request, record::Request::Hold(HoldRequest::Acquire { .. }))
                }
                Request::Inspect | Request::Delete(_) => false,
                _ => true,
            },
            Self::All => true,
        }
    }
}

impl Round {
    pub(super) fn run(known: &KnownValue, jobs: &[Job], time: RoundTime, environment: &Environment) -> Self {
        let mut round = Self::try_run(known, jobs, time, environment, Refused::None);
        for refused in [Refused::NewPlaces, Refused::Growth, Refused::All] {
            let len = round.changed.as_ref().map_or(0, |(_, body)| body.len());
            // What is too large already may become smaller.
            if len <= environment.limit || len <= known.stored.body.len() {
                break;
            }
            round = Self::try_run(known, jobs, round.time, environment, refused);
        }
        round
    }

    fn try_run(
        known: &KnownValue,
        jobs: &[Job],
        time: RoundTime,
        environment: &Environment,
        refused: Refused,
    ) -> Self {
        let mut entry = known.stored.entry.clone();
        let (mut replies, mut notifications) = (Vec::with_capacity(jobs.len()), Vec::new());
        let (mut has_changed, mut must_write) = (false, false);
        for Job { request, .. } in jobs {
            let seat = request.waiter().and_then(|id| entry.place(id));
            if refused.includes(request, seat.is_some()) {
                replies.push(Err(too_large(environment.limit)));
                continue;
            }
            if let Some(left) = time.epoch.quiet.filter(|_| entry.regrants(request, time.now)) {
                replies.push(Err(Error::nothing_is_granted(left)));
                continue;
            }
            let (notified, fence) = (notifications.len(), entry.last_fence());
            let reply = entry.step(request, &mut context(&time, environment, &mut notifications));
            debug_assert!(
                time.epoch.quiet.is_none() || entry.last_fence() == fence,
                "granted in a quiet time"
            );
            // A waiter that only shows that it lives changes nothing while its place lasts long enough.
            let is_seated = seat.is_some_and(|until| until > time.now + WAITER_TTL / 2);
            let changes_nothing = match reply {
                Reply::Queued { .. } => is_seated && notifications.len() == notified,
                Reply::Inspected(_) => notifications.len() == notified,
                _ => false,
            };
            has_changed |= !changes_nothing;
            // A write shows whether the epoch is still the known one, which a comparison does not.
            must_write |= matches!(reply, Reply::Granted { .. }) && request.hold_name().is_some();
            // The store may soon remove a value that was made long ago by a clock that has not stood still since.
            must_write |= time.basis != Basis::Served && is_promise(&reply);
            replies.push(match time.epoch.quiet {
                Some(left) if entry.would_grant(request, &reply) => Err(Error::nothing_is_granted(left)),
                _ => Ok(reply),
            });
        }
        let body = if has_changed { Some(entry.to_bytes()) } else { None };
        let changed = body.filter(|body| must_write || *body != known.stored.body).map(|body| (entry, body));
        Self { replies, notifications, changed, time }
    }

    /// Returns whether the round tells waiters no more than that they wait.
    pub(super) fn only_queues(&self) -> bool {
        let is_queued = |reply: &Result<Reply>| matches!(reply, Ok(Reply::Queued { .. }));
        self.changed.is_none() && self.notifications.is_empty() && self.replies.iter().all(is_queued)
    }

    /// Returns whether the requests only came to wait, or left a queue.
    pub(super) fn only_waits(&self, jobs: &[Job]) -> bool {
        let grants = |notification: &Notification| {
            matches!(notification.signal, Signal::Granted { .. } | Signal::HandedOff { .. })
        };
        let waits = |(job, reply): (&Job, &Result<Reply>)| match job.request {
            Request::Lock(HoldRequest::Acquire { .. }) | Request::Semaphore(HoldRequest::Acquire { .. }) => {
                matches!(reply, Err(_) | Ok(Reply::Queued { .. } | Reply::Busy { .. }))
            }
            Request::Lock(HoldRequest::Cancel { tombstone, .. })
            | Request::Semaphore(HoldRequest::Cancel { tombstone, .. }) => !tombstone,
            _ => false,
        };
        !self.notifications.iter().any(grants) && jobs.iter().zip(&self.replies).all(waits)
    }

    /// Returns whether callers rely on an end that the round has found, and not only on the value.
    pub(super) fn promises(&self) -> bool {
        self.replies.iter().flatten().any(is_promise)
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
                        | Reply::Mismatch
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

/// Returns whether a caller relies on an end.
fn is_promise(reply: &Reply) -> bool {
    matches!(reply, Reply::Granted { .. } | Reply::Renewed { .. } | Reply::Begun { .. } | Reply::Recorded)
}

fn context<'a>(
    time: &RoundTime,
    environment: &'a Environment,
    notifications: &'a mut Vec<Notification>,
) -> Context<'a> {
    let mut context = Context::new(&environment.key, time.now, notifications);
    (context.floor, context.spread, context.inbox) = (time.fence_floor, time.spread, Some(environment.inbox));
    context.wall = time.wall;
    context.quiet = time.epoch.quiet;
    // In a quiet time nothing is handed to them, so their waiters keep their places.
    context.gone = if context.quiet.is_some() { &[] } else { &environment.gone };
    context
}

fn too_large(limit: usize) -> Error {
    let message =
        format!("the value of the key would be larger than {limit} bytes: too many callers wait at it");
    Error::new(ErrorKind::Unavailable, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use locker_core::{
        id::Id,
        primitives::{HoldKind, Wait, counter},
    };

    /// Growth of a value that is too large is refused step by step: first those that come to wait.
    #[test]
    fn what_ends_is_refused_last() {
        let (id, lease) = (Id::random(), Duration::from_secs(1));
        let wait = Some(Wait { live: None, fair: true });
        let waits = HoldKind::Lock.acquire(id, lease, wait);
        let tries = HoldKind::Lock.acquire(id, lease, None);
        let (renews, cancels) = (HoldKind::Lock.renew(id, lease), HoldKind::Lock.cancel(id, false));
        let permits = HoldKind::Semaphore { size: 1, permits: 1 };
        let counts = Request::Counter(counter::Request::Add { id, by: 1 });
        let by_step = |request: &Request, has_place| {
            [Refused::None, Refused::NewPlaces, Refused::Growth, Refused::All]
                .map(|refused| refused.includes(request, has_place))
        };
        assert_eq!(by_step(&waits, false), [false, true, true, true]);
        assert_eq!(by_step(&waits, true), [false, false, true, true]);
        assert_eq!(by_step(&permits.acquire(id, lease, wait), false), [false, true, true, true]);
        for tries in [tries, permits.acquire(id, lease, None), counts] {
            assert_eq!(by_step(&tries, false), [false, false, true, true], "{tries:?}");
        }
        for keeps in [renews, cancels, permits.renew(id, lease), Request::Inspect] {
            assert_eq!(by_step(&keeps, false), [false, false, false, true], "{keeps:?}");
        }
    }
}
