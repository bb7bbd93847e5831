//! A first-in-first-out queue that is left from any place in logarithmic time.

use crate::id::{Id, IdMap};
use std::collections::BTreeMap;

/// Waiters in the order of their tickets. A ticket is one more than the last in the queue; an empty queue starts
/// again at 1.
#[derive(Clone, Debug)]
pub(crate) struct Queue<W> {
    line: BTreeMap<u64, (Id, W)>,
    tickets: IdMap<u64>,
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Self { line: BTreeMap::new(), tickets: IdMap::default() }
    }
}

impl<W> Queue<W> {
    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.line.len()
    }

    /// Joins at the end, or renews the place already held.
    pub(crate) fn join(&mut self, id: Id, waiter: W) {
        if let Some(ticket) = self.tickets.get(&id) {
            self.line.insert(*ticket, (id, waiter));
            return;
        }
        let ticket = self.line.last_key_value().map_or(1, |(last, _)| last + 1);
        self.tickets.insert(id, ticket);
        self.line.insert(ticket, (id, waiter));
    }

    pub(crate) fn leave(&mut self, id: Id) -> bool {
        self.tickets.remove(&id).is_some_and(|ticket| self.line.remove(&ticket).is_some())
    }

    pub(crate) fn head(&self) -> Option<(Id, &W)> {
        self.line.first_key_value().map(|(_, (id, waiter))| (*id, waiter))
    }

    pub(crate) fn get(&self, id: Id) -> Option<&W> {
        self.tickets.get(&id).and_then(|ticket| self.line.get(ticket)).map(|(_, waiter)| waiter)
    }

    /// Everybody in line, first come first.
    pub(crate) fn ids(&self) -> impl Iterator<Item = Id> + '_ {
        self.line.values().map(|(id, _)| *id)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Id, &mut W)> {
        self.line.values_mut().map(|(id, waiter)| (*id, waiter))
    }

    /// Lets only those stay for whom `keep` says so.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(Id, &W) -> bool) {
        let tickets = &mut self.tickets;
        self.line.retain(|_, (id, waiter)| {
            let stays = keep(*id, waiter);
            if !stays {
                tickets.remove(id);
            }
            stays
        });
    }

    /// How many tickets lie before this one: those who left in between still count.
    pub(crate) fn ahead(&self, id: Id) -> u64 {
        let head = self.line.first_key_value().map_or(0, |(head, _)| *head);
        self.tickets.get(&id).map_or(0, |ticket| ticket - head)
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
}
