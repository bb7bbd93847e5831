//! A cache of values by id, kept for the time in which a copy of the id's request may still arrive.

use crate::{clock::Timestamp, id::Id, primitives::protocol::TOMBSTONE};
use std::collections::{HashMap, VecDeque};

#[derive(Clone, Debug)]
pub(crate) struct ReplyCache<V> {
    known: HashMap<Id, (Timestamp, V)>,
    /// The ids by their ends. An id that was forgotten earlier is dropped when it reaches the front.
    order: VecDeque<(Timestamp, Id)>,
}

impl<V> Default for ReplyCache<V> {
    fn default() -> Self {
        Self { known: HashMap::new(), order: VecDeque::new() }
    }
}

impl<V> ReplyCache<V> {
    /// Keeps the first value of an id.
    pub(crate) fn keep(&mut self, id: Id, value: V, now: Timestamp) {
        let end = now + TOMBSTONE;
        if !self.has(id) {
            self.known.insert(id, (end, value));
            self.order.push_back((end, id));
        }
    }

    pub(crate) fn has(&self, id: Id) -> bool {
        self.known.contains_key(&id)
    }

    pub(crate) fn get(&self, id: Id) -> Option<&V> {
        self.known.get(&id).map(|(_, value)| value)
    }

    pub(crate) fn forget(&mut self, id: Id) {
        if self.known.remove(&id).is_some() {
            self.drop_front(|_| false);
        }
    }

    pub(crate) fn forget_until(&mut self, now: Timestamp) {
        self.drop_front(|end| end <= now);
    }

    fn drop_front(&mut self, is_over: impl Fn(Timestamp) -> bool) {
        while let Some(&(end, id)) = self.order.front() {
            let is_known = self.known.get(&id).is_some_and(|(until, _)| *until == end);
            if is_known && !is_over(end) {
                return;
            }
            if is_known {
                self.known.remove(&id);
            }
            self.order.pop_front();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub(crate) fn next_end(&self) -> Option<Timestamp> {
        self.order.front().map(|(until, _)| *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_id_keeps_its_first_value_until_its_end() {
        let (mut cache, start) = (ReplyCache::default(), Timestamp::from_micros(1));
        let (one, two, second) = (Id::from(1), Id::from(2), Duration::from_secs(1));
        cache.keep(one, "a", start);
        cache.keep(one, "b", start);
        cache.keep(two, "c", start);
        assert_eq!(cache.get(one), Some(&"a"));
        cache.forget(one);
        cache.keep(one, "d", start + second);
        cache.forget_until(start + TOMBSTONE);
        assert_eq!((cache.get(one), cache.get(two)), (Some(&"d"), None));
        assert_eq!(cache.next_end(), Some(start + second + TOMBSTONE));
        cache.forget(one);
        assert!(cache.is_empty() && cache.next_end().is_none());
    }
}
