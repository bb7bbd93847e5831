//! The exchanges with the backend: one at a time for each key.
//!
//! Requests that come while a write is under way gather, and are carried out together in the next one. A write that
//! another process was faster than is repeated on the value of that process.
//!
//! When the answer to a write is lost, the key is read again. The value has a nonce: if it is that of the write, the
//! write was carried out. If the value has its former version, the write is sent again, after which the first copy
//! can have no effect. If another version is there, the outcome is unknown, and the callers repeat their requests.

use super::CasStore;
use crate::{
    backend::{ABSENT, Backend, Holder, Inbox, Outcome, Version, Write},
    entry::{HEAD_LEN, Stored},
    messages::{self, Holds},
    round::{Environment, Job, KnownValue, Round, RoundTime},
    time::{Basis, Found},
};
use foldhash::fast::FixedState;
use futures_util::FutureExt;
use locker_core::{
    background,
    backoff::Backoff,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    id::Id,
    key::Key,
    primitives::{HoldRequest, Notification, Reply, Request, Signal, record},
    sync::lock,
};
use std::{hash::BuildHasher, mem::take, panic::AssertUnwindSafe, time::Duration};

/// How long a process assumes that a key has no value, after it has found none. A backend keeps a value for longer than
/// this after its last use, so no value is made and removed unnoticed meanwhile.
const ABSENT_FOR: Duration = Duration::from_secs(30);

/// The most that may be unknown about the store's clock. Holds last longer by what is unknown.
pub(super) const MAX_SPREAD: Duration = Duration::from_secs(60);

/// After how many lost conflicts a process pauses. After a pause the first of them only brings the present value, and
/// the others compete: a process that paused after each would always write on a value that others have replaced.
const CONFLICTS_PER_PAUSE: u32 = 4;

/// The first and the longest pause of a process that loses its conflicts. Others write without pauses meanwhile, so
/// longer ones would starve it.
const PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(32)];

/// After how many times the limit of one call a request fails that has lost every conflict.
const GIVE_UP_AFTER: u32 = 10;

/// For how long a value counts that this process has seen, for waiters that ask again: those of a crowd ask the backend
/// together.
const FRESH_FOR: Duration = Duration::from_millis(500);

/// When a waiter for a hold asks again at the latest, and how much later each waiter behind it. Messages may be lost,
/// and the process that was granted the hold before it may be silent. Up to [`TOGETHER`] is added.
const ASKS_AGAIN: [Duration; 2] = [Duration::from_millis(1_250), Duration::from_micros(500)];

/// The waiters of a process at one key ask again together, once in this time: their requests become one round, and
/// those that renew their places one write.
const TOGETHER: Duration = Duration::from_millis(500);

/// How many groups of keys ask again at different times: small enough for full batches, and large enough for no burst.
const PARTS: u64 = 10;

/// How soon a waiter asks again at the soonest: the time of the store may stand still until its clock ticks.
const SOONEST: Duration = Duration::from_millis(10);

/// From which size on values and rounds are worked on by a thread of their own.
const LARGE_VALUE: usize = 16 * 1024;
const LARGE_ROUND: usize = 256;

/// What ends the exchanges for some requests: the value that this process knows then, and requests to carry out first.
type Done = (Option<KnownValue>, Vec<Job>);

/// The requests at one key that are carried out together, until a write or a comparison succeeds.
struct Exchanges<'a, B> {
    store: &'a CasStore<B>,
    key: &'a Key,
    jobs: Vec<Job>,
    known: KnownValue,
    /// Whether the value was read or compared since the requests came.
    is_fresh: bool,
    /// The clock, if the last write was refused only because it had ticked.
    found: Option<Found>,
    started: Timestamp,
    conflicts: u32,
    backoff: Backoff,
}

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
            let mut exchanges = Exchanges {
                store: self,
                key,
                jobs,
                known: known.unwrap_or_default(),
                is_fresh: false,
                found: None,
                started: Timestamp::now(),
                conflicts: 0,
                backoff: Backoff::between(PAUSES[0], PAUSES[1]),
            };
            // The callers of a round that panics get an error, since nobody answers them.
            let done = AssertUnwindSafe(exchanges.carry_out()).catch_unwind().await;
            let (known, first) = done.unwrap_or_default();
            lock(&self.queues).put_back(key, known, first);
        }
    }
}

