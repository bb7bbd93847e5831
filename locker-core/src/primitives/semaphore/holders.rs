//! The holders of permits, and the ends of their holds.

use super::permits::Permits;
use crate::{
    clock::Timestamp,
    id::{Id, IdMap},
    primitives::inspection::Held,
};
use std::collections::BTreeSet;

#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "_cas", derive(serde::Deserialize), serde(try_from = "Stored<Holder>"))]
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
#[cfg_attr(feature = "_cas", derive(serde::Serialize, serde::Deserialize))]
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

    pub(super) fn is_held(&self, name: Id, now: Timestamp) -> bool {
        self.by_name.get(&name).is_some_and(|holder| holder.until > now)
    }

    /// Returns whether this attempt shares a hold of another name than its own.
    pub(super) fn is_known(&self, attempt: Id) -> bool {
        self.names.contains_key(&attempt)
    }

    pub(super) fn next_end(&self) -> Option<Timestamp> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// Returns when no hold is left.
    pub(super) fn lasts_until(&self) -> Timestamp {
        if self.ends.len() < self.by_name.len() {
            return Timestamp::NEVER;
        }
        self.ends.last().map_or(Timestamp::default(), |(end, _)| *end)
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

    /// Returns the highest fence of a hold, 0 if there is none.
    pub(super) fn highest_fence(&self) -> u64 {
        self.by_name.values().map(|holder| holder.fence).max().unwrap_or_default()
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

    /// Records that an attempt got the reply for a hold. If the hold was unconfirmed, it lasts `until` now. If another
    /// attempt was granted it, the hold belongs to neither from now on, so that neither ends it by giving up.
    pub(super) fn confirm(&mut self, name: Id, attempt: Id, until: Timestamp) {
        let Some(holder) = self.by_name.get_mut(&name) else { return };
        let other = holder.attempt.take_if(|by| *by != attempt);
        if holder.unconfirmed {
            self.renew(name, until);
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

    /// Ends the holds that are over, and calls `silent` with the attempt of each that was not confirmed.
    pub(super) fn forget_until(&mut self, now: Timestamp, mut silent: impl FnMut(Id)) {
        while let Some(&(end, name)) = self.ends.first().filter(|(end, _)| *end <= now) {
            if let Some(holder) = self.by_name.get(&name).filter(|holder| holder.unconfirmed) {
                holder.attempt.into_iter().for_each(&mut silent);
            }
            if !self.end(name) {
                self.ends.remove(&(end, name));
            }
        }
    }

    pub(super) fn inspect(&self, now: Timestamp) -> Vec<Held> {
        let mut holders: Vec<_> = self.by_name.iter().filter(|(_, holder)| holder.until > now).collect();
        holders.sort_by_key(|(_, holder)| holder.fence);
        let held = |(name, holder): &(&Id, &Holder)| Held {
            age: Some(now.since(holder.since)),
            time_left: (holder.until < Timestamp::NEVER).then(|| holder.until.since(now)),
            fence: holder.fence,
            permits: holder.permits,
            note: None,
            tag: Some(name.tag()),
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

/// What is stored of the holders.
#[cfg(feature = "_cas")]
#[derive(serde::Serialize, serde::Deserialize)]
struct Stored<H> {
    /// In the order of their fences: name, holder, further attempts.
    holders: Vec<(Id, H, Vec<Id>)>,
    /// In the order of the attempts.
    names: Vec<(Id, Id)>,
}

#[cfg(feature = "_cas")]
impl serde::Serialize for Holders {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let others = |name| self.others.get(name).cloned().unwrap_or_default();
        let holders = self.by_name.iter().map(|(name, holder)| (*name, holder, others(name)));
        let mut holders: Vec<_> = holders.collect();
        holders.sort_unstable_by_key(|(_, holder, _)| holder.fence);
        let mut names: Vec<_> = self.names.iter().map(|(attempt, name)| (*attempt, *name)).collect();
        names.sort_unstable();
        Stored { holders, names }.serialize(serializer)
    }
}

#[cfg(feature = "_cas")]
impl TryFrom<Stored<Holder>> for Holders {
    type Error = &'static str;

    fn try_from(Stored { holders, names }: Stored<Holder>) -> Result<Self, Self::Error> {
        let mut all = Self::default();
        let mut last = None;
        for (name, holder, others) in holders {
            if last.replace(holder.fence).is_some_and(|last| holder.fence <= last) {
                return Err("the fences of the holders do not rise");
            }
            if all.by_name.insert(name, holder).is_some() {
                return Err("a hold is there twice");
            }
            all.taken = all.taken.checked_add(holder.permits).ok_or("too many permits are held")?;
            all.ends_at(holder.until, name);
            if !others.is_empty() {
                all.others.insert(name, others);
            }
        }
        for (attempt, name) in names {
            if all.names.insert(attempt, name).is_some() {
                return Err("an attempt has two holds");
            }
        }
        Ok(all)
    }
}

#[cfg(all(test, feature = "_cas"))]
mod tests {
    use super::*;

    fn read(holders: &[(Id, u64, u64)], names: &[(Id, Id)]) -> postcard::Result<Holders> {
        let until = Timestamp::from_micros(1);
        let holder = |fence, permits| Holder {
            attempt: None,
            since: until,
            until,
            fence,
            permits,
            unconfirmed: false,
        };
        let holders =
            holders.iter().map(|(name, fence, permits)| (*name, holder(*fence, *permits), Vec::new()));
        let bytes = postcard::to_stdvec(&Stored { holders: holders.collect(), names: names.to_vec() });
        postcard::from_bytes(&bytes.unwrap())
    }

    #[test]
    fn order_in_maps_is_not_stored() {
        let ids: Vec<(Id, Id)> = (0..50).map(|_| (Id::random(), Id::random())).collect();
        let stored = |order: &mut dyn Iterator<Item = usize>| {
            let mut holders = Holders::default();
            for at in order {
                let (attempt, key) = ids[at];
                let ask = Permits { size: 100, permits: 1, key };
                let now = Timestamp::from_micros(1);
                holders.add(attempt, &ask, now, now, at as u64, false);
            }
            postcard::to_stdvec(&holders).unwrap()
        };
        assert_eq!(stored(&mut (0..50)), stored(&mut (0..50).rev()));
    }

    #[test]
    fn stored_holders_are_checked() {
        let (one, two) = (Id::from(1), Id::from(2));
        let holders = read(&[(one, 1, 5), (two, 2, 6)], &[]).unwrap();
        assert_eq!((holders.taken(), holders.len(), holders.ends.len()), (11, 2, 2));
        assert!(read(&[(one, 1, 5), (one, 2, 6)], &[]).is_err(), "one name");
        assert!(read(&[(one, 2, 5), (two, 2, 6)], &[]).is_err(), "one fence");
        assert!(read(&[(one, 1, u64::MAX), (two, 2, 1)], &[]).is_err(), "too many permits");
        assert!(read(&[], &[(one, two), (one, one)]).is_err(), "one attempt");
    }
}
