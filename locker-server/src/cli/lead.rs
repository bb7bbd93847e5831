//! Options of `locker lead`.

use super::{StoreOptions, a_millisecond_or_more, duration, name};
use clap::Args;
use locker_runtime::{Locker, private::bindings::LazyLocker};
use std::{ffi::OsString, time::Duration};

/// Options of `locker lead`.
#[derive(Args, Clone, Debug)]
#[command(after_help = LEAD)]
pub(crate) struct Lead {
    /// Name of the election
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// What others see of this process while it leads, such as its address: a line of up to 120 bytes. Default: host
    /// and process
    #[arg(long, env = "LOCKER_NOTE", value_name = "TEXT", value_parser = note)]
    pub(crate) note: Option<String>,
    /// How long the others wait for a new leader if this machine dies. The lease is renewed while the command runs
    #[arg(long, env = "LOCKER_LEASE", default_value = "15s", value_name = "TIME", value_parser = a_millisecond_or_more)]
    pub(crate) lease: Duration,
    /// End the term, and with it the command, --stop-before this time after its start; then take part again. Default:
    /// none
    #[arg(long, env = "LOCKER_MAX_HOLD", value_name = "TIME", value_parser = a_millisecond_or_more)]
    pub(crate) max_hold: Option<Duration>,
    /// If the term is not renewed in time, end the command this long before the lease is over: at least --kill-after,
    /// and at most half of the lease. Default: a fifth of the lease
    #[arg(long, env = "LOCKER_STOP_BEFORE", value_name = "TIME", value_parser = duration)]
    pub(crate) stop_before: Option<Duration>,
    /// Let no other process lead for at least this long, although the command and this program end before; up to a
    /// lease longer
    #[arg(long, env = "LOCKER_MIN_HOLD", default_value = "0s", value_name = "TIME", value_parser = duration)]
    pub(crate) min_hold: Duration,
    /// When the term is lost, or after a signal: the time between SIGTERM and SIGKILL for the command and its children.
    /// Default: --stop-before, at most 5s
    #[arg(long, env = "LOCKER_KILL_AFTER", value_name = "TIME", value_parser = duration)]
    pub(crate) kill_after: Option<Duration>,
    /// See [`StoreOptions`].
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// The longest time between SIGTERM and SIGKILL that is not set.
const KILL_AFTER: Duration = Duration::from_secs(5);

impl Lead {
    /// Returns the time between SIGTERM and SIGKILL: by default the command has ended before the next one begins.
    pub(crate) fn kill_after(&self) -> Duration {
        let margin = self.stop_before.unwrap_or(self.lease / 5);
        let default = if margin.is_zero() { KILL_AFTER } else { margin.min(KILL_AFTER) };
        self.kill_after.unwrap_or(default)
    }
}

const LEAD: &str = "\
Waits until this process is elected, also while the store is away after the start, and then starts the command. If the \
term is lost, it ends the command, waits again, and starts the command anew. When the command ends by \
itself, the next process is elected.

Environment of the command:
  LOCKER_KEY    the key of the election, leader:NAME below the prefix
  LOCKER_FENCE  rises with every term: lets a resource reject what former leaders send

Exit codes:
  n        that of the command; 128 + n if signal n ended it or the wait
  1        the exit status of the command is unknown
  64       wrong options, no store, an invalid name, or a store that refuses its user
  65       the key is of another kind, its data are of a later version, or the name was deleted
  69       the store is unavailable at the start
  126      the command cannot be run
  127      the command does not exist

Signals: without a terminal the command has its own process group. SIGTERM, SIGINT, SIGHUP, SIGQUIT \
and a lost term end the whole group; only processes that leave the group (a daemon) survive. At a \
terminal they end the command alone. After a signal the command ends first, then the term. While it \
waits, a signal ends the program.

LOCKER_LOG sets the log level on standard error: error, warn, info (the default), debug.

Example, on every machine:
  export LOCKER_URL=redis://10.0.0.7
  locker lead scheduler --note \"$(hostname)\" -- /usr/local/bin/scheduler
  locker ls --kind leader";

/// Checks a note as a locker does. Nothing is opened.
fn note(text: &str) -> Result<String, String> {
    let checked = LazyLocker::new(Locker::builder().url("memory://").note(text));
    checked.map(|_| text.to_owned()).map_err(|error| error.message().to_owned())
}
