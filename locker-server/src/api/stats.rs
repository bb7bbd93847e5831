//! The JSON body about what a server has counted at a name.

use super::resource::Resource;
use serde::Serialize;
use utoipa::ToSchema;

/// The counts of one name at one server, by the names that bouncer gives them. Each kind has some of them; times are
/// milliseconds.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct StatsBody {
    /// Tokens or holds that were granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) acquired: Option<u64>,
    /// Calls under a key that held already.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) reacquired: Option<u64>,
    /// Releases, also under a key whose hold had ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) released: Option<u64>,
    /// Holds of this server that neither last nor were released here.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) expired: Option<u64>,
    /// The most holds at a time, as far as this server knows when they end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) max_ever_held: Option<u64>,
    /// Calls that wait for a barrier now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) waiting: Option<u64>,
    /// The callers of a barrier's round.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) size: Option<u64>,
    /// Waits that ended in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) waited: Option<u64>,
    /// The same for a barrier.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) total_waited: Option<u64>,
    /// Waits that ended at `maxwait`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) timed_out: Option<u64>,
    /// Sends of an event, count-downs of a latch, or 1 if a barrier has opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) triggered: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) kicks: Option<u64>,
    /// The time of the last kick (RFC 3339), or empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) last_kick: Option<String>,
    /// The value of a counter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) value: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) increments: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) resets: Option<u64>,
    /// How long the calls have waited that got what they wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) total_wait_time: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) average_wait_time: Option<f64>,
    /// The first call of the name at this server (RFC 3339).
    pub(crate) created_at: String,
}

/// What the counts of a resource have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    Holds,
    Tokens,
    Barrier,
    Signals,
    Watchdog,
    Counter,
}

impl Resource {
    pub(crate) fn counted(self) -> Counted {
        match self {
            Self::Semaphore | Self::Lock | Self::LockByKey | Self::RwLock | Self::Leader | Self::Once => {
                Counted::Holds
            }
            Self::TokenBucket => Counted::Tokens,
            Self::Barrier => Counted::Barrier,
            Self::Event | Self::Latch => Counted::Signals,
            Self::Watchdog => Counted::Watchdog,
            Self::Counter => Counted::Counter,
        }
    }
}
