//! One attempt, and the only waiting loop.
//!
//! An attempt is sent, waits, and is sent again. A reply or a signal decides the next [`Step`]:
//!
//! | reply | step |
//! | --- | --- |
//! | `Granted`, first request, in time | `Done` |
//! | `Granted`, otherwise | `Confirm`, if the operation has a confirming request |
//! | `Queued` | `Wait` until the recheck, then `AskAgain`; at the deadline `GiveUp`, which the store confirms |
//! | `Admitted` later | `Wait` until the reservation is due, then `Take`; if it is due after the deadline, `TooLate` |
//! | a temporary error | `Wait` for the backoff, then `AskAgain` |
//! | any other | `Done`, or the error |
//!
//! | signal | step |
//! | --- | --- |
//! | `HandedOff` | `Done`; `Confirm` if half of the usable lease is over |
//! | `Granted` | `Confirm` |
//! | `Wake` | the request is sent again; the error `Deadlock` if one was found |
//! | `Recheck` | the wait becomes shorter |
//! | `Deleted` | the error `Conflict` |
//!
//! [`AtStore`] says what a dropped or failed attempt must cancel.

use super::{
    Ahead, Locker, Settled,
    wait_op::{Acquired, WaitOp},
    waits::Listed,
};
use crate::settings::Patience;
use futures_util::future::Either;
use locker_core::{
    background,
    backoff::Backoff,
    clock::Timestamp,
    diagnostics::warning,
    error::{Cause, Error, ErrorKind, Result},
    key::Key,
    mailboxes::Mailbox,
    primitives::{GRANT_WINDOW, Reply, Signal, TOMBSTONE, Wait},
};
use std::{sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// The length of a wait from which on its error names the holders.
const EXPLAINED_AFTER: Duration = Duration::from_secs(1);

impl Locker {
    /// Sends the operation and waits until it succeeds or fails. If it fails or is dropped, it is cancelled in the
    /// background.
    pub(crate) fn ask<'a, A: WaitOp>(
        &'a self,
        key: &'a Key,
        what: &'a A,
        patience: Patience,
    ) -> impl Future<Output = Result<Acquired>> + 'a {
        let mut attempt = Attempt::start(self, key, what, patience);
        async move {
            let end = loop {
                // Destructured: a whole `Step` would be stored in every waiter.
                let (granted, mut until, mut then) = match attempt.send().await? {
                    Step::Done(acquired) => return Ok(acquired),
                    Step::Confirm { fence } => (Some(fence), Timestamp::NEVER, OnTimeout::AskAgain),
                    Step::Wait { until, then } => (None, until, then),
                    Step::GiveUp(end) => break end,
                };
                let fence = if let Some(fence) = granted {
                    fence
                } else {
                    #[cfg(feature = "testing")]
                    attempt.check_that_time_passes()?;
                    let signal = loop {
                        let signal = attempt.signal(until).await;
                        if !attempt.moves(signal.as_ref(), &mut until, &mut then) {
                            break signal;
                        }
                    };
                    match attempt.on_signal(signal, then)? {
                        Step::Done(acquired) => return Ok(acquired),
                        Step::Confirm { fence } => fence,
                        Step::Wait { .. } => continue,
                        Step::GiveUp(end) => break end,
                    }
                };
                if let Some(acquired) = attempt.confirm(fence).await? {
                    return Ok(acquired);
                }
            };
            Box::pin(attempt.give_up(end)).await
        }
    }
}

enum Step {
    Done(Acquired),
    Confirm { fence: u64 },
    Wait { until: Timestamp, then: OnTimeout },
    GiveUp(End),
}

/// How an attempt ends without success.
enum End {
    /// The timeout has passed, which the store has to confirm.
    TimedOut {
        /// When the reservation is due, from the deadline.
        due: Option<Duration>,
    },
    /// The last attempt was refused.
    Exhausted { retry_after: Duration },
}

/// What to do when a wait ends without a signal.
enum OnTimeout {
    AskAgain,
    GiveUp,
    /// The reservation is due.
    Take(Box<Acquired>),
    /// The reservation is due after the deadline.
    TooLate(Box<Acquired>),
}

