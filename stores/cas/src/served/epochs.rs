//! What answers of a server tell about the whole store, and the epochs in which it has lost nothing.

use crate::backend::Epoch;
use locker_core::clock::Timestamp;
use std::time::Duration;

/// What is added to the longest hold, in microseconds: clocks do not run at exactly the same rate.
pub const SLACK: i64 = 1_000_000;

/// The longest hold that counts: nothing is granted for an hour at most.
const LONGEST: Duration = Duration::from_secs(3600);

/// What the tables of a store say of it. Times are on the clock of the server, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct StoreState {
    /// The present time.
    pub now: i64,
    /// At least as high as the fences of all keys that were removed.
    pub fence: i64,
    /// How often keys were removed, -1 if the table is empty.
    pub removals: i64,
    /// No hold was granted for longer.
    pub longest: i64,
    /// Whether a process has ever granted what a crash of the server loses.
    pub quick: bool,
    /// Whether a crash cannot lose the row any more. Until then another process waits.
    pub is_written: bool,
    /// Nothing is granted before.
    pub quiet_until: i64,
    /// The id in `locker_boot`, whose row is gone after anything that may have lost writes.
    pub epoch: Option<i64>,
}

impl StoreState {
    /// Returns the id of the epoch, unless the row is missing that tells of losses, or does not say yet that writes of
    /// this process can be lost.
    pub(super) fn epoch_to_use(&self, must_be_quick: bool) -> Option<i64> {
        self.epoch.filter(|_| self.removals >= 0 && (self.quick && self.is_written || !must_be_quick))
    }
}

/// What is known about the present epoch: the row of `locker_boot`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KnownEpoch {
    /// 0 if it is not known.
    pub(super) id: i64,
    /// No hold was granted for longer, in microseconds. An administrator may have lowered it since it was read.
    pub(super) longest: i64,
    /// On the clock of this process: the clocks of two servers may differ.
    quiet_until: Timestamp,
}

impl KnownEpoch {
    /// Records a state that has just come. Returns whether it is of another epoch.
    pub(super) fn record(&mut self, id: i64, state: &StoreState, now: Timestamp) -> bool {
        // Not longer than it was at its beginning: the clock of the server may have been ahead then.
        let left = state.quiet_until.saturating_sub(state.now).min(state.longest.saturating_add(SLACK));
        let left = u64::try_from(left).unwrap_or(0);
        let (longest, quiet_until) = (state.longest, now + Duration::from_micros(left));
        if self.id != id {
            *self = Self { id, longest, quiet_until };
            return true;
        }
        self.longest = longest;
        self.quiet_until = self.quiet_until.min(quiet_until);
        false
    }

    pub(super) fn at(&self, now: Timestamp) -> Epoch {
        let left = self.quiet_until.since(now);
        Epoch { id: self.id, quiet: (!left.is_zero()).then_some(left) }
    }
}

/// Returns how long a hold counts, in microseconds.
pub(super) fn counted(hold: Duration) -> i64 {
    i64::try_from(hold.min(LONGEST).as_micros()).unwrap_or(i64::MAX)
}

/// Returns the longest hold to record for one of this length: a tenth longer, since the next may be a little longer.
pub(super) fn rounded_up(hold: i64) -> i64 {
    let second = 1_000_000;
    ((hold + hold / 10 + second - 1) / second * second).min(counted(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(longest: i64, quiet_until: i64) -> StoreState {
        StoreState {
            now: 1_000_000_000,
            fence: 0,
            removals: 0,
            longest,
            quick: false,
            is_written: true,
            quiet_until,
            epoch: Some(1),
        }
    }

    /// The clock of the server was a day ahead when the quiet time began.
    #[test]
    fn quiet_time_is_no_longer_than_the_longest_hold() {
        let (mut epoch, now) = (KnownEpoch::default(), Timestamp::now());
        assert!(epoch.record(1, &state(11_000_000, 87_400_000_000), now));
        assert_eq!(epoch.at(now).quiet, Some(Duration::from_secs(12)));
    }

    /// It said nothing of a quiet time, and so ended the one that was known.
    #[test]
    fn state_without_its_row_is_not_used() {
        let known = state(11_000_000, 0);
        assert_eq!((known.epoch_to_use(false), known.epoch_to_use(true)), (Some(1), None));
        let quick = StoreState { quick: true, ..known };
        assert_eq!(quick.epoch_to_use(true), Some(1));
        assert_eq!(StoreState { is_written: false, ..quick }.epoch_to_use(true), None);
        assert_eq!(StoreState { removals: -1, ..known }.epoch_to_use(false), None);
    }

    #[test]
    fn a_lowered_longest_hold_is_raised_again() {
        let (mut epoch, now) = (KnownEpoch::default(), Timestamp::now());
        for longest in [67_000_000, 11_000_000] {
            epoch.record(1, &state(longest, 0), now);
            assert_eq!(epoch.longest, longest);
        }
    }
}
