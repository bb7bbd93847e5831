//! Runs: the lock, granted to several waiters of this process at once.
//!
//! The server chooses the members of a run: waiters that follow each other in its queue. Within the run the process
//! passes the lock on from one member to the next, in that order and without a command. A member that has given up is
//! skipped; behind the last one the run is ended at the server. The lease that the server keeps is renewed by the
//! member that holds. A run that is lost is lost for all of its members; those that have not held yet ask again.

use super::lock::{Member, Run};
use crate::{
    clock::{Timestamp, lease_deadline},
    id::Id,
    key::Key,
    primitives::TOMBSTONE,
    sync::{Mutex, lock},
};
use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    time::Duration,
};

/// Passing the lock on is checked at the server, behind the new holder's back, if nothing was heard for so long: a hold
/// can be ended by force.
const UNCHECKED: Duration = Duration::from_millis(100);

/// One grant to a run: the id by which the server knows it, and the fence of its last member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) run: Id,
    pub(super) fence: u64,
}

/// Where a member of a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It is a member of no run.
    Outside,
    /// Its turn has not come; the server keeps the lock for the run until then, if it has confirmed that.
    Waits { grant: Grant, before: usize, until: Option<Timestamp> },
    /// The lock was passed on to it.
    Holds { grant: Grant, fence: u64 },
    /// It was the last holder of a run that is being ended at the server.
    Ended { grant: Grant },
}

/// What becomes of a run whose holder has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// This member holds; `check` asks for a renewal from the background.
    Holds { member: Member, check: bool },
    /// No member is left: the run is to be ended at the server.
    Over,
    /// The run is lost, or somebody else has passed it on.
    Gone,
}

/// A run whose grant has not ended.
#[derive(Debug)]
struct Ongoing {
    grant: Grant,
    /// The members that have not held yet, in their order.
    waiting: VecDeque<Member>,
    holder: Option<Member>,
    /// The server is asked to end it. Nothing is passed on any more, nor granted anew: a copy of that may come late.
    is_ending: bool,
    /// When the holder got the lock.
    passed: Timestamp,
    /// Until when the server keeps the lock; `None` before it has confirmed the grant.
    until: Option<Timestamp>,
    /// When the last request was sent that the server has answered.
    checked: Timestamp,
}

/// The members that a run has left behind.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Remains {
    pub(super) holder: Option<Id>,
    pub(super) waiting: Vec<Id>,
}

/// The runs of this process, at most one per key.
#[derive(Debug, Default)]
pub(super) struct Runs(Mutex<HashMap<Key, Ongoing>>);