impl<B: Backend> Exchanges<'_, B> {
    async fn carry_out(&mut self) -> Done {
        if self.known.version == ABSENT && self.known.seen + ABSENT_FOR < Timestamp::now() {
            self.known.forget_value();
        }
        loop {
            if let Some(done) = self.turn().await.unwrap_or_else(|error| Some(self.failed(&error))) {
                return done;
            }
        }
    }

    /// Runs the steps on the known value, and tries to write the result.
    async fn turn(&mut self) -> Result<Option<Done>> {
        if self.must_look() {
            self.look().await?;
        }
        self.jobs.retain(|job| job.only_at.is_none_or(|version| version == self.known.version));
        if self.jobs.is_empty() {
            return Ok(Some((Some(take(&mut self.known)), Vec::new())));
        }
        let time = self.round_time().await?;
        if self.known.enter(time.epoch.id) {
            self.is_fresh = false;
            return Ok(None);
        }
        let mut round = self.run(time).await;
        if round.changed.is_none() && self.knows_enough(&round) {
            return Ok(Some(self.finish(round, Vec::new())));
        }
        let (write, stored) = self.write(&mut round);
        let outcome = match &stored {
            Some(stored) => self.store.carry_out_write(&write, stored.nonce).await?,
            // Nothing is written.
            None => self.store.compare(write).await?,
        };
        match outcome {
            Outcome::Matched { version, gone } => Ok(Some(self.written(round, stored, version, &gone))),
            Outcome::Differs { version, value } => {
                let is_locked = self.is_fresh && version == self.known.version;
                self.known.learn(version, read(version, value).await?, round.time.local);
                self.is_fresh = true;
                self.try_again(is_locked).await
            }
            Outcome::Ticked(found) => {
                self.found = found;
                self.try_again(false).await
            }
        }
    }

    /// Returns whether the key must be read before a step runs.
    fn must_look(&self) -> bool {
        let is_unseen = !self.known.has_value() && self.store.backend.reads_first();
        // The answer brings the time.
        is_unseen || self.store.backend.time().spread > MAX_SPREAD
    }

    /// Reads the value of the key.
    async fn look(&mut self) -> Result<()> {
        // Before the request: a message may overtake the answer.
        let sent = Timestamp::now();
        let outcome = self.store.compare(Write::look(self.key.clone())).await?;
        let (version, value) = match outcome {
            Outcome::Differs { version, value } => (version, value),
            Outcome::Matched { version, .. } => (version, None),
            Outcome::Ticked(_) => return Err(busy()),
        };
        self.known.learn(version, read(version, value).await?, sent);
        self.is_fresh = true;
        Ok(())
    }

    async fn round_time(&self) -> Result<RoundTime> {
        let backend = &self.store.backend;
        let counts_gaps = self.known.counts_gaps(&self.jobs);
        if counts_gaps {
            backend.settle().await;
        }
        // The epoch first: if another one begins meanwhile, the write fails.
        let epoch = backend.epoch();
        let (local, fence_floor, time) = (Timestamp::now(), backend.fence_floor(), backend.time());
        let time = self.found.map_or(time.clone(), |found| found.time(time, local));
        if time.spread > MAX_SPREAD {
            let message = "the clock of the store is not known: it has not answered for long";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        let (now, spread) = time.at_stamp(self.known.stored.stamp, counts_gaps);
        let wall = time.wall(now, local);
        Ok(RoundTime { local, now, wall, spread, basis: time.basis, fence_floor, epoch })
    }

    async fn run(&mut self, time: RoundTime) -> Round {
        let store = self.store;
        let limit = store.backend.max_value_len().saturating_sub(HEAD_LEN);
        let gone = lock(&store.gone).list();
        let environment = Environment { key: self.key.clone(), inbox: store.backend.inbox(), gone, limit };
        if self.known.stored.body.len() < LARGE_VALUE && self.jobs.len() < LARGE_ROUND {
            return Round::run(&self.known, &self.jobs, time, &environment);
        }
        let (known, jobs) = (take(&mut self.known), take(&mut self.jobs));
        let run = move || {
            let round = Round::run(&known, &jobs, time, &environment);
            (known, jobs, round)
        };
        let round;
        (self.known, self.jobs, round) = background::work(run).await;
        round
    }

    /// Returns whether a round that changes nothing can be answered without asking the backend.
    fn knows_enough(&self, round: &Round) -> bool {
        let seen = self.known.seen;
        let told_at = || lock(&self.store.queues).told_at(self.key).max(self.store.last_gap());
        let is_recent = seen + FRESH_FOR > round.time.local && seen > told_at();
        if self.is_fresh && round.time.basis == Basis::Served {
            return true;
        }
        self.is_fresh && !round.promises() || is_recent && round.only_queues()
    }

    /// Returns the write of a round, and the value that is there afterwards if it changes.
    fn write(&self, round: &mut Round) -> (Write, Option<Stored>) {
        let (known, inbox) = (&self.known, self.store.backend.inbox());
        let (durable, now, basis) = (round.must_be_durable(), round.time.now, &round.time.basis);
        let basis = if round.changed.is_some() || round.promises() { basis.clone() } else { Basis::Served };
        let stored = round.changed.take().map(|(entry, body)| {
            let nonce = Id::random().low_half();
            Stored { entry, body, stamp: now, nonce }
        });
        let (before, present) = (&known.stored.entry, &stored.as_ref().unwrap_or(&known.stored).entry);
        let same_holds = known.version != ABSENT && before.holds_for(now) == present.holds_for(now);
        let others = round.notifications.iter().filter(|notification| notification.id.inbox() != inbox);
        let write = Write {
            key: self.key.clone(),
            expected: known.version,
            value: stored.as_ref().map(Stored::to_bytes),
            durable,
            messages: messages::write(self.key, others),
            lasts: present.lasts(now),
            holder: present.exclusive_holder().map(|(fence, until)| Holder { fence, until }),
            holds: present.holds_for(now),
            epoch: Some(round.time.epoch.id),
            basis,
            only_waits: same_holds && round.only_waits(&self.jobs),
            leaves: self.jobs.iter().all(|job| is_end(&job.request)),
        };
        (write, stored)
    }

    /// Answers the requests of a round that was written, or whose value was the known one.
    fn written(&mut self, round: Round, stored: Option<Stored>, version: Version, gone: &[Inbox]) -> Done {
        let (was_absent, local) = (self.known.version == ABSENT, round.time.local);
        match stored {
            Some(stored) => self.known.learn(version, stored, local),
            None => self.known.seen = local,
        }
        let holds = self.known.stored.entry.holds();
        if was_absent && local + ABSENT_FOR < Timestamp::now() {
            // In between, the key may have had a value that was removed, with higher fences.
            let first = holds.evict_all().map(|request| Job::own(request, Some(version)));
            let error = Error::new(ErrorKind::Unavailable, "the process was stopped").unknown();
            fail(take(&mut self.jobs), &error);
            return (Some(take(&mut self.known)), first.into_iter().collect());
        }
        let first = self.store.take_back_from(gone, &round.notifications, version, holds);
        if round.must_be_durable() && self.was_behind(&round.time) {
            return self.doubt(round, first);
        }
        self.finish(round, first)
    }

    /// Returns whether the answer shows that the time was later at the step than the step took it for.
    fn was_behind(&self, at: &RoundTime) -> bool {
        let time = self.store.backend.time();
        time.is_beyond(at.now + at.spread, Timestamp::now().since(at.local))
    }

    /// Fails the requests of a round that was carried out, but whose ends come too early. The callers repeat them.
    fn doubt(&mut self, round: Round, first: Vec<Job>) -> Done {
        self.deliver(round.notifications, None);
        let message =
            "the clock of the store was later than known: the machine was paused, or the clock was set";
        fail(take(&mut self.jobs), &Error::new(ErrorKind::Unavailable, message).unknown());
        (Some(take(&mut self.known)), first)
    }

    /// Returns the reply with the time after which a waiter for a hold asks again.
    fn asking_again(&self, reply: Reply, request: &Request) -> Reply {
        match (reply, request) {
            (
                Reply::Queued { ahead, recheck_after: Some(after) },
                Request::Lock(_) | Request::Semaphore(_),
            ) => {
                let [least, more] = ASKS_AGAIN;
                let latest = least + more.saturating_mul(u32::try_from(ahead).unwrap_or(u32::MAX));
                let due = Timestamp::now() + latest;
                let latest = latest + until_together(due, self.key, self.store.backend.inbox());
                Reply::Queued { ahead, recheck_after: Some(after.min(latest).max(SOONEST)) }
            }
            (reply, _) => reply,
        }
    }

    /// Prepares another turn: another process was faster, or the clock has ticked.
    async fn try_again(&mut self, is_locked: bool) -> Result<Option<Done>> {
        self.conflicts += 1;
        // Nobody waits for the callers that have given up.
        self.jobs.retain(Job::is_wanted);
        if Timestamp::now() > self.started + self.store.command_timeout * GIVE_UP_AFTER {
            return Err(busy());
        }
        if is_locked || self.conflicts.is_multiple_of(CONFLICTS_PER_PAUSE) {
            background::sleep(self.backoff.next_delay()).await;
        }
        Ok(None)
    }

    /// Delivers the notifications to the waiters of this process, and answers the callers.
    fn finish(&mut self, round: Round, first: Vec<Job>) -> Done {
        self.deliver(round.notifications, Some(&round.time));
        for (job, reply) in take(&mut self.jobs).into_iter().zip(round.replies) {
            let reply = reply.map(|reply| self.asking_again(reply, &job.request));
            job.answer(reply.map_err(|error| error.with_key(self.key.as_str())));
        }
        (Some(take(&mut self.known)), first)
    }

    /// Delivers notifications to the waiters of this process. Those whose ends come too early have no time: the
    /// waiters confirm what they were granted.
    fn deliver(&self, notifications: Vec<Notification>, time: Option<&RoundTime>) {
        let inbox = self.store.backend.inbox();
        for mut notification in notifications.into_iter().filter(|own| own.id.inbox() == inbox) {
            if let Signal::HandedOff { fence, until } = notification.signal {
                notification.signal = time.map_or(Signal::Granted { fence }, |time| Signal::HandedOff {
                    fence,
                    until: time.local + until.since(time.now),
                });
            }
            self.store.deliver(notification);
        }
    }

    /// Fails all requests.
    fn failed(&mut self, error: &Error) -> Done {
        fail(take(&mut self.jobs), error);
        (None, Vec::new())
    }
}

