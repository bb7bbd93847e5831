//! Which waits are stuck: a reduction of what two looks at a store have found.
//!
//! A hold that no known wait keeps can end. A wait that fits once all of those have ended can end, too, and then the
//! holds around it can. What is left when no further wait can end is stuck. Whatever is not known counts as able to
//! end: an error of this kind is a deadlock that is missed, never one that is made up.
//!
//! Each hold and each attempt is used once, with a fence and an id of its own, and ends once. So what both of two looks
//! have found was there from the end of the first to the beginning of the second, all of it together.

mod sets;

use locker_core::{
    id::Id,
    key::Key,
    primitives::inspection::{Held, Inspection},
};
use sets::sets;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

/// A hold that does not end before the wait that it is around.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Around {
    pub(crate) key: Key,
    pub(crate) fence: u64,
    /// The tag of the ids of the holder's locker. Another program may hold with the fence of the hold before it.
    pub(crate) tag: u64,
}

/// A wait, as its locker tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) id: Id,
    pub(crate) key: Key,
    pub(crate) permits: u64,
    pub(crate) fair: bool,
    /// The annotated function and the place of the call, for people. Empty if they are not known.
    pub(crate) function: String,
    pub(crate) place: String,
    pub(crate) around: Vec<Around>,
}

/// The holders and the waiters of one key, as a look has found them. A lock is a semaphore of one permit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Queue {
    pub(crate) size: u64,
    /// The fence, the tag and the permits of each hold.
    pub(crate) holders: Vec<(u64, u64, u64)>,
    pub(crate) waiters: Vec<Id>,
}

impl Queue {
    pub(crate) fn of(seen: &Inspection) -> Self {
        let holder = |held: &Held| Some((held.fence, held.tag?, held.permits));
        Self {
            size: seen.size.unwrap_or(0),
            holders: seen.holders.iter().filter_map(holder).collect(),
            waiters: seen.waiters.clone(),
        }
    }

    /// Returns what was there all the time between two looks.
    fn also_in(&self, later: &Self) -> Self {
        let both = |one: &Self, other: &Self| -> Vec<Id> {
            let others: HashSet<Id> = other.waiters.iter().copied().collect();
            one.waiters.iter().copied().filter(|id| others.contains(id)).collect()
        };
        let (before, after) = (both(self, later), both(later, self));
        let holders: HashSet<_> = later.holders.iter().collect();
        Self {
            size: self.size.max(later.size),
            holders: self.holders.iter().filter(|holder| holders.contains(holder)).copied().collect(),
            // A waiter that has changed its place was away meanwhile.
            waiters: if before == after { before } else { Vec::new() },
        }
    }
}

/// What one look has found, or two have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Picture {
    pub(crate) waits: HashMap<Id, Wait>,
    pub(crate) queues: HashMap<Key, Queue>,
}

impl Picture {
    /// Returns what was there all the time between this look and a later one at the same keys.
    pub(crate) fn also_in(self, later: &HashMap<Key, Queue>) -> Self {
        let both = |(key, queue): (Key, Queue)| Some((queue.also_in(later.get(&key)?), key));
        let queues = self.queues.into_iter().filter_map(both).map(|(queue, key)| (key, queue)).collect();
        Self { waits: self.waits, queues }
    }

    /// Returns the keys that the holders of `key` wait for.
    pub(crate) fn after(&self, key: &Key) -> BTreeSet<Key> {
        let holders = self.queues.get(key).into_iter().flat_map(|queue| &queue.holders);
        let holders: HashSet<_> = holders.map(|(fence, tag, _)| (*fence, *tag)).collect();
        let is_inside = |wait: &&Wait| {
            wait.around.iter().any(|hold| hold.key == *key && holders.contains(&(hold.fence, hold.tag)))
        };
        let waits = self.waits.values().filter(is_inside);
        waits.filter(|wait| self.is_queued(wait)).map(|wait| wait.key.clone()).collect()
    }

    fn is_queued(&self, wait: &Wait) -> bool {
        self.queue(wait).is_some_and(|queue| queue.waiters.contains(&wait.id))
    }

    /// Returns the waits that cannot end, whichever of the others end.
    pub(crate) fn stuck(&self) -> Stuck<'_> {
        let queued = self.waits.values().filter(|wait| self.is_queued(wait));
        let waits: HashMap<Id, &Wait> = queued.map(|wait| (wait.id, wait)).collect();
        let mut keepers: HashMap<&Around, Vec<Id>> = HashMap::new();
        for wait in waits.values() {
            wait.around.iter().for_each(|hold| keepers.entry(hold).or_default().push(wait.id));
        }
        let mut stuck = Stuck { picture: self, waits, keepers };
        while stuck.end_those_that_can() {}
        stuck
    }

    fn queue(&self, wait: &Wait) -> Option<&Queue> {
        self.queues.get(&wait.key)
    }
}

/// The waits that cannot end.
#[derive(Debug)]
pub(crate) struct Stuck<'a> {
    picture: &'a Picture,
    waits: HashMap<Id, &'a Wait>,
    /// The waits that each hold is around. Those that can end are in it, too.
    keepers: HashMap<&'a Around, Vec<Id>>,
}

impl<'a> Stuck<'a> {
    fn has(&self, id: Id) -> bool {
        self.waits.contains_key(&id)
    }

