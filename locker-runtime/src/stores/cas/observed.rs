//! The time of a key on a store whose clock nobody can read.
//!
//! Each value has a stamp: the time of its key when it was written. A process that first saw a value at its local time
//! `o` says at local time `t` that it is `stamp + (t - o)` there, which is never too late: the value was written before
//! `o`. So a hold that was promised until `stamp + lease` does not end before `lease` has passed since the write, and
//! its holder counts from before the write. Only the rate of the clocks matters, and a holder leaves a thousandth of
//! its lease unused.
//!
//! A later value may have been stamped by a process that knew the time less well. So each promise counts from the value
//! with which its end was first seen, and steps run at the earliest of the times that follow. Without a promise the
//! latest value counts.

use super::entry::Entry;
use crate::{clock::Timestamp, id::IdMap};

/// How far the time of one key is ahead of the local clock, at least.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    latest: i64,
    /// The end of each promise, with the lead of the value that it was first seen with.
    promises: IdMap<(Timestamp, i64)>,
}

impl Observed {
    /// Returns the time of the key: no later than it is for any holder.
    pub(super) fn now(&self, local: Timestamp) -> Timestamp {
        let lead = self.promises.values().map(|(_, lead)| *lead).min().unwrap_or(self.latest);
        Timestamp::from_micros(signed(local).saturating_add(lead).max(0).unsigned_abs())
    }

    /// Returns whether the end of a promise is awaited.
    pub(super) fn has_promises(&self) -> bool {
        !self.promises.is_empty()
    }

    /// Records a value that was there at `local` at the latest.
    pub(super) fn see(&mut self, entry: &Entry, stamp: Timestamp, local: Timestamp) {
        self.latest = signed(stamp) - signed(local);
        let known = std::mem::take(&mut self.promises);
        for (id, end) in entry.promises() {
            let lead = known.get(&id).filter(|(before, _)| *before == end).map(|(_, lead)| *lead);
            self.promises.insert(id, (end, lead.unwrap_or(self.latest)));
        }
    }
}

fn signed(time: Timestamp) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}
