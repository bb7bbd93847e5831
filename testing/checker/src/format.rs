//! The lines of a history. Each is a JSON object. All times are nanoseconds of one clock.

mod operation;

pub use operation::{Call, Kind, Mode, Operation, Outcome, Quota};

use serde::{Deserialize, Serialize};

/// The version of the format.
pub const VERSION: u64 = 1;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Line {
    /// What is known about the whole history: the first line.
    Header(Header),
    /// A call. Each line about a call repeats all that is known about it, and the last one counts.
    Operation(Box<Operation>),
    /// Something broke, or was mended.
    Fault(Fault),
    /// What is left of a resource that locks protected.
    Resource(Resource),
    /// A text for readers.
    Note(Text),
    /// A problem that the writer of the history has found itself.
    Problem(Text),
    /// Nothing is known about the callers from this time on.
    End(End),
}

impl Line {
    /// Returns the line that a text is. Returns `None` for any other text, such as a part of a line.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the text of the line, without a line break.
    ///
    /// # Panics
    /// Never: all that a line has can be written.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts")
    }
}

/// What is known about the whole history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// [`VERSION`].
    pub version: u64,
    /// The store, for readers.
    pub store: String,
    /// The command that wrote the history, for readers.
    pub made_by: String,
    /// The seed of that command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The lease of the holds, for readers.
    pub lease: u64,
    /// What faults lose. Default: nothing.
    #[serde(default)]
    pub loses: Losses,
    /// Whether the time up to the first fault is without faults. Default: `true`.
    #[serde(default = "yes")]
    pub calm: bool,
    /// How long after it has asked a caller may join the queue in calm times. Default: 200 ms.
    #[serde(default = "noticed")]
    pub joins_within: u64,
    /// How much later than its cause a waiter has surely noticed it in calm times. Default: 200 ms.
    #[serde(default = "noticed")]
    pub notices_within: u64,
    /// How much later than at its timeout a call may return, and after its begin a call that does not wait.
    /// Default: 1 s.
    #[serde(default = "second")]
    pub returns_within: u64,
    /// How much the clock of the store may gain in all. Default: 0.
    #[serde(default)]
    pub clock_gains: u64,
    /// How much the clocks of the store and of the callers may differ. Default: 10 ms.
    #[serde(default = "a_little")]
    pub clocks_differ: u64,
    /// How long a circle lasts at least for which a call fails. Default: 0.
    #[serde(default)]
    pub circles_last: u64,
    /// How long a wait and all that it waits for may stay as they are. Default: not judged.
    #[serde(default = "indefinitely")]
    pub stands_still_within: u64,
}

fn yes() -> bool {
    true
}

fn noticed() -> u64 {
    200_000_000
}

fn second() -> u64 {
    1_000_000_000
}

fn indefinitely() -> u64 {
    u64::MAX
}

fn a_little() -> u64 {
    10_000_000
}

/// What a store loses by its faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Losses {
    /// Nothing.
    #[default]
    Nothing,
    /// The last admissions of limiters.
    Admissions,
    /// The last writes. Holds end early then, and nothing else than holds is safe.
    Writes,
}

/// Something broke, or was mended. The first one ends the calm time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// When it began.
    pub at: u64,
    /// `kill` of a process ends its calls. All other words are for readers: `stop`, `continue`, `cut`, `restart`,
    /// `mend` or one of the writer's own.
    pub fault: String,
    /// The process of callers that it hits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<u64>,
}

/// What is left of a resource that locks protected. It counts the updates that it accepted, and has a value that each
/// update should have made greater by 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// The name of the lock.
    pub name: String,
    /// The part that refuses a fence below the highest that it has seen.
    pub fenced: Counted,
    /// The part that trusts the lock alone.
    pub plain: Counted,
}

/// A value and the number of its updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counted {
    /// The value.
    pub value: u64,
    /// The number of accepted updates.
    pub accepted: u64,
}

/// A text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Text {
    /// The text.
    pub text: String,
}

/// The time from which on nothing is known about the callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// That time.
    pub at: u64,
}
