//! The kinds under torture, and how much of each can be held at once.

use clap::ValueEnum;
use locker_checker::format::{self, Quota};
use locker_runtime::{LockRequest, Locker, Quota as Asked, RateLimiter, private::bindings};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Lock,
    /// All of the locks at once.
    LockAll,
    /// Two or three locks, each inside of those before it.
    Nested,
    /// The lock of an election, which the store grants to one candidate at a time.
    Leader,
    Semaphore,
    ReadWrite,
    Limiter,
    Counter,
    Event,
    Latch,
    Barrier,
    Watchdog,
    /// A call whose result is kept. It is in no history: the resource counts.
    Once,
}

/// More than the callers: a writer takes as many permits as all readers together.
const ALL_READERS: u64 = 1_000;
const PERMITS: u64 = 3;

const WINDOW: Quota = Quota::FixedWindow { size: 10, interval: 300_000_000 };
const PACED: Quota = Quota::Gcra { size: 1, interval: 50_000_000, burst: 5 };

impl Kind {
    /// Returns the name that the command line has for the kind.
    pub(crate) fn text(self) -> String {
        self.to_possible_value().expect("no kind is hidden").get_name().to_owned()
    }

    /// Returns the kind that the keys of the store name.
    pub(crate) fn in_store(self) -> &'static str {
        match self {
            Self::ReadWrite => "rwlock",
            Self::Semaphore => "semaphore",
            Self::Leader => "leader",
            _ => "lock",
        }
    }

    /// Returns the kind that the history names.
    pub(crate) fn in_history(self) -> format::Kind {
        match self {
            Self::Lock | Self::LockAll | Self::Nested | Self::Leader | Self::Once => format::Kind::Lock,
            Self::Semaphore => format::Kind::Semaphore,
            Self::ReadWrite => format::Kind::ReadWrite,
            Self::Limiter => format::Kind::Limiter,
            Self::Counter => format::Kind::Counter,
            Self::Event => format::Kind::Event,
            Self::Latch => format::Kind::Latch,
            Self::Barrier => format::Kind::Barrier,
            Self::Watchdog => format::Kind::Watchdog,
        }
    }

    pub(crate) fn name(self, number: usize) -> String {
        let of = if self == Self::LockAll { Self::Lock } else { self };
        format!("{}:{number}", of.text())
    }

    /// Returns the names of which a plan has `number`. Of nested locks there are more, or all wait for one.
    pub(crate) fn names(self, number: usize) -> impl Iterator<Item = String> {
        (0..if self == Self::Nested { 3 * number } else { number }).map(move |number| self.name(number))
    }

    /// Returns the kind of the resource `name`.
    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::from_str(name.split(':').next()?, false).ok()
    }

    /// Returns the number of permits of one name, or 0 for a kind that is not held.
    pub(crate) fn whole(self) -> u64 {
        match self {
            Self::Lock | Self::LockAll | Self::Nested | Self::Leader => 1,
            Self::Semaphore => PERMITS,
            Self::ReadWrite => ALL_READERS,
            Self::Limiter
            | Self::Counter
            | Self::Event
            | Self::Latch
            | Self::Barrier
            | Self::Watchdog
            | Self::Once => 0,
        }
    }

    /// Returns the number of permits that one caller takes.
    pub(crate) fn share(self, rng: &mut fastrand::Rng) -> u64 {
        match self {
            Self::Semaphore => rng.u64(1..PERMITS),
            Self::ReadWrite if rng.u8(..3) > 0 => 1,
            _ => self.whole(),
        }
    }

    /// Returns a request for `share` permits of `name`.
    pub(crate) fn ask(self, locker: &Locker, name: &str, share: u64) -> LockRequest {
        match self {
            Self::Semaphore => locker.semaphore(name, PERMITS).permits(share),
            Self::ReadWrite if share < ALL_READERS => locker.read_lock(name),
            Self::ReadWrite => locker.write_lock(name),
            Self::Leader => bindings::candidate(&locker.elect(name)),
            _ => locker.lock(name),
        }
    }
}

/// Returns the quota of the limiter `name`: some count by windows, others pace.
pub(crate) fn quota(name: &str) -> Quota {
    if name.ends_with(['1', '3', '5', '7', '9']) { PACED } else { WINDOW }
}

pub(crate) fn limiter(locker: &Locker, name: &str) -> RateLimiter {
    let asked = match quota(name) {
        Quota::FixedWindow { size, interval } => Asked::fixed_window(size, Duration::from_nanos(interval)),
        Quota::TokenBucket { size, interval } => Asked::token_bucket(size, Duration::from_nanos(interval)),
        Quota::Gcra { size, interval, burst } => {
            Asked::gcra(size, Duration::from_nanos(interval)).burst(burst)
        }
    };
    locker.rate_limiter(name, asked)
}
