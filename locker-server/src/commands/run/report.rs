//! `locker run --json`.

use crate::{api::state::millis, cli::Run};
use locker_runtime::{Guard, Key};
use serde::Serialize;
use std::{io::Write, time::Instant};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    /// The lock was held until the command ended, also if the command could not be run.
    Held,
    /// Another run had succeeded in this slot.
    Skipped,
    /// Others held the lock until the wait ended.
    Busy,
    /// The lock was lost.
    Lost,
    /// The store could not be asked, or refused.
    Unavailable,
}

/// What happened during a run, and when.
#[derive(Debug)]
pub(super) struct Report {
    outcome: Outcome,
    asked: Instant,
    granted: Option<(Instant, u64)>,
    ended: Option<Instant>,
}

/// The line of a report. Programs of others read these names.
#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    key: &'a str,
    fence: Option<u64>,
    waited_ms: u64,
    held_ms: u64,
    outcome: Outcome,
    exit: u8,
}

impl Report {
    /// Begins with the wait.
    pub(super) fn new() -> Self {
        Self { outcome: Outcome::Unavailable, asked: Instant::now(), granted: None, ended: None }
    }

    pub(super) fn granted(&mut self, guard: &Guard) {
        self.outcome = Outcome::Held;
        self.granted = Some((Instant::now(), guard.fence()));
    }

    pub(super) fn is_lost(&self) -> bool {
        self.outcome == Outcome::Lost
    }

    /// Ends the wait or the hold, unless it has ended.
    pub(super) fn ended(&mut self, outcome: Outcome) {
        self.outcome = outcome;
        self.ended.get_or_insert_with(Instant::now);
    }

    /// Prints the line if the options want it, in one write, so that no other process writes into it. Returns the exit
    /// code.
    pub(super) fn print(&self, options: &Run, exit: u8) -> u8 {
        if !options.json {
            return exit;
        }
        let key = Key::named(&options.store.prefix.prefix, options.kind(), &options.name);
        let text = serde_json::to_string(&self.line(&options.name, key.as_str(), exit));
        // A closed standard error changes nothing about the run.
        drop(text.map(|text| std::io::stderr().write_all(format!("{text}\n").as_bytes())));
        exit
    }

    fn line<'a>(&self, name: &'a str, key: &'a str, exit: u8) -> Line<'a> {
        let ended = self.ended.unwrap_or_else(Instant::now);
        let granted = self.granted.map_or(ended, |(granted, _)| granted);
        Line {
            name,
            key,
            fence: self.granted.map(|(_, fence)| fence),
            waited_ms: millis(granted.saturating_duration_since(self.asked)),
            held_ms: millis(ended.saturating_duration_since(granted)),
            outcome: self.outcome,
            exit,
        }
    }
}
