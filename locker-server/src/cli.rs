//! The command line, the `LOCKER_*` variables and the configuration file.

#![allow(clippy::doc_markdown, reason = "these comments are the help text")]

mod file;

use crate::{
    calls,
    carry_out::{LONGEST, MOST_TOKENS},
};
use clap::{Arg, Args, Parser, Subcommand, builder::BoolishValueParser};
use std::{ffi::OsString, net::SocketAddr, path::PathBuf, time::Duration};

/// Distributed locks, rate limits and coordination for every language
#[derive(Debug, Parser)]
#[command(name = "locker", version, propagate_version = true, max_term_width = 100, after_help = TOUR)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const TOUR: &str = "\
A first tour:
  locker serve &                                              a server on this machine, state in memory
  curl -X POST localhost:5505/v1/tokenbucket/mail/acquire     one mail a second, whoever sends it
  KEY=$(curl -sX POST \"localhost:5505/v1/semaphore/db/acquire?size=10\")
  curl -X POST \"localhost:5505/v1/semaphore/db/release?key=$KEY\"

  export LOCKER_URL=redis://127.0.0.1
  locker run nightly-report -- ./report.sh                    never twice at once, on whichever machine";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the primitives over HTTP and ZeroMQ
    Serve(Box<Serve>),
    /// Hold a lock while a command runs
    Run(Run),
    /// List the locks that are held or waited for
    Ls(Ls),
    /// End the hold of a lock whoever has it, for the next in line; the holder learns that it is lost
    Unlock(Unlock),
}

/// Options of `locker serve`.
#[derive(Args, Clone, Debug)]
#[command(after_help = SERVE)]
pub struct Serve {
    /// Address for HTTP, or `off`. Beyond loopback it takes --token-file
    #[arg(long, env = "LOCKER_HTTP", default_value = "127.0.0.1:5505", value_name = "ADDRESS")]
    pub http: String,
    /// Address for ZeroMQ, or `off`. Beyond loopback it takes --curve-key-file
    #[arg(long, env = "LOCKER_ZMQ", default_value = "tcp://127.0.0.1:7777", value_name = "ENDPOINT")]
    pub zmq: String,
    /// Where state lives: memory:// (this process) or redis://host (any number of servers, survives restarts)
    #[arg(
        long,
        env = "LOCKER_STORE",
        default_value = "memory://",
        value_name = "URL",
        hide_env_values = true
    )]
    pub store: String,
    /// What is accepted of the store.
    #[command(flatten)]
    pub eviction: Eviction,
    /// How many `go` the time-slot limiter (ZeroMQ) answers per slot
    #[arg(long, env = "LOCKER_MAX_REQUESTS", default_value = "1", value_name = "N", help_heading = TIME_SLOTS)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=MOST_TOKENS))]
    pub max_requests: u64,
    /// How long a slot lasts, in seconds; it starts with its first request
    #[arg(long, env = "LOCKER_IN_SECONDS", default_value = "1.0", value_name = "SECONDS", help_heading = TIME_SLOTS)]
    #[arg(value_parser = seconds)]
    pub in_seconds: Duration,
    /// How long a `sorry` may be held back to become a `go` when the next slot starts meanwhile
    #[arg(long, env = "LOCKER_GRACE", default_value = "0s", value_name = "TIME", help_heading = TIME_SLOTS)]
    #[arg(value_parser = duration)]
    pub grace: Duration,
    /// Tell every `go` to the servers that have this one as --peer
    #[arg(long, env = "LOCKER_PUBLISH", value_name = "ENDPOINT", help_heading = TIME_SLOTS)]
    pub publish: Option<String>,
    /// Count the `go`s that this server publishes, too (repeatable)
    #[arg(long = "peer", env = "LOCKER_PEER", value_delimiter = ',', value_name = "ENDPOINT", help_heading = TIME_SLOTS)]
    pub peers: Vec<String>,
    /// One bearer token a line, each at least 128 random bits (`openssl rand -hex 32`)
    #[arg(long, env = "LOCKER_TOKEN_FILE", value_name = "FILE", help_heading = ACCESS)]
    pub token_file: Option<PathBuf>,
    /// Accept this Host header besides localhost and the server's own addresses; * accepts any (repeatable)
    #[arg(long, env = "LOCKER_ALLOW_HOST", value_delimiter = ',', value_name = "NAME", help_heading = ACCESS)]
    pub allow_host: Vec<String>,
    /// The CURVE secret key of the ZeroMQ side (40 characters of Z85); servers that are peers share it, and without
    /// --curve-clients-file nobody else is let in
    #[arg(long, env = "LOCKER_CURVE_KEY_FILE", value_name = "FILE", help_heading = ACCESS)]
    pub curve_key_file: Option<PathBuf>,
    /// The CURVE public keys of the clients that may connect, one a line
    #[arg(long, env = "LOCKER_CURVE_CLIENTS_FILE", value_name = "FILE", help_heading = ACCESS)]
    pub curve_clients_file: Option<PathBuf>,
    /// How many names may be in use
    #[arg(long, env = "LOCKER_MAX_NAMES", default_value = "100000", value_name = "N", help_heading = LIMITS)]
    pub max_names: usize,
    /// How many calls may wait at one name
    #[arg(long, env = "LOCKER_MAX_WAITS_PER_NAME", default_value = "10000", value_name = "N", help_heading = LIMITS)]
    pub max_waits_per_name: usize,
    /// How many calls may wait in all
    #[arg(long, env = "LOCKER_MAX_WAITS", default_value = "50000", value_name = "N", help_heading = LIMITS)]
    pub max_waits: usize,
    /// How many HTTP connections may be open; the limit on open files may allow fewer
    #[arg(long, env = "LOCKER_MAX_CONNECTIONS", default_value = "65536", value_name = "N", help_heading = LIMITS)]
    pub max_connections: usize,
    /// How many ZeroMQ connections may be open; the limit on open files may allow fewer
    #[arg(long, env = "LOCKER_MAX_ZMQ_CONNECTIONS", default_value = "4096", value_name = "N", help_heading = LIMITS)]
    pub max_zmq_connections: usize,
    /// How many calls of one ZeroMQ connection may be unanswered that do not wait
    #[arg(long, env = "LOCKER_MAX_ZMQ_CALLS", default_value = "10000", value_name = "N", help_heading = LIMITS)]
    pub max_zmq_calls: usize,
    /// How many bytes a request line with its headers may have
    #[arg(long, env = "LOCKER_HEADER_SIZE", default_value = "8192", value_name = "BYTES", help_heading = LIMITS)]
    #[arg(value_parser = clap::value_parser!(u32).range(8192..=1_048_576))]
    pub header_size: u32,
    /// How long a request may take to arrive; idle connections are closed after it, too, and after twelve times that
    /// those whose client takes nothing of an answer
    #[arg(long, env = "LOCKER_HEADER_TIMEOUT", default_value = "5s", value_name = "TIME", help_heading = LIMITS)]
    #[arg(value_parser = up_to_a_day)]
    pub header_timeout: Duration,
    /// How long a sent event is remembered
    #[arg(long, env = "LOCKER_EVENT_TTL", default_value = "24h", value_name = "TIME", help_heading = LIMITS)]
    #[arg(value_parser = a_millisecond_or_more)]
    pub event_ttl: Duration,
    /// A TOML file with these options, named as here without the dashes: `max-requests = 5`.
    /// The command line goes before variables, variables before the file
    #[arg(long, env = "LOCKER_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
}

