//! The calls of the exclusive lock: what is for the server, and what a run of this process answers itself.
//!
//! What others need is done on the background thread: confirming a run, checking and ending it. A caller's future only
//! awaits results, so one that is not polled keeps the lock from nobody.

use super::{
    Redis, lock,
    lock::Run,
    rechecks,
    runs::{Due, Grant, Next, Place, Remains},
    script::Answer,
};
use crate::{
    background,
    clock::Timestamp,
    error::Result,
    id::Id,
    key::Key,
    panics,
    primitives::{GRANT_WINDOW, HoldRequest, Notification, Reply, Signal, TOMBSTONE, lock::Request},
    renewals,
    store::Store,
};
use std::{
    future::Future,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

/// How often runs are looked at whose holder may not have noticed that it holds.
const TEND: Duration = Duration::from_millis(500);

impl Redis {
    pub(super) async fn lock(&self, key: &Key, request: &Request, by: Timestamp) -> Result<Reply> {
        match *request {
            HoldRequest::Acquire { id, wait, .. } => match self.member_asks(key, id, wait.is_some()) {
                Some(reply) => Ok(reply),
                None => self.acquire(key, id, request, by).await,
            },
            HoldRequest::Renew { id, lease, .. } => match self.runs.place(key, id) {
                Place::Holds { grant, fence } => {
                    let kept = self.renew(key, grant, lease, by).await?;
                    // The run may have been lost here meanwhile, and begun again with another member.
                    let kept = kept && self.runs.place(key, id) == Place::Holds { grant, fence };
                    Ok(if kept { Reply::Renewed { fence } } else { Reply::Lost })
                }
                Place::Ended { .. } => Ok(Reply::Lost),
                _ => self.plain(key, request, by).await,
            },
            HoldRequest::Release { id, tombstone, .. } => match self.runs.place(key, id) {
                Place::Holds { grant, .. } => {
                    // The server ends a run of one by that, and of a longer one only refuses late copies.
                    if tombstone && self.plain(key, request, by).await? == Reply::Released {
                        self.lose(key, grant);
                        return Ok(Reply::Released);
                    }
                    self.leave(key, grant, id, by).await
                }
                Place::Ended { grant } => self.finish(key, grant, by).await,
                _ => self.plain(key, request, by).await,
            },
            HoldRequest::Cancel { id, tombstone } => {
                let place = self.runs.place(key, id);
                if place == Place::Outside || tombstone {
                    self.plain(key, request, by).await?;
                }
                match place {
                    Place::Outside => {}
                    Place::Waits { .. } => self.runs.leave(key, id),
                    Place::Holds { grant, .. } => drop(self.leave(key, grant, id, by).await?),
                    Place::Ended { grant } => drop(self.finish(key, grant, by).await?),
                }
                Ok(Reply::Cancelled)
            }
            HoldRequest::Evict { .. } => self.plain(key, request, by).await,
        }
    }

    async fn acquire(&self, key: &Key, id: Id, request: &Request, by: Timestamp) -> Result<Reply> {
        let invocation = || lock::invocation(key, request, &self.channel);
        let answer = self.invoke(invocation().together_if(!self.rechecks.knows(key)), by).await?;
        let Some(run) = run_in(&answer) else { return self.queued(key, id, &answer, request) };
        self.begin(key, &run);
        let waits = matches!(request, HoldRequest::Acquire { wait: Some(_), .. });
        if let Some(reply) = self.member_asks(key, id, waits) {
            return Ok(reply);
        }
        // It was passed over, or the run has ended meanwhile.
        let answer = self.invoke(lock::outside(invocation()), by).await?;
        self.queued(key, id, &answer, request)
    }

    /// A request as it is.
    async fn plain(&self, key: &Key, request: &Request, by: Timestamp) -> Result<Reply> {
        let invocation = lock::invocation(key, request, &self.channel);
        let answer = self.invoke(invocation.together_if(!self.rechecks.knows(key)), by).await?;
        if lock::has_more(&answer) {
            self.in_background(key, |store, key| async move { store.purge(&key).await });
        }
        lock::reply(&answer, request)
    }

    /// The answer to a member of a run; `None` if the attempt is none.
    fn member_asks(&self, key: &Key, id: Id, waits: bool) -> Option<Reply> {
        let now = Timestamp::now();
        let takes = || {
            self.mail.boxes.take_back(id);
        };
        match self.runs.place_of_member(key, id, takes) {
            Place::Outside => None,
            Place::Holds { fence, .. } => Some(Reply::Granted { fence }),
            Place::Ended { .. } if waits => Some(Reply::Queued { ahead: 0, recheck_after: Some(RETRY) }),
            Place::Ended { .. } => Some(Reply::Busy { retry_after: RETRY }),
            Place::Waits { grant, until: Some(until), .. } if until <= now => {
                self.scatter(key, self.runs.end(key, grant, |until| until <= now));
                None
            }
            Place::Waits { until: Some(until), .. } if !waits => {
                self.runs.leave(key, id);
                Some(Reply::Busy { retry_after: until.since(now) })
            }
            Place::Waits { before, until, .. } => {
                let left = until.map_or(GRANT_WINDOW, |until| until.since(now));
                Some(Reply::Queued { ahead: before as u64, recheck_after: Some(left) })
            }
        }
    }

    fn queued(&self, key: &Key, id: Id, answer: &Answer, request: &Request) -> Result<Reply> {
        let reply = lock::reply(answer, request)?;
        let Reply::Queued { ahead, .. } = reply else { return Ok(reply) };
        if self.rechecks.add(key, id, rechecks::next(answer, self.rechecks.interval())) {
            background::spawn(Arc::clone(&self.rechecks).run(Weak::clone(&self.mail.store)));
        }
        Ok(Reply::Queued { ahead, recheck_after: Some(rechecks::own(self.mail.boxes.len())) })
    }

    /// Takes note of a run that was granted the lock, by a message or in the answer to one of its members.
    pub(super) fn begin(&self, key: &Key, run: &Run) {
        let Some((grant, before)) = self.runs.begin(key, run) else { return };
        self.scatter(key, before);
        self.rechecks.forget(key, run);
        self.in_background(key, move |store, key| async move { store.confirm(&key, grant).await });
        if !self.tended.swap(true, Ordering::AcqRel) {
            background::spawn(tend(Weak::clone(&self.mail.store)));
        }
    }

    /// Has the server keep the lock for the run, and passes it on to the first member.
    async fn confirm(&self, key: &Key, grant: Grant) {
        let give_up = Timestamp::now() + GRANT_WINDOW;
        while let Some(lease) = self.runs.lease(key, grant, |id| self.mail.boxes.is_open(id)) {
            let by = give_up.min(Timestamp::now() + self.command_timeout.min(lease / 3));
            match self.renew(key, grant, lease, by).await {
                Ok(true) => {
                    if self.pass_on(key, grant, None, |_| true) == Next::Over {
                        break;
                    }
                    return;
                }
                Ok(false) => return,
                Err(_) if Timestamp::now() + RETRY < give_up => background::sleep(RETRY).await,
                Err(_) => return self.lose(key, grant),
            }
        }
        // No member waits any more.
        self.finish_for_certain(key, grant).await;
    }

    /// Renews the lease that the server keeps for a run; `false` if the run is lost.
    async fn renew(&self, key: &Key, grant: Grant, lease: Duration, by: Timestamp) -> Result<bool> {
        let sent = Timestamp::now();
        let request = HoldRequest::Renew { id: grant.run, lease, once: None };
        let kept = match self.plain(key, &request, by).await? {
            // With a higher fence it is another run, which begins with the same member.
            Reply::Renewed { fence } => fence <= grant.fence,
            _ => false,
        };
        if kept {
            self.runs.confirmed(key, grant, sent, lease);
        } else {
            self.lose(key, grant);
        }
        Ok(kept)
    }

    /// Ends the hold of a member: the next one has the lock, or the run ends.
    async fn leave(&self, key: &Key, grant: Grant, id: Id, by: Timestamp) -> Result<Reply> {
        match self.pass_on(key, grant, Some(id), |_| true) {
            Next::Holds { .. } => Ok(Reply::Released),
            Next::Over => self.finish(key, grant, by).await,
            Next::Gone => Ok(Reply::NotHeld),
        }
    }

    /// Passes the lock on to the next member that still waits, if the one before `ends`.
    fn pass_on(&self, key: &Key, grant: Grant, from: Option<Id>, ends: impl FnOnce(Id) -> bool) -> Next {
        let mut waker = None;
        let next = self.runs.next(key, grant, from, ends, |member, until| {
            let signal = Signal::HandedOff { fence: member.fence, until };
            let put = self.mail.boxes.put(Notification { key: key.clone(), id: member.id, signal });
            put.map(|woken| waker = woken).is_ok()
        });
        waker.into_iter().for_each(panics::wake);
        if let Next::Holds { member, check: true } = next {
            self.in_background(key, move |store, key| async move {
                let by = Timestamp::now() + store.command_timeout.min(member.lease / 3);
                // An error is no loss: the holder renews in time, or loses it.
                drop(store.renew(&key, grant, member.lease, by).await);
            });
        }
        next
    }

    /// Ends a run at the server, which is known until that is certain.
    async fn finish(&self, key: &Key, grant: Grant, by: Timestamp) -> Result<Reply> {
        let request = HoldRequest::Evict { of: Some(grant.run), up_to: grant.fence };
        let reply = self.plain(key, &request, by).await?;
        self.lose(key, grant);
        Ok(reply)
    }

    async fn finish_for_certain(&self, key: &Key, grant: Grant) {
        let give_up = Timestamp::now() + TOMBSTONE;
        while let Err(error) = self.finish(key, grant, Timestamp::now() + self.command_timeout).await {
            if Timestamp::now() >= give_up || !(error.is_temporary() || error.is_unsent()) {
                break;
            }
            background::sleep(RETRY).await;
        }
        self.lose(key, grant);
    }

    /// Forgets a run that has ended or is lost: its holder renews at once, the members that have not held ask again.
    pub(super) fn lose(&self, key: &Key, grant: Grant) {
        self.scatter(key, self.runs.end(key, grant, |_| true));
    }

    /// The name was deleted: the members that wait are told so.
    pub(super) fn deleted(&self, key: &Key, grant: Grant) -> bool {
        let remains = self.runs.end(key, grant, |_| true);
        let was_known = remains.is_some();
        self.leave_behind(key, remains, Signal::Deleted);
        was_known
    }

    fn scatter(&self, key: &Key, remains: Option<Remains>) {
        self.leave_behind(key, remains, Signal::Wake);
    }

    fn leave_behind(&self, key: &Key, remains: Option<Remains>, signal: Signal) {
        let Some(Remains { holder, waiting }) = remains else { return };
        if let Some(holder) = holder
            && !self.mail.boxes.take_back(holder)
        {
            renewals::renew(holder);
        }
        for id in waiting {
            // An error: the member does not wait any more.
            let _ = self.mail.boxes.deliver(Notification { key: key.clone(), id, signal });
        }
    }

    /// Asks the server about the waiters of this process at `key`. Those that have lost their places ask again.
    pub(super) async fn look(&self, key: &Key) {
        let is_here = |id| self.mail.boxes.is_open(id) && self.runs.place(key, id) == Place::Outside;
        let Some(sample) = self.rechecks.sample(key, is_here) else { return };
        let by = Timestamp::now() + self.command_timeout;
        let Ok(answer) = self.invoke(lock::look(key, &self.channel, &sample), by).await else {
            self.rechecks.keep(key, sample.into_iter());
            return self.rechecks.again(key, by);
        };
        let missing: Vec<_> = answer.text().split(' ').filter_map(Id::parse).collect();
        // The others are looked for again once they have other places.
        self.rechecks.keep(key, sample.iter().copied().filter(|id| !missing.contains(id)));
        for &id in &missing {
            // An error: it does not wait any more.
            let _ = self.mail.boxes.deliver(Notification { key: key.clone(), id, signal: Signal::Wake });
        }
        // Where all have lost their places, the others have, too.
        let interval = if missing.len() == sample.len() { SOON } else { self.rechecks.interval() };
        self.rechecks.again(key, rechecks::next(&answer, interval));
    }

    /// Has the server remove dead waiters, as many per call as one script may, until a living one has the lock.
    async fn purge(&self, key: &Key) {
        let request = HoldRequest::Cancel { id: Id::ZERO, tombstone: false };
        let more = async || {
            let by = Timestamp::now() + self.command_timeout;
            let answer = self.invoke(lock::invocation(key, &request, &self.channel), by).await;
            answer.is_ok_and(|answer| lock::has_more(&answer))
        };
        while more().await {}
    }

    fn in_background<F>(&self, key: &Key, task: impl FnOnce(Arc<Self>, Key) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(store) = self.mail.store.upgrade() else { return };
        let errand = self.mailboxes().in_flight().begin();
        let task = task(store, key.clone());
        background::spawn(async move {
            task.await;
            drop(errand);
        });
    }
}

const RETRY: Duration = Duration::from_millis(100);
const SOON: Duration = Duration::from_millis(10);

/// Looks at the runs of this process as long as there are any: a member whose future is not polled is passed over after
/// the grant window, and members whose holder did not renew ask again.
async fn tend(store: Weak<Redis>) {
    loop {
        background::sleep(TEND).await;
        let Some(store) = store.upgrade() else { return };
        let now = Timestamp::now();
        for Due { key, grant, late, over } in store.runs.due(now + TEND - GRANT_WINDOW, now) {
            let passed_over = |holder| store.mail.boxes.take_back(holder);
            if late.is_some() && store.pass_on(&key, grant, late, passed_over) == Next::Over {
                store.in_background(&key, move |store, key| async move {
                    store.finish_for_certain(&key, grant).await;
                });
            }
            if let Some(until) = over {
                store.scatter(&key, store.runs.end(&key, grant, |latest| latest <= until));
            }
        }
        if store.runs.is_empty() {
            store.tended.store(false, Ordering::Release);
            // A run that has begun meanwhile has started another task, or is left to this one.
            if store.runs.is_empty() || store.tended.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    }
}

/// The run that an answer tells of.
fn run_in(answer: &Answer) -> Option<Run> {
    (answer.word() == "run").then(|| Run::read(answer.text(), answer.number(0)))?
}

#[cfg(test)]
mod tests;
