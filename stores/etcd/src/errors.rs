//! The table from answers of etcd to errors for callers.

use locker_core::error::{Error, ErrorKind};
use std::error::Error as StdError;
use tonic::{Code, ConnectError, Status};

/// A call that failed.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) meaning: Meaning,
    pub(super) error: Error,
}

/// What follows from a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The call has not left this process: there is no connection. Another member may carry it out.
    Unreachable,
    /// This member has not carried out the call. Another member may, or this one later.
    Elsewhere,
    /// It is unknown whether the call was carried out.
    Unknown,
    /// Not carried out: the token is not valid any more.
    TokenRefused,
    /// Not carried out: the lease does not exist any more.
    LeaseGone,
    /// The quota of the database is used up. The write that reaches the quota is carried out in spite of this answer.
    NoSpace,
    /// Not carried out: users and passwords are not in use.
    NoAuth,
    /// Not carried out: the revision is compacted.
    Compacted,
    /// Not carried out. A repetition fails in the same way.
    Refused,
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

impl Failure {
    /// Returns the failure of a call to the member at `address`.
    pub(super) fn of(status: &Status, address: &str) -> Self {
        let (meaning, kind, hint) = classify(status);
        let what = match meaning {
            Meaning::Unreachable => format!("cannot connect to etcd at {address}: {}", innermost(status)),
            Meaning::Unknown => format!("no answer from etcd at {address}: {}", innermost(status)),
            _ => format!("etcd refused: {}{hint}", status.message()),
        };
        let error = Error::new(kind, what).with_source(status.clone());
        let is_uncertain = matches!(meaning, Meaning::Unknown | Meaning::NoSpace);
        Self { meaning, error: if is_uncertain { error.unknown() } else { error } }
    }

    /// Returns the failure of a call that needed this other call before it was sent: it is certain.
    pub(super) fn before(self) -> Self {
        let error = Error::new(self.error.kind(), self.error.message()).with_source(self.error);
        Self { error, ..self }
    }

    /// Returns the failure of a call that a member has not answered.
    pub(super) fn silence(address: &str) -> Self {
        let error = Error::new(ErrorKind::Unavailable, format!("no answer from etcd at {address}")).unknown();
        Self { meaning: Meaning::Unknown, error }
    }
}

fn classify(status: &Status) -> (Meaning, ErrorKind, &'static str) {
    use ErrorKind as K;
    use Meaning as M;
    const LOGIN: &str = " (pass user and password in the URL: etcd://USER:PASSWORD@HOST)";
    const RIGHTS: &str =
        " (the user needs the right to read and write all keys that begin with the prefix of the URL)";
    let text = status.message();
    let has = |part: &str| text.contains(part);
    match status.code() {
        _ if is_not_sent(status) => (M::Unreachable, K::Unavailable, ""),
        Code::Unavailable if has("no leader") || has("learner") || has("not capable") => {
            (M::Elsewhere, K::Unavailable, "")
        }
        Code::ResourceExhausted if has("space exceeded") => (
            M::NoSpace,
            K::Unavailable,
            " (to free space: etcdctl compact, etcdctl defrag, then etcdctl alarm disarm; a larger \
             --quota-backend-bytes; --auto-compaction-mode=revision --auto-compaction-retention=10000 for later)",
        ),
        Code::ResourceExhausted if has("too many requests") => (M::Elsewhere, K::Unavailable, ""),
        Code::ResourceExhausted if has("larger than max") => (M::Refused, K::Misused, TOO_LARGE),
        Code::InvalidArgument if has("too large") => (M::Refused, K::Misused, TOO_LARGE),
        Code::InvalidArgument if has("user name is empty") => (M::TokenRefused, K::Misused, LOGIN),
        Code::InvalidArgument if has("authentication failed") => (M::Refused, K::Misused, LOGIN),
        Code::InvalidArgument if has("auth store is old") => (M::TokenRefused, K::Misused, LOGIN),
        Code::Unauthenticated => (M::TokenRefused, K::Misused, LOGIN),
        Code::PermissionDenied => (M::Refused, K::Misused, RIGHTS),
        Code::NotFound if has("lease not found") => (M::LeaseGone, K::Unavailable, ""),
        Code::FailedPrecondition if has("authentication is not enabled") => (M::NoAuth, K::Misused, ""),
        Code::OutOfRange if has("compacted") => (M::Compacted, K::Unavailable, ""),
        Code::Unimplemented => (M::Refused, K::Misused, " (does this address belong to etcd 3.4 or newer?)"),
        Code::InvalidArgument | Code::NotFound | Code::FailedPrecondition | Code::AlreadyExists => {
            (M::Refused, K::Misused, "")
        }
        _ => (M::Unknown, K::Unavailable, ""),
    }
}

