//! The findings of a torture run.

use std::{collections::BTreeMap, fmt};

/// The findings.
#[derive(Debug, Default)]
pub struct Verdict {
    pub problems: Vec<String>,
    pub fenced_updates: u64,
    pub plain_updates: u64,
    pub plain_lost: u64,
    pub grants: BTreeMap<String, usize>,
    /// The number of calls to counters, events, latches, barriers and watchdogs.
    pub steps: BTreeMap<String, usize>,
    pub admitted: usize,
    pub refused: u64,
    pub too_late: usize,
    pub missed: u64,
    pub lost: u64,
    pub inversions: usize,
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
