//! The options of the program, with their defaults and help texts.

#![allow(clippy::doc_markdown, reason = "these comments are the help text")]

pub(crate) mod parse;

use crate::{
    api,
    ranges::{MAX_TIME, MAX_TOKENS},
};
use clap::{Arg, Args, Parser, Subcommand, builder::BoolishValueParser};
use std::{ffi::OsString, net::SocketAddr, path::PathBuf, time::Duration};

/// Distributed locks, rate limits and coordination for every language
#[derive(Debug, Parser)]
#[command(name = "locker", version, propagate_version = true, max_term_width = 100, after_help = TOUR)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const TOUR: &str = "\
A first tour:
  locker serve &
  curl -X POST localhost:5505/v1/tokenbucket/mail/acquire
  KEY=$(curl -sX POST localhost:5505/v1/semaphore/db/acquire)
  curl -X POST \"localhost:5505/v1/semaphore/db/release?key=$KEY\"

  export LOCKER_URL=redis://127.0.0.1
  locker run nightly-report -- ./report.sh

LOCKER_LOG sets the log level on standard error: error, warn, info (the default), debug.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the primitives over HTTP and ZeroMQ
    Serve(Box<Serve>),
    /// Hold a lock while a command runs
    Run(Run),
    /// List the locks that are held or waited for
    Ls(Ls),
    /// Force-release a lock: the next waiter gets it, and the holder is told that it was lost
    Unlock(Unlock),
}

/// Options of `locker serve`.
#[derive(Args, Clone, Debug)]
#[command(after_help = SERVE)]
pub(crate) struct Serve {
    /// Address for HTTP, or `off`. An address beyond loopback needs --token-file
    #[arg(long, env = "LOCKER_HTTP", default_value = "127.0.0.1:5505", value_name = "ADDRESS")]
    pub(crate) http: String,
    /// Endpoint for ZeroMQ, or `off`. An endpoint beyond loopback needs --curve-key-file
    #[arg(long, env = "LOCKER_ZMQ", default_value = "tcp://127.0.0.1:7777", value_name = "ENDPOINT")]
    pub(crate) zmq: String,
    /// Where the state lives: memory:// (in this process) or redis://host (shared by all servers, survives restarts)
    #[arg(
        long,
        env = "LOCKER_STORE",
        default_value = "memory://",
        value_name = "URL",
        hide_env_values = true
    )]
    pub(crate) store: String,
    #[command(flatten)]
    pub(crate) eviction: Eviction,
    /// How many requests the time-slot limiter (ZeroMQ) answers with `go` per slot
    #[arg(long, env = "LOCKER_MAX_REQUESTS", default_value = "1", value_name = "N", help_heading = TIME_SLOTS)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=MAX_TOKENS))]
    pub(crate) max_requests: u64,
    /// Length of a slot in seconds. A slot starts with its first request
    #[arg(long, env = "LOCKER_IN_SECONDS", default_value = "1.0", value_name = "SECONDS", help_heading = TIME_SLOTS)]
    #[arg(value_parser = seconds)]
    pub(crate) in_seconds: Duration,
    /// How long a `sorry` may be delayed: it becomes a `go` if the next slot starts within this time
    #[arg(long, env = "LOCKER_GRACE", default_value = "0s", value_name = "TIME", help_heading = TIME_SLOTS)]
    #[arg(value_parser = duration)]
    pub(crate) grace: Duration,
    /// Publish every `go` to the servers that have this endpoint as --peer
    #[arg(long, env = "LOCKER_PUBLISH", value_name = "ENDPOINT", help_heading = TIME_SLOTS)]
    pub(crate) publish: Option<String>,
    /// Count the `go`s that the server at this endpoint publishes (repeatable)
    #[arg(long = "peer", env = "LOCKER_PEER", value_delimiter = ',', value_name = "ENDPOINT", help_heading = TIME_SLOTS)]
    pub(crate) peers: Vec<String>,
    /// File with one bearer token per line, each with at least 128 random bits (`openssl rand -hex 32`)
    #[arg(long, env = "LOCKER_TOKEN_FILE", value_name = "FILE", help_heading = ACCESS)]
    pub(crate) token_file: Option<PathBuf>,
    /// Accept this Host header besides localhost and the server's own addresses. * accepts any host (repeatable)
    #[arg(long, env = "LOCKER_ALLOW_HOST", value_delimiter = ',', value_name = "NAME", help_heading = ACCESS)]
    pub(crate) allow_host: Vec<String>,
    /// File with the CURVE secret key for ZeroMQ (40 characters of Z85). Peers share it. Without
    /// --curve-clients-file only peers may connect
    #[arg(long, env = "LOCKER_CURVE_KEY_FILE", value_name = "FILE", help_heading = ACCESS)]
    pub(crate) curve_key_file: Option<PathBuf>,
    /// File with the CURVE public keys of the clients that may connect, one per line
    #[arg(long, env = "LOCKER_CURVE_CLIENTS_FILE", value_name = "FILE", help_heading = ACCESS)]
    pub(crate) curve_clients_file: Option<PathBuf>,
    /// How many names may be in use
    #[arg(long, env = "LOCKER_MAX_NAMES", default_value = "100000", value_name = "N", help_heading = LIMITS)]
    pub(crate) max_names: usize,
    /// How many calls may wait for one name
    #[arg(long, env = "LOCKER_MAX_WAITS_PER_NAME", default_value = "10000", value_name = "N", help_heading = LIMITS)]
    pub(crate) max_waits_per_name: usize,
    /// How many calls may wait in total
    #[arg(long, env = "LOCKER_MAX_WAITS", default_value = "50000", value_name = "N", help_heading = LIMITS)]
    pub(crate) max_waits: usize,
    /// How many HTTP connections may be open. The limit on open files may allow fewer
    #[arg(long, env = "LOCKER_MAX_CONNECTIONS", default_value = "65536", value_name = "N", help_heading = LIMITS)]
    pub(crate) max_connections: usize,
    /// How many ZeroMQ connections may be open. The limit on open files may allow fewer
    #[arg(long, env = "LOCKER_MAX_ZMQ_CONNECTIONS", default_value = "4096", value_name = "N", help_heading = LIMITS)]
    pub(crate) max_zmq_connections: usize,
    /// How many unanswered calls one ZeroMQ connection may have, not counting calls that wait
    #[arg(long, env = "LOCKER_MAX_ZMQ_CALLS", default_value = "10000", value_name = "N", help_heading = LIMITS)]
    pub(crate) max_zmq_calls: usize,
    /// Size limit of a request line with its headers
    #[arg(long, env = "LOCKER_HEADER_SIZE", default_value = "8192", value_name = "BYTES", help_heading = LIMITS)]
    #[arg(value_parser = clap::value_parser!(u32).range(8192..=1_048_576))]
    pub(crate) header_size: u32,
    /// How long a request may take to arrive. Idle connections are closed after this time. A
    /// connection is also closed if its client reads nothing of an answer for twelve times this time
    #[arg(long, env = "LOCKER_HEADER_TIMEOUT", default_value = "5s", value_name = "TIME", help_heading = LIMITS)]
    #[arg(value_parser = up_to_a_day)]
    pub(crate) header_timeout: Duration,
    /// How long a sent event is remembered
    #[arg(long, env = "LOCKER_EVENT_TTL", default_value = "24h", value_name = "TIME", help_heading = LIMITS)]
    #[arg(value_parser = a_millisecond_or_more)]
    pub(crate) event_ttl: Duration,
    /// TOML file with these options, named as here without the dashes: `max-requests = 5`. The command line overrides
    /// variables, and variables override the file
    #[arg(long, env = "LOCKER_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

