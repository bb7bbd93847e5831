//! The table of actions. Path parsing, metrics and the OpenAPI document use it.

use super::resource::Resource;

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

/// All actions, in the order of [`Action`].
pub(crate) const ROWS: [Row; 8] = [
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
        answers: &[("200", "the key of the hold"), NOT_IN_TIME, DELETED],
    },
    Row {
        action: Action::ReleaseSlot,
        resource: Resource::Semaphore,
        segment: "release",
        summary: "releases the slot that the key holds",
        parameters: &["key"],
        answers: &[("204", "released"), ("409", "the key holds nothing")],
    },
    Row {
        action: Action::RenewSlot,
        resource: Resource::Semaphore,
        segment: "renew",
        summary: "extends the hold to `expires` from now",
        parameters: &["key", "expires"],
        answers: &[("204", "renewed"), ("409", "the key holds nothing")],
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
        answers: &[("204", "kicked"), ("409", "the name is in use for another kind of resource")],
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
    pub(super) fn waits(self) -> bool {
        matches!(self, Self::AcquireToken | Self::AcquireSlot | Self::WaitEvent | Self::WaitWatchdog)
    }

    pub(super) fn needs_key(self) -> bool {
        matches!(self, Self::ReleaseSlot | Self::RenewSlot)
    }
}
