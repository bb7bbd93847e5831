//! A first-in-first-out queue from which any waiter can leave in logarithmic time.

use crate::{
    capacity::shrunk,
    clock::Timestamp,
    id::{Id, IdMap},
    ranges::MAX_COUNT,
};
use std::collections::VecDeque;

/// Waiters in the order of their tickets. A ticket is one more than the last ticket in the queue; an empty queue starts
/// again at 1.
///
/// A waiter that leaves from the middle leaves a gap. Gaps are removed when they reach an end of the queue, or when
/// half of the places are gaps, so that joining and leaving cost no more than a search among the tickets.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "_cas", derive(serde::Deserialize), serde(try_from = "Stored<W>"))]
pub(crate) struct TicketQueue<W> {
    /// Neither the first nor the last place is a gap.
    places: VecDeque<Place<W>>,
    tickets: IdMap<u64>,
    /// When the whole queue is forgotten.
    kept_until: Option<Timestamp>,
    has_expiring: bool,
}

#[derive(Clone, Debug)]
struct Place<W> {
    ticket: u64,
    id: Id,
    waiter: Option<W>,
}

impl<W> Default for TicketQueue<W> {
    fn default() -> Self {
        Self { places: VecDeque::new(), tickets: IdMap::default(), kept_until: None, has_expiring: false }
    }
}

impl<W> TicketQueue<W> {
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.tickets.len()
    }

    /// Adds a waiter at the end, or replaces it at its place.
    pub(crate) fn join(&mut self, id: Id, waiter: W) {
        if let Some(at) = self.place(id) {
            self.places[at].waiter = Some(waiter);
            return;
        }
        if self.places.back().is_some_and(|last| last.ticket >= MAX_COUNT) {
            self.renumber();
        }
        let ticket = self.places.back().map_or(1, |last| last.ticket + 1);
        self.tickets.insert(id, ticket);
        self.places.push_back(Place { ticket, id, waiter: Some(waiter) });
    }

    /// Closes all gaps. Only a stored queue that is damaged gets so far.
    fn renumber(&mut self) {
        self.places.retain(|place| place.waiter.is_some());
        for (ticket, place) in (1..).zip(&mut self.places) {
            place.ticket = ticket;
            self.tickets.insert(place.id, ticket);
        }
    }

    pub(crate) fn leave(&mut self, id: Id) -> bool {
        let Some(at) = self.place(id) else { return false };
        self.tickets.remove(&id);
        self.places[at].waiter = None;
        self.close_gaps();
        true
    }

    fn place(&self, id: Id) -> Option<usize> {
        let ticket = self.tickets.get(&id)?;
        if self.places.front().is_some_and(|first| first.ticket == *ticket) {
            return Some(0);
        }
        self.places.binary_search_by_key(ticket, |place| place.ticket).ok()
    }

    fn close_gaps(&mut self) {
        while self.places.front().is_some_and(|place| place.waiter.is_none()) {
            self.places.pop_front();
        }
        while self.places.back().is_some_and(|place| place.waiter.is_none()) {
            self.places.pop_back();
        }
        if self.places.len() > 2 * self.tickets.len() + 16 {
            self.places.retain(|place| place.waiter.is_some());
        }
        if let Some(capacity) = shrunk(self.places.len(), self.places.capacity()) {
            self.places.shrink_to(capacity);
            self.tickets.shrink_to(capacity);
        }
        if self.places.is_empty() {
            self.kept_until = None;
        }
    }

    /// Keeps the whole queue at least until the end of this waiter's lifetime, as a store does that lets its data
    /// expire.
    pub(crate) fn keep(&mut self, until: Timestamp) {
        self.kept_until = self.kept_until.max(Some(until));
        self.has_expiring |= until < Timestamp::NEVER;
    }

    /// Forgets the whole queue if no waiter asked in time.
    pub(crate) fn forget_until(&mut self, now: Timestamp) {
        if self.kept_until.is_some_and(|until| until <= now) {
            *self = Self::default();
        }
    }

    /// Returns when the whole queue is forgotten.
    pub(crate) fn lasts_until(&self) -> Timestamp {
        if self.is_empty() { Timestamp::default() } else { self.kept_until.unwrap_or(Timestamp::NEVER) }
    }

    /// Returns whether a waiter joined that may disappear unnoticed.
    pub(crate) fn has_expiring(&self) -> bool {
        self.has_expiring
    }

    pub(crate) fn contains(&self, id: Id) -> bool {
        self.tickets.contains_key(&id)
    }

    pub(crate) fn head(&self) -> Option<(Id, &W)> {
        self.places.front().and_then(Place::taken)
    }

    pub(crate) fn get(&self, id: Id) -> Option<&W> {
        self.place(id).and_then(|at| self.places[at].waiter.as_ref())
    }

    /// Returns the ids of the waiters, first come first.
    pub(crate) fn ids(&self) -> impl Iterator<Item = Id> + '_ {
        self.places.iter().filter_map(Place::taken).map(|(id, _)| id)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Id, &mut W)> {
        self.places.iter_mut().filter_map(|place| place.waiter.as_mut().map(|waiter| (place.id, waiter)))
    }

    /// Removes the waiters for which `keep` returns `false`.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(Id, &W) -> bool) {
        let tickets = &mut self.tickets;
        self.places.retain(|place| {
            let stays = place.taken().is_some_and(|(id, waiter)| keep(id, waiter));
            // A gap does not hold the ticket: its waiter may have joined again at another place.
            if !stays && place.waiter.is_some() {
                tickets.remove(&place.id);
            }
            stays
        });
        self.close_gaps();
    }

    /// Returns the number of tickets ahead of this waiter, including those of waiters that left in between.
    pub(crate) fn ahead(&self, id: Id) -> u64 {
        let head = self.places.front().map_or(0, |first| first.ticket);
        self.tickets.get(&id).map_or(0, |ticket| ticket - head)
    }
}