impl<B: Backend> CasStore<B> {
    /// Makes a write with this nonce, and finds out what came of it if its answer is lost.
    async fn carry_out_write(&self, write: &Write, nonce: u64) -> Result<Outcome> {
        let until = Timestamp::now() + 2 * self.command_timeout;
        let look = Write::look(write.key.clone());
        let (mut backoff, mut next) = (Backoff::default(), write);
        let mut lost: Option<Error> = None;
        loop {
            match self.exchange(next.clone()).await {
                Ok(outcome @ (Outcome::Matched { .. } | Outcome::Ticked(_))) => return Ok(outcome),
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

    /// Delivers a notification to a waiter of this process. A waiter that has given up has no mailbox, and its cancel
    /// is on its way: that ends a grant which came too late. A message alone ends nothing.
    pub(super) fn deliver(&self, notification: Notification) {
        drop(self.mailboxes.deliver(notification));
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

/// Reads a value.
async fn read(version: Version, value: Option<Vec<u8>>) -> Result<Stored> {
    match value.filter(|_| version != ABSENT) {
        Some(bytes) if bytes.len() < LARGE_VALUE => Stored::from_bytes(&bytes),
        Some(bytes) => background::work(move || Stored::from_bytes(&bytes)).await,
        None => Ok(Stored::default()),
    }
}

/// Returns how long after `due` the waiters of a process at a key ask.
fn until_together(due: Timestamp, key: &Key, inbox: Inbox) -> Duration {
    let interval = u64::try_from(TOGETHER.as_micros()).unwrap_or(u64::MAX);
    // Not the hash that the key has: its seed is another one in each process, also in a simulation.
    let part = FixedState::default().hash_one((key.as_str(), inbox)) % PARTS * (interval / PARTS);
    Duration::from_micros((part + interval - due.as_micros() % interval) % interval)
}

/// Returns whether a request ends a hold or a wait of its caller.
fn is_end(request: &Request) -> bool {
    matches!(
        request,
        Request::Lock(HoldRequest::Release { .. } | HoldRequest::Cancel { .. })
            | Request::Semaphore(HoldRequest::Release { .. } | HoldRequest::Cancel { .. })
            | Request::Record(
                record::Request::Finish { .. }
                    | record::Request::Hold(HoldRequest::Release { .. } | HoldRequest::Cancel { .. })
            )
    )
}

fn busy() -> Error {
    let message = "other processes write the value of the key all the time, or a transaction holds it";
    Error::new(ErrorKind::Unavailable, message)
}

fn fail(jobs: Vec<Job>, error: &Error) {
    for job in jobs {
        job.answer(Err(error.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_at_a_key_ask_together() {
        let one = Key::new("one");
        let at = |micros: u64, key: &Key| {
            let due = Timestamp::from_micros(micros);
            let late = until_together(due, key, 7);
            assert!(late < TOGETHER, "{late:?}");
            (due + late).as_micros()
        };
        let first = at(10_000_000, &one);
        for due in [first - 1, first - 499_999] {
            assert_eq!(at(due, &one), first);
        }
        assert_eq!(at(first + 1, &one), first + 500_000);
        let is_at_once = |number: &u32| at(first, &Key::new(&number.to_string())) == first;
        let at_once = (0..1_000).filter(is_at_once).count();
        assert!((50..200).contains(&at_once), "{at_once} of 1,000 keys at once");
    }
}
