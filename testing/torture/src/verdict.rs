//! The findings of a torture run.

use std::{collections::BTreeMap, fmt};

/// The findings.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) problems: Vec<String>,
    pub(crate) fenced_updates: u64,
    pub(crate) plain_updates: u64,
    pub(crate) plain_lost: u64,
    pub(crate) grants: BTreeMap<String, usize>,
    /// The number of calls to counters, events, latches, barriers and watchdogs.
    pub(crate) steps: BTreeMap<String, usize>,
    pub(crate) admitted: usize,
    pub(crate) refused: u64,
    pub(crate) too_late: usize,
    pub(crate) missed: u64,
    pub(crate) lost: u64,
    pub(crate) inversions: usize,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "grants: {:?}; {} timed out, {} reported as lost", self.grants, self.missed, self.lost)?;
        writeln!(f, "{} admitted by limiters, {} refused", self.admitted, self.refused)?;
        writeln!(f, "other calls: {:?}", self.steps)?;
        writeln!(f, "{} guards lost at their first check, nothing written under them", self.too_late)?;
        writeln!(f, "{} served out of order, over reconnects and restarts", self.inversions)?;
        writeln!(f, "{} updates under a fence, none lost unless listed below", self.fenced_updates)?;
        writeln!(f, "{} updates under the lock alone, {} lost", self.plain_updates, self.plain_lost)?;
        for problem in self.problems.iter().take(20) {
            writeln!(f, "problem: {problem}")?;
        }
        write!(f, "{} problems", self.problems.len())
    }
}