impl Runs {
    /// Takes note of a run, unless it is known or older than the one that is known. Returns the grant and what is left
    /// of the run before.
    pub(super) fn begin(&self, key: &Key, run: &Run) -> Option<(Grant, Option<Remains>)> {
        let grant = Grant { run: run.id(), fence: run.fence };
        let begun = Ongoing {
            grant,
            waiting: run.members().collect(),
            holder: None,
            is_ending: false,
            passed: Timestamp::default(),
            until: None,
            checked: Timestamp::default(),
        };
        match lock(&self.0).entry(key.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(begun);
                Some((grant, None))
            }
            Entry::Occupied(entry) if entry.get().grant.fence >= grant.fence => None,
            Entry::Occupied(mut entry) => Some((grant, Some(entry.insert(begun).remains()))),
        }
    }

    /// Where the attempt `id` stands at `key`.
    pub(super) fn place(&self, key: &Key, id: Id) -> Place {
        self.place_of_member(key, id, || ())
    }

    /// The same for a member that asks. If it holds, it takes the lock with the answer: `takes` is called, as for
    /// [`next`](Self::next).
    pub(super) fn place_of_member(&self, key: &Key, id: Id, takes: impl FnOnce()) -> Place {
        let runs = lock(&self.0);
        let Some(run) = runs.get(key) else { return Place::Outside };
        let Ongoing { grant, until, is_ending, .. } = *run;
        match run.holder {
            Some(holder) if holder.id == id && is_ending => Place::Ended { grant },
            Some(holder) if holder.id == id => {
                takes();
                Place::Holds { grant, fence: holder.fence }
            }
            _ => match run.waiting.iter().position(|member| member.id == id) {
                Some(before) => Place::Waits { grant, before, until },
                None => Place::Outside,
            },
        }
    }

    /// The member `id` does not wait any more.
    pub(super) fn leave(&self, key: &Key, id: Id) {
        if let Some(run) = lock(&self.0).get_mut(key) {
            run.waiting.retain(|member| member.id != id);
        }
    }

    /// Passes the lock on from its holder if that `ends`, or to the first member if it is `from` none: to the next one
    /// that `takes` it.
    ///
    /// A member that asks at the same time must not learn that it holds before it has taken the lock, nor take the lock
    /// when it has been passed over: both are called under the lock of this table, and must wake nobody.
    pub(super) fn next(
        &self,
        key: &Key,
        grant: Grant,
        from: Option<Id>,
        ends: impl FnOnce(Id) -> bool,
        mut takes: impl FnMut(Member, Timestamp) -> bool,
    ) -> Next {
        let mut runs = lock(&self.0);
        let Some(run) = runs.get_mut(key).filter(|run| run.grant == grant) else { return Next::Gone };
        let (Some(until), true) = (run.until, run.holder.map(|holder| holder.id) == from) else {
            return Next::Gone;
        };
        if from.is_some_and(|holder| !ends(holder)) {
            return Next::Gone;
        }
        let now = Timestamp::now();
        while let Some(member) = run.waiting.pop_front() {
            if takes(member, until.min(now + member.lease)) {
                (run.holder, run.passed) = (Some(member), now);
                let check = run.checked + UNCHECKED < now || until < now + member.lease / 4 * 3;
                return Next::Holds { member, check };
            }
        }
        run.is_ending = true;
        Next::Over
    }

    /// For how long the lock is to be renewed: as its holder wants, or the first member that `waits`. `None` if nobody
    /// wants it.
    pub(super) fn lease(&self, key: &Key, grant: Grant, waits: impl Fn(Id) -> bool) -> Option<Duration> {
        let mut runs = lock(&self.0);
        let run = runs.get_mut(key).filter(|run| run.grant == grant)?;
        if run.holder.is_none() {
            run.waiting.retain(|member| waits(member.id));
            run.is_ending |= run.waiting.is_empty();
        }
        run.holder.as_ref().or(run.waiting.front()).map(|member| member.lease)
    }

    /// The server has confirmed the grant for `lease`, answering a request that was sent then.
    pub(super) fn confirmed(&self, key: &Key, grant: Grant, sent: Timestamp, lease: Duration) {
        if let Some(run) = lock(&self.0).get_mut(key).filter(|run| run.grant == grant) {
            // A renewal never shortens what the server keeps.
            run.until = run.until.max(Some(lease_deadline(sent, lease)));
            run.checked = run.checked.max(sent);
        }
    }

    /// Forgets the run if it `is_over`, judged by until when the server keeps the lock, and returns its members.
    pub(super) fn end(
        &self,
        key: &Key,
        grant: Grant,
        is_over: impl FnOnce(Timestamp) -> bool,
    ) -> Option<Remains> {
        let over = |run: &Ongoing| run.grant == grant && is_over(run.until.unwrap_or_default());
        match lock(&self.0).entry(key.clone()) {
            Entry::Occupied(entry) if over(entry.get()) => Some(entry.remove().remains()),
            _ => None,
        }
    }

    /// The runs that somebody has to look at: the holder has had the lock since before `since`, or the lease is over.
    pub(super) fn due(&self, since: Timestamp, now: Timestamp) -> Vec<Due> {
        let runs = lock(&self.0);
        let due = |(key, run): (&Key, &Ongoing)| {
            let until = run.until?;
            let holder = run.holder.filter(|_| run.passed <= since && !run.is_ending);
            let is_over = if run.is_ending { until + TOMBSTONE * 2 <= now } else { until <= now };
            let (late, over) = (holder.map(|holder| holder.id), is_over.then_some(until));
            (is_over || late.is_some()).then(|| Due { key: key.clone(), grant: run.grant, late, over })
        };
        runs.iter().filter_map(due).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }
}

/// A run that somebody has to look at.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) key: Key,
    pub(super) grant: Grant,
    /// The holder, which may not have noticed.
    pub(super) late: Option<Id>,
    /// When the lease has ended without a renewal.
    pub(super) over: Option<Timestamp>,
}

impl Ongoing {
    fn remains(self) -> Remains {
        let waiting = self.waiting.into_iter().map(|member| member.id).collect();
        Remains { holder: self.holder.map(|holder| holder.id), waiting }
    }
}

#[cfg(test)]
mod tests;
