//! The holders of permits, and the ends of their holds.

use super::permits::Permits;
use crate::{
    clock::Timestamp,
    id::{Id, IdMap},
    primitives::inspection::Held,
};
use std::{collections::BTreeSet, time::Duration};

#[derive(Clone, Debug, Default)]
pub(super) struct Holders {
    by_name: IdMap<Holder>,
    /// The holds that expire.
    ends: BTreeSet<(Timestamp, Id)>,
    /// The name that an attempt asked for, if it differs from the attempt.
    names: IdMap<Id>,
    /// By name: further attempts that share the hold, because they waited for it, too.
    others: IdMap<Vec<Id>>,
    taken: u64,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    /// The attempt that was granted it, as long as no other attempt has got the same hold.
    attempt: Option<Id>,
    since: Timestamp,
    until: Timestamp,
    fence: u64,
    permits: u64,
    /// Granted to a waiter of another process: lasts for the grant window until that waiter asks again.
    unconfirmed: bool,
}

impl Holders {
    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    pub(super) fn fence(&self, name: Id) -> Option<u64> {
        self.by_name.get(&name).map(|holder| holder.fence)
    }

    /// Returns whether this attempt shares a hold of another name than its own.
    pub(super) fn is_known(&self, attempt: Id) -> bool {
        self.names.contains_key(&attempt)
    }

    pub(super) fn next_end(&self) -> Option<Timestamp> {
        self.ends.first().map(|(end, _)| *end)
    }

    pub(super) fn add(
        &mut self,
        attempt: Id,
        ask: &Permits,
        since: Timestamp,
        until: Timestamp,
        fence: u64,
        unconfirmed: bool,
    ) {
        let name = ask.key;
        if name != attempt {
            self.names.insert(attempt, name);
        }
        let (attempt, permits) = (Some(attempt), ask.permits);
        self.by_name.insert(name, Holder { attempt, since, until, fence, permits, unconfirmed });
        self.ends_at(until, name);
        self.taken += permits;
    }

    fn ends_at(&mut self, until: Timestamp, name: Id) {
        if until < Timestamp::NEVER {
            self.ends.insert((until, name));
        }
    }

    /// Returns the fence of the renewed hold. Returns `None` if there is no such hold.
    pub(super) fn renew(&mut self, name: Id, until: Timestamp) -> Option<u64> {
        let holder = self.by_name.get_mut(&name)?;
        let fence = holder.fence;
        self.ends.remove(&(holder.until, name));
        (holder.until, holder.unconfirmed) = (until, false);
        self.ends_at(until, name);
        Some(fence)
    }

    /// Records that an attempt got the reply for a hold. If the hold was unconfirmed, its lease starts. If another
    /// attempt was granted it, the hold belongs to neither from now on, so that neither ends it by giving up.
    pub(super) fn confirm(&mut self, name: Id, attempt: Id, now: Timestamp, lease: Duration) {
        let Some(holder) = self.by_name.get_mut(&name) else { return };
        let other = holder.attempt.take_if(|by| *by != attempt);
        if holder.unconfirmed {
            self.renew(name, now + lease);
        }
        if let Some(other) = other.filter(|other| self.is_known(*other)) {
            self.know(name, other);
        }
    }

    /// Records an attempt that waited for a name which is held now. It will ask once more and must not resize then.
    pub(super) fn know(&mut self, name: Id, attempt: Id) {
        self.names.insert(attempt, name);
        self.others.entry(name).or_default().push(attempt);
    }

    pub(super) fn end(&mut self, name: Id) -> bool {
        let Some(holder) = self.by_name.remove(&name) else { return false };
        self.ends.remove(&(holder.until, name));
        for attempt in self.others.remove(&name).into_iter().flatten().chain(holder.attempt) {
            self.names.remove(&attempt);
        }
        self.taken -= holder.permits;
        true
    }

    /// Ends the hold that this attempt was granted, but not a hold of other attempts under the same name.
    pub(super) fn end_attempt(&mut self, attempt: Id) {
        let name = self.names.get(&attempt).copied().unwrap_or(attempt);
        if self.by_name.get(&name).is_some_and(|holder| holder.attempt == Some(attempt)) {
            self.end(name);
        }
    }

    /// Ends the holds of one attempt, or of all, up to a fence. Returns `false` if there were none.
    pub(super) fn end_up_to(&mut self, of: Option<Id>, fence: u64) -> bool {
        let is_meant = |holder: &Holder| holder.fence <= fence && (of.is_none() || holder.attempt == of);
        let old = self.by_name.iter().filter(|(_, holder)| is_meant(holder));
        let names: Vec<Id> = old.map(|(name, _)| *name).collect();
        names.into_iter().filter(|name| self.end(*name)).count() > 0
    }

    pub(super) fn forget_until(&mut self, now: Timestamp) {
        while let Some(&(end, name)) = self.ends.first().filter(|(end, _)| *end <= now) {
            if !self.end(name) {
                self.ends.remove(&(end, name));
            }
        }
    }

    pub(super) fn inspect(&self, now: Timestamp) -> Vec<Held> {
        let mut holders: Vec<_> = self.by_name.values().filter(|holder| holder.until > now).collect();
        holders.sort_by_key(|holder| holder.fence);
        let held = |holder: &&Holder| Held {
            age: Some(now.since(holder.since)),
            time_left: (holder.until < Timestamp::NEVER).then(|| holder.until.since(now)),
            fence: holder.fence,
            permits: holder.permits,
        };
        holders.iter().map(held).collect()
    }

    pub(super) fn list(&self) -> Vec<(Id, u64, u64, Timestamp)> {
        let mut all: Vec<_> = self
            .by_name
            .iter()
            .map(|(name, holder)| (*name, holder.fence, holder.permits, holder.until))
            .collect();
        all.sort_by_key(|(_, fence, ..)| *fence);
        all
    }
}