const TIME_SLOTS: &str = "Time-slot limiter";
const ACCESS: &str = "Access";
const LIMITS: &str = "Limits";

const SERVE: &str = "\
Examples:
  locker serve
  locker serve --store redis://10.0.0.7
  locker serve --http 0.0.0.0:5505 --token-file tokens
  locker serve --max-requests 5 --in-seconds 0.8

Calls: GET or POST /v1/<kind>/<name>/<action>
  tokenbucket/acquire    semaphore/acquire, release, renew
  event/wait, send       watchdog/wait, kick
Parameters: size, interval, expires, maxwait (times in ms), key, message.
GET /openapi.json describes the API.

LOCKER_LOG sets the log level on standard error: error, warn, info (the default), debug.

Signals: SIGTERM, SIGINT and SIGHUP answer waiting calls with 503 and end the server. A second \
signal ends it immediately. An ignored SIGHUP (nohup) stays ignored.

Exit codes:
  0   ended by a signal
  1   failed to start, stopped unexpectedly, or ended by a second signal
  64  wrong options";

/// The option to accept a store that may lose keys.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Eviction {
    /// Accept a Redis that evicts keys, including locks, when its memory is full
    #[arg(long, env = "LOCKER_ALLOW_EVICTION", value_parser = BoolishValueParser::new())]
    pub allow_eviction: bool,
}

/// The store of `run`, `ls` and `unlock`.
#[derive(Args, Clone, Debug, Default)]
pub struct StoreOptions {
    /// The store that all users of the lock share: redis://host
    #[arg(long, env = "LOCKER_URL", value_name = "URL", hide_env_values = true)]
    pub store: Option<String>,
    /// See [`Eviction`].
    #[command(flatten)]
    pub eviction: Eviction,
}

