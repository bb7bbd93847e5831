//! The kinds of resources.

/// A kind of resource, as paths spell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Resource {
    TokenBucket,
    Semaphore,
    Event,
    Watchdog,
    Lock,
    /// A lock by its whole key in the store. The key takes the place of the name.
    LockByKey,
    RwLock,
    /// The lock of an election.
    Leader,
    /// A record of what has run.
    Once,
    Barrier,
    Latch,
    Counter,
}

impl Resource {
    pub(crate) const ALL: [Self; 12] = [
        Self::TokenBucket,
        Self::Semaphore,
        Self::Event,
        Self::Watchdog,
        Self::Lock,
        Self::LockByKey,
        Self::RwLock,
        Self::Leader,
        Self::Once,
        Self::Barrier,
        Self::Latch,
        Self::Counter,
    ];

    /// Returns the path between the version and the name.
    pub(crate) fn segment(self) -> &'static str {
        match self {
            Self::TokenBucket => "tokenbucket",
            Self::Semaphore => "semaphore",
            Self::Event => "event",
            Self::Watchdog => "watchdog",
            Self::Lock => "lock",
            Self::LockByKey => "lock/by-key",
            Self::RwLock => "rwlock",
            Self::Leader => "leader",
            Self::Once => "once",
            Self::Barrier => "barrier",
            Self::Latch => "latch",
            Self::Counter => "counter",
        }
    }

    /// Returns the word that the library uses in keys, or `""` for whole keys.
    pub(crate) fn key_kind(self) -> &'static str {
        match self {
            Self::TokenBucket => "rate",
            Self::LockByKey => "",
            _ => self.segment(),
        }
    }

    /// Returns whether it has holders.
    pub(crate) fn is_held(self) -> bool {
        matches!(
            self,
            Self::Semaphore | Self::Lock | Self::LockByKey | Self::RwLock | Self::Leader | Self::Once
        )
    }

    /// Splits a path without its version into the resource and the rest: the name and perhaps an action.
    pub(super) fn split(path: &str) -> Option<(Self, &str)> {
        let (segment, rest) = path.split_once('/')?;
        let resource = Self::ALL.into_iter().find(|resource| resource.segment() == segment)?;
        match rest.strip_prefix("by-key") {
            Some(rest) if resource == Self::Lock && (rest.is_empty() || rest.starts_with('/')) => {
                Some((Self::LockByKey, rest.strip_prefix('/')?))
            }
            _ => Some((resource, rest)),
        }
    }
}