    /// Removes waits that can end, from the head of each queue on. Returns whether there were any.
    fn end_those_that_can(&mut self) -> bool {
        let before = self.waits.len();
        for id in self.picture.queues.values().flat_map(|queue| &queue.waiters) {
            if self.has(*id) && !self.is_blocked(*id) {
                self.waits.remove(id);
            }
        }
        self.waits.len() < before
    }

    /// Returns the keys that these waits wait at.
    pub(crate) fn keys(&self) -> BTreeSet<Key> {
        self.waits.values().map(|wait| wait.key.clone()).collect()
    }

    /// Returns the waits that have to fail, each with a cycle of waits from it on, each of which waits for the next one
    /// and the last one for it: of all waits that are on cycles with each other and have holds, the one with the
    /// greatest id.
    pub(crate) fn cycles_to_break(&self) -> HashMap<Id, Vec<&'a Wait>> {
        let waits: Vec<&Wait> = self.waits.values().copied().collect();
        let next = self.waits_for(&waits);
        let set_of = sets(&next);
        let is_on_a_cycle = |at: &usize| next[*at].iter().any(|to| set_of[*to] == set_of[*at]);
        let mut victims: HashMap<usize, usize> = HashMap::new();
        for at in (0..waits.len()).filter(|at| !waits[*at].around.is_empty()).filter(is_on_a_cycle) {
            let victim = victims.entry(set_of[at]).or_insert(at);
            if waits[at].id > waits[*victim].id {
                *victim = at;
            }
        }
        let cycle = |at: usize| (waits[at].id, cycle_of(at, &next).into_iter().map(|at| waits[at]).collect());
        victims.into_values().map(cycle).collect()
    }

    /// Returns the waits whose end each of these needs, which are all that are stuck.
    fn waits_for(&self, waits: &[&Wait]) -> Vec<Vec<usize>> {
        let numbers: HashMap<Id, usize> = waits.iter().map(|wait| wait.id).zip(0..).collect();
        let lacks: Vec<bool> = waits.iter().map(|wait| self.lacks_permits(wait)).collect();
        let number = |id: Id| numbers[&id];
        let needs = |(wait, lacks_permits): (&&Wait, &bool)| -> Vec<usize> {
            if *lacks_permits {
                return self
                    .holds_before(wait)
                    .flat_map(|(hold, _)| self.keepers_of(&hold))
                    .map(number)
                    .collect();
            }
            self.served_before(wait).map(number).filter(|at| lacks[*at]).collect()
        };
        waits.iter().zip(&lacks).map(needs).collect()
    }

    fn is_blocked(&self, id: Id) -> bool {
        let wait = self.waits[&id];
        // A semaphore of size 0 waits until it is raised, and a request for more than there is is refused.
        let may_fit = (1..=self.picture.queues[&wait.key].size).contains(&wait.permits);
        may_fit && (self.lacks_permits(wait) || self.served_before(wait).next().is_some())
    }

    /// Whether too few permits are left beside those of holds that cannot end.
    fn lacks_permits(&self, wait: &Wait) -> bool {
        let taken: u64 = self.holds_before(wait).map(|(_, permits)| permits).fold(0, u64::saturating_add);
        let size = self.picture.queues[&wait.key].size;
        taken > 0 && taken.saturating_add(wait.permits) > size
    }

    /// The holds at the key that cannot end, with their permits.
    fn holds_before(&self, wait: &Wait) -> impl Iterator<Item = (Around, u64)> {
        let hold = |(fence, tag, permits)| (Around { key: wait.key.clone(), fence, tag }, permits);
        let holders = self.picture.queues[&wait.key].holders.iter().copied();
        holders.map(hold).filter(|(hold, _)| self.keepers_of(hold).next().is_some())
    }

    /// The stuck waits that a hold is around.
    fn keepers_of<'b>(&'b self, hold: &Around) -> impl Iterator<Item = Id> + use<'a, 'b> {
        self.keepers.get(hold).into_iter().flatten().copied().filter(|id| self.has(*id))
    }

    /// The stuck waits that are served before this one, whatever they need: of a fair one all that are ahead. An unfair
    /// one overtakes them while the first of those that are left is unfair, which one that can end may be for a while.
    fn served_before(&self, wait: &Wait) -> impl Iterator<Item = Id> {
        let (id, waiters) = (wait.id, &self.picture.queues[&wait.key].waiters);
        let ahead = || waiters.iter().copied().take_while(move |other| *other != id);
        let is_fair = |id: &Id| self.picture.waits.get(id).is_some_and(|wait| wait.fair);
        let first = ahead().find(|id| self.has(*id) || !is_fair(id));
        let most = if wait.fair { usize::MAX } else { usize::from(first.as_ref().is_some_and(is_fair)) };
        ahead().filter(|other| self.has(*other)).take(most)
    }
}

/// Returns a shortest way from a node back to it, along the nodes that each leads to.
fn cycle_of(start: usize, next: &[Vec<usize>]) -> Vec<usize> {
    let (mut before, mut queue) = (HashMap::new(), VecDeque::from([start]));
    while let Some(at) = queue.pop_front().filter(|_| !before.contains_key(&start)) {
        for to in &next[at] {
            before.entry(*to).or_insert_with(|| {
                queue.push_back(*to);
                at
            });
        }
    }
    let (mut cycle, mut at) = (vec![start], before[&start]);
    while at != start {
        cycle.insert(1, at);
        at = before[&at];
    }
    cycle
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