/// One attempt under way. If it is dropped before it is done, it is cancelled.
struct Attempt<'a, A: WaitOp> {
    locker: &'a Locker,
    key: &'a Key,
    what: &'a A,
    max_retry: Option<u32>,
    retry_delay: Duration,
    mailbox: Mailbox<'a>,
    started: Timestamp,
    /// Before the last request.
    ahead: Ahead,
    deadline: Timestamp,
    count: u32,
    /// When the last attempt that counts began.
    tried: Timestamp,
    backoff: Backoff,
    cause: Cause,
    at_store: AtStore,
    doubtful: bool,
    waited: bool,
    /// Whether the store has failed since its last reply.
    failing: bool,
    /// Its place in the list of waits, once it has lasted.
    listed: Option<Arc<Listed>>,
}

/// What the store may keep of an attempt.
#[derive(Clone, Copy, PartialEq)]
enum AtStore {
    Nothing,
    Request,
    /// A place in the queue: it may be granted at any time, whatever the store replies.
    Place,
}

impl<'a, A: WaitOp> Attempt<'a, A> {
    fn start(locker: &'a Locker, key: &'a Key, what: &'a A, patience: Patience) -> Self {
        let (mailbox, started) = (locker.store().mailboxes().subscribe(what.id()), Timestamp::now());
        let (deadline, backoff) = (started + patience.timeout, what.pauses());
        Self {
            locker,
            key,
            what,
            max_retry: patience.max_retry,
            retry_delay: patience.retry_delay,
            mailbox,
            started,
            ahead: Ahead::default(),
            deadline,
            count: 1,
            tried: started,
            backoff,
            cause: Cause::default(),
            at_store: AtStore::Nothing,
            doubtful: false,
            waited: false,
            failing: false,
            listed: None,
        }
    }

    /// Sends the request and returns the step that follows from the reply.
    async fn send(&mut self) -> Result<Step> {
        // Before the store is asked for anything: in a forked child it may wait for a thread of the parent.
        self.locker.ready()?;
        let wait = (!self.is_last()).then(|| Wait { live: self.waiter_ttl(), fair: self.what.fair() });
        let first = self.at_store == AtStore::Nothing;
        let sent = if first && !self.failing { self.started } else { Timestamp::now() };
        if first {
            self.at_store = AtStore::Request;
        }
        let bound = match first {
            _ if self.tries_once() || self.what.needs_final_check() => Timestamp::NEVER,
            // A timeout shorter than a round trip would never see a reply.
            true => self.deadline.max(self.started + self.locker.store().expected_rtt(self.key)),
            false => self.deadline,
        };
        self.ahead = Ahead::of(self.locker.store());
        let call = match self.locker.call_until(self.key, self.what.ask(wait), sent, bound) {
            Either::Left(reply) => return self.on_reply(reply.into_inner(), sent, first),
            Either::Right(call) => call,
        };
        // Until the reply is here, a dropped future must assume that the request may still arrive.
        let doubtful = std::mem::replace(&mut self.doubtful, true);
        let reply = call.await;
        self.doubtful = doubtful;
        self.on_reply(reply, sent, first)
    }

    fn on_reply(&mut self, reply: Result<Reply>, sent: Timestamp, first: bool) -> Result<Step> {
        let was_failing = std::mem::replace(&mut self.failing, reply.is_err());
        match reply {
            Ok(Reply::Queued { recheck_after, .. }) => {
                self.at_store = AtStore::Place;
                Ok(self.wait_for(recheck_after))
            }
            Ok(Reply::Busy { retry_after }) => {
                self.not_carried_out();
                if self.is_explained() {
                    return Ok(Step::GiveUp(End::Exhausted { retry_after }));
                }
                Err(self.exhausted_error(retry_after))
            }
            Ok(Reply::Granted { fence })
                if (!first || self.is_late(sent)) && self.what.confirm().is_some() =>
            {
                Ok(Step::Confirm { fence })
            }
            // Another may run since: asking again begins or renews the run at a known time.
            Ok(Reply::Begun { .. }) if self.is_late(sent) && self.what.confirm().is_some() => {
                self.at_store = AtStore::Place;
                if self.is_last() {
                    let late = Error::new(ErrorKind::Unavailable, "the reply came after half of the lease");
                    return Err(late.with_key(self.key.as_str()).unknown());
                }
                Ok(Step::Wait { until: Timestamp::now(), then: OnTimeout::AskAgain })
            }
            Ok(reply @ Reply::Admitted { wait, .. }) if !wait.is_zero() => {
                self.at_store = AtStore::Place;
                let (since, waited) = (Timestamp::now() + wait, Some(wait));
                let acquired =
                    Acquired { reply, sent, ahead: self.ahead, since, doubtful: self.doubtful, waited };
                let (until, then) = self.until_due(Box::new(acquired));
                Ok(Step::Wait { until, then })
            }
            Ok(reply) => Ok(Step::Done(self.done(reply, sent))),
            // The timeout passed before this one reply. A store that replied before has not failed.
            Err(error) if !was_failing && self.at_store == AtStore::Place && self.is_too_late_for(&error) => {
                self.doubtful = true;
                self.out_of_time(None)
            }
            Err(error) => {
                let error = error.with_key(self.key.as_str());
                if !was_failing && self.what.is_long() {
                    warning!(%error, "waits on while the store cannot be reached");
                }
                self.on_error(error)
            }
        }
    }

