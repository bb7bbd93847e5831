//! The calls of the server: how they are spelt, and what they are answered. HTTP and ZeroMQ share all of it.

mod answer;
pub mod name;
mod parameters;
pub mod table;

pub use answer::{Answer, JSON, TEXT};
pub use parameters::{NAMES as PARAMETERS, Parameters};
use std::time::Duration;
use table::Action;

/// The methods that mean something; every other one is answered 405.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// As in the reference.
    Get,
    /// Preferred for calls that change something.
    Post,
    /// Forgets a name.
    Delete,
    /// Anything else.
    Other,
}

/// The kinds of things, as paths spell them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Admits so many per interval.
    TokenBucket,
    /// Lets so many hold at once.
    Semaphore,
    /// Happens once.
    Event,
    /// Goes off when it is not kicked.
    Watchdog,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::TokenBucket, Self::Semaphore, Self::Event, Self::Watchdog];

    /// The path segment.
    #[must_use]
    pub fn segment(self) -> &'static str {
        match self {
            Self::TokenBucket => "tokenbucket",
            Self::Semaphore => "semaphore",
            Self::Event => "event",
            Self::Watchdog => "watchdog",
        }
    }

    fn parse(segment: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.segment() == segment)
    }
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// An action on one thing.
    Act {
        /// Which action.
        action: Action,
        /// On what.
        name: String,
        /// How.
        ask: Ask,
    },
    /// Forgets a name; whoever waits gets 409.
    Delete(Kind, String),
    /// The state of a name.
    Show(Kind, String),
    /// The names in use.
    List,
}

/// What a call does, whatever the name and the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// An action.
    Act(Action),
    /// Forgetting a name.
    Delete,
    /// Showing the state of a name.
    Show,
    /// Listing the names.
    List,
}

impl Sort {
    /// By method and path, also where the call cannot be read; `None` for an unknown path.
    #[must_use]
    pub fn of(method: Method, path: &str) -> Option<Self> {
        Some(match (Target::parse(path).ok()?, method) {
            (Target::List, _) => Self::List,
            (Target::Name(..), Method::Delete) => Self::Delete,
            (Target::Name(..), _) => Self::Show,
            (Target::Action(action, _), _) => Self::Act(action),
        })
    }
}

impl Call {
    /// What it does.
    #[must_use]
    pub fn sort(&self) -> Sort {
        match self {
            Self::Act { action, .. } => Sort::Act(*action),
            Self::Delete(..) => Sort::Delete,
            Self::Show(..) => Sort::Show,
            Self::List => Sort::List,
        }
    }

    /// Where it waits, if it has to.
    #[must_use]
    pub fn place(&self) -> (Option<Kind>, &str) {
        match self {
            Self::Act { action, name, .. } => (Some(action.row().kind), name),
            _ => (None, ""),
        }
    }

    /// Whether it waits for something that may take its time; every other call is over when the store has answered.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        matches!(self, Self::Act { action, ask, .. } if action.waits() && !ask.maxwait.is_zero())
    }

    /// The same with `maxwait=0`.
    #[must_use]
    pub fn without_waiting(&self) -> Self {
        let mut call = self.clone();
        if let Self::Act { ask, .. } = &mut call {
            ask.maxwait = Duration::ZERO;
        }
        call
    }
}

/// Checked parameters with their defaults; what an action does not need is not looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Tokens or slots.
    pub size: u64,
    /// Between two refills.
    pub interval: Duration,
    /// How long to wait; [`Duration::MAX`]: for ever.
    pub maxwait: Duration,
    /// Until a hold or a watchdog runs out; `None`: never.
    pub expires: Option<Duration>,
    /// Names a hold.
    pub key: Option<Box<str>>,
    /// What waiters of an event are told.
    pub message: Option<Box<str>>,
}

/// A request, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// What is asked.
    pub call: Call,
    /// For the log.
    pub id: Option<Box<str>>,
}

