//! The options of `locker run --once-per`.

use super::duration;
use crate::exit_code;
use clap::{ArgMatches, Args, ValueEnum, parser::ValueSource};
use locker_runtime::private::bindings::slots;
use std::time::Duration;

/// The options of `locker run --once-per`.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Once per slot of time")]
pub struct Once {
    /// Run the command once in each slot of this length, 1s to 366d, on all machines together. It counts if it ends
    /// with 0; calls meanwhile wait, and are skipped after a success
    #[arg(long, env = "LOCKER_ONCE_PER", value_name = "TIME", value_parser = duration)]
    pub once_per: Option<Duration>,
    /// When slots begin, after midnight UTC. Default: 0s
    #[arg(long, env = "LOCKER_FROM", value_name = "TIME", value_parser = duration)]
    pub from: Option<Duration>,
    /// How much earlier than its slot a call counts for it, at most half of a slot. Default: 30s, or a tenth of a slot
    /// if that is less
    #[arg(long, env = "LOCKER_EARLY", value_name = "TIME", value_parser = duration)]
    pub early: Option<Duration>,
    /// What a call does in a slot in which a command has run and nobody knows how it ended, because its machine died or
    /// its lease was lost. Default: repeat
    #[arg(long, env = "LOCKER_AFTER_CRASH", value_name = "WHAT")]
    pub after_crash: Option<AfterCrash>,
    /// Exit code if the command is skipped. Default: 0
    #[arg(long, env = "LOCKER_SKIP_EXIT_CODE", value_name = "CODE")]
    pub skip_exit_code: Option<u8>,
}

/// The values of `--after-crash`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AfterCrash {
    /// Run the command again
    Repeat,
    /// Refuse to run it in this slot: exit code 75
    Refuse,
}

impl Once {
    /// Returns the exit code of a call that is skipped.
    pub(crate) fn skip_exit_code(&self) -> u8 {
        self.skip_exit_code.unwrap_or(exit_code::SUCCESS)
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let Some(every) = self.once_per else { return Ok(()) };
        let checked = slots(every, self.from, self.early);
        checked.map(|_| ()).map_err(|error| format!("--once-per: {}", error.message()))
    }
}

/// Refuses options on the command line that `--once-per` alone has. Variables may be there for other lines of a
/// crontab.
pub(super) fn refuse_without_slots(matches: &ArgMatches) -> Result<(), String> {
    let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    // Other commands do not know it.
    if !matches!(matches.try_contains_id("once_per"), Ok(false)) {
        return Ok(());
    }
    let options = ["from", "early", "after_crash", "skip_exit_code"];
    match options.into_iter().find(|id| is_given(id)) {
        Some(id) => Err(format!("--{} needs --once-per", id.replace('_', "-"))),
        None => Ok(()),
    }
}
