//! The names of metrics, and the values of their labels.

use super::Kind;
use locker_core::primitives::{
    HoldRequest, Request, barrier, counter, event, latch, rate_limiter, record, watchdog,
};
use metrics::{KeyName, Label, Recorder, Unit};

pub(super) const ACQUIRES: &str = "locker_acquires_total";
pub(super) const WAIT_SECONDS: &str = "locker_wait_seconds";
pub(super) const HOLD_SECONDS: &str = "locker_hold_seconds";
pub(super) const HELD: &str = "locker_held";
pub(super) const WAITING: &str = "locker_waiting";
pub(super) const LOSSES: &str = "locker_losses_total";
pub(super) const RENEWALS: &str = "locker_renewals_total";
pub(super) const STORE_SECONDS: &str = "locker_store_seconds";
pub(super) const STORE_ERRORS: &str = "locker_store_errors_total";

/// Tells the recorder what the metrics mean.
pub(super) fn describe(recorder: &dyn Recorder) {
    for (name, text) in [
        (ACQUIRES, "calls that acquire, take or wait for something, by outcome"),
        (LOSSES, "holds that ended before their holder released them"),
        (RENEWALS, "renewals of leases, by outcome"),
        (STORE_ERRORS, "failed requests to the store"),
    ] {
        recorder.describe_counter(KeyName::from(name), Some(Unit::Count), text.into());
    }
    for (name, text) in [
        (WAIT_SECONDS, "the waiting time of calls that had to wait"),
        (HOLD_SECONDS, "the time from the grant to the end of a hold"),
        (STORE_SECONDS, "the time to the reply of a store outside of this process"),
    ] {
        recorder.describe_histogram(KeyName::from(name), Some(Unit::Seconds), text.into());
    }
    for (name, text) in [(HELD, "what guards hold"), (WAITING, "calls that wait")] {
        recorder.describe_gauge(KeyName::from(name), Some(Unit::Count), text.into());
    }
}

impl Kind {
    pub(super) const ALL: [Self; 9] = [
        Self::Lock,
        Self::Semaphore,
        Self::ReadWrite,
        Self::Record,
        Self::Rate,
        Self::Event,
        Self::Watchdog,
        Self::Barrier,
        Self::Latch,
    ];

    /// Returns the kind as keys spell it.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Semaphore => "semaphore",
            Self::ReadWrite => "rwlock",
            Self::Record => "once",
            Self::Rate => "rate",
            Self::Event => "event",
            Self::Watchdog => "watchdog",
            Self::Barrier => "barrier",
            Self::Latch => "latch",
        }
    }

    pub(super) fn is_held(self) -> bool {
        matches!(self, Self::Lock | Self::Semaphore | Self::ReadWrite | Self::Record)
    }

    pub(super) fn label(self) -> Label {
        Label::from_static_parts("kind", self.text())
    }
}

/// Returns the name of a request.
pub(super) fn request(request: &Request) -> &'static str {
    match request {
        Request::Lock(request) => of_hold(request),
        Request::Semaphore(request) => of_hold(request),
        Request::Record(record::Request::Hold(request)) => of_hold(request),
        Request::RateLimiter(rate_limiter::Request::Take { .. }) => "take",
        Request::Event(event::Request::Wait { .. })
        | Request::Watchdog(watchdog::Request::Wait { .. })
        | Request::Barrier(barrier::Request::Arrive { .. })
        | Request::Latch(latch::Request::Wait { .. }) => "wait",
        Request::RateLimiter(rate_limiter::Request::Cancel { .. })
        | Request::Event(event::Request::Cancel { .. })
        | Request::Watchdog(watchdog::Request::Cancel { .. })
        | Request::Barrier(barrier::Request::Cancel { .. })
        | Request::Latch(latch::Request::Cancel { .. }) => "cancel",
        Request::Counter(counter::Request::Get) | Request::Inspect => "read",
        _ => "change",
    }
}

fn of_hold<A>(request: &HoldRequest<A>) -> &'static str {
    match request {
        HoldRequest::Acquire { .. } => "acquire",
        HoldRequest::Renew { .. } => "renew",
        HoldRequest::Release { .. } => "release",
        HoldRequest::Cancel { .. } => "cancel",
        HoldRequest::Evict { .. } => "change",
    }
}
