//! The exchanges with the backend: one at a time for each key.
//!
//! Requests that come while a write is under way gather, and are carried out together in the next one. A write that
//! another process was faster than is repeated on the value of that process.
//!
//! When the answer to a write is lost, the key is read again. The value has a nonce: if it is that of the write, the
//! write was carried out. If the value has its former version, the write is sent again, after which the first copy
//! can have no effect. If another version is there, the outcome is unknown, and the callers repeat their requests.

use super::{
    CasStore,
    backend::{ABSENT, Backend, Holder, Inbox, Outcome, Time, Version, Write},
    entry::{HEAD_LEN, Stored},
    messages::{self, Holds},
    round::{Job, Known, Moment, Place, Round},
};
use crate::{
    background,
    backoff::Backoff,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    id::Id,
    key::Key,
    panics,
    primitives::{Notification, Request, Signal},
    sync::lock,
};
use futures_util::FutureExt;
use std::{panic::AssertUnwindSafe, time::Duration};

/// How long it is relied on that a key has no value. Values are kept for longer after their last use, so a key whose
/// value was made and removed in between is noticed.
const ABSENT_FOR: Duration = Duration::from_secs(30);

/// How far ahead the stamp of a value may be. Beyond that the store's clock was set back.
const STAMP_AHEAD: Duration = Duration::from_secs(1);

/// The most that may be unknown about the store's clock. Holds last longer by what is unknown.
const MAX_SPREAD: Duration = Duration::from_secs(60);

/// After how many lost conflicts a process pauses. After a pause the first of them only brings the present value, and
/// the others compete: a process that paused after each would always write on a value that others have replaced.
const CONFLICTS_PER_PAUSE: u32 = 4;

/// The first and the longest pause of a process that loses its conflicts. Others write without pauses meanwhile, so
/// longer ones would starve it.
const PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(32)];

/// After how many times the limit of one call a request fails that has lost every conflict.
const GIVE_UP_AFTER: u32 = 10;

impl<B: Backend> CasStore<B> {
    /// Adds a request to those at `key`, and has them carried out.
    pub(super) fn enqueue(&self, key: &Key, job: Job) {
        let starts = lock(&self.queues).add(key, job);
        if let Some(store) = starts.then(|| self.this.upgrade()).flatten() {
            let key = key.clone();
            background::spawn(async move { store.serve(&key).await });
        }
    }

    async fn serve(&self, key: &Key) {
        loop {
            let taken = lock(&self.queues).take(key);
            let Some((jobs, known)) = taken else { return };
            // The callers of a round that panics get an error, since nobody answers them.
            let round = AssertUnwindSafe(self.carry_out(key, jobs, known)).catch_unwind().await;
            let (known, first) = round.unwrap_or_default();
            lock(&self.queues).put_back(key, known, first);
        }
    }

