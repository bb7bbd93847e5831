//! The kinds under torture, and how much of each can be held at once.

use clap::ValueEnum;
use locker_checker::limits::Limit;
use locker_runtime::{LockRequest, Locker, Quota, RateLimiter};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Lock,
    /// All of the locks at once.
    LockAll,
    Semaphore,
    ReadWrite,
    Limiter,
    Counter,
    Event,
    Latch,
    Barrier,
    Watchdog,
}

/// More than the callers: a writer takes as many permits as all readers together.
const ALL_READERS: u64 = 1_000;
const PERMITS: u64 = 3;

const WINDOW: Limit = Limit::Window { size: 10, interval: Duration::from_millis(300) };
const PACED: Limit = Limit::Paced { burst: 5, every: Duration::from_millis(50) };

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
            _ => "lock",
        }
    }

    pub(crate) fn name(self, number: usize) -> String {
        let of = if self == Self::LockAll { Self::Lock } else { self };
        format!("{}:{number}", of.text())
    }

    /// Returns the kind of the resource `name`.
    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::from_str(name.split(':').next()?, false).ok()
    }

    /// Returns the number of permits of one name, or 0 for a kind that is not held.
    pub(crate) fn whole(self) -> u64 {
        match self {
            Self::Lock | Self::LockAll => 1,
            Self::Semaphore => PERMITS,
            Self::ReadWrite => ALL_READERS,
            Self::Limiter | Self::Counter | Self::Event | Self::Latch | Self::Barrier | Self::Watchdog => 0,
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
            _ => locker.lock(name),
        }
    }
}

/// Returns the limit of the limiter `name`: some count by windows, others pace.
pub(crate) fn limit(name: &str) -> Limit {
    if name.ends_with(['1', '3', '5', '7', '9']) { PACED } else { WINDOW }
}

pub(crate) fn limiter(locker: &Locker, name: &str) -> RateLimiter {
    let quota = match limit(name) {
        Limit::Window { size, interval } => Quota::fixed_window(size, interval),
        Limit::Paced { burst, every } => Quota::gcra(1, every).burst(burst),
    };
    locker.rate_limiter(name, quota)
}
