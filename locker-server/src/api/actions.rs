//! The table of actions. Path parsing, metrics and the OpenAPI document use it.

use super::resource::Resource;
use locker_runtime::primitives::counter::MAX_VALUE;

/// An action on a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// `tokenbucket/<name>/acquire`
    AcquireToken,
    /// `semaphore/<name>/acquire`
    AcquireSlot,
    /// `semaphore/<name>/release`
    ReleaseSlot,
    /// `semaphore/<name>/renew`
    RenewSlot,
    /// `event/<name>/wait`
    WaitEvent,
    /// `event/<name>/send`
    SendEvent,
    /// `watchdog/<name>/wait`
    WaitWatchdog,
    /// `watchdog/<name>/kick`
    KickWatchdog,
    /// `lock/<name>/acquire`
    AcquireLock,
    /// `lock/<name>/release`
    ReleaseLock,
    /// `lock/<name>/renew`
    RenewLock,
    /// `lock/by-key/<key>/acquire`
    AcquireByKey,
    /// `lock/by-key/<key>/release`
    ReleaseByKey,
    /// `lock/by-key/<key>/renew`
    RenewByKey,
    /// `rwlock/<name>/acquire`
    AcquireSide,
    /// `rwlock/<name>/release`
    ReleaseSide,
    /// `rwlock/<name>/renew`
    RenewSide,
    /// `leader/<name>/acquire`
    AcquireTerm,
    /// `leader/<name>/release`
    ReleaseTerm,
    /// `leader/<name>/renew`
    RenewTerm,
    /// `once/<name>/begin`
    BeginRun,
    /// `once/<name>/finish`
    FinishRun,
    /// `once/<name>/fail`
    FailRun,
    /// `once/<name>/renew`
    RenewRun,
    /// `barrier/<name>/wait`
    WaitBarrier,
    /// `latch/<name>/wait`
    WaitLatch,
    /// `latch/<name>/countdown`
    CountDownLatch,
    /// `counter/<name>/count`
    Count,
    /// `counter/<name>/value`
    ReadCounter,
    /// `counter/<name>/reset`
    ResetCounter,
}

/// The description of one action.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) action: Action,
    pub(crate) resource: Resource,
    /// The last path segment.
    pub(crate) segment: &'static str,
    pub(crate) summary: &'static str,
    /// The parameters that the action uses.
    pub(crate) parameters: &'static [&'static str],
    /// The statuses of this action, besides those that every call may return.
    pub(crate) answers: &'static [(&'static str, &'static str)],
}

const NOT_IN_TIME: (&str, &str) = ("408", "`maxwait` was exceeded");
const DELETED: (&str, &str) = ("409", "the name was deleted while the call waited");
const HELD: (&str, &str) = ("200", "the key of the hold");
/// An answer to a call that asks for a run.
const RUNS: (&str, &str) = (
    "200",
    "run it: the key of the run; or, with Locker-Replayed: true, the result of the run that has succeeded",
);
const NOT_HELD: (&str, &str) = ("409", "the key holds nothing");
const VALUE: (&str, &str) = ("200", "the value");
const OTHER_KIND: (&str, &str) = ("409", "the name is in use for another kind of resource");