/// Options of `locker run`.
#[derive(Args, Clone, Debug)]
#[command(after_help = RUN)]
pub struct Run {
    /// Name of the lock
    #[arg(value_parser = name)]
    pub name: String,
    /// How long other callers wait if this machine dies. The lease is renewed while the command runs
    #[arg(long, env = "LOCKER_LEASE", default_value = "30s", value_name = "TIME", value_parser = a_millisecond_or_more)]
    pub lease: Duration,
    /// How long to wait for the lock. 0s tries once
    #[arg(long, env = "LOCKER_TIMEOUT", default_value = "10s", value_name = "TIME", value_parser = duration)]
    pub timeout: Duration,
    /// When the lock is lost: the time between SIGTERM and SIGKILL for the command
    #[arg(long, env = "LOCKER_KILL_AFTER", default_value = "5s", value_name = "TIME", value_parser = duration)]
    pub kill_after: Duration,
    /// Exit code if the lock was not acquired in time
    #[arg(long, env = "LOCKER_CONFLICT_EXIT_CODE", default_value = "75", value_name = "CODE")]
    pub conflict_exit_code: u8,
    /// See [`StoreOptions`].
    #[command(flatten)]
    pub store: StoreOptions,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

const RUN: &str = "\
Environment of the command:
  LOCKER_KEY    the key of the lock
  LOCKER_FENCE  rises with every holder: lets a resource reject late writers

Exit codes:
  n        that of the command; 128 + n if signal n ended it or the wait
  1        the exit status of the command is unknown
  64       wrong options, no store, or an invalid name
  69       the store is unavailable
  75       the lock was lost, or not acquired in time (--conflict-exit-code)
  126      the command cannot be run
  127      the command does not exist

Signals: without a terminal the command has its own process group. SIGTERM, SIGINT, SIGHUP, SIGQUIT \
and a lost lock end the whole group; only processes that leave the group (a daemon) survive. At a \
terminal they end the command alone; `setsid locker run ..` ends all its children as well.

LOCKER_LOG sets the log level on standard error: error, warn, info (the default), debug.

Example, in the crontab of every machine:
  LOCKER_URL=redis://10.0.0.7
  0 3 * * *  locker run --timeout 0s backup -- /usr/local/bin/backup";

const STORE_EXIT_CODES: &str = "\
LOCKER_LOG sets the log level on standard error: error, warn, info (the default), debug.

Exit codes:
  0   success
  1   the output cannot be written (ls), or the lock is not held (unlock)
  64  wrong options, no store, or an invalid name
  69  the store is unavailable";

/// Options of `locker ls`.
#[derive(Args, Clone, Debug)]
#[command(after_help = STORE_EXIT_CODES)]
pub(crate) struct Ls {
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

/// Options of `locker unlock`.
#[derive(Args, Clone, Debug)]
#[command(after_help = STORE_EXIT_CODES)]
pub(crate) struct Unlock {
    /// Name of the lock
    #[arg(value_parser = name)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

/// The exit code `EX_USAGE`: wrong options.
pub(crate) const MISUSED: u8 = 64;

/// Parses the name of a lock. An empty name is most likely an unset variable: all such callers would share one lock.
fn name(text: &str) -> Result<String, String> {
    api::name::check(text).map(|()| text.to_owned())
}

/// Accepts values that start with a dash, so that a negative number or time is refused because of its range.
fn accept_negatives(command: clap::Command) -> clap::Command {
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
    let wrong = || "give a number of seconds greater than 0 and at most 10 years, such as 0.8".to_owned();
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if time >= Duration::from_millis(1) && time <= MAX_TIME => Ok(time),
        _ => Err(wrong()),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if time <= MAX_TIME => Ok(time),
        Ok(_) => Err("give at most 10 years".into()),
        Err(_) if text.starts_with('-') => {
            Err("a time cannot be negative: give one such as 500ms, at most 10 years".into())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// The store has a resolution of one millisecond.
fn a_millisecond_or_more(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time < Duration::from_millis(1) { Err("give at least 1ms".into()) } else { Ok(time) }
}

fn up_to_a_day(text: &str) -> Result<Duration, String> {
    let time = a_millisecond_or_more(text)?;
    if time > Duration::from_hours(24) { Err("give at most 24h".into()) } else { Ok(time) }
}

impl Cli {
    /// Checks combinations of options from all sources, which clap cannot check.
    fn check(&self) -> Result<(), &'static str> {
        let Command::Serve(serve) = &self.command else { return Ok(()) };
        if serve.curve_clients_file.is_some() && serve.curve_key_file.is_none() {
            return Err("--curve-clients-file needs --curve-key-file");
        }
        match (serve.http.as_str(), serve.zmq.as_str()) {
            ("off", "off") => Err("--http off and --zmq off: nothing is left to serve"),
            (_, "off") if serve.publish.is_some() => Err("--publish needs ZeroMQ, but --zmq is off"),
            (_, "off") if !serve.peers.is_empty() => Err("--peer needs ZeroMQ, but --zmq is off"),
            _ => Ok(()),
        }
    }
}

/// Returns `true` if all addresses are loopback addresses.
pub(crate) fn is_loopback(addresses: &[SocketAddr]) -> bool {
    addresses.iter().all(|address| address.ip().to_canonical().is_loopback())
}