const TIME_SLOTS: &str = "Time-slot limiter";
const ACCESS: &str = "Access";
const LIMITS: &str = "Limits";

const SERVE: &str = "\
Examples:
  locker serve                                              for this machine, state in memory
  locker serve --store redis://10.0.0.7                     any number of these share everything
  locker serve --http 0.0.0.0:5505 --token-file tokens      for other machines, too
  locker serve --zmq tcp://127.0.0.1:7777 --max-requests 5 --in-seconds 0.8
                                                            as LockerServer(5, 0.8) of the ZeroMQ locker
Calls: GET or POST /v1/<kind>/<name>/<action>
  tokenbucket/acquire  semaphore/acquire,release,renew  event/wait,send  watchdog/wait,kick
  with size, interval, expires, maxwait (ms), key, message; GET /openapi.json says it all.
SIGTERM, SIGINT and SIGHUP (unless it is ignored, as under nohup) answer the waiters with 503 and end the
server; a second one ends it at once.";

/// Whether a store may forget.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Eviction {
    /// Accept a Redis that drops keys when its memory is full, locks included
    #[arg(long, env = "LOCKER_ALLOW_EVICTION", value_parser = BoolishValueParser::new())]
    pub allow_eviction: bool,
}

/// Which store `run`, `ls` and `unlock` look at.
#[derive(Args, Clone, Debug, Default)]
pub struct Where {
    /// The store that all users of the lock share: redis://host
    #[arg(long, env = "LOCKER_URL", value_name = "URL", hide_env_values = true)]
    pub store: Option<String>,
    /// What is accepted of it.
    #[command(flatten)]
    pub eviction: Eviction,
}

