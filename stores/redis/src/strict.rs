//! Strict mode: after anything that may have lost grants, nothing is granted until they are over.
//!
//! Each script for holds compares the server's replication id with its record (`lua/strict.lua`): a server with another
//! id may have lost writes. `model` has the reasons for each rule.

#[cfg(test)]
mod model;
#[cfg(test)]
pub(super) mod reference;

use super::slots::{SLOTS, slot_of};
use locker_core::{
    error::Result,
    key::Key,
    primitives::{HoldRequest, Request},
    ranges::misused,
};
use std::time::Duration;

/// How long a former master may go on, and how far the clocks of two servers may be apart, together.
pub(super) const SLACK: Duration = Duration::from_secs(2);

/// The settings of a locker in strict mode.
#[derive(Debug)]
pub(super) struct Strict {
    pub(super) longest: Duration,
    prefix: String,
    /// In a cluster, a number for each slot: the name of the slot's record.
    numbers: Option<Vec<u32>>,
}

impl Strict {
    pub(super) fn new(longest: Duration, prefix: &str, is_cluster: bool) -> Self {
        let numbers = is_cluster.then(|| numbers(prefix));
        Self { longest, prefix: prefix.to_owned(), numbers }
    }

    /// Returns the last arguments of scripts in strict mode: the longest lease and the slack, in milliseconds.
    pub(super) fn limits(&self) -> (u64, u64) {
        let whole = |time: Duration| u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        (whole(self.longest), whole(SLACK))
    }

    /// Returns the key of the record for `key`. On one server all keys have the same record. In a cluster each slot has
    /// its own.
    pub(super) fn epoch_key(&self, key: &Key) -> String {
        match &self.numbers {
            Some(numbers) => {
                format!("{{{}}}:epoch", tag(&self.prefix, numbers[usize::from(slot_of(key.as_str()))]))
            }
            None => format!("{{{}locker}}:epoch", self.prefix),
        }
    }

    /// Refuses leases that may outlast the time in which nothing is granted.
    pub(super) fn check(&self, request: &Request) -> Result<()> {
        let lease = match request {
            Request::Lock(HoldRequest::Acquire { lease, .. } | HoldRequest::Renew { lease, .. })
            | Request::Semaphore(HoldRequest::Acquire { lease, .. } | HoldRequest::Renew { lease, .. }) => {
                *lease
            }
            _ => return Ok(()),
        };
        if lease <= self.longest {
            return Ok(());
        }
        let shown = match lease {
            Duration::MAX => "without end".to_owned(),
            lease => format!("of {}", humantime::format_duration(lease)),
        };
        let longest = humantime::format_duration(self.longest);
        misused(format!("a lease {shown} is longer than strict mode allows, which is {longest} here"))
    }
}

fn tag(prefix: &str, number: u32) -> String {
    format!("{prefix}locker-{number}")
}

/// Returns the lowest number of each slot whose tag is in the slot.
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
        let (one, all) = (Strict::new(SLACK, "shop:", false), Strict::new(SLACK, "shop:", true));
        for key in ["shop:lock:a", "shop:semaphore:b", "shop:lock:c"].map(Key::new) {
            assert_eq!(one.epoch_key(&key), "{shop:locker}:epoch");
            let record = all.epoch_key(&key);
            assert!(record.starts_with("{shop:locker-") && record.ends_with("}:epoch"), "{record}");
            assert_eq!(slot_of(&record), slot_of(key.as_str()));
        }
    }
}
