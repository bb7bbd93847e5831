//! The table of actions: paths are read by it, and the OpenAPI document is written from it.

use super::Kind;

/// What can be done to a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
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

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// What is done.
    pub action: Action,
    /// To what.
    pub kind: Kind,
    /// The last path segment.
    pub segment: &'static str,
    /// What it is for.
    pub summary: &'static str,
    /// The parameters it looks at.
    pub parameters: &'static [&'static str],
    /// Its own statuses, beside those that every call may be answered.
    pub answers: &'static [(&'static str, &'static str)],
}

const NOT_IN_TIME: (&str, &str) = ("408", "maxwait was exceeded");
const DELETED: (&str, &str) = ("409", "deleted while waiting");

/// Every action, in the order of the reference.
pub const ROWS: [Row; 8] = [
    Row {
        action: Action::AcquireToken,
        kind: Kind::TokenBucket,
        segment: "acquire",
        summary: "takes a token, waiting for the refill if there is none",
        parameters: &["size", "interval", "maxwait"],
        answers: &[("204", "taken"), NOT_IN_TIME, DELETED],
    },
    Row {
        action: Action::AcquireSlot,
        kind: Kind::Semaphore,
        segment: "acquire",
        summary: "takes a slot, waiting for one if all are held",
        parameters: &["size", "key", "expires", "maxwait"],
        answers: &[("200", "the key of the hold"), NOT_IN_TIME, DELETED],
    },
    Row {
        action: Action::ReleaseSlot,
        kind: Kind::Semaphore,
        segment: "release",
        summary: "gives the slot back that the key holds",
        parameters: &["key"],
        answers: &[("204", "given back"), ("409", "the key holds nothing")],
    },
    Row {
        action: Action::RenewSlot,
        kind: Kind::Semaphore,
        segment: "renew",
        summary: "lets the hold last from now on as long as `expires` says",
        parameters: &["key", "expires"],
        answers: &[("204", "renewed"), ("409", "the key holds nothing")],
    },
    Row {
        action: Action::WaitEvent,
        kind: Kind::Event,
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
        kind: Kind::Event,
        segment: "send",
        summary: "sends the event to everybody who waits now or later",
        parameters: &["message"],
        answers: &[("204", "sent"), ("409", "already sent")],
    },
    Row {
        action: Action::WaitWatchdog,
        kind: Kind::Watchdog,
        segment: "wait",
        summary: "waits until the watchdog expires",
        parameters: &["maxwait"],
        answers: &[("204", "expired"), NOT_IN_TIME, DELETED],
    },
    Row {
        action: Action::KickWatchdog,
        kind: Kind::Watchdog,
        segment: "kick",
        summary: "keeps the watchdog from expiring for as long as `expires` says",
        parameters: &["expires"],
        answers: &[("204", "kicked"), ("409", "the store keeps something else under this name")],
    },
];

impl Action {
    pub(super) fn parse(kind: Kind, segment: &str) -> Option<Self> {
        ROWS.iter().find(|row| row.kind == kind && row.segment == segment).map(|row| row.action)
    }

    /// The row of this action.
    #[must_use]
    pub fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }
}