/// All actions, in the order of [`Action`].
pub(crate) const ROWS: [Row; 30] = [
    Row {
        action: Action::AcquireToken,
        resource: Resource::TokenBucket,
        segment: "acquire",
        summary: "takes a token, or waits for the next refill",
        parameters: &["size", "interval", "maxwait"],
        answers: &[("204", "taken"), NOT_IN_TIME, DELETED],
    },
    Row {
        action: Action::AcquireSlot,
        resource: Resource::Semaphore,
        segment: "acquire",
        summary: "takes a slot, or waits until one is free",
        parameters: &["size", "key", "expires", "maxwait"],
        answers: &[HELD, NOT_IN_TIME, DELETED],
    },
    Row {
        action: Action::ReleaseSlot,
        resource: Resource::Semaphore,
        segment: "release",
        summary: "releases the slot that the key holds",
        parameters: &["key"],
        answers: &[("204", "released"), NOT_HELD],
    },
    Row {
        action: Action::RenewSlot,
        resource: Resource::Semaphore,
        segment: "renew",
        summary: "extends the hold to `expires` from now",
        parameters: &["key", "expires"],
        answers: &[("204", "renewed"), NOT_HELD],
    },
    Row {
        action: Action::WaitEvent,
        resource: Resource::Event,
        segment: "wait",
        summary: "waits until the event has been sent",
        parameters: &["maxwait"],
        answers: &[
            ("200", "the message that was sent"),
            ("204", "sent without a message"),
            NOT_IN_TIME,
            DELETED,
        ],
    },
    Row {
        action: Action::SendEvent,
        resource: Resource::Event,
        segment: "send",
        summary: "sends the event to all current and later waiters",
        parameters: &["message"],
        answers: &[("204", "sent"), ("409", "already sent")],
    },
    Row {
        action: Action::WaitWatchdog,
        resource: Resource::Watchdog,
        segment: "wait",
        summary: "waits until the watchdog expires",
        parameters: &["maxwait"],
        answers: &[("204", "expired"), NOT_IN_TIME, DELETED],
    },
    Row {
        action: Action::KickWatchdog,
        resource: Resource::Watchdog,
        segment: "kick",
        summary: "resets the watchdog: it expires `expires` from now",
        parameters: &["expires"],
        answers: &[("204", "kicked"), OTHER_KIND],
    },
    Row {
        action: Action::AcquireLock,
        resource: Resource::Lock,
        segment: "acquire",
        summary: "takes the lock, or waits until it is free",
        parameters: &["key", "expires", "maxwait"],
        answers: &[HELD, NOT_IN_TIME, DELETED],
    },
    Row {
        action: Action::ReleaseLock,
        resource: Resource::Lock,
        segment: "release",
        summary: "releases the lock that the key holds",
        parameters: &["key"],
        answers: &[("204", "released"), NOT_HELD],
    },
    Row {
        action: Action::RenewLock,
        resource: Resource::Lock,
        segment: "renew",
        summary: "extends the hold to `expires` from now",
        parameters: &["key", "expires"],
        answers: &[("204", "renewed"), NOT_HELD],
    },
    Row {
        action: Action::AcquireByKey,
        resource: Resource::LockByKey,
        segment: "acquire",
        summary: "takes the lock of an attribute, or waits until it is free",
        parameters: &["key", "expires", "maxwait"],
        answers: &[HELD, NOT_IN_TIME, DELETED],
    },
    Row {
        action: Action::ReleaseByKey,
        resource: Resource::LockByKey,
        segment: "release",
        summary: "releases the lock that the key holds",
        parameters: &["key"],
        answers: &[("204", "released"), NOT_HELD],
    },
    Row {
        action: Action::RenewByKey,
        resource: Resource::LockByKey,
        segment: "renew",
        summary: "extends the hold to `expires` from now",
        parameters: &["key", "expires"],
        answers: &[("204", "renewed"), NOT_HELD],
    },
    Row {
        action: Action::AcquireSide,
        resource: Resource::RwLock,
        segment: "acquire",
        summary: "takes one side of the lock, or waits until it is free",
        parameters: &["mode", "key", "expires", "maxwait"],
        answers: &[HELD, NOT_IN_TIME, DELETED],
    },
    Row {
        action: Action::ReleaseSide,
        resource: Resource::RwLock,
        segment: "release",
        summary: "releases the lock that the key holds",
        parameters: &["key"],
        answers: &[("204", "released"), NOT_HELD],
    },
    Row {
        action: Action::RenewSide,
        resource: Resource::RwLock,
        segment: "renew",
        summary: "extends the hold to `expires` from now",
        parameters: &["key", "expires"],
        answers: &[("204", "renewed"), NOT_HELD],
    },
    Row {
        action: Action::AcquireTerm,
        resource: Resource::Leader,
        segment: "acquire",
        summary: "becomes the leader, or waits until there is none",
        parameters: &["key", "expires", "maxwait"],
        answers: &[HELD, NOT_IN_TIME, DELETED],
    },
    Row {
        action: Action::ReleaseTerm,
        resource: Resource::Leader,
        segment: "release",
        summary: "ends the term that the key holds",
        parameters: &["key"],
        answers: &[("204", "released"), NOT_HELD],
    },
    Row {
        action: Action::RenewTerm,
        resource: Resource::Leader,
        segment: "renew",
        summary: "extends the hold to `expires` from now",
        parameters: &["key", "expires"],
        answers: &[("204", "renewed"), NOT_HELD],
    },
    Row {
        action: Action::BeginRun,
        resource: Resource::Once,
        segment: "begin",
        summary: "begins a run, or waits for that of another caller",
        parameters: &["every", "from", "early", "keep", "same", "after_crash", "expires", "maxwait"],
        answers: &[
            RUNS,
            ("204", "a run has succeeded, without a result"),
            NOT_IN_TIME,
            (
                "409",
                "nobody knows whether the run before has succeeded, its result was not kept, or the name was deleted \
                 while the call waited",
            ),
            ("422", "a call of this name has another `same`"),
        ],
    },
    Row {
        action: Action::FinishRun,
        resource: Resource::Once,
        segment: "finish",
        summary: "ends the run with success, and perhaps with a result",
        parameters: &["key", "result"],
        answers: &[("204", "recorded"), NOT_HELD, ("413", "the result is too large")],
    },
    Row {
        action: Action::FailRun,
        resource: Resource::Once,
        segment: "fail",
        summary: "ends the run without success: the next caller runs",
        parameters: &["key"],
        answers: &[("204", "ended"), NOT_HELD],
    },
    Row {
        action: Action::RenewRun,
        resource: Resource::Once,
        segment: "renew",
        summary: "extends the run to `expires` from now",
        parameters: &["key", "expires"],
        answers: &[("204", "renewed"), NOT_HELD],
    },
    Row {
        action: Action::WaitBarrier,
        resource: Resource::Barrier,
        segment: "wait",
        summary: "waits until `size` calls wait",
        parameters: &["size", "maxwait"],
        answers: &[
            ("204", "all have arrived"),
            NOT_IN_TIME,
            ("409", "all had arrived before, or the name was deleted while the call waited"),
        ],
    },
    Row {
        action: Action::WaitLatch,
        resource: Resource::Latch,
        segment: "wait",
        summary: "waits until the latch was counted down `size` times",
        parameters: &["size", "maxwait"],
        answers: &[("204", "open"), NOT_IN_TIME, DELETED],
    },
    Row {
        action: Action::CountDownLatch,
        resource: Resource::Latch,
        segment: "countdown",
        summary: "counts down by one",
        parameters: &["size"],
        answers: &[("200", "how many count-downs are left"), OTHER_KIND],
    },
    Row {
        action: Action::Count,
        resource: Resource::Counter,
        segment: "count",
        summary: "adds `amount`",
        parameters: &["amount"],
        answers: &[VALUE, ("409", "the value would be out of range")],
    },
    Row {
        action: Action::ReadCounter,
        resource: Resource::Counter,
        segment: "value",
        summary: "reads the value",
        parameters: &[],
        answers: &[VALUE, OTHER_KIND],
    },
    Row {
        action: Action::ResetCounter,
        resource: Resource::Counter,
        segment: "reset",
        summary: "sets the value",
        parameters: &["value"],
        answers: &[("204", "set"), OTHER_KIND],
    },
];