    fn is_too_late_for(&self, error: &Error) -> bool {
        !error.is_certain() && !self.what.needs_final_check() && Timestamp::now() >= self.deadline
    }

    /// How long the store keeps the place in the queue between two requests.
    fn waiter_ttl(&self) -> Option<Duration> {
        let least = self.locker.store().waiter_ttl();
        let next = self.max_retry.map_or(Duration::ZERO, |_| self.retry_delay.saturating_mul(3));
        least.map(|least| least.max(next))
    }

    /// Whether half of the usable lease is over, or more.
    fn is_late(&self, sent: Timestamp) -> bool {
        self.locker.store().waiter_ttl().is_some() && Timestamp::now() > sent + self.what.usable() / 2
    }

    /// Returns the step that follows from the end of a wait.
    fn on_signal(&mut self, signal: Option<Signal>, then: OnTimeout) -> Result<Step> {
        match (signal, then) {
            (Some(Signal::HandedOff { fence, until }), _) => {
                Ok(self.handed_off(fence, until).map_or(Step::Confirm { fence }, Step::Done))
            }
            (Some(Signal::Granted { fence }), _) => Ok(Step::Confirm { fence }),
            (Some(Signal::Wake | Signal::Recheck { .. }), then) => {
                if let Some(error) = self.listed.as_ref().and_then(|listed| listed.error()) {
                    return Err(error);
                }
                Ok(Step::Wait { until: Timestamp::now(), then })
            }
            (Some(Signal::Deleted), _) => Err(self.deleted_error()),
            (None, OnTimeout::AskAgain) => {
                (self.count, self.tried) = (self.count + 1, Timestamp::now());
                Ok(Step::Wait { until: self.tried, then: OnTimeout::AskAgain })
            }
            (None, OnTimeout::Take(acquired)) => Ok(Step::Done(self.done(acquired.reply, acquired.sent))),
            (None, OnTimeout::GiveUp) => self.out_of_time(None),
            (None, OnTimeout::TooLate(late)) => self.out_of_time(Some(late.since.since(self.deadline))),
        }
    }

    /// Returns the step that follows from the end of the timeout. A store in this process has nothing to confirm,
    /// unless other callers may have counted this one.
    fn out_of_time(&self, due: Option<Duration>) -> Result<Step> {
        if self.what.needs_final_check() || !self.locker.is_embedded() || self.is_explained() {
            Ok(Step::GiveUp(End::TimedOut { due }))
        } else {
            Err(self.timed_out(due))
        }
    }

    /// Ends an attempt that waits no longer.
    async fn give_up(&mut self, end: End) -> Result<Acquired> {
        match end {
            End::TimedOut { .. } if self.what.needs_final_check() => self.final_check().await,
            End::TimedOut { due } => Err(self.leave(due).await),
            End::Exhausted { retry_after } => {
                let look = self.locker.look(self.key, self.what.id());
                Err(self.exhausted_error(retry_after).with_blocked(look.answer().await))
            }
        }
    }

    /// Whether the error of the wait names the holders: not after a short wait, which may be one of many.
    fn is_explained(&self) -> bool {
        let waited = Timestamp::now().min(self.deadline).since(self.started);
        waited >= EXPLAINED_AFTER && self.what.is_explained()
    }

