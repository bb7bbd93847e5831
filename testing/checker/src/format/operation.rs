//! A call in a history.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A call. The page says which fields each kind has; the others have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// The process that calls.
    pub process: u64,
    /// What tells the calls of one process apart. A line without it is a call of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The kind of the primitive.
    pub kind: Kind,
    /// Its name. Primitives of different kinds may have one name.
    pub name: String,
    /// The call.
    pub call: Call,
    /// When the call began.
    pub asked: u64,
    /// How long it may wait. A call that waits and has none waits indefinitely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// When the caller knew that it was granted, or admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entered: Option<u64>,
    /// The fence of the grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// The last time at which the holder provably held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<u64>,
    /// When the holder began to release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<u64>,
    /// When the call returned; of a hold, when the release did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "is_default")]
    pub outcome: Outcome,
    /// The permits that the caller asks for at a semaphore.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub permits: u64,
    /// The permits of a semaphore, the count of a latch, the parties of a barrier.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub size: u64,
    /// How a read/write lock is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Whether the caller is in the queue from `asked` on. Of several locks taken together, that is only the first.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub in_line: bool,
    /// The tokens that the caller asks a limiter for.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub tokens: u64,
    /// The quota of a limiter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Quota>,
    /// What is added to a counter: at least 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub amount: u64,
    /// The sum of a counter, or what is left of a latch's count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<u64>,
    /// The message of an event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How long a kick of a watchdog lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts: Option<u64>,
    /// The ids of the calls of this process whose locks are held until this call has returned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub around: Vec<u64>,
}

fn yes() -> bool {
    true
}

fn one() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_one(number: &u64) -> bool {
    *number == 1
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Operation {
    /// Returns a call that begins at `asked`, with the defaults of all that is optional.
    #[must_use]
    pub fn new(process: u64, kind: Kind, name: impl Into<String>, call: Call, asked: u64) -> Self {
        let (permits, size, tokens, amount) = (1, 1, 1, 1);
        let name = name.into();
        Self {
            process,
            kind,
            name,
            call,
            asked,
            permits,
            size,
            tokens,
            amount,
            in_line: true,
            ..Self::default()
        }
    }
}

/// The kind of a primitive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Kind {
    #[default]
    Lock,
    Semaphore,
    ReadWrite,
    Limiter,
    Counter,
    Event,
    Latch,
    Barrier,
    Watchdog,
}

/// Writes the name that the format has for the kind.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// What a caller does with a primitive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Call {
    /// Holds a lock, a semaphore or a read/write lock.
    #[default]
    Acquire,
    /// Asks a limiter.
    Admit,
    /// Adds to a counter.
    Add,
    /// Sends the message of an event.
    Send,
    /// Waits for an event, a latch, a barrier or the expiry of a watchdog.
    Wait,
    /// Counts a latch down.
    CountDown,
    /// Kicks a watchdog.
    Kick,
    /// Reads what is left after all other calls with the name.
    Read,
}

impl Call {
    /// Returns `true` if the call waits until it is granted, or until its timeout.
    #[must_use]
    pub fn waits(self) -> bool {
        matches!(self, Self::Acquire | Self::Admit | Self::Wait)
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It has not ended as far as is known: it may have its effect at any later time, or never.
    #[default]
    Pending,
    /// It holds, or did so when it was heard of last.
    Granted,
    /// It held, and has released.
    Released,
    /// It held, and was told that the hold was lost.
    Lost,
    /// The same, while its lease provably ran.
    LostEarly,
    /// A limiter admitted it.
    Admitted,
    /// A limiter refused it.
    Refused,
    /// It had its effect.
    Done,
    /// It waited in vain, and had no effect.
    TimedOut,
    /// It was refused for what another caller did before, and had no effect.
    Conflict,
    /// It would have waited for itself, and had no effect.
    Deadlock,
    /// It ended with another error: it may have its effect at any later time, or never.
    Unknown,
}

/// How a read/write lock is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Beside other readers.
    Read,
    /// Alone.
    Write,
}

/// The quota of a limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "algorithm", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Quota {
    /// `size` tokens in each window.
    FixedWindow {
        /// The tokens of a window.
        size: u64,
        /// The length of a window.
        interval: u64,
    },
    /// A bucket that is filled up to `size` tokens after each interval.
    TokenBucket {
        /// The tokens of a full bucket.
        size: u64,
        /// The time between two refills.
        interval: u64,
    },
    /// `size` tokens in each interval, one after the other, and at most `burst` without a pause.
    Gcra {
        /// The tokens of an interval.
        size: u64,
        /// The length of an interval.
        interval: u64,
        /// The tokens without a pause.
        burst: u64,
    },
}
