//! The table from answers of ZooKeeper to errors for callers.

use locker_core::error::{Error, ErrorKind};

/// A request that failed.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) meaning: Meaning,
    pub(super) error: Error,
}

/// What follows from a failure. Except for `Unknown`, the request was not carried out and will not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The request has not left this process: no server takes connections.
    Unreachable,
    /// The request has not left this process: there is no connection at present.
    Unsent,
    /// It is unknown whether the request was or will be carried out.
    Unknown,
    /// The node, or the one that it is to be in, does not exist.
    Absent,
    /// The node exists.
    Exists,
    /// The node has another data version.
    Differs,
    /// The node has children.
    HasChildren,
    /// This server does not carry it out. Another one may, or this one later.
    Elsewhere,
    /// The session is over.
    SessionOver,
    /// A repetition fails in the same way.
    Refused,
}

/// The operation of a transaction that failed before this one failed, or after it.
pub(super) const OK: i32 = 0;
pub(super) const UNTRIED: i32 = -2;

const ABSENT: i32 = -101;

/// A server that has lost the others, has seen less than this process, or has too many connections says nothing.
pub(super) const CLOSED: &str = "has ended the connection: it may have lost the other servers, hold older data than this \
                                 process has seen (restart this process if the data were replaced), take no more \
                                 connections from this host (maxClientCnxns), refuse the size of a request \
                                 (jute.maxbuffer), or use TLS where the URL does not, or the other way round (zks://)";

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

impl Failure {
    /// Returns the failure of a request about the node at `path` that a server has answered with an error.
    pub(super) fn of_code(code: i32, path: &str) -> Self {
        let (meaning, kind, what) = classify(code);
        let error = Error::new(kind, format!("ZooKeeper refused a request for {path}: {what} (code {code})"));
        Self { meaning, error: if meaning == Meaning::Unknown { error.unknown() } else { error } }
    }

    /// Returns the failure of a request for a node of the store that is not there.
    pub(super) fn absent(path: &str) -> Self {
        Self::of_code(ABSENT, path)
    }

    /// Returns the failure of a request that has not left this process.
    pub(super) fn unsent(why: impl Into<String>) -> Self {
        Self { meaning: Meaning::Unsent, error: Error::new(ErrorKind::Unavailable, why) }
    }

    /// Returns the failure to connect.
    pub(super) fn unreachable(why: impl Into<String>) -> Self {
        Self { meaning: Meaning::Unreachable, ..Self::unsent(why) }
    }

    /// Returns whether another connection may carry out the request, which was not carried out.
    pub(super) fn is_unserved(&self) -> bool {
        matches!(
            self.meaning,
            Meaning::Unreachable | Meaning::Unsent | Meaning::Elsewhere | Meaning::SessionOver
        )
    }

    /// Returns the failure of a request that was sent and not answered.
    pub(super) fn unknown(why: impl Into<String>) -> Self {
        Self { meaning: Meaning::Unknown, error: Error::new(ErrorKind::Unavailable, why).unknown() }
    }

    /// Returns a failure that a repetition does not change.
    pub(super) fn refused(kind: ErrorKind, why: impl Into<String>) -> Self {
        Self { meaning: Meaning::Refused, error: Error::new(kind, why) }
    }

    /// Returns the failure of a call that needed this other request before it was sent: it is certain.
    pub(super) fn before(self) -> Self {
        let error = Error::new(self.error.kind(), self.error.message()).with_source(self.error);
        Self { error, ..self }
    }
}

/// Codes that are not listed may come after a transaction was carried out: the server failed while it made the answer.
fn classify(code: i32) -> (Meaning, ErrorKind, &'static str) {
    use ErrorKind as K;
    use Meaning as M;
    match code {
        ABSENT => (M::Absent, K::Unavailable, DELETED),
        -103 => (M::Differs, K::Unavailable, "another version"),
        -110 => (M::Exists, K::Unavailable, "the node exists"),
        -111 => (M::HasChildren, K::Unavailable, "the node has children"),
        -112 => (M::SessionOver, K::Unavailable, "the session is over"),
        -118 => (M::Elsewhere, K::Unavailable, "the session is at another server"),
        -119 => (M::Elsewhere, K::Unavailable, "the server only reads, since it has lost the others"),
        -127 => (M::Elsewhere, K::Unavailable, "too many requests"),
        -6 => (M::Refused, K::Misused, "an unknown operation: the server must be ZooKeeper 3.6 or newer"),
        -8 => (M::Refused, K::Misused, "invalid arguments"),
        -102 => (M::Refused, K::Misused, RIGHTS),
        -108 => (M::Refused, K::Misused, "a node of a session has no children"),
        -114 => (M::Refused, K::Misused, "invalid rights"),
        -115 | -124 => (
            M::Refused,
            K::Misused,
            "the login was refused, or the server demands SASL, which is not supported",
        ),
        -125 => (M::Refused, K::Unavailable, "the quota is used up: raise it with setquota"),
        _ => (M::Unknown, K::Unavailable, "the server has failed"),
    }
}

const DELETED: &str =
    "no such node: if somebody deleted it, all nodes in the node `key` must be deleted, too";

const RIGHTS: &str = "no right to this node: pass the user and password that created it in the URL, as in \
                      zk://USER:PASSWORD@HOST, or choose another path";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_not_carried_out_is_certain() {
        for (code, meaning, kind) in [
            (-1, Meaning::Unknown, ErrorKind::Unavailable),
            (-5, Meaning::Unknown, ErrorKind::Unavailable),
            (-7, Meaning::Unknown, ErrorKind::Unavailable),
            (-4, Meaning::Unknown, ErrorKind::Unavailable),
            (17, Meaning::Unknown, ErrorKind::Unavailable),
            (-6, Meaning::Refused, ErrorKind::Misused),
            (-101, Meaning::Absent, ErrorKind::Unavailable),
            (-102, Meaning::Refused, ErrorKind::Misused),
            (-103, Meaning::Differs, ErrorKind::Unavailable),
            (-112, Meaning::SessionOver, ErrorKind::Unavailable),
            (-118, Meaning::Elsewhere, ErrorKind::Unavailable),
        ] {
            let failure = Failure::of_code(code, "/locker/key");
            assert_eq!((failure.meaning, failure.error.kind()), (meaning, kind), "{code}");
            assert_eq!(failure.error.is_certain(), meaning != Meaning::Unknown, "{code}");
            assert!(failure.error.message().contains("/locker/key"), "{}", failure.error);
            assert!(failure.before().error.is_certain());
        }
    }
}
