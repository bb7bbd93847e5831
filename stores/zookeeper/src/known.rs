//! What this process knows of the versions of values. Any of it may be forgotten: it is then read again.

use locker_cas::Version;
use locker_core::sync::{Mutex, lock};
use std::{
    collections::{HashMap, VecDeque},
    mem::take,
    sync::Arc,
};

/// How many keys each of the two halves has.
const HALF: usize = 8_192;

/// How many insertions of this process into a bucket are remembered.
const INSERTIONS: usize = 32;

/// The version of a value, as a transaction can check it.
///
/// `version` is the number of the transaction that wrote the value, which a check cannot name. A node with this data
/// version, in a bucket without insertions since, has the value of that transaction: it is no node of the same name
/// that was made later, whoever removed the former one. The bucket was read before the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) version: Version,
    /// The data version of the value's node.
    pub(super) data: i32,
    /// The data version of its bucket, which counts the insertions.
    pub(super) bucket: i32,
}

/// The keys that were used lately.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Halves>);

#[derive(Debug, Default)]
struct Halves {
    new: HashMap<Box<str>, Known>,
    old: HashMap<Box<str>, Known>,
    /// By bucket, the last insertions of this process: the data version before it, and the key.
    insertions: HashMap<Arc<str>, VecDeque<(i32, Box<str>)>>,
}

impl Halves {
    /// What was known before insertions of other keys is known after them.
    fn after_insertions(&self, bucket: &str, key: &str, mut known: Known) -> Known {
        for (before, inserted) in self.insertions.get(bucket).into_iter().flatten() {
            if *before == known.bucket && **inserted != *key {
                known.bucket = before.wrapping_add(1);
            }
        }
        known
    }
}

impl Memory {
    pub(super) fn get(&self, key: &str) -> Option<Known> {
        let halves = lock(&self.0);
        halves.new.get(key).or_else(|| halves.old.get(key)).copied()
    }

    /// Records an insertion by this process into a bucket that had the data version `before`.
    pub(super) fn note_insertion(&self, bucket: &Arc<str>, before: i32, key: &str) {
        let mut halves = lock(&self.0);
        let insertions = halves.insertions.entry(Arc::clone(bucket)).or_default();
        if insertions.len() == INSERTIONS {
            insertions.pop_front();
        }
        insertions.push_back((before, key.into()));
    }

    /// Returns what is known of a key after the insertions of other keys by this process.
    pub(super) fn after_insertions(&self, bucket: &str, key: &str, known: Known) -> Known {
        lock(&self.0).after_insertions(bucket, key, known)
    }

    pub(super) fn put(&self, key: &str, known: Known) {
        let mut halves = lock(&self.0);
        if halves.new.len() >= HALF {
            halves.old = take(&mut halves.new);
        }
        // The old half may have it, too: the new one counts.
        halves.new.insert(key.into(), known);
    }

    pub(super) fn forget(&self) {
        *lock(&self.0) = Halves::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_insertions_of_other_keys_are_taken_into_account() {
        let (memory, bucket) = (Memory::default(), Arc::from("/b"));
        let known = |bucket| Known { version: 9, data: 1, bucket };
        for (before, key) in [(4, "a"), (5, "b"), (7, "a")] {
            memory.note_insertion(&bucket, before, key);
        }
        let after = |key, before| memory.after_insertions(&bucket, key, known(before)).bucket;
        assert_eq!(
            [after("c", 3), after("c", 4), after("c", 5), after("c", 6)],
            [3, 6, 6, 6],
            "6 was another's"
        );
        assert_eq!(
            [after("c", 7), after("a", 7), after("a", 5), after("a", 4), after("b", 4)],
            [8, 7, 6, 4, 5]
        );
        assert_eq!(memory.after_insertions("/other", "c", known(4)).bucket, 4);
        for number in 8..1_000 {
            memory.note_insertion(&bucket, number, "d");
        }
        assert_eq!((after("c", 999), after("c", 8)), (1_000, 8), "only the last ones are remembered");
        memory.forget();
        assert_eq!(after("c", 999), 999);
    }

    #[test]
    fn memory_is_bounded() {
        let (memory, known) = (Memory::default(), |version| Known { version, data: 1, bucket: 2 });
        let last = Version::try_from(3 * HALF).unwrap();
        for number in 0..=last {
            memory.put(&number.to_string(), known(number));
            memory.put("used", known(number));
        }
        assert_eq!(memory.get("used"), Some(known(last)));
        assert_eq!(memory.get("0"), None);
        let halves = lock(&memory.0);
        assert!(halves.new.len() <= HALF && halves.old.len() <= HALF);
    }
}