/// Options of `locker run`.
#[derive(Args, Clone, Debug)]
#[command(after_help = RUN)]
pub struct Run {
    /// The lock
    #[arg(value_parser = name)]
    pub name: String,
    /// How long others wait if this machine dies; renewed while the command runs
    #[arg(long, env = "LOCKER_LEASE", default_value = "30s", value_name = "TIME", value_parser = a_millisecond_or_more)]
    pub lease: Duration,
    /// How long to wait for the lock; 0s tries once
    #[arg(long, env = "LOCKER_TIMEOUT", default_value = "10s", value_name = "TIME", value_parser = duration)]
    pub timeout: Duration,
    /// How long after SIGTERM the command is killed when the lock was lost
    #[arg(long, env = "LOCKER_KILL_AFTER", default_value = "5s", value_name = "TIME", value_parser = duration)]
    pub kill_after: Duration,
    /// The exit code when the lock was not acquired in time
    #[arg(long, env = "LOCKER_CONFLICT_EXIT_CODE", default_value = "75", value_name = "CODE")]
    pub conflict_exit_code: u8,
    /// The store.
    #[command(flatten)]
    pub store: Where,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

const RUN: &str = "\
The command finds the lock in LOCKER_KEY and its fence in LOCKER_FENCE: a number that rises with every
holder, for resources that can refuse late writers.
Exit codes: the command's own (128 + n when signal n ended it); 75 when the lock was not acquired in time
(--conflict-exit-code) or was lost (the command got SIGTERM); 69 when the store cannot be reached;
127 when the command does not exist, 126 when it cannot be run.
Without a terminal the command has a process group of its own: a lost lock and signals that end are for all
that it has started, but for what leaves the group (a daemon). At a terminal they are for the command alone,
and Ctrl-C comes from the terminal; `setsid locker run ..` reaches all.

Example, in the crontab of every machine:
  0 3 * * *  LOCKER_URL=redis://10.0.0.7 locker run --timeout 0s backup -- /usr/local/bin/backup";

/// Options of `locker ls`.
#[derive(Args, Clone, Debug)]
pub struct Ls {
    /// The store.
    #[command(flatten)]
    pub store: Where,
}

/// Options of `locker unlock`.
#[derive(Args, Clone, Debug)]
pub struct Unlock {
    /// The lock
    #[arg(value_parser = name)]
    pub name: String,
    /// The store.
    #[command(flatten)]
    pub store: Where,
}

/// `EX_USAGE`: the call is wrong.
pub const MISUSED: u8 = 64;

/// Reads the command line, the variables and the file.
///
/// # Errors
/// The exit code, when that is all there is to do: with a message one of them is wrong, or help was asked for.
pub fn parse() -> Result<Cli, u8> {
    file::parse_from(std::env::args_os()).map_err(|error| {
        let code = if error.use_stderr() { MISUSED } else { 0 };
        // Nobody reads it any more.
        drop(error.print());
        code
    })
}

/// An empty name is most likely an unset variable: whoever has none would share one lock.
fn name(text: &str) -> Result<String, String> {
    calls::name::check(text).map(|()| text.to_owned())
}

/// Lets options take what starts with a dash, so that a negative number or time is refused for its range.
fn taking_negatives(command: clap::Command) -> clap::Command {
    let is_time = |arg: &Arg| arg.get_value_names().is_some_and(|names| names == ["TIME"]);
    command.mut_subcommands(|command| {
        command.mut_args(|arg| match arg.get_long() {
            Some(_) if is_time(&arg) => arg.allow_hyphen_values(true),
            Some(_) if arg.get_action().takes_values() => arg.allow_negative_numbers(true),
            _ => arg,
        })
    })
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || "give a number of seconds greater than 0, such as 0.8, and at most 10 years".to_owned();
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if time >= Duration::from_millis(1) && time <= LONGEST => Ok(time),
        _ => Err(wrong()),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if time <= LONGEST => Ok(time),
        Ok(_) => Err("give at most 10 years".into()),
        Err(_) if text.starts_with('-') => {
            Err("a time cannot be negative: give one such as 500ms, at most 10 years".into())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Nothing shorter means anything to the store.
fn a_millisecond_or_more(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time < Duration::from_millis(1) { Err("give at least 1ms".into()) } else { Ok(time) }
}

fn up_to_a_day(text: &str) -> Result<Duration, String> {
    let time = a_millisecond_or_more(text)?;
    if time > Duration::from_hours(24) { Err("give at most 24h".into()) } else { Ok(time) }
}

impl Cli {
    /// What clap cannot check: options that do not go together, wherever they come from.
    fn check(&self) -> Result<(), &'static str> {
        let Command::Serve(serve) = &self.command else { return Ok(()) };
        if serve.curve_clients_file.is_some() && serve.curve_key_file.is_none() {
            return Err("--curve-clients-file lets nobody in without --curve-key-file: give that, too");
        }
        match (serve.http.as_str(), serve.zmq.as_str()) {
            ("off", "off") => Err("--http off and --zmq off: nothing would be served"),
            (_, "off") if serve.publish.is_some() => Err("--publish goes with ZeroMQ, and --zmq is off"),
            (_, "off") if !serve.peers.is_empty() => Err("--peer goes with ZeroMQ, and --zmq is off"),
            _ => Ok(()),
        }
    }
}

/// Whether every address is of this machine only.
#[must_use]
pub fn is_loopback(addresses: &[SocketAddr]) -> bool {
    addresses.iter().all(|address| address.ip().to_canonical().is_loopback())
}
