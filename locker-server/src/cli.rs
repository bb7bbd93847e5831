//! The options of the program, with their defaults and help texts.

#![allow(clippy::doc_markdown, reason = "these comments are the help text")]

pub(crate) mod health;
pub(crate) mod lead;
pub(crate) mod once;
pub(crate) mod packaging;
pub(crate) mod parse;

use crate::{
    api, exit_code,
    ranges::{MAX_TIME, MAX_TOKENS},
};
#[cfg(any(feature = "postgres", feature = "mysql"))]
use clap::ValueEnum;
use clap::{Arg, ArgGroup, Args, Parser, Subcommand, builder::BoolishValueParser};
use locker_runtime::{Named, private::bindings::parse_duration};
use std::{
    convert::Infallible, ffi::OsString, net::SocketAddr, num::NonZeroUsize, path::PathBuf, time::Duration,
};

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

  export LOCKER_URL=file:///tmp/locker
  locker run nightly-report -- ./report.sh

LOCKER_LOG sets the log level on standard error: error, warn, info (the default), debug.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the primitives over HTTP and ZeroMQ
    Serve(Box<Serve>),
    /// Hold a lock while a command runs
    Run(Run),
    /// Run a command while this process is the elected leader
    Lead(lead::Lead),
    /// List the locks that are held or waited for, also those of attributes
    Ls(Ls),
    /// Say who holds a lock or permits, since when, and who waits for them
    Explain(Explain),
    /// Force-release a lock: the next waiter gets it, and the holder is told that it was lost
    Unlock(Unlock),
    /// Check a store, or print what an administrator prepares for it
    #[command(subcommand)]
    Store(StoreCommand),
    /// Ask a server whether it is ready
    Health(health::Health),
    /// Print the completions of a shell
    Completions(packaging::Completions),
    /// Write the manual pages into a directory
    Man(packaging::Man),
}

