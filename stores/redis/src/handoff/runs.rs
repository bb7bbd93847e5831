//! Runs: grants of one lock to several waiters of this process.
//!
//! The server chooses the members of a run: waiters that follow each other in its queue. The process passes the lock on
//! from one member to the next, in that order and without a command. It skips members that have given up. After the
//! last member it ends the run at the server. The current holder renews the lease of the run. If a run is lost, it is
//! lost for all members, and those that have not held yet send their requests again.

use crate::codec::lock::{Grant, Member, Run};
use locker_core::{
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

/// After this time without a reply about the run, passing the lock on starts a renewal in the background: an eviction
/// may have ended the run.
const UNCHECKED: Duration = Duration::from_millis(100);

/// The place of an attempt in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It is not a member of a run.
    Outside,
    /// It waits behind `before` members. The server keeps the lock for the run `until` then, if it has confirmed that.
    Waits { grant: Grant, before: usize, until: Option<Timestamp> },
    /// It holds the lock.
    Holds { grant: Grant, fence: u64 },
    /// It was the last holder of a run that this process is ending at the server.
    Ended { grant: Grant },
}

/// The state of a run after its holder has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// This member holds. `check` requests a renewal in the background.
    Holds { member: Member, check: bool },
    /// No member is left, so that the run has to be ended at the server.
    Over,
    /// The run is lost, or another task has passed the lock on.
    Gone,
}

/// A run that has not ended.
#[derive(Debug)]
struct Ongoing {
    grant: Grant,
    /// The members that have not held yet, in the order of the run.
    waiting: VecDeque<Member>,
    holder: Option<Member>,
    /// Whether this process is ending the run at the server. The lock is then neither passed on nor granted again,
    /// because a late copy of that request would end the new hold.
    is_ending: bool,
    /// When the holder got the lock.
    passed: Timestamp,
    /// The time until which the server keeps the lock, or `None` if it has not confirmed the grant.
    until: Option<Timestamp>,
    /// When the latest request with a reply was sent.
    checked: Timestamp,
    /// Whether a message has called it ended.
    is_doubted: bool,
}

/// The members of a run that was removed, or a part of them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Remains {
    pub(crate) holder: Option<Id>,
    pub(crate) waiting: Vec<Id>,
}

/// The runs of this process, at most one per key.
#[derive(Debug, Default)]
pub(crate) struct Runs(Mutex<HashMap<Key, Ongoing>>);