    /// Leaves the queue, and returns the error of the wait. It has timed out if the store replies, to the cancel or to
    /// any other request, and the store is unavailable otherwise. The cancel goes on in the background.
    async fn leave(&mut self, due: Option<Duration>) -> Error {
        let store = self.locker.store();
        if let Some(outage) = store.outage(self.key) {
            return self.waited_for(outage.kind(), &format!(": {}", outage.message())).unknown();
        }
        // Before the cancel, so that the store still has the place in the queue.
        let look = self.is_explained().then(|| self.locker.look(self.key, self.what.id()));
        let (now, (sender, reply)) = (Timestamp::now(), oneshot::channel());
        self.mailbox.close();
        self.cancel(move |_| {
            // An error means that the waiter no longer awaits the reply.
            let _ = sender.send(());
        });
        let is_confirmed = tokio::select! {
            biased;
            Ok(()) = reply => true,
            () = background::sleep_from(now, now + self.locker.command_timeout()) => false,
        };
        if let Err(error) = self.locker.ready() {
            return error;
        }
        if is_confirmed || store.has_replied_since(self.key, now) {
            let error = self.timed_out(due);
            return match look {
                Some(look) => error.with_blocked(look.answer().await),
                None => error,
            };
        }
        self.waited_for(ErrorKind::Unavailable, ": the store did not confirm that in time").unknown()
    }

    /// Accepts a hand-off with a known end, unless half of the usable lease is over. Across a network the lease that is
    /// handed off ends with that of the former holder, so only a hold that is renewed gets all of it.
    fn handed_off(&mut self, fence: u64, until: Timestamp) -> Option<Acquired> {
        let lease = self.what.lease();
        let (now, ahead) = (Timestamp::now(), Ahead::of(self.locker.store()));
        let until = until - Ahead::default().moved(self.locker.store());
        let is_whole = self.what.renews() || self.locker.store().waiter_ttl().is_none();
        if is_whole && now + lease.saturating_sub(self.what.usable() / 2) < until {
            let waited = Some(now.since(self.started));
            return Some(Acquired {
                ahead,
                since: now,
                waited,
                ..self.done(Reply::Granted { fence }, until - lease)
            });
        }
        self.mailbox.reopen();
        None
    }

    /// Confirms a grant that came with a notification, or to an earlier copy of the request: its lease began at an
    /// unknown time, and a renewal starts it at a known one. Returns `None` if the grant was lost and may be asked for
    /// again.
    async fn confirm(&mut self, fence: u64) -> Result<Option<Acquired>> {
        let (sent, Some(confirm)) = (Timestamp::now(), self.what.confirm()) else { return Ok(None) };
        self.ahead = Ahead::of(self.locker.store());
        let left = if self.tries_once() { GRANT_WINDOW } else { self.deadline.since(sent) };
        let call = match self.locker.retry_until_certain(self.key, confirm, sent, left.min(GRANT_WINDOW)) {
            Either::Left(settled) => return self.confirmed(settled.into_inner(), sent, fence),
            Either::Right(call) => call,
        };
        let settled = call.await;
        self.confirmed(settled, sent, fence)
    }

    fn confirmed(
        &mut self,
        settled: Result<Settled>,
        sent: Timestamp,
        fence: u64,
    ) -> Result<Option<Acquired>> {
        match settled {
            Ok(Settled { reply: Reply::Renewed { fence: granted }, sent: again, .. }) if granted == fence => {
                let sent = again.unwrap_or(sent);
                // The lease may be over when the reply arrives.
                let over = again.is_some() && Timestamp::now() >= sent + self.what.usable();
                Ok((!over).then(|| self.done(Reply::Granted { fence }, sent)))
            }
            Err(error) if !error.is_temporary() || self.is_last() => Err(error),
            _ if self.is_last() => Err(self.exhausted_error(Duration::ZERO)),
            _ => Ok(None),
        }
    }

    /// Asks a last time, without waiting, which ends the place in the queue. If the store replies, the outcome is
    /// certain.
    async fn final_check(&mut self) -> Result<Acquired> {
        let (sent, doubtful) = (Timestamp::now(), std::mem::replace(&mut self.doubtful, true));
        let settled = self
            .locker
            .retry_until_certain(self.key, self.what.ask(None), sent, self.locker.command_timeout())
            .await;
        let settled = settled.map_err(|error| error.with_key(self.key.as_str()).unknown())?;
        self.doubtful = doubtful || settled.retried;
        match settled.reply {
            Reply::Busy { .. } => Err(self.timed_out(None)),
            reply => Ok(self.done(reply, sent)),
        }
    }