/// Options of `locker serve`.
#[derive(Args, Clone, Debug)]
#[command(after_help = SERVE)]
pub(crate) struct Serve {
    /// Address for HTTP, or `off`. An address beyond loopback needs --token-file
    #[arg(long, env = "LOCKER_HTTP", default_value = "127.0.0.1:5505", value_name = "ADDRESS")]
    pub(crate) http: String,
    /// Endpoint for ZeroMQ (tcp://host:port or ipc:///path), or `off`. An endpoint beyond loopback needs
    /// --curve-key-file
    #[arg(long, env = "LOCKER_ZMQ", default_value = "tcp://127.0.0.1:7777", value_name = "ENDPOINT")]
    pub(crate) zmq: String,
    /// Where the state lives: memory:// (in this process), file:///DIR (shared by all processes of this host), or
    /// redis://HOST, postgres://HOST/DATABASE, mysql://HOST/DATABASE, etcd://HOST,.. or zk://HOST,.. (shared by all
    /// servers). All but memory:// survive restarts. LOCKER_STORE is another name of the variable
    #[arg(long, env = "LOCKER_URL", default_value = "memory://", value_name = "URL", hide_env_values = true)]
    pub(crate) store: String,
    #[command(flatten)]
    pub(crate) eviction: Eviction,
    /// Removed: its error names the replacement
    #[arg(long = "restart-grace", env = "LOCKER_RESTART_GRACE", hide = true, value_name = "TIME", value_parser = gone)]
    pub(crate) _restart_grace: Option<Infallible>,
    #[command(flatten)]
    pub(crate) prefix: Prefix,
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
    /// How many holds one semaphore may have, whatever its size
    #[arg(long, env = "LOCKER_MAX_HOLDS", default_value = "10000", value_name = "N", help_heading = LIMITS)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=MAX_TOKENS))]
    pub(crate) max_holds: u64,
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
    /// How many bytes the unanswered calls of all ZeroMQ connections may have in total
    #[arg(long, env = "LOCKER_MAX_ZMQ_BYTES", default_value = "67108864", value_name = "BYTES", help_heading = LIMITS)]
    #[arg(value_parser = bytes)]
    pub(crate) max_zmq_bytes: usize,
    /// How many bytes of long HTTP answers may be unread in total. Beyond it further long answers are replaced by 503
    #[arg(long, env = "LOCKER_MAX_UNREAD_BYTES", default_value = "67108864", value_name = "BYTES")]
    #[arg(value_parser = bytes, help_heading = LIMITS)]
    pub(crate) max_unread_bytes: usize,
    /// Size limit of a request line with its headers
    #[arg(long, env = "LOCKER_HEADER_SIZE", default_value = "8192", value_name = "BYTES", help_heading = LIMITS)]
    #[arg(value_parser = clap::value_parser!(u32).range(8192..=1_048_576))]
    pub(crate) header_size: u32,
    /// How long a request may take to arrive. Idle connections are closed after this time. A
    /// connection is also closed if its client reads nothing of an answer for six times this time,
    /// or for this time while --max-unread-bytes is reached
    #[arg(long, env = "LOCKER_HEADER_TIMEOUT", default_value = "5s", value_name = "TIME", help_heading = LIMITS)]
    #[arg(value_parser = up_to_a_day)]
    pub(crate) header_timeout: Duration,
    /// How long a sent event is remembered
    #[arg(long, env = "LOCKER_EVENT_TTL", default_value = "24h", value_name = "TIME", help_heading = LIMITS)]
    #[arg(value_parser = a_millisecond_or_more)]
    pub(crate) event_ttl: Duration,
    /// Show this name as the label `function` of metrics, which have no names otherwise (repeatable)
    #[arg(long, env = "LOCKER_METRIC_NAMES", value_delimiter = ',', value_name = "NAME")]
    pub(crate) metric_names: Vec<String>,
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
  locker serve --store postgres://locker@10.0.0.7/locker
  locker serve --store mysql://locker@10.0.0.7/locker
  locker serve --store etcd://10.0.0.7,10.0.0.8,10.0.0.9
  locker serve --http 0.0.0.0:5505 --token-file tokens
  locker serve --max-requests 5 --in-seconds 0.8

Calls: GET or POST /v1/<kind>/<name>/<action>
  semaphore, lock, rwlock, leader: acquire, renew, release
  once: begin, renew, finish, fail
  tokenbucket: acquire     event: wait, send
  watchdog: wait, kick     barrier: wait
  latch: wait, countdown   counter: count, value, reset
  lock/by-key: acquire, renew, release of an attribute's lock, by its key
GET /v1/<kind>/<name> shows a name, ../stats what was counted, DELETE forgets it.
GET /v1 lists the keys in use, /v1/explain?key=KEY says who holds one, /openapi.json describes
the API.
Parameters: size, interval, expires, maxwait (times in ms), key, mode, message, amount, value; of
once: every, from, early, keep (in ms), same, after_crash, result.

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

/// The option for the beginning of all keys.
#[derive(Args, Clone, Debug, Default)]
pub struct Prefix {
    /// What precedes every key in the store, as the option `prefix` of the library
    #[arg(long, env = "LOCKER_PREFIX", value_name = "TEXT", default_value = "")]
    pub prefix: String,
}

/// The store of `run`, `lead`, `ls`, `explain`, `unlock` and `store check`.
#[derive(Args, Clone, Debug, Default)]
pub struct StoreOptions {
    /// The store that all users of the lock share: file:///DIR on one host, else redis://HOST,
    /// postgres://HOST/DATABASE, mysql://HOST/DATABASE, zk://HOST,.. or etcd://HOST,.. (LOCKER_STORE is another
    /// name of the variable)
    #[arg(long, env = "LOCKER_URL", value_name = "URL", hide_env_values = true)]
    pub store: Option<String>,
    /// See [`Eviction`].
    #[command(flatten)]
    pub eviction: Eviction,
    /// See [`Prefix`].
    #[command(flatten)]
    pub prefix: Prefix,
}

/// Options of `locker run`.
#[derive(Args, Clone, Debug)]
#[command(after_help = RUN)]
pub struct Run {
    /// Name of the lock
    #[arg(value_parser = name)]
    pub name: String,
    /// Take a permit of the semaphore of this name and size, so that N commands run at a time
    #[arg(long, env = "LOCKER_PERMITS", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=MAX_TOKENS))]
    pub permits: Option<u64>,
    /// Take the read/write lock of this name as a reader: beside other readers, and not beside a writer
    #[arg(long, env = "LOCKER_READ", value_parser = BoolishValueParser::new())]
    pub read: bool,
    /// How long other callers wait if this machine dies. The lease is renewed while the command runs
    #[arg(long, env = "LOCKER_LEASE", default_value = "30s", value_name = "TIME", value_parser = a_millisecond_or_more)]
    pub lease: Duration,
    /// How long to wait for the lock. 0s tries once. Default: 10s, with --once-per half of a slot
    #[arg(long, env = "LOCKER_TIMEOUT", value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// End the hold, and with it the command, this long after the start. Default: none, and a warning every 10 leases
    #[arg(long, env = "LOCKER_MAX_HOLD", value_name = "TIME", value_parser = a_millisecond_or_more)]
    pub max_hold: Option<Duration>,
    /// If the lock is not renewed in time, end the command this long before the lease is over: at least --kill-after,
    /// and at most half of the lease
    #[arg(long, env = "LOCKER_STOP_BEFORE", default_value = "0s", value_name = "TIME", value_parser = duration)]
    pub stop_before: Duration,
    /// Keep the lock at least this long, although the command and this program end before; up to a lease longer
    #[arg(long, env = "LOCKER_MIN_HOLD", default_value = "0s", value_name = "TIME", value_parser = duration)]
    pub min_hold: Duration,
    /// When the lock is lost: the time between SIGTERM and SIGKILL for the command
    #[arg(long, env = "LOCKER_KILL_AFTER", default_value = "5s", value_name = "TIME", value_parser = duration)]
    pub kill_after: Duration,
    /// Exit code if the lock was not acquired in time
    #[arg(long, env = "LOCKER_CONFLICT_EXIT_CODE", default_value_t = exit_code::NOT_HELD, value_name = "CODE")]
    pub conflict_exit_code: u8,
    /// See [`Once`](once::Once).
    #[command(flatten)]
    pub once: once::Once,
    /// Print how it ended as one line of JSON on standard error, after everything else
    #[arg(long, env = "LOCKER_JSON", value_parser = BoolishValueParser::new())]
    pub json: bool,
    /// See [`StoreOptions`].
    #[command(flatten)]
    pub store: StoreOptions,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

impl Run {
    /// Returns the kind of the primitive, as keys spell it.
    pub(crate) fn kind(&self) -> &'static str {
        match self.permits {
            _ if self.once.once_per.is_some() => "once",
            Some(_) => "semaphore",
            None if self.read => "rwlock",
            None => "lock",
        }
    }