/// Reads a request.
///
/// # Errors
/// The answer, when the request is not one: 404 for an unknown path, 405 for a method that it does not have, 400 for
/// bad names and parameters.
pub fn decode(method: Method, path: &str, query: &str, form: &str) -> Result<Decoded, Answer> {
    let target = Target::parse(path)?;
    target.check(method)?;
    let parameters = Parameters::parse(query, form)?;
    let id = parameters.id.clone();
    let call = match target {
        Target::List => Call::List,
        Target::Name(kind, name) if method == Method::Delete => Call::Delete(kind, name::parse(name)?),
        Target::Name(kind, name) => Call::Show(kind, name::parse(name)?),
        Target::Action(action, name) => {
            Call::Act { action, name: name::parse(name)?, ask: Ask::new(action, parameters)? }
        }
    };
    Ok(Decoded { call, id })
}

/// What a path leads to; names are still encoded.
#[derive(Clone, Copy, Debug)]
enum Target<'a> {
    List,
    Name(Kind, &'a str),
    Action(Action, &'a str),
}

impl<'a> Target<'a> {
    /// With or without `/v1`, as the two versions of bouncer have it; the list is ours and has it always.
    fn parse(path: &'a str) -> Result<Self, Answer> {
        if path == "/v1" {
            return Ok(Self::List);
        }
        let unknown = || Answer::no_such_path(path);
        let rest = path.strip_prefix("/v1/").or_else(|| path.strip_prefix('/')).ok_or_else(unknown)?;
        let (kind, rest) = rest.split_once('/').ok_or_else(unknown)?;
        let kind = Kind::parse(kind).ok_or_else(unknown)?;
        match rest.split_once('/') {
            None => Ok(Self::Name(kind, rest)),
            Some((name, action)) => {
                let action = Action::parse(kind, action).ok_or_else(unknown)?;
                Ok(Self::Action(action, name))
            }
        }
    }

    fn check(self, method: Method) -> Result<(), Answer> {
        let (allowed, allow): (&[Method], _) = match self {
            Self::List => (&[Method::Get], "GET"),
            Self::Name(..) => (&[Method::Get, Method::Delete], "GET, DELETE"),
            Self::Action(..) => (&[Method::Get, Method::Post], "GET, POST"),
        };
        if allowed.contains(&method) { Ok(()) } else { Err(Answer::wrong_method(allow)) }
    }
}

const EXPIRES: Duration = Duration::from_mins(1);

impl Ask {
    fn new(action: Action, parameters: Parameters) -> Result<Self, Answer> {
        let Parameters { expires, interval, key, maxwait, message, size, id: _ } = parameters;
        if key.is_none() && action.needs_key() {
            return Err(Answer::bad_request("key is missing: give the key that the acquire answered"));
        }
        Ok(Self {
            size: size.unwrap_or(1),
            interval: match interval {
                Some(ms) if ms <= 0 && action == Action::AcquireToken => {
                    return Err(Answer::bad_request(format!("interval is {ms}: give at least 1 (ms)")));
                }
                interval => interval.map_or(Duration::from_secs(1), millis),
            },
            maxwait: match maxwait.unwrap_or(-1) {
                ..0 => Duration::MAX,
                ms => millis(ms),
            },
            expires: action.expiry(expires)?,
            key,
            message,
        })
    }
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

impl Action {
    fn waits(self) -> bool {
        matches!(self, Self::AcquireToken | Self::AcquireSlot | Self::WaitEvent | Self::WaitWatchdog)
    }

    fn needs_key(self) -> bool {
        matches!(self, Self::ReleaseSlot | Self::RenewSlot)
    }

    /// A hold may last for ever, a watchdog may not.
    fn expiry(self, expires: Option<i64>) -> Result<Option<Duration>, Answer> {
        let least = match self {
            Self::AcquireSlot | Self::RenewSlot => 0,
            Self::KickWatchdog => 1,
            _ => i64::MIN,
        };
        match expires {
            Some(ms) if ms < least => {
                Err(Answer::bad_request(format!("expires is {ms}: give at least {least} (ms)")))
            }
            Some(..=0) => Ok(None),
            expires => Ok(Some(expires.map_or(EXPIRES, millis))),
        }
    }
}

#[cfg(test)]
mod tests;