const TOO_LARGE: &str = " (see --max-request-bytes, 1.5 MiB by default)";

/// Returns whether the call has provably not left this process.
fn is_not_sent(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// Returns the text of the first cause, which says the most.
fn innermost(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut source = status.source();
    while let Some(error) = source {
        text = error.to_string();
        source = error.source();
    }
    if text.is_empty() { format!("{:?}", status.code()) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_a_meaning_and_a_kind() {
        use ErrorKind::{Misused, Unavailable};
        use Meaning as M;
        for (code, text, meaning, kind) in [
            (Code::Unavailable, "etcdserver: no leader", M::Elsewhere, Unavailable),
            (Code::Unavailable, "etcdserver: rpc not supported for learner", M::Elsewhere, Unavailable),
            (Code::Unavailable, "etcdserver: request timed out", M::Unknown, Unavailable),
            (Code::Unavailable, "etcdserver: leader changed", M::Unknown, Unavailable),
            (Code::DeadlineExceeded, "context deadline exceeded", M::Unknown, Unavailable),
            (Code::Cancelled, "operation was canceled", M::Unknown, Unavailable),
            (Code::Unknown, "transport error", M::Unknown, Unavailable),
            (Code::Internal, "h2 protocol error", M::Unknown, Unavailable),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", M::NoSpace, Unavailable),
            (Code::ResourceExhausted, "etcdserver: too many requests", M::Elsewhere, Unavailable),
            (
                Code::ResourceExhausted,
                "grpc: received message larger than max (9 vs. 8)",
                M::Refused,
                Misused,
            ),
            (Code::InvalidArgument, "etcdserver: request is too large", M::Refused, Misused),
            (Code::InvalidArgument, "etcdserver: user name is empty", M::TokenRefused, Misused),
            (Code::Unauthenticated, "etcdserver: invalid auth token", M::TokenRefused, Misused),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                M::Refused,
                Misused,
            ),
            (Code::PermissionDenied, "etcdserver: permission denied", M::Refused, Misused),
            (Code::NotFound, "etcdserver: requested lease not found", M::LeaseGone, Unavailable),
            (Code::FailedPrecondition, "etcdserver: authentication is not enabled", M::NoAuth, Misused),
            (
                Code::OutOfRange,
                "etcdserver: mvcc: required revision has been compacted",
                M::Compacted,
                Unavailable,
            ),
        ] {
            let failure = Failure::of(&Status::new(code, text), "h:1");
            assert_eq!((failure.meaning, failure.error.kind()), (meaning, kind), "{text}");
            let is_certain = !matches!(meaning, M::Unknown | M::NoSpace);
            assert_eq!(failure.error.is_certain(), is_certain, "{text}");
            assert!(failure.error.message().contains(text), "{text}: {}", failure.error);
        }
    }

    #[test]
    fn full_database_is_explained() {
        let status = Status::new(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded");
        let error = Failure::of(&status, "h:1").error;
        assert!(error.message().contains("etcdctl alarm disarm"), "{error}");
    }
}