    /// Returns how long to wait.
    pub(crate) fn timeout(&self) -> Duration {
        const LOCK: Duration = Duration::from_secs(10);
        self.timeout.unwrap_or_else(|| self.once.once_per.map_or(LOCK, |every| every / 2))
    }

    fn check(&self) -> Result<(), String> {
        if self.read && self.permits.is_some() {
            return Err("--read beside --permits: a semaphore has no readers, give one of the two".into());
        }
        if self.once.once_per.is_some() && (self.read || self.permits.is_some()) {
            return Err("--once-per beside --read or --permits: one command runs per slot".into());
        }
        self.once.check()
    }
}

const RUN: &str = "\
Environment of the command:
  LOCKER_KEY    the key of the lock
  LOCKER_FENCE  rises with every holder of a lock: lets a resource reject late writers
  with --once-per:
  LOCKER_SLOT   when the slot begins, such as 2026-11-28T03:00:00Z
  LOCKER_MISSED how many slots had no success since the last one; 0 if none is remembered, for three slots

With --once-per a command that ends with 0 has succeeded: its slot is done. If it ends with another code, or after a \
signal, the next call runs. What runs when a machine dies in between: --after-crash.

--json prints name, key, fence, waited_ms, held_ms, outcome (held, skipped, busy, lost or unavailable) and exit.

Exit codes:
  n        that of the command; 128 + n if signal n ended it or the wait
  1        the exit status of the command is unknown
  64       wrong options, no store, an invalid name, or a store that refuses its user
  65       the key is of another kind, or its data are of a later version
  69       the store is unavailable
  75       the lock was lost, or not acquired in time (--conflict-exit-code); --after-crash refuse
  126      the command cannot be run
  127      the command does not exist

Signals: without a terminal the command has its own process group. SIGTERM, SIGINT, SIGHUP, SIGQUIT \
and a lost lock end the whole group; only processes that leave the group (a daemon) survive. At a \
terminal they end the command alone; `setsid locker run ..` ends all its children as well.

LOCKER_LOG sets the log level on standard error: error, warn, info, debug. The default is info at a \
terminal and warn elsewhere: a lock that is held with --timeout 0s is logged as info, so that cron \
mails nothing.

Example, in the crontab of every machine; with file:///DIR in the crontab of one:
  LOCKER_URL=redis://10.0.0.7
  0 3 * * *  locker run --timeout 0s backup -- /usr/local/bin/backup
  0 3 * * *  locker run --once-per 1d --from 15h report -- /usr/local/bin/report";

/// Options of `locker ls`.
#[derive(Args, Clone, Debug, Default)]
#[command(after_help = LS)]
pub struct Ls {
    /// List keys of this kind: lock, rwlock, semaphore, leader, once, rate, event, watchdog, barrier, latch or counter
    /// (repeatable). Default: what can be held, that is lock, rwlock, semaphore and leader
    #[arg(long, env = "LOCKER_KIND", value_delimiter = ',', value_name = "KIND", value_parser = kind)]
    pub kind: Vec<String>,
    /// List names that begin with this text, of functions if their names are known
    #[arg(long, env = "LOCKER_NAME_PREFIX", default_value = "", value_name = "TEXT")]
    pub name_prefix: String,
    /// List at most this many keys
    #[arg(long, env = "LOCKER_LIMIT", value_name = "N")]
    pub limit: Option<NonZeroUsize>,
    /// Print one JSON document: an array with an object per key
    #[arg(long, env = "LOCKER_JSON", value_parser = BoolishValueParser::new())]
    pub json: bool,
    /// See [`StoreOptions`].
    #[command(flatten)]
    pub store: StoreOptions,
}

const LS: &str = "\
One line per hold, and one per key without a hold:
  FENCE      of the hold; `locker unlock --fence` takes it
  TIME LEFT  until the lease ends if it is not renewed
  HOLDER     what the holder says about itself, by default host and process
  WAITING    how many callers wait for the key
  NAME       the name; of an attribute the whole key, then the function with its file and line

--json prints kind, name, key, function, file, line, holders and waiting of each key; of a holder fence, \
note, left_ms and permits. What is not known is null.

LOCKER_LOG sets the log level on standard error: error, warn, info (the default), debug.

Exit codes:
  0   success
  1   the output cannot be written
  64  wrong options, no store, or a store that refuses its user
  65  the data of a key are of a later version
  69  the store is unavailable";

/// Options of `locker unlock`.
#[derive(Args, Clone, Debug)]
#[command(after_help = UNLOCK, group = ArgGroup::new("target").required(true))]
pub(crate) struct Unlock {
    #[command(flatten)]
    pub(crate) target: Target,
    /// End only holds with this fence or a lower one: those that `locker ls` has shown, not later ones
    #[arg(long, value_name = "N")]
    pub(crate) fence: Option<u64>,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

/// Options of `locker explain`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXPLAIN, group = ArgGroup::new("target").required(true))]
pub(crate) struct Explain {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Print one JSON document
    #[arg(long, env = "LOCKER_JSON", value_parser = BoolishValueParser::new())]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

const EXPLAIN: &str = "\
Prints the key, a line for each holder, and the callers that wait, in the order in which they are served:
  held by HOLDER [in FUNCTION (FILE:LINE)] [for AGE], fence N
  N waiting: HOLDER, HOLDER, ..

--json prints an object: kind, name, key, function, file, line, holders (fence, note, left_ms, permits), waiting.

Examples:
  locker explain backup
  locker explain --name bank.withdraw --arg 4001
  locker explain --key 'e7d1e70120eddf339445617f6b481243:lock|3733c69536a04d53d3607351a4d1c8c1'

LOCKER_LOG sets the log level on standard error: error, warn, info (the default), debug.

Exit codes:
  0   the key is held
  1   the key is not held, or the output cannot be written
  64  wrong options, no store, an invalid name or key, or a store that refuses its user
  65  the data of a key are of a later version
  69  the store is unavailable";

/// The key that a command is about.
#[derive(Args, Clone, Debug)]
pub(crate) struct Target {
    /// Name of a lock, as `locker run NAME` and `locker.lock(\"NAME\")` take it
    #[arg(value_parser = name, group = "target")]
    pub(crate) lock: Option<String>,
    /// The whole key, as `locker ls` prints it for attributes, or such as semaphore:NAME
    #[arg(long, value_name = "KEY", group = "target")]
    pub(crate) key: Option<String>,
    /// Name of a function with #[lock_on_argument]: its path, or its `name = \"..\"`
    #[arg(long, value_name = "NAME", group = "target")]
    pub(crate) name: Option<String>,
    /// The next argument of that function in the key, as text (repeatable)
    #[arg(long = "arg", value_name = "TEXT", requires = "name", allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["lock", "key"])]
    pub(crate) args: Vec<String>,
    /// Write the arguments into the key as the Python decorator does
    #[arg(long, env = "LOCKER_PYTHON_KEYS", requires = "name", value_parser = BoolishValueParser::new())]
    pub(crate) python_keys: bool,
}

/// Commands about a store itself.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Open a store, take a free lock in it and release it, and print how long calls take
    Check(Check),
    /// Print the tables and functions of a store on PostgreSQL or MySQL, as SQL for psql or mysql
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    Sql(Sql),
}

/// Options of `locker store check`.
#[derive(Args, Clone, Debug)]
#[command(after_help = CHECK)]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

const CHECK: &str = "\
Each time is the median of nine calls.

Exit codes:
  0   the store works
  1   the output cannot be written
  64  wrong options, no store, or a store that refuses its user
  65  the data of the store are of a later version
  69  the store is unavailable
  75  the lock was lost, or not acquired in time";

/// Options of `locker store sql`.
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[derive(Args, Clone, Debug)]
#[command(after_help = SQL)]
pub(crate) struct Sql {
    /// The kind of server
    #[arg(long, env = "LOCKER_KIND", value_enum, default_value_t)]
    pub(crate) kind: SqlKind,
    /// On PostgreSQL the schema of the tables, as the parameter `schema` of the URL; default `public`. On MySQL the
    /// database; default that of the client. It is made unless it exists
    #[arg(long, env = "LOCKER_SCHEMA", value_name = "NAME", value_parser = schema)]
    pub(crate) schema: Option<String>,
    /// The role of the URL's user, on MySQL also USER@HOST, if it is not the one that runs the SQL: gets the
    /// permissions that a store needs
    #[arg(long, env = "LOCKER_GRANT_TO", value_name = "ROLE")]
    pub(crate) grant_to: Option<String>,
}

/// The kinds of servers that have tables.
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum SqlKind {
    #[cfg(feature = "postgres")]
    #[default]
    Postgres,
    /// And MariaDB
    #[cfg(feature = "mysql")]
    #[value(alias = "mariadb")]
    #[cfg_attr(not(feature = "postgres"), default)]
    Mysql,
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
const SQL: &str = "\
A store makes its tables itself if its user may. Otherwise an administrator makes them once:
  locker store sql --schema locks --grant-to app | psql -v ON_ERROR_STOP=1 postgres://admin@10.0.0.7/shop
  locker serve --store 'postgres://app@10.0.0.7/shop?schema=locks'

On MySQL and MariaDB:
  locker store sql --kind mysql --schema locks --grant-to app | mysql -h 10.0.0.7 -u admin -p
  locker serve --store mysql://app@10.0.0.7/locks

It may be run again: what is there is left as it is.";

/// The least value of a cap in bytes.
const SMALLEST_CAP: usize = 1 << 20;
const UNLOCK: &str = "\
Examples:
  locker unlock backup
  locker unlock --name bank.withdraw --arg 4001 --fence 1732285812000000
  locker unlock --key 'e7d1e70120eddf339445617f6b481243:lock|3733c69536a04d53d3607351a4d1c8c1'

LOCKER_LOG sets the log level on standard error: error, warn, info (the default), debug.

Exit codes:
  0   success
  1   the lock is not held, or only with a later fence (--fence)
  64  wrong options, no store, an invalid name or key, or a store that refuses its user
  65  the data of a key are of a later version
  69  the store is unavailable";

/// Parses the name of a lock. An empty name is most likely an unset variable: all such callers would share one lock.
fn name(text: &str) -> Result<String, String> {
    api::name::check(text).map(|()| text.to_owned())
}

fn kind(text: &str) -> Result<String, String> {
    if Named::KINDS.contains(&text) {
        Ok(text.to_owned())
    } else {
        Err(format!("known are {}", Named::KINDS.join(", ")))
    }
}

/// A name that the URL of a store accepts.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn schema(text: &str) -> Result<String, String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if text.is_empty() || text.len() > 63 || !text.chars().all(is_plain) {
        return Err("give a name of up to 63 letters, digits and underscores".into());
    }
    Ok(text.to_owned())
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

/// A cap below one message would refuse that message for ever.
fn bytes(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(bytes) if bytes >= SMALLEST_CAP => Ok(bytes),
        _ => Err(format!("give a number of bytes, at least {SMALLEST_CAP}")),
    }
}

fn gone(_: &str) -> Result<Infallible, &'static str> {
    Err("this option is gone: use --store file:///DIR, which keeps holds over a restart of the server")
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
    match parse_duration(text) {
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
    fn check(&self) -> Result<(), String> {
        match &self.command {
            Command::Serve(serve) => serve.check().map_err(str::to_owned),
            Command::Run(run) => run.check(),
            _ => Ok(()),
        }
    }
}

impl Serve {
    fn check(&self) -> Result<(), &'static str> {
        if self.curve_clients_file.is_some() && self.curve_key_file.is_none() {
            return Err("--curve-clients-file needs --curve-key-file");
        }
        match (self.http.as_str(), self.zmq.as_str()) {
            ("off", "off") => Err("--http off and --zmq off: nothing is left to serve"),
            (_, "off") if self.publish.is_some() => Err("--publish needs ZeroMQ, but --zmq is off"),
            (_, "off") if !self.peers.is_empty() => Err("--peer needs ZeroMQ, but --zmq is off"),
            _ => Ok(()),
        }
    }
}

/// Returns `true` if all addresses are loopback addresses.
pub(crate) fn is_loopback(addresses: &[SocketAddr]) -> bool {
    addresses.iter().all(|address| address.ip().to_canonical().is_loopback())
}
