//! The kinds of resources.

/// A kind of resource, as paths spell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    TokenBucket,
    Semaphore,
    Event,
    Watchdog,
}

impl Resource {
    pub(crate) const ALL: [Self; 4] = [Self::TokenBucket, Self::Semaphore, Self::Event, Self::Watchdog];

    /// Returns the path segment.
    pub(crate) fn segment(self) -> &'static str {
        match self {
            Self::TokenBucket => "tokenbucket",
            Self::Semaphore => "semaphore",
            Self::Event => "event",
            Self::Watchdog => "watchdog",
        }
    }

    /// Returns the word that the library uses in keys.
    pub(crate) fn key_kind(self) -> &'static str {
        match self {
            Self::TokenBucket => "rate",
            Self::Semaphore => "semaphore",
            Self::Event => "event",
            Self::Watchdog => "watchdog",
        }
    }

    pub(super) fn parse(segment: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|resource| resource.segment() == segment)
    }
}
