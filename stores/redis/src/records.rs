//! The keys that belong to no name: records about the server, and about all names of a prefix.

use super::slots::{SLOTS, slot_of};
use locker_core::key::Key;
use std::{fmt::Write, sync::OnceLock};

/// The names of the records. On one server, all keys of a prefix have the same records. In a cluster each slot has its
/// own.
#[derive(Debug)]
pub(super) struct Records {
    prefix: String,
    /// In a cluster, a number for each slot: the names of its records have it.
    numbers: OnceLock<Vec<u32>>,
}

impl Records {
    pub(super) fn new(prefix: &str, is_cluster: bool) -> Self {
        let records = Self { prefix: prefix.to_owned(), numbers: OnceLock::new() };
        if is_cluster {
            records.divide();
        }
        records
    }

    /// Gives each slot records of its own from now on: the server is a node of a cluster, or a proxy of one. It refuses
    /// keys of several slots in one call, so nothing was recorded before.
    pub(super) fn divide(&self) {
        self.numbers.get_or_init(|| numbers(&self.prefix));
    }

    pub(super) fn are_divided(&self) -> bool {
        self.numbers.get().is_some()
    }

    /// Appends the name of the record `kind` for `key`.
    pub(super) fn write(&self, key: &Key, kind: &str, text: &mut String) {
        text.extend(["{", &*self.prefix, "locker"]);
        if let Some(numbers) = self.numbers.get() {
            write!(text, "-{}", numbers[usize::from(slot_of(key.as_str()))])
                .expect("memory takes every write");
        }
        text.extend(["}:", kind]);
    }
}

fn tag(prefix: &str, number: u32) -> String {
    format!("{prefix}locker-{number}")
}

/// Returns for each slot the lowest number with which a tag leads to that slot.
fn numbers(prefix: &str) -> Vec<u32> {
    const NONE: u32 = u32::MAX;
    let mut numbers = vec![NONE; usize::from(SLOTS)];
    let mut missing = numbers.len();
    for number in 0..NONE {
        let of_slot = &mut numbers[usize::from(slot_of(&tag(prefix, number)))];
        if *of_slot == NONE {
            (*of_slot, missing) = (number, missing - 1);
        }
        if missing == 0 {
            break;
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_in_the_slot_of_the_key() {
        let name = |records: &Records, key: &Key| {
            let mut name = String::new();
            records.write(key, "epoch", &mut name);
            name
        };
        let (one, all) = (Records::new("shop:", false), Records::new("shop:", true));
        for key in ["shop:lock:a", "shop:semaphore:b", "shop:lock:c"].map(Key::new) {
            assert_eq!(name(&one, &key), "{shop:locker}:epoch");
            let record = name(&all, &key);
            assert!(record.starts_with("{shop:locker-") && record.ends_with("}:epoch"), "{record}");
            assert_eq!(slot_of(&record), slot_of(key.as_str()));
        }
    }
}
