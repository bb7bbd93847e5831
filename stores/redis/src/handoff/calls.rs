//! The calls of the exclusive lock: a run of this process replies itself if it can, and the server otherwise.
//!
//! ```text
//! server ---- run message or reply ----> begin
//!   ^                                      | background thread: confirm
//!   '--------- renew (for the run) --------'
//! confirm ---- HandedOff ----> member 1 -- release, pass_on --> member 2 .. last member -- finish --> server
//! ```
//!
//! The background thread does all work that other callers depend on: it confirms, checks and ends runs. A caller's
//! future only awaits results. A caller that is not polled therefore does not keep the lock from others.

use super::{
    rechecks::{self, Rechecks},
    runs::{Due, Next, Place, Remains, Runs},
};
use crate::{
    codec::lock::{self, Grant, Run},
    script::{Invocation, ScriptReply},
    session::Session,
};
use futures_util::FutureExt;
use locker_core::{
    background,
    clock::Timestamp,
    error::Result,
    id::Id,
    key::Key,
    panics,
    primitives::{GRANT_WINDOW, HoldRequest, Notification, Reply, Signal, TOMBSTONE, lock::Request},
    renewals,
};
use std::{
    fmt,
    future::Future,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// The interval of checks for holders that may not have noticed their hold.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);

/// The delay before a call to the server is repeated.
const RETRY: Duration = Duration::from_millis(100);

/// The time until the next recheck if waiters have lost their places, until all others have been checked.
const SOON: Duration = Duration::from_millis(10);

/// Makes a call that only removes dead waiters at a key, for the process of a channel.
type Removal = fn(&Key, &Arc<str>) -> Invocation;

/// The store of a hand-off. Background tasks of the hand-off keep it alive.
pub(crate) trait HasHandoff: Send + Sync + 'static {
    fn handoff(&self) -> &Handoff;
}

/// The locks of one server, with the hand-off among the waiters of this process.
pub(crate) struct Handoff {
    session: Arc<Session>,
    pub(crate) runs: Runs,
    /// Whether a task watches the runs.
    is_watched: AtomicBool,
    pub(crate) rechecks: Arc<Rechecks>,
    store: Weak<dyn HasHandoff>,
}

impl Handoff {
    pub(crate) fn new(session: Arc<Session>, store: Weak<dyn HasHandoff>) -> Self {
        let is_watched = AtomicBool::new(false);
        Self { session, runs: Runs::default(), is_watched, rechecks: Arc::default(), store }
    }

    /// Carries out a request, and ends at `by`.
    pub(crate) async fn call(&self, key: &Key, request: &Request, by: Timestamp) -> Result<Reply> {
        let is_member = |id| self.runs.place(key, id) != Place::Outside;
        match *request {
            HoldRequest::Acquire { id, wait, .. } => {
                if let Some(reply) = self.member_reply(key, id, wait.is_some()) {
                    return Ok(reply);
                }
                self.acquire(key, id, request, by).await
            }
            HoldRequest::Renew { id, .. }
            | HoldRequest::Release { id, .. }
            | HoldRequest::Cancel { id, .. }
                if is_member(id) =>
            {
                Box::pin(self.call_of_member(key, request, by)).await
            }
            _ => self.call_server(key, request, by).await,
        }
    }

    /// Carries out a request of an attempt that was a member of a run.
    async fn call_of_member(&self, key: &Key, request: &Request, by: Timestamp) -> Result<Reply> {
        match *request {
            HoldRequest::Renew { id, lease, .. } => match self.runs.place(key, id) {
                Place::Holds { grant, fence } => {
                    let kept = self.renew(key, grant, lease, by).await?;
                    // The run may have been lost here, and begun again with another member.
                    let kept = kept && self.runs.place(key, id) == Place::Holds { grant, fence };
                    Ok(if kept { Reply::Renewed { fence } } else { Reply::Lost })
                }
                Place::Ended { .. } => Ok(Reply::Lost),
                _ => self.call_server(key, request, by).await,
            },
            HoldRequest::Release { id, tombstone, .. } => match self.runs.place(key, id) {
                Place::Holds { grant, .. } => {
                    // This ends a run of one member. For a longer run, the server only refuses late copies.
                    if tombstone && self.call_server(key, request, by).await? == Reply::Released {
                        self.abandon(key, grant);
                        return Ok(Reply::Released);
                    }
                    self.leave(key, grant, id, by).await
                }
                Place::Ended { grant } => self.finish(key, grant, by).await,
                _ => self.call_server(key, request, by).await,
            },
            HoldRequest::Cancel { id, tombstone } => {
                let place = self.runs.place(key, id);
                if place == Place::Outside || tombstone {
                    self.call_server(key, request, by).await?;
                }
                match place {
                    Place::Outside => {}
                    Place::Waits { .. } => self.runs.leave(key, id),
                    Place::Holds { grant, .. } => drop(self.leave(key, grant, id, by).await?),
                    Place::Ended { grant } => drop(self.finish(key, grant, by).await?),
                }
                Ok(Reply::Cancelled)
            }
            _ => self.call_server(key, request, by).await,
        }
    }