    fn done(&mut self, reply: Reply, sent: Timestamp) -> Acquired {
        self.at_store = AtStore::Nothing;
        let waited = (sent > self.started).then(|| sent.since(self.started));
        Acquired { reply, sent, ahead: self.ahead, since: sent, doubtful: self.doubtful, waited }
    }

    /// Notes that the request was not carried out.
    fn not_carried_out(&mut self) {
        if self.at_store == AtStore::Request && !self.doubtful {
            self.at_store = AtStore::Nothing;
        }
    }

    fn tries_once(&self) -> bool {
        self.deadline == self.started
    }

    fn is_last(&self) -> bool {
        self.tries_once() || self.max_retry.is_some_and(|most| self.count >= most)
    }

    fn wait_for(&self, recheck_after: Option<Duration>) -> Step {
        let recheck = match (self.max_retry, recheck_after) {
            // A store may wake the waiter more often than that.
            (Some(_), _) => self.tried + self.retry_delay,
            (None, Some(delay)) => Timestamp::now() + delay.min(self.what.longest_recheck(self.locker)),
            (None, None) => Timestamp::NEVER,
        };
        let then = if recheck < self.deadline { OnTimeout::AskAgain } else { OnTimeout::GiveUp };
        Step::Wait { until: recheck.min(self.deadline), then }
    }

    /// Waits and asks again after a temporary error, if the timeout allows it.
    fn on_error(&mut self, error: Error) -> Result<Step> {
        let error = self.cause.explain(error);
        self.doubtful |= !error.is_certain();
        self.not_carried_out();
        let delay = match self.max_retry {
            Some(_) => self.retry_delay,
            None => self.backoff.next_delay().min(self.retry_delay),
        };
        let again = Timestamp::now() + delay;
        if !error.is_temporary() || self.is_last() || again >= self.deadline {
            let may_have_come = self.what.needs_final_check() && self.at_store == AtStore::Place;
            return Err(if self.doubtful || may_have_come { error.unknown() } else { error });
        }
        Ok(Step::Wait { until: again, then: OnTimeout::AskAgain })
    }

    fn exhausted_error(&self, retry_after: Duration) -> Error {
        let error = if self.tries_once() {
            Error::new(ErrorKind::TimedOut, format!("not {} yet, and the timeout is 0", self.what.verb()))
        } else {
            Error::new(
                ErrorKind::RetriesExhausted,
                format!("not {} at {} attempts", self.what.verb(), self.count),
            )
        };
        let error = error.with_key(self.key.as_str());
        if retry_after.is_zero() { error } else { error.with_retry_after(retry_after) }
    }

    fn timed_out(&self, due: Option<Duration>) -> Error {
        let error = self.waited_for(ErrorKind::TimedOut, "");
        due.into_iter().fold(error, Error::with_retry_after)
    }

    fn waited_for(&self, kind: ErrorKind, why: &str) -> Error {
        let waited = humantime::format_duration(self.deadline.since(self.started));
        Error::new(kind, format!("not {} within {waited}{why}", self.what.verb())).with_key(self.key.as_str())
    }

    /// Cancels the attempt in the background until that is certain.
    fn cancel(&mut self, then: impl FnOnce(Result<Settled>) + Send + 'static) {
        self.at_store = AtStore::Nothing;
        let (cancel, give_up) =
            (self.what.cancel(self.doubtful), self.what.lease().saturating_add(TOMBSTONE));
        self.locker.call_in_background(self.key, cancel, give_up, then);
    }

    /// Returns the error for a deleted name. The attempt may have queued again, so it is cancelled all the same.
    fn deleted_error(&self) -> Error {
        Error::new(ErrorKind::Conflict, "the name was deleted during the wait").with_key(self.key.as_str())
    }
}

impl<A: WaitOp> Drop for Attempt<'_, A> {
    fn drop(&mut self) {
        if !self.locker.is_of_this_process() {
            return;
        }
        if let Some(listed) = self.listed.take() {
            self.locker.unlist_wait(&listed);
        }
        // Closed before the cancellation, so that nothing is handed off to it any more.
        self.mailbox.close();
        if self.at_store != AtStore::Nothing {
            self.cancel(|_| ());
        }
    }
}

mod signals;
#[cfg(test)]
mod tests;
