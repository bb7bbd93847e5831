//! What a judge has found.

use std::{collections::BTreeMap, fmt, time::Duration};

/// What a judge has found.
#[derive(Debug, Default)]
pub struct Verdict {
    /// The breaches of laws.
    pub problems: Vec<Problem>,
    /// The accepted updates of resources that check the fence.
    pub fenced_updates: u64,
    /// The updates of resources that trust the lock alone.
    pub plain_updates: u64,
    /// How many of those were lost.
    pub plain_lost: u64,
    /// The grants by kind.
    pub grants: BTreeMap<String, usize>,
    /// The number of calls to counters, events, latches, barriers and watchdogs.
    pub steps: BTreeMap<String, usize>,
    /// The admissions by limiters.
    pub admitted: usize,
    /// The refusals by limiters.
    pub refused: usize,
    /// The holds that were over at their first check.
    pub too_late: usize,
    /// The calls to locks and limiters that ended without a grant or a refusal.
    pub missed: usize,
    /// The holds that were reported as lost.
    pub lost: usize,
    /// The grants out of order, at any time.
    pub inversions: usize,
    /// How long the circles lasted that ended with `deadlock`, the shortest first.
    pub circles: Vec<Duration>,
}

impl Verdict {
    /// Returns `true` if no law is broken.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Writes the figures, without the problems.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "grants: {:?}; {} timed out, {} reported as lost", self.grants, self.missed, self.lost)?;
        writeln!(f, "{} admitted by limiters, {} refused", self.admitted, self.refused)?;
        writeln!(f, "other calls: {:?}", self.steps)?;
        writeln!(f, "{} guards lost at their first check, nothing written under them", self.too_late)?;
        writeln!(f, "{} served out of order, over reconnects and restarts", self.inversions)?;
        if let (Some(shortest), Some(longest)) = (self.circles.first(), self.circles.last()) {
            let middle = self.circles[self.circles.len() / 2];
            let count = self.circles.len();
            writeln!(
                f,
                "{count} circles ended with a deadlock after {shortest:.1?} to {longest:.1?}, half of them by {middle:.1?}"
            )?;
        }
        writeln!(f, "{} updates under a fence, none lost unless listed above", self.fenced_updates)?;
        writeln!(f, "{} updates under the lock alone, {} lost", self.plain_updates, self.plain_lost)?;
        write!(f, "{} problems", self.problems.len())
    }
}

/// The breach of a law.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The numbers of the lines that show it, from 1.
    pub lines: Vec<usize>,
    /// What is wrong.
    pub text: String,
}

impl Problem {
    /// Returns a problem that these lines show, each named once.
    pub(crate) fn new(lines: impl IntoIterator<Item = usize>, text: impl Into<String>) -> Self {
        let mut lines: Vec<usize> = lines.into_iter().collect();
        lines.sort_unstable();
        lines.dedup();
        Self { lines, text: text.into() }
    }

    /// The most lines that a problem names: those of a primitive that excludes nobody would be the square of its calls.
    pub(crate) const NAMED: usize = 16;

    /// Names the primitive.
    pub(crate) fn on(self, name: &str) -> Self {
        Self { text: format!("on {name}, {}", self.text), ..self }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.lines.iter().map(usize::to_string).collect();
        match lines.len() {
            0 => {}
            1 => write!(f, "line {}: ", lines[0])?,
            _ => write!(f, "lines {}: ", lines.join(", "))?,
        }
        f.write_str(&self.text)
    }
}
