//! A first-in-first-out queue that is left from any place in logarithmic time.

use crate::{
    clock::Timestamp,
    id::{Id, IdMap},
};
use std::collections::VecDeque;

/// Waiters in the order of their tickets. A ticket is one more than the last in the queue; an empty queue starts
/// again at 1.
///
/// Who leaves from the middle leaves a gap, which goes when it comes to an end of the line, or when gaps are half of
/// it: joining and leaving cost no more than a search among the tickets.
#[derive(Clone, Debug)]
pub(crate) struct Queue<W> {
    /// Neither the first nor the last place is a gap.
    line: VecDeque<Place<W>>,
    tickets: IdMap<u64>,
    /// When the whole queue is forgotten, if ever.
    kept_until: Option<Timestamp>,
    has_expiring: bool,
}

#[derive(Clone, Debug)]
struct Place<W> {
    ticket: u64,
    id: Id,
    waiter: Option<W>,
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Self { line: VecDeque::new(), tickets: IdMap::default(), kept_until: None, has_expiring: false }
    }
}

impl<W> Queue<W> {
    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.tickets.len()
    }

    /// Joins at the end, or renews the place already held.
    pub(crate) fn join(&mut self, id: Id, waiter: W) {
        if let Some(at) = self.place(id) {
            self.line[at].waiter = Some(waiter);
            return;
        }
        let ticket = self.line.back().map_or(1, |last| last.ticket + 1);
        self.tickets.insert(id, ticket);
        self.line.push_back(Place { ticket, id, waiter: Some(waiter) });
    }

    pub(crate) fn leave(&mut self, id: Id) -> bool {
        let Some(at) = self.place(id) else { return false };
        self.tickets.remove(&id);
        self.line[at].waiter = None;
        self.close_gaps();
        true
    }

    fn place(&self, id: Id) -> Option<usize> {
        let ticket = self.tickets.get(&id)?;
        if self.line.front().is_some_and(|first| first.ticket == *ticket) {
            return Some(0);
        }
        self.line.binary_search_by_key(ticket, |place| place.ticket).ok()
    }

    fn close_gaps(&mut self) {
        while self.line.front().is_some_and(|place| place.waiter.is_none()) {
            self.line.pop_front();
        }
        while self.line.back().is_some_and(|place| place.waiter.is_none()) {
            self.line.pop_back();
        }
        if self.line.len() > 2 * self.tickets.len() + 16 {
            self.line.retain(|place| place.waiter.is_some());
        }
        if self.line.capacity() > 1024 && self.line.len() < self.line.capacity() / 8 {
            self.line.shrink_to(self.line.len() * 2);
            self.tickets.shrink_to(self.line.len() * 2);
        }
        if self.line.is_empty() {
            self.kept_until = None;
        }
    }

    /// Keeps the queue until then at least: as long as the last who joined may live, as a store would that lets
    /// its data expire.
    pub(crate) fn keep(&mut self, until: Timestamp) {
        self.kept_until = self.kept_until.max(Some(until));
        self.has_expiring |= until < Timestamp::NEVER;
    }

    /// Forgets a queue of which nobody was heard for too long.
    pub(crate) fn forget_until(&mut self, now: Timestamp) {
        if self.kept_until.is_some_and(|until| until <= now) {
            *self = Self::default();
        }
    }

    /// Whether somebody joined who may go without a word.
    pub(crate) fn has_mortals(&self) -> bool {
        self.has_expiring
    }

    pub(crate) fn contains(&self, id: Id) -> bool {
        self.tickets.contains_key(&id)
    }

    pub(crate) fn head(&self) -> Option<(Id, &W)> {
        self.line.front().and_then(Place::taken)
    }

    pub(crate) fn get(&self, id: Id) -> Option<&W> {
        self.place(id).and_then(|at| self.line[at].waiter.as_ref())
    }

    /// Everybody in line, first come first.
    pub(crate) fn ids(&self) -> impl Iterator<Item = Id> + '_ {
        self.line.iter().filter_map(Place::taken).map(|(id, _)| id)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Id, &mut W)> {
        self.line.iter_mut().filter_map(|place| place.waiter.as_mut().map(|waiter| (place.id, waiter)))
    }

    /// Lets only those stay for whom `keep` says so.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(Id, &W) -> bool) {
        let tickets = &mut self.tickets;
        self.line.retain(|place| {
            let stays = place.taken().is_some_and(|(id, waiter)| keep(id, waiter));
            // The gap that somebody left is not the place where the same one is now.
            if !stays && place.waiter.is_some() {
                tickets.remove(&place.id);
            }
            stays
        });
        self.close_gaps();
    }

    /// How many tickets lie before this one: those who left in between still count.
    pub(crate) fn ahead(&self, id: Id) -> u64 {
        let head = self.line.front().map_or(0, |first| first.ticket);
        self.tickets.get(&id).map_or(0, |ticket| ticket - head)
    }
}

impl<W> Place<W> {
    fn taken(&self) -> Option<(Id, &W)> {
        self.waiter.as_ref().map(|waiter| (self.id, waiter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_order_of_joining() {
        let mut queue = Queue::default();
        for id in [3, 1, 2_u128] {
            queue.join(Id::from(id), ());
        }
        queue.join(Id::from(3), ());
        assert_eq!(queue.ahead(Id::from(2)), 2);
        assert!(queue.leave(Id::from(3)) && !queue.leave(Id::from(3)));
        assert_eq!(queue.head().map(|(id, ())| id), Some(Id::from(1)));
        assert_eq!((queue.ahead(Id::from(2)), queue.len()), (1, 2));
    }

    #[test]
    fn whoever_came_back_is_still_found_when_others_are_dropped() {
        let mut queue = Queue::default();
        for id in [1, 2, 3_u128] {
            queue.join(Id::from(id), ());
        }
        queue.leave(Id::from(2));
        queue.join(Id::from(2), ());
        queue.retain(|id, ()| id != Id::from(3));
        assert!(queue.contains(Id::from(2)) && queue.leave(Id::from(2)));
        assert_eq!(queue.len(), 1);
    }

    proptest::proptest! {
        /// As a plain list does, gaps or not.
        #[test]
        fn does_what_a_list_does(acts in proptest::collection::vec((0..40_u128, proptest::bool::ANY), 0..400)) {
            let (mut queue, mut list) = (Queue::default(), Vec::<(u64, Id)>::new());
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
                assert!(queue.line.len() <= 2 * list.len() + 16, "gaps are bounded");
            }
        }
    }
}