    /// Carries out requests. Returns the value that this process knows then, and requests to carry out first.
    async fn carry_out(
        &self,
        key: &Key,
        mut jobs: Vec<Job>,
        known: Option<Known>,
    ) -> (Option<Known>, Vec<Job>) {
        let mut known = known.unwrap_or_default();
        if known.version == ABSENT && known.seen + ABSENT_FOR < Timestamp::now() {
            known.forget_value();
        }
        let (mut is_fresh, mut backoff) = (false, Backoff::between(PAUSES[0], PAUSES[1]));
        let (started, mut conflicts) = (Timestamp::now(), 0_u32);
        loop {
            if !known.has_value() && self.must_look() {
                match self.look(key, &mut known).await {
                    Ok(()) => is_fresh = true,
                    Err(error) => return failed(jobs, known, &error),
                }
            }
            jobs.retain(|job| job.only_at.is_none_or(|version| version == known.version));
            if jobs.is_empty() {
                return (Some(known), Vec::new());
            }
            let moment = match self.moment(&known, &jobs) {
                Ok(moment) => moment,
                Err(error) => return failed(jobs, known, &error),
            };
            if known.enter(moment.epoch.id) {
                is_fresh = false;
                continue;
            }
            let gone = lock(&self.gone).list();
            let limit = self.backend.max_value_len().saturating_sub(HEAD_LEN);
            let place = Place { key, inbox: self.backend.inbox(), gone: &gone, limit };
            let mut round = Round::run(&known, &jobs, moment, place);
            if round.changed.is_none() && is_fresh {
                self.finish(key, jobs, round, known.stored.entry.holds());
                return (Some(known), Vec::new());
            }
            let (write, stored) = self.write(key, &known, &mut round);
            let holds = stored.as_ref().unwrap_or(&known.stored).entry.holds();
            let outcome = match &stored {
                Some(stored) => self.carry_out_write(&write, stored.nonce).await,
                // Nothing is written.
                None => self.compare(write).await,
            };
            match outcome {
                Ok(Outcome::Matched { version, gone }) => {
                    let was_absent = known.version == ABSENT;
                    match stored {
                        Some(stored) => self.learn(&mut known, version, stored, moment.local),
                        None => known.seen = moment.local,
                    }
                    if was_absent && moment.local + ABSENT_FOR < Timestamp::now() {
                        // In between, the key may have had a value that was removed, with higher fences.
                        let first = holds.evict_all().map(|request| Job::own(request, Some(version)));
                        fail(jobs, &Error::new(ErrorKind::Unavailable, "the process was stopped").unknown());
                        return (Some(known), first.into_iter().collect());
                    }
                    let first = self.take_back_from(&gone, &round.notifications, version, holds);
                    self.finish(key, jobs, round, holds);
                    return (Some(known), first);
                }
                Ok(Outcome::Differs { version, value }) => {
                    let now = Timestamp::now();
                    let is_locked = is_fresh && version == known.version;
                    match Self::read(version, value.as_deref()) {
                        Ok(stored) => self.learn(&mut known, version, stored, now),
                        Err(error) => return failed(jobs, known, &error),
                    }
                    (is_fresh, conflicts) = (true, conflicts + 1);
                    // Nobody waits for the callers that have given up.
                    jobs.retain(Job::is_wanted);
                    if now > started + self.command_timeout * GIVE_UP_AFTER {
                        return failed(jobs, known, &busy());
                    }
                    if is_locked || conflicts.is_multiple_of(CONFLICTS_PER_PAUSE) {
                        background::sleep(backoff.next_delay()).await;
                    }
                }
                Err(error) => return failed(jobs, known, &error),
            }
        }
    }

    /// Returns whether a key that was never seen must be read before a step runs.
    fn must_look(&self) -> bool {
        match self.backend.time() {
            // The answer brings the time.
            Time::Served { spread, .. } => spread > MAX_SPREAD,
            // The next fence is above those of the key's earlier values only if the key was seen without a value.
            Time::Observed => true,
        }
    }

    /// Records a value that was there at `seen`.
    fn learn(&self, known: &mut Known, version: Version, stored: Stored, seen: Timestamp) {
        if self.backend.time() == Time::Observed {
            known.observed.see(&stored.entry, stored.stamp, seen);
        }
        (known.version, known.stored, known.seen) = (version, stored, seen);
    }

    /// Reads the value of a key.
    async fn look(&self, key: &Key, known: &mut Known) -> Result<()> {
        let outcome = self.compare(Write::look(key.clone())).await?;
        let (version, value) = match outcome {
            Outcome::Differs { version, value } => (version, value),
            Outcome::Matched { version, .. } => (version, None),
        };
        self.learn(known, version, Self::read(version, value.as_deref())?, Timestamp::now());
        Ok(())
    }

    fn read(version: Version, value: Option<&[u8]>) -> Result<Stored> {
        match value.filter(|_| version != ABSENT) {
            Some(bytes) => Stored::from_bytes(bytes),
            None => Ok(Stored::default()),
        }
    }

