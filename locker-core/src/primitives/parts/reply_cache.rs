//! A cache of values by id, kept for the time in which a copy of the id's request may still arrive.

use crate::{clock::Timestamp, id::Id, primitives::protocol::TOMBSTONE};
use std::collections::{HashMap, VecDeque};

#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "_cas",
    derive(serde::Deserialize),
    serde(try_from = "Stored<V>", bound = "V: Clone + serde::Deserialize<'de>")
)]
pub struct ReplyCache<V> {
    /// Each value with the number of its place.
    known: HashMap<Id, (u64, V)>,
    /// The ids by their ends. The place of an id that was forgotten earlier is dropped when it reaches the front.
    order: VecDeque<(Timestamp, Id)>,
    /// The number of the first place.
    first: u64,
}

impl<V> Default for ReplyCache<V> {
    fn default() -> Self {
        Self { known: HashMap::new(), order: VecDeque::new(), first: 0 }
    }
}

impl<V> ReplyCache<V> {
    /// Keeps the first value of an id.
    pub(crate) fn keep(&mut self, id: Id, value: V, now: Timestamp) {
        if !self.has(id) {
            self.push(now + TOMBSTONE, id, value);
        }
    }

    fn push(&mut self, end: Timestamp, id: Id, value: V) {
        self.known.insert(id, (self.first + self.order.len() as u64, value));
        self.order.push_back((end, id));
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

    pub fn forget_until(&mut self, now: Timestamp) {
        self.drop_front(|end| end <= now);
    }

    fn drop_front(&mut self, is_over: impl Fn(Timestamp) -> bool) {
        while let Some(&(end, id)) = self.order.front() {
            let is_known = self.known.get(&id).is_some_and(|(place, _)| *place == self.first);
            if is_known && !is_over(end) {
                return;
            }
            if is_known {
                self.known.remove(&id);
            }
            self.order.pop_front();
            self.first += 1;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub(crate) fn next_end(&self) -> Option<Timestamp> {
        self.order.front().map(|(until, _)| *until)
    }

    /// Returns when all of it is forgotten.
    pub(crate) fn lasts_until(&self) -> Timestamp {
        self.entries().map(|(end, ..)| end).max().unwrap_or_default()
    }

    /// Returns what is known, in the order of the places.
    fn entries(&self) -> impl Iterator<Item = (Timestamp, Id, &V)> {
        (self.first..).zip(&self.order).filter_map(|(place, (end, id))| {
            let (known, value) = self.known.get(id)?;
            (*known == place).then_some((*end, *id, value))
        })
    }
}

/// What is stored of a cache: the ids in the order of their ends. Neighbours with one end and one value share them.
#[cfg(feature = "_cas")]
type Stored<V> = Vec<(Timestamp, V, Vec<Id>)>;

#[cfg(feature = "_cas")]
impl<V: PartialEq + serde::Serialize> serde::Serialize for ReplyCache<V> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut stored: Stored<&V> = Vec::new();
        for (end, id, value) in self.entries() {
            match stored.last_mut() {
                Some((until, shared, ids)) if *until == end && *shared == value => ids.push(id),
                _ => stored.push((end, value, vec![id])),
            }
        }
        stored.serialize(serializer)
    }
}

#[cfg(feature = "_cas")]
impl<V: Clone> TryFrom<Stored<V>> for ReplyCache<V> {
    type Error = &'static str;

    fn try_from(stored: Stored<V>) -> Result<Self, Self::Error> {
        let mut cache = Self::default();
        for (end, value, ids) in stored {
            for id in ids {
                if cache.has(id) {
                    return Err("an id is kept twice");
                }
                cache.push(end, id, value.clone());
            }
        }
        Ok(cache)
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

    #[cfg(feature = "_cas")]
    #[test]
    fn stored_cache_is_small_and_checked() {
        let (mut cache, start) = (ReplyCache::default(), Timestamp::from_micros(1));
        for number in 0..100 {
            cache.keep(Id::from(number), String::from("a long text"), start);
        }
        // Forgotten from the middle, and kept again at the same time.
        cache.forget(Id::from(50));
        let mut read: ReplyCache<String> =
            postcard::from_bytes(&postcard::to_stdvec(&cache).unwrap()).unwrap();
        for cache in [&mut cache, &mut read] {
            cache.keep(Id::from(50), String::from("a long text"), start);
        }
        assert_eq!(postcard::to_stdvec(&cache), postcard::to_stdvec(&read));
        let bytes = postcard::to_stdvec(&cache).unwrap();
        assert!(bytes.len() < 100 * 17, "{}", bytes.len());
        let read: ReplyCache<String> = postcard::from_bytes(&bytes).unwrap();
        assert_eq!((read.known.len(), read.order.len()), (100, 100));
        assert_eq!((read.next_end(), read.lasts_until()), (Some(start + TOMBSTONE), start + TOMBSTONE));
        let twice: Stored<()> =
            vec![(start, (), vec![Id::from(1)]), (start + TOMBSTONE, (), vec![Id::from(1)])];
        assert!(postcard::from_bytes::<ReplyCache<()>>(&postcard::to_stdvec(&twice).unwrap()).is_err());
    }
}