impl Runs {
    /// Adds a run, unless the known run of this key is the same or a later one. Returns the grant and the members of
    /// the run before.
    pub(crate) fn begin(&self, key: &Key, run: &Run) -> Option<(Grant, Option<Remains>)> {
        let grant = run.grant();
        let begun = Ongoing {
            grant,
            waiting: run.members().collect(),
            holder: None,
            is_ending: false,
            passed: Timestamp::default(),
            until: None,
            checked: Timestamp::default(),
            is_doubted: false,
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

    /// Returns the grant of the run that holds a lock, as far as is known: not of one that this process is ending.
    pub(crate) fn ongoing(&self, key: &Key) -> Option<Grant> {
        lock(&self.0).get(key).filter(|run| !run.is_ending).map(|run| run.grant)
    }

    /// Returns the place of the attempt `id`.
    pub(crate) fn place(&self, key: &Key, id: Id) -> Place {
        self.place_of_member(key, id, || ())
    }

    /// Does what [`place`](Self::place) does for a member that has sent a request. A holder takes the lock with the
    /// reply: `takes` is then called under the lock of this table, as in [`next`](Self::next).
    pub(crate) fn place_of_member(&self, key: &Key, id: Id, takes: impl FnOnce()) -> Place {
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

    /// Removes the waiting member `id`.
    pub(crate) fn leave(&self, key: &Key, id: Id) {
        if let Some(run) = lock(&self.0).get_mut(key) {
            run.waiting.retain(|member| member.id != id);
        }
    }

    /// Passes the lock on from its holder to the next member that `takes` it, if the holder `ends`. Without a holder,
    /// `from` is `None`.
    ///
    /// `ends` and `takes` are called under the lock of this table and must not wake a task. A concurrent request of a
    /// member therefore neither finds a hold before it is taken, nor takes one after the member was passed over.
    pub(crate) fn next(
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
                let check =
                    run.is_doubted || run.checked + UNCHECKED < now || until < now + member.lease / 4 * 3;
                return Next::Holds { member, check };
            }
        }
        run.is_ending = true;
        Next::Over
    }

    /// Returns the lease for a renewal: the one of the holder, or of the first member that `waits`. Returns `None` if
    /// there is neither.
    pub(crate) fn lease(&self, key: &Key, grant: Grant, waits: impl Fn(Id) -> bool) -> Option<Duration> {
        let mut runs = lock(&self.0);
        let run = runs.get_mut(key).filter(|run| run.grant == grant)?;
        if run.holder.is_none() {
            run.waiting.retain(|member| waits(member.id));
            run.is_ending |= run.waiting.is_empty();
        }
        run.holder.as_ref().or(run.waiting.front()).map(|member| member.lease)
    }

    /// Makes the server be asked about a run when the lock is passed on. Returns whether the run is known.
    pub(crate) fn doubt(&self, key: &Key, grant: Grant) -> bool {
        let mut runs = lock(&self.0);
        let run = runs.get_mut(key).filter(|run| run.grant == grant);
        run.map(|run| run.is_doubted = true).is_some()
    }

    /// Returns the lease of the holder. A run that is not confirmed has none, nor one that is ending.
    pub(crate) fn held_lease(&self, key: &Key, grant: Grant) -> Option<Duration> {
        let runs = lock(&self.0);
        let run = runs.get(key).filter(|run| run.grant == grant && !run.is_ending)?;
        run.holder.map(|holder| holder.lease)
    }

    /// Records that the server has confirmed the grant for `lease`, in the reply to a request that was `sent` then.
    pub(crate) fn confirmed(&self, key: &Key, grant: Grant, sent: Timestamp, lease: Duration) {
        if let Some(run) = lock(&self.0).get_mut(key).filter(|run| run.grant == grant) {
            // A renewal never shortens the lease.
            run.until = run.until.max(Some(lease_deadline(sent, lease)));
            run.checked = run.checked.max(sent);
        }
    }

    /// Removes the run and returns its members, if `is_over` accepts the time until which the server keeps the lock.
    pub(crate) fn end(
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

    /// Removes the members of all runs that have not held yet, and returns them with the holders, which stay.
    pub(crate) fn dismiss(&self) -> Vec<(Key, Remains)> {
        let remains = |run: &mut Ongoing| Remains {
            holder: run.holder.map(|holder| holder.id),
            waiting: run.waiting.drain(..).map(|member| member.id).collect(),
        };
        lock(&self.0).iter_mut().map(|(key, run)| (key.clone(), remains(run))).collect()
    }

    /// Returns the runs whose holder has had the lock since before `since`, or whose lease is over.
    pub(crate) fn due(&self, since: Timestamp, now: Timestamp) -> Vec<Due> {
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

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }
}

/// A run that is due for a check.
#[derive(Debug)]
pub(crate) struct Due {
    pub(crate) key: Key,
    pub(crate) grant: Grant,
    /// The holder, which may not have noticed its hold.
    pub(crate) late: Option<Id>,
    /// The end of the lease if it has passed.
    pub(crate) over: Option<Timestamp>,
}

impl Ongoing {
    fn remains(self) -> Remains {
        let waiting = self.waiting.into_iter().map(|member| member.id).collect();
        Remains { holder: self.holder.map(|holder| holder.id), waiting }
    }
}

#[cfg(test)]
mod tests;