    fn moment(&self, known: &Known, jobs: &[Job]) -> Result<Moment> {
        // The epoch first: if another one begins meanwhile, the write fails.
        let epoch = self.backend.epoch();
        let local = Timestamp::now();
        let floor = self.backend.fence_floor();
        let stamp = known.stored.stamp;
        match self.backend.time() {
            Time::Served { now, spread } => {
                if spread > MAX_SPREAD {
                    let message = "the clock of the store is not known: it has not answered for long";
                    return Err(Error::new(ErrorKind::Unavailable, message));
                }
                let now = if stamp > now + spread + STAMP_AHEAD { now } else { now.max(stamp) };
                Ok(Moment { local, now, spread, fence_floor: floor.max(now.as_micros()), epoch })
            }
            Time::Observed => {
                // Observed time is late, and a limiter that dates what it takes too early admits too much.
                // While something is promised at the key, only its own time counts.
                let is_limited = known.stored.entry.is_limiter()
                    || !known.observed.has_promises()
                        && jobs.iter().any(|job| matches!(job.request, Request::RateLimiter(_)));
                let is_new = known.version == ABSENT;
                let now = if is_limited || is_new { local } else { known.observed.now(local) };
                Ok(Moment { local, now: now.max(stamp), spread: Duration::ZERO, fence_floor: floor, epoch })
            }
        }
    }

    /// Returns the write of a round, and the value that is there afterwards if it changes.
    fn write(&self, key: &Key, known: &Known, round: &mut Round) -> (Write, Option<Stored>) {
        let durable = round.must_be_durable();
        let now = round.moment.now;
        let stored = round.changed.take().map(|(entry, body)| {
            let nonce = Id::random().low_half();
            Stored { entry, body, stamp: now, nonce }
        });
        let present = stored.as_ref().unwrap_or(&known.stored);
        let inbox = self.backend.inbox();
        let others = round.notifications.iter().filter(|notification| notification.id.inbox() != inbox);
        let write = Write {
            key: key.clone(),
            expected: known.version,
            value: stored.as_ref().map(Stored::to_bytes),
            durable,
            messages: messages::write(key, present.entry.holds(), others),
            lasts: present.entry.lasts(now),
            holder: present.entry.exclusive_holder().map(|(fence, until)| Holder { fence, until }),
            holds: present.entry.holds_for(now),
            epoch: Some(round.moment.epoch.id),
        };
        (write, stored)
    }

    /// Makes a write with this nonce, and finds out what came of it if its answer is lost.
    async fn carry_out_write(&self, write: &Write, nonce: u64) -> Result<Outcome> {
        let until = Timestamp::now() + 2 * self.command_timeout;
        let look = Write::look(write.key.clone());
        let (mut backoff, mut next) = (Backoff::default(), write);
        let mut lost: Option<Error> = None;
        loop {
            match self.exchange(next.clone()).await {
                Ok(Outcome::Matched { version, gone }) => return Ok(Outcome::Matched { version, gone }),
                Ok(Outcome::Differs { version, value }) => {
                    if Stored::nonce_of(value.as_deref()) == Some(nonce) {
                        // An earlier copy was carried out. A message that is sent twice does no harm.
                        let gone = self.backend.send(write.messages.clone()).await.unwrap_or_default();
                        return Ok(Outcome::Matched { version, gone });
                    }
                    match &lost {
                        None => return Ok(Outcome::Differs { version, value }),
                        Some(lost) if version != write.expected => return Err(lost.clone()),
                        // The write can have no effect in this epoch, and its value was made for another.
                        Some(_) if write.epoch.is_some_and(|id| id != self.backend.epoch().id) => {
                            return Ok(Outcome::Differs { version, value });
                        }
                        Some(_) => next = write,
                    }
                }
                Err(error) if lost.is_none() && error.is_certain() => return Err(error),
                Err(error) => {
                    lost.get_or_insert(error);
                    next = &look;
                }
            }
            if let Some(lost) = lost.as_ref().filter(|_| Timestamp::now() >= until) {
                return Err(lost.clone());
            }
            background::sleep(backoff.next_delay()).await;
        }
    }

    /// Makes a comparison, and repeats it once if there is no answer: a server that has just been started is slow.
    async fn compare(&self, write: Write) -> Result<Outcome> {
        let outcome = match self.exchange(write.clone()).await {
            Err(error) if !error.is_certain() => self.exchange(write).await,
            outcome => outcome,
        };
        outcome.map_err(Error::certain)
    }