impl Action {
    pub(super) fn parse(resource: Resource, segment: &str) -> Option<Self> {
        ROWS.iter().find(|row| row.resource == resource && row.segment == segment).map(|row| row.action)
    }

    /// The row of this action.
    #[must_use]
    pub(crate) fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// Returns `true` if the action waits for another caller or for a refill.
    pub(crate) fn waits(self) -> bool {
        self.row().parameters.contains(&"maxwait")
    }

    /// Returns `true` if the action ends or extends a hold.
    pub(crate) fn needs_key(self) -> bool {
        self.row().parameters.first() == Some(&"key") && !self.waits()
    }

    /// Returns `true` if the name is in use after the action.
    pub(crate) fn uses_name(self) -> bool {
        !self.needs_key() && self != Self::ReadCounter
    }

    /// Returns `true` if the action starts a hold.
    pub(crate) fn takes_hold(self) -> bool {
        self.row().answers.first() == Some(&HELD)
    }

    /// Returns `true` if the action ends a hold.
    pub(crate) fn releases_hold(self) -> bool {
        self.needs_key() && !self.renews_hold()
    }

    /// Returns `true` if the action extends a hold.
    pub(crate) fn renews_hold(self) -> bool {
        self.needs_key() && self.row().parameters.contains(&"expires")
    }

    /// Returns `true` if the action is about a hold that must expire.
    pub(super) fn has_end(self) -> bool {
        let Row { resource, parameters, .. } = self.row();
        resource.is_held() && *resource != Resource::Semaphore && parameters.contains(&"expires")
    }

    /// Returns the `size` of a call without one.
    pub(super) fn default_size(self) -> u64 {
        if self == Self::WaitBarrier { 2 } else { 1 }
    }

    /// Returns the smallest value of a parameter. Smaller values are answered 400.
    pub(super) fn min(self, parameter: &str) -> Option<i64> {
        let held = self.row().resource;
        match parameter {
            "interval" => Some(1),
            "size" => Some(i64::from(self == Self::WaitBarrier)),
            "expires" => Some(i64::from(held != Resource::Semaphore)),
            "amount" | "value" => Some(-MAX_VALUE),
            _ => None,
        }
    }
}