    async fn acquire(&self, key: &Key, id: Id, request: &Request, by: Timestamp) -> Result<Reply> {
        let invocation = || lock::invocation(key, request, &self.session.channel);
        let reply = self.session.invoke(invocation().batched_if(!self.rechecks.knows(key)), by).await?;
        let Some(run) = run_in(&reply) else { return self.queued(key, id, &reply, request) };
        self.begin(key, &run);
        let waits = matches!(request, HoldRequest::Acquire { wait: Some(_), .. });
        if let Some(reply) = self.member_reply(key, id, waits) {
            return Ok(reply);
        }
        // The member was passed over, or the run has ended.
        let reply = Box::pin(self.session.invoke(lock::outside(invocation()), by)).await?;
        self.queued(key, id, &reply, request)
    }

    /// Sends a request to the server.
    fn call_server<'a>(
        &'a self,
        key: &'a Key,
        request: &'a Request,
        by: Timestamp,
    ) -> impl Future<Output = Result<Reply>> + Send + 'a {
        self.invoke(key, request, lock::invocation(key, request, &self.session.channel), by)
    }

    fn invoke<'a>(
        &'a self,
        key: &'a Key,
        request: &'a Request,
        invocation: Invocation,
        by: Timestamp,
    ) -> impl Future<Output = Result<Reply>> + Send + 'a {
        let call = self.session.invoke(invocation.batched_if(!self.rechecks.knows(key)), by);
        // Not an async block, which would have room for the call twice.
        call.map(move |reply| {
            let reply = reply?;
            self.go_on_after(&reply, key, lock::removal);
            lock::reply(&reply, request)
        })
    }

    /// Returns the reply to an acquire of a member of a run, or `None` if the attempt is not a member.
    fn member_reply(&self, key: &Key, id: Id, waits: bool) -> Option<Reply> {
        let now = Timestamp::now();
        let takes = || {
            let _ = self.session.mailboxes().take_back(id);
        };
        match self.runs.place_of_member(key, id, takes) {
            Place::Outside => None,
            Place::Holds { fence, .. } => Some(Reply::Granted { fence }),
            Place::Ended { .. } if waits => Some(Reply::Queued { ahead: 0, recheck_after: Some(RETRY) }),
            Place::Ended { .. } => Some(Reply::Busy { retry_after: RETRY }),
            Place::Waits { grant, until: Some(until), .. } if until <= now => {
                self.wake_members(key, self.runs.end(key, grant, |until| until <= now));
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

    /// Reads the reply to an acquire, and schedules rechecks if the caller queues.
    fn queued(&self, key: &Key, id: Id, script: &ScriptReply, request: &Request) -> Result<Reply> {
        let reply = lock::reply(script, request)?;
        let Reply::Queued { ahead, .. } = reply else { return Ok(reply) };
        if self.rechecks.add(key, id, rechecks::next(script, self.rechecks.interval())) {
            background::spawn(run_rechecks(Arc::clone(&self.rechecks), Weak::clone(&self.store)));
        }
        Ok(Reply::Queued {
            ahead,
            recheck_after: Some(rechecks::own_interval(self.session.mailboxes().len())),
        })
    }

    /// Begins a run after a message. A message does not end a run that is known: the server is asked whether this one
    /// has come after it.
    pub(crate) fn told_of(&self, key: &Key, run: &Run) {
        match self.runs.ongoing(key) {
            None => self.begin(key, run),
            Some(ongoing) if ongoing.fence >= run.fence => {}
            Some(_) => {
                let run = run.clone();
                self.in_background(key, move |store, key| async move {
                    store.handoff().verify(&key, &run).await;
                });
            }
        }
    }

    /// Begins a run if it is the holder at the server. Renewing it confirms it.
    async fn verify(&self, key: &Key, run: &Run) {
        let Some(lease) = run.members().next().map(|first| first.lease) else { return };
        let by = Timestamp::now() + self.session.command_timeout.min(GRANT_WINDOW);
        if self.is_kept(key, run.grant(), Some(run), (lease, by)).await.is_ok_and(|kept| kept) {
            self.begin_as(key, run, true);
        }
    }

    /// Begins a run that the server has granted.
    fn begin(&self, key: &Key, run: &Run) {
        self.begin_as(key, run, false);
    }

    fn begin_as(&self, key: &Key, run: &Run, is_confirmed: bool) {
        let Some((_, before)) = self.runs.begin(key, run) else { return };
        self.wake_members(key, before);
        self.rechecks.forget(key, run);
        let run = run.clone();
        self.in_background(key, move |store, key| async move {
            store.handoff().confirm(&key, &run, is_confirmed).await;
        });
        if !self.is_watched.swap(true, Ordering::AcqRel) {
            background::spawn(watch_runs(Weak::clone(&self.store)));
        }
    }

    /// Renews the lease for a new run, and passes the lock on to the first member. `is_asked` says whether the server
    /// may have confirmed the run.
    async fn confirm(&self, key: &Key, run: &Run, mut is_asked: bool) {
        let (grant, give_up) = (run.grant(), Timestamp::now() + GRANT_WINDOW);
        while let Some(lease) = self.runs.lease(key, grant, |id| self.session.mailboxes().is_open(id)) {
            let by = give_up.min(Timestamp::now() + self.session.command_timeout.min(lease / 3));
            is_asked = true;
            match self.is_kept(key, grant, Some(run), (lease, by)).await {
                Ok(true) => {
                    if self.pass_on(key, grant, None, |_| true) == Next::Over {
                        break;
                    }
                    return;
                }
                Err(_) if Timestamp::now() + RETRY < give_up => background::sleep(RETRY).await,
                // Renewals were carried out, and did not count: without an end the lock would be taken for a lease.
                Err(_) if self.session.waits_for_replicas => break,
                Ok(false) | Err(_) => return self.abandon(key, grant),
            }
        }
        if is_asked {
            // All members have given up, or too few replicas have the grant.
            self.finish_until_certain(key, grant).await;
        } else {
            self.decline(key, run, give_up).await;
        }
    }

    /// Hands back a run that nobody here waits for, unless it is confirmed: the message may be a late copy, or made up.
    async fn decline(&self, key: &Key, run: &Run, give_up: Timestamp) {
        self.abandon(key, run.grant());
        let decline = || lock::decline(key, run, &self.session.channel);
        while self.session.invoke(decline(), give_up).await.is_err() && Timestamp::now() + RETRY < give_up {
            background::sleep(RETRY).await;
        }
    }

    /// Renews the lease of a run. Returns `false` if the run is lost.
    async fn renew(&self, key: &Key, grant: Grant, lease: Duration, by: Timestamp) -> Result<bool> {
        let kept = self.is_kept(key, grant, None, (lease, by)).await?;
        if !kept {
            self.abandon(key, grant);
        }
        Ok(kept)
    }

    /// Renews the lease of a run, and confirms it if it is given. Returns whether the server has kept it.
    async fn is_kept(
        &self,
        key: &Key,
        grant: Grant,
        confirms: Option<&Run>,
        (lease, by): (Duration, Timestamp),
    ) -> Result<bool> {
        let (sent, channel) = (Timestamp::now(), &self.session.channel);
        let request = HoldRequest::Renew { id: grant.run, lease, once: None };
        let renewal = match confirms {
            Some(run) => lock::confirmation(key, run, lease, channel),
            None => lock::run_renewal(key, grant, lease),
        };
        let kept = match self.invoke(key, &request, renewal, by).await? {
            // Another fence belongs to another grant of the same id.
            Reply::Renewed { fence } => fence == grant.fence,
            _ => false,
        };
        if kept {
            self.runs.confirmed(key, grant, sent, lease);
        }
        Ok(kept)
    }

    /// Asks the server whether a run has ended, because a message says so: a message alone ends nothing. If it has
    /// ended, its holder renews at once, and its waiting members get `signal`. Returns whether the run is known.
    pub(crate) fn doubt_run(&self, key: &Key, grant: Grant, signal: Signal) -> bool {
        if !self.runs.doubt(key, grant) {
            return false;
        }
        let Some(lease) = self.runs.held_lease(key, grant) else { return true };
        self.in_background(key, move |store, key| async move {
            let handoff = store.handoff();
            let by = Timestamp::now() + handoff.session.command_timeout.min(lease / 3);
            // After an error the holder renews in time, or loses the lock.
            if let Ok(false) = handoff.is_kept(&key, grant, None, (lease, by)).await {
                handoff.signal_members(&key, handoff.runs.end(&key, grant, |_| true), signal);
            }
        });
        true
    }

    /// Ends the hold of a member. The next member then holds the lock, or the run ends.
    async fn leave(&self, key: &Key, grant: Grant, id: Id, by: Timestamp) -> Result<Reply> {
        match self.pass_on(key, grant, Some(id), |_| true) {
            Next::Holds { .. } => Ok(Reply::Released),
            Next::Over => self.finish(key, grant, by).await,
            Next::Gone => Ok(Reply::NotHeld),
        }
    }

    /// Passes the lock on from `from` to the next member that still waits, if the holder `ends`.
    pub(crate) fn pass_on(
        &self,
        key: &Key,
        grant: Grant,
        from: Option<Id>,
        ends: impl FnOnce(Id) -> bool,
    ) -> Next {
        let mut waker = None;
        let next = self.runs.next(key, grant, from, ends, |member, until| {
            let signal = Signal::HandedOff { fence: member.fence, until };
            let put = self.session.mailboxes().put(Notification { key: key.clone(), id: member.id, signal });
            put.map(|woken| waker = woken).is_ok()
        });
        waker.into_iter().for_each(panics::wake);
        if let Next::Holds { member, check: true } = next {
            self.in_background(key, move |store, key| async move {
                let handoff = store.handoff();
                let by = Timestamp::now() + handoff.session.command_timeout.min(member.lease / 3);
                // An error is not a loss: the holder renews the lease in time, or loses the lock.
                drop(handoff.renew(&key, grant, member.lease, by).await);
            });
        }
        next
    }

    /// Ends a run at the server. The run is kept until that is certain.
    async fn finish(&self, key: &Key, grant: Grant, by: Timestamp) -> Result<Reply> {
        let request = HoldRequest::Evict { of: Some(grant.run), up_to: grant.fence };
        let reply = self.call_server(key, &request, by).await?;
        self.abandon(key, grant);
        Ok(reply)
    }

    async fn finish_until_certain(&self, key: &Key, grant: Grant) {
        let give_up = Timestamp::now() + TOMBSTONE;
        while let Err(error) = self.finish(key, grant, Timestamp::now() + self.session.command_timeout).await
        {
            if Timestamp::now() >= give_up || !(error.is_temporary() || error.is_unsent()) {
                break;
            }
            background::sleep(RETRY).await;
        }
        self.abandon(key, grant);
    }

    /// Removes a run that has ended or is lost. Its holder renews at once, and the waiting members send their requests
    /// again.
    pub(crate) fn abandon(&self, key: &Key, grant: Grant) {
        self.wake_members(key, self.runs.end(key, grant, |_| true));
    }

    /// Makes the members of all runs that have not held yet send their requests again. A run ends with its holder.
    pub(crate) fn doubt(&self) {
        for (key, remains) in self.runs.dismiss() {
            self.wake_members(&key, Some(remains));
        }
    }

    fn wake_members(&self, key: &Key, remains: Option<Remains>) {
        self.signal_members(key, remains, Signal::Wake);
    }

    fn signal_members(&self, key: &Key, remains: Option<Remains>, signal: Signal) {
        let Some(Remains { holder, waiting }) = remains else { return };
        if let Some(holder) = holder
            && !self.session.mailboxes().take_back(holder)
        {
            renewals::renew(holder);
        }
        for id in waiting {
            // An error means that the member no longer waits.
            let _ = self.session.mailboxes().deliver(Notification { key: key.clone(), id, signal });
        }
    }

    /// Asks the server about the waiters of this process at `key`. Waiters without a place send their requests again.
    async fn recheck(&self, key: &Key) {
        let is_here = |id| self.session.mailboxes().is_open(id) && self.runs.place(key, id) == Place::Outside;
        let Some(sample) = self.rechecks.sample(key, is_here) else { return };
        let by = Timestamp::now() + self.session.command_timeout;
        let Ok(reply) = self.session.invoke(lock::recheck(key, &self.session.channel, &sample), by).await
        else {
            self.rechecks.put_back(key, sample);
            return self.rechecks.schedule(key, by);
        };
        let missing: Vec<_> = reply.text().split(' ').filter_map(Id::parse).collect();
        let soon = self.rechecks.checked(key, &sample, &missing);
        for &id in &missing {
            // An error means that it no longer waits.
            let wake = Notification { key: key.clone(), id, signal: Signal::Wake };
            let _ = self.session.mailboxes().deliver(wake);
        }
        // If some have lost their places, others have probably lost theirs, too.
        let interval = if soon { SOON } else { self.rechecks.interval() };
        self.rechecks.schedule(key, rechecks::next(&reply, interval));
    }

    /// Removes dead waiters at the server in the background, if `reply` says that some were left: a limited number per
    /// call, until none are left or a live one is served.
    pub(crate) fn go_on_after(&self, reply: &ScriptReply, key: &Key, removal: Removal) {
        if !lock::has_more(reply) {
            return;
        }
        self.in_background(key, move |store, key| async move {
            let session = &store.handoff().session;
            let more = async || {
                let by = Timestamp::now() + session.command_timeout;
                let reply = session.invoke(removal(&key, &session.channel), by).await;
                reply.is_ok_and(|reply| lock::has_more(&reply))
            };
            while more().await {}
        });
    }

    fn in_background<F>(&self, key: &Key, task: impl FnOnce(Arc<dyn HasHandoff>, Key) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(store) = self.store.upgrade() else { return };
        let in_flight = self.session.mailboxes().in_flight().begin();
        let task = task(store, key.clone());
        background::spawn(async move {
            task.await;
            drop(in_flight);
        });
    }
}

/// Watches the runs of this process while there are any. A member whose future is not polled is passed over after the
/// grant window. Members of a run whose holder has not renewed send their requests again.
async fn watch_runs(store: Weak<dyn HasHandoff>) {
    loop {
        background::sleep(WATCH_INTERVAL).await;
        let Some(store) = store.upgrade() else { return };
        let (handoff, now) = (store.handoff(), Timestamp::now());
        for Due { key, grant, late, over } in handoff.runs.due(now + WATCH_INTERVAL - GRANT_WINDOW, now) {
            let passed_over = |holder| handoff.session.mailboxes().take_back(holder);
            if late.is_some() && handoff.pass_on(&key, grant, late, passed_over) == Next::Over {
                handoff.in_background(&key, move |store, key| async move {
                    store.handoff().finish_until_certain(&key, grant).await;
                });
            }
            if let Some(until) = over {
                handoff.wake_members(&key, handoff.runs.end(&key, grant, |latest| latest <= until));
            }
        }
        if handoff.runs.is_empty() {
            handoff.is_watched.store(false, Ordering::Release);
            // A run that has begun in between has started another task, or is left to this one.
            if handoff.runs.is_empty() || handoff.is_watched.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    }
}

/// Rechecks keys when they are due, while there are any.
async fn run_rechecks(rechecks: Arc<Rechecks>, store: Weak<dyn HasHandoff>) {
    while rechecks.due().await {
        let Some(store) = store.upgrade() else { return };
        for key in rechecks.take_due() {
            let store = Arc::clone(&store);
            background::spawn(async move { store.handoff().recheck(&key).await });
        }
    }
}

/// Returns the run in a reply.
fn run_in(reply: &ScriptReply) -> Option<Run> {
    (reply.word() == "run").then(|| Run::read(reply.text(), reply.number(0)))?
}

impl fmt::Debug for Handoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handoff").finish_non_exhaustive()
    }
}