impl<W> Place<W> {
    fn taken(&self) -> Option<(Id, &W)> {
        self.waiter.as_ref().map(|waiter| (self.id, waiter))
    }
}

/// What is stored of a queue: each waiter with the distance of its ticket from the one before.
#[cfg(feature = "_cas")]
#[derive(serde::Serialize, serde::Deserialize)]
struct Stored<W> {
    waiters: Vec<(u64, Id, W)>,
    kept_until: Option<Timestamp>,
}

#[cfg(feature = "_cas")]
impl<W: serde::Serialize> serde::Serialize for TicketQueue<W> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut last = self.places.front().map_or(0, |first| first.ticket - 1);
        let waiters = self.places.iter().filter_map(|place| {
            let waiter = place.waiter.as_ref()?;
            Some((place.ticket - std::mem::replace(&mut last, place.ticket), place.id, waiter))
        });
        Stored { waiters: waiters.collect(), kept_until: self.kept_until }.serialize(serializer)
    }
}

#[cfg(feature = "_cas")]
impl<W> TryFrom<Stored<W>> for TicketQueue<W> {
    type Error = &'static str;

    fn try_from(Stored { waiters, kept_until }: Stored<W>) -> Result<Self, Self::Error> {
        let mut queue = Self { kept_until, has_expiring: true, ..Self::default() };
        queue.places.reserve(waiters.len());
        queue.tickets.reserve(waiters.len());
        let mut ticket = 0_u64;
        for (distance, id, waiter) in waiters {
            ticket = ticket.saturating_add(distance);
            if distance == 0 || ticket > MAX_COUNT {
                return Err("the tickets of a queue do not rise");
            }
            if queue.tickets.insert(id, ticket).is_some() {
                return Err("a waiter has two places");
            }
            queue.places.push_back(Place { ticket, id, waiter: Some(waiter) });
        }
        Ok(if queue.is_empty() { Self::default() } else { queue })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_keeps_the_order_of_joining() {
        let mut queue = TicketQueue::default();
        for id in [3, 1, 2_u128] {
            queue.join(Id::from(id), ());
        }
        queue.join(Id::from(3), ());
        assert_eq!(queue.ahead(Id::from(2)), 2);
        assert!(queue.leave(Id::from(3)) && !queue.leave(Id::from(3)));
        assert_eq!(queue.head().map(|(id, ())| id), Some(Id::from(1)));
        assert_eq!((queue.ahead(Id::from(2)), queue.len()), (1, 2));
    }

    /// Removing its old gap removed the ticket of its new place.
    #[test]
    fn rejoined_waiter_survives_retain() {
        let mut queue = TicketQueue::default();
        for id in [1, 2, 3_u128] {
            queue.join(Id::from(id), ());
        }
        queue.leave(Id::from(2));
        queue.join(Id::from(2), ());
        queue.retain(|id, ()| id != Id::from(3));
        assert!(queue.contains(Id::from(2)) && queue.leave(Id::from(2)));
        assert_eq!(queue.len(), 1);
    }

    /// Of those that left in the middle.
    #[test]
    fn gaps_take_no_more_room_than_waiters() {
        let mut queue = TicketQueue::default();
        let ids = (0..1_000_u128).map(Id::from).collect::<Vec<_>>();
        for id in &ids {
            queue.join(*id, ());
        }
        for (at, id) in ids.iter().enumerate().skip(1).take(998) {
            queue.leave(*id);
            assert!(queue.places.len() <= 2 * queue.len() + 16, "{at}");
            assert!(at > 400 || queue.places.len() == 1_000, "not at each leave: {at}");
        }
        assert_eq!((queue.len(), queue.ahead(ids[999])), (2, 999));
    }

    #[cfg(feature = "_cas")]
    #[test]
    fn stored_queue_keeps_distances_and_is_checked() {
        let read = |waiters: &[(u64, Id, ())]| {
            let bytes = postcard::to_stdvec(&(waiters, Some(Timestamp::NEVER))).unwrap();
            postcard::from_bytes::<TicketQueue<()>>(&bytes)
        };
        let (one, two) = (Id::from(1), Id::from(2));
        let mut queue = read(&[(1, one, ()), (3, two, ())]).unwrap();
        queue.join(Id::from(3), ());
        assert_eq!((queue.ahead(two), queue.ahead(Id::from(3))), (3, 4));
        assert_eq!(queue.lasts_until(), Timestamp::NEVER);
        assert!(read(&[(1, one, ()), (1, one, ())]).is_err(), "two places");
        assert!(read(&[(1, one, ()), (0, two, ())]).is_err(), "one ticket");
        assert!(read(&[(u64::MAX, one, ()), (1, two, ())]).is_err(), "too high");
        assert!(read(&[(MAX_COUNT, one, ()), (1, two, ())]).is_err(), "too high");
        let mut queue = read(&[(1, one, ()), (MAX_COUNT - 1, two, ())]).unwrap();
        queue.join(Id::from(3), ());
        let bytes = postcard::to_stdvec(&queue).unwrap();
        let again = postcard::from_bytes::<TicketQueue<()>>(&bytes).expect("what was written can be read");
        assert_eq!((again.ahead(two), again.ahead(Id::from(3))), (1, 2));
    }

    proptest::proptest! {
        #[test]
        fn queue_agrees_with_a_list(acts in proptest::collection::vec((0..40_u128, proptest::bool::ANY), 0..400)) {
            let (mut queue, mut list) = (TicketQueue::default(), Vec::<(u64, Id)>::new());
            for (id, joins) in acts {
                let id = Id::from(id);
                let at = list.iter().position(|(_, other)| *other == id);
                if joins {
                    queue.join(id, id);
                    if at.is_none() {
                        list.push((list.last().map_or(1, |(ticket, _)| ticket + 1), id));
                    }
                } else {
                    assert_eq!(queue.leave(id), at.map(|at| list.remove(at)).is_some());
                }
                assert!(queue.ids().eq(list.iter().map(|(_, id)| *id)));
                assert_eq!((queue.len(), queue.is_empty()), (list.len(), list.is_empty()));
                assert_eq!(queue.head(), list.first().map(|(_, id)| (*id, id)));
                for (ticket, id) in &list {
                    assert_eq!((queue.ahead(*id), queue.get(*id)), (ticket - list[0].0, Some(id)));
                }
                assert!(queue.places.len() <= 2 * list.len() + 16, "gaps are bounded");
            }
        }
    }
}
