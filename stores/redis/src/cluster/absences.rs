//! Masters that no node knows.

use crate::slots::NodeNumber;
use locker_core::clock::Timestamp;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Since when each master has been unknown to all nodes that answer.
#[derive(Debug, Default)]
pub(super) struct Absences(BTreeMap<NodeNumber, Timestamp>);

impl Absences {
    /// Takes in the masters that no node knows now. Returns those that none has known for `limit`.
    pub(super) fn of(
        &mut self,
        unknown: BTreeSet<NodeNumber>,
        now: Timestamp,
        limit: Duration,
    ) -> BTreeSet<NodeNumber> {
        self.0.retain(|number, _| unknown.contains(number));
        for number in unknown {
            self.0.entry(number).or_insert(now);
        }
        self.0.iter().filter(|(_, since)| now >= **since + limit).map(|(number, _)| *number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absence_counts_without_interruption() {
        let (mut absences, start, limit) =
            (Absences::default(), Timestamp::from_micros(1), Duration::from_secs(5));
        let mut gone = |after: u64, unknown: &[NodeNumber]| {
            let now = start + Duration::from_secs(after);
            absences.of(unknown.iter().copied().collect(), now, limit).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(gone(0, &[1, 2]), []);
        assert_eq!(gone(3, &[1]), []);
        assert_eq!(gone(5, &[1, 2]), [1]);
        assert_eq!(gone(10, &[1, 2]), [1, 2]);
        assert_eq!(gone(11, &[]), []);
    }
}