    /// Makes one call to the backend.
    pub(super) async fn exchange(&self, write: Write) -> Result<Outcome> {
        let sent = Timestamp::now();
        let result = tokio::select! {
            biased;
            outcome = self.backend.exchange(write) => outcome,
            () = background::sleep_from(sent, sent + self.command_timeout) => Err(self.no_answer()),
        };
        self.health.record(sent, &result);
        result
    }

    pub(super) fn no_answer(&self) -> Error {
        let message = format!("{:?} did not answer within {:?}", self.backend, self.command_timeout);
        Error::new(ErrorKind::Unavailable, message).unknown()
    }

    /// Delivers the notifications to the waiters of this process, and answers the callers.
    fn finish(&self, key: &Key, jobs: Vec<Job>, round: Round, holds: Holds) {
        let (inbox, Moment { local, now, .. }) = (self.backend.inbox(), round.moment);
        for mut notification in round.notifications {
            if notification.id.inbox() == inbox {
                if let Signal::HandedOff { until, .. } = &mut notification.signal {
                    *until = local + until.since(now);
                }
                self.deliver(notification, holds);
            }
        }
        if !round.told_twice.is_empty() {
            let mut recent = lock(&self.recent_grants);
            round.told_twice.iter().for_each(|(id, fence)| recent.record(*id, *fence));
        }
        for (job, reply) in jobs.into_iter().zip(round.replies) {
            job.answer(reply.map_err(|error| error.with_key(key.as_str())));
        }
    }

    /// Delivers a notification to a waiter of this process. A grant that no waiter wants is taken back: others would
    /// wait for its end.
    pub(super) fn deliver(&self, notification: Notification, holds: Holds) {
        let (Signal::Granted { fence } | Signal::HandedOff { fence, .. }) = notification.signal else {
            // A waiter without a mailbox has left the queue, or is about to.
            drop(self.mailboxes.deliver(notification));
            return;
        };
        let id = notification.id;
        let mut recent = lock(&self.recent_grants);
        match self.mailboxes.put(notification) {
            Ok(waker) => {
                recent.record(id, fence);
                drop(recent);
                waker.into_iter().for_each(panics::wake);
            }
            Err(_) if recent.has(id, fence) => {}
            Err(notification) => {
                drop(recent);
                if let Some(request) = holds.take_back(id, fence) {
                    let call = Some(self.mailboxes.in_flight().begin());
                    self.enqueue(
                        &notification.key,
                        Job { request, answer: None, only_at: None, _in_flight: call },
                    );
                }
            }
        }
    }

    /// Returns requests that take back what was granted to waiters of processes that are gone. They are carried out at
    /// this very version only: nobody has confirmed a grant before the next one.
    fn take_back_from(
        &self,
        gone: &[Inbox],
        notifications: &[Notification],
        version: Version,
        holds: Holds,
    ) -> Vec<Job> {
        if gone.is_empty() {
            return Vec::new();
        }
        lock(&self.gone).add(gone);
        let to_gone = notifications.iter().filter(|notification| gone.contains(&notification.id.inbox()));
        let request = |notification: &Notification| match notification.signal {
            Signal::Granted { fence } => holds.take_back(notification.id, fence),
            Signal::Wake => holds.cancel(notification.id),
            _ => None,
        };
        to_gone.filter_map(request).map(|request| Job::own(request, Some(version))).collect()
    }
}

fn busy() -> Error {
    let message = "other processes write the value of the key all the time, or a transaction holds it";
    Error::new(ErrorKind::Unavailable, message)
}

/// Fails all requests. What was observed at the key stays known.
fn failed(jobs: Vec<Job>, mut known: Known, error: &Error) -> (Option<Known>, Vec<Job>) {
    fail(jobs, error);
    known.forget_value();
    (Some(known), Vec::new())
}

fn fail(jobs: Vec<Job>, error: &Error) {
    for job in jobs {
        job.answer(Err(error.clone()));
    }
}
