//! What this process knows of the versions of values. Any of it may be forgotten: it is then read again.

use locker_cas::Version;
use locker_core::sync::{Mutex, lock};
use std::{collections::HashMap, mem::take};

/// How many keys each of the two halves has.
const HALF: usize = 8_192;

/// The version of a value, as a transaction can check it.
///
/// `version` is the number of the transaction that wrote the value, which a check cannot name. A node with this data
/// version, in a bucket without insertions since, has the value of that transaction: it is no node of the same name that
/// was made later, whoever removed the former one. The bucket was read before the value.
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
}

impl Memory {
    pub(super) fn get(&self, key: &str) -> Option<Known> {
        let halves = lock(&self.0);
        halves.new.get(key).or_else(|| halves.old.get(key)).copied()
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
