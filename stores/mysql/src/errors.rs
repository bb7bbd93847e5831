//! The table from errors of the server to errors for callers.

use locker_cas::served::{self, Fault};
use locker_core::error::{Error, ErrorKind};
use mysql_async::{DriverError, ServerError};
use std::error::Error as _;

/// The name of the kind of server, for messages.
pub(super) const PRODUCT: &str = "MySQL";

/// The numbers of errors.
pub(super) mod code {
    /// Another table, column or file is there: `CREATE` was repeated.
    pub(crate) const ROUTINE_EXISTS: u16 = 1304;
    pub(crate) const NO_SUCH_THREAD: u16 = 1094;
    pub(crate) const NO_SUCH_TABLE: u16 = 1146;
    pub(crate) const INTERRUPTED: u16 = 1317;
    pub(crate) const EXECUTION_TIME: [u16; 2] = [1969, 3024];
    /// A lock of another transaction: a deadlock, or a wait that was too long.
    pub(super) const LOST: [u16; 3] = [1205, 1213, 3572];
    /// Nothing was written: conflicts, locks, limits, a server that takes no writes, missing tables, statements that
    /// were ended, and no space in a table.
    pub(super) const CERTAIN: [u16; 15] =
        [1021, 1040, 1114, 1146, 1203, 1205, 1213, 1226, 1290, 1317, 1792, 1836, 1969, 3024, 3572];
    /// The server ends the connection, whatever became of the statement.
    pub(super) const ENDING: [u16; 5] = [1053, 1077, 1079, 1927, 4031];
    /// The server takes no writes any more.
    pub(super) const READ_ONLY: [u16; 3] = [1290, 1792, 1836];
    /// A right is missing.
    pub(super) const DENIED: [u16; 7] = [1044, 1095, 1142, 1143, 1227, 1370, 1419];
    /// Rights that only procedures for users need.
    pub(crate) const PROCEDURES: [u16; 4] = [1044, 1227, 1370, 1419];
    pub(crate) const NOT_OWNER: u16 = 1095;
}

/// Returns why a statement failed. Unless the error is one of those that say so, the server may have carried out the
/// statement, or may still do so.
pub(super) fn of_statement(error: &mysql_async::Error) -> Fault {
    let mysql_async::Error::Server(refusal) = error else {
        return Fault { error: served::lost(PRODUCT, &text(error)), is_lost: false, is_broken: true };
    };
    let has_ended = code::ENDING.contains(&refusal.code);
    let error = of_refusal(refusal);
    // Of any other error, such as one of the binary log, it is not known whether it came after the commit.
    let is_certain = error.kind() != ErrorKind::Unavailable || code::CERTAIN.contains(&refusal.code);
    Fault {
        error: if is_certain { error } else { error.unknown() },
        is_lost: code::LOST.contains(&refusal.code),
        is_broken: has_ended || code::READ_ONLY.contains(&refusal.code),
    }
}

/// Returns the error of an attempt to connect to `address`.
pub(super) fn of_connecting(error: mysql_async::Error, address: &str) -> Error {
    let failed = match &error {
        mysql_async::Error::Server(refusal) => {
            let (kind, hint) = kind_and_hint(refusal);
            Error::new(kind, format!("{address} refused: {} ({}){hint}", refusal.message, refusal.code))
        }
        other if is_of_tls(other) => Error::new(
            ErrorKind::Misused,
            format!(
                "no TLS with {address}: {} (a certificate must be of an authority of this system, or of tls_ca or \
                 SSL_CERT_FILE, and have the name of the host)",
                text(other)
            ),
        ),
        // MySQL asks users that it does not know for any kind of password.
        mysql_async::Error::Driver(DriverError::UnknownAuthPlugin { name }) => Error::new(
            ErrorKind::Misused,
            format!(
                "{address} asks for an authentication by {name}: the user is unknown there, or of that kind"
            ),
        ),
        other => Error::new(ErrorKind::Unavailable, format!("cannot connect to {address}: {}", text(other))),
    };
    failed.with_source(error)
}

/// Returns the error for a missing answer: the outcome is unknown.
pub(super) fn lost(why: &str) -> Error {
    served::lost(PRODUCT, why)
}

/// Returns the number of the error, if it is one of the server.
pub(super) fn code_of(error: &mysql_async::Error) -> Option<u16> {
    match error {
        mysql_async::Error::Server(refusal) => Some(refusal.code),
        _ => None,
    }
}

/// Returns whether the user lacks a right.
pub(super) fn is_denied(error: &mysql_async::Error) -> bool {
    code_of(error).is_some_and(|code| code::DENIED.contains(&code))
}

fn of_refusal(refusal: &ServerError) -> Error {
    let (kind, hint) = kind_and_hint(refusal);
    Error::new(kind, format!("{PRODUCT} refused: {} ({}){hint}", refusal.message, refusal.code))
}

const NEEDS_ENGINES: &str = " (a store needs the engines MEMORY and InnoDB)";

/// Returns the kind of an error, and a hint. A statement that is wrong is a mistake of this crate or of the user, so
/// that a retry does not help.
fn kind_and_hint(refusal: &ServerError) -> (ErrorKind, &'static str) {
    use ErrorKind as K;
    match refusal.code {
        1040 | 1203 | 1226 => (
            K::Unavailable,
            " (raise max_connections: a process needs its lanes and three connections, see the parameter `lanes`)",
        ),
        1045 | 1698 => (
            K::Misused,
            " (pass user and password in the URL: mysql://USER:PASSWORD@HOST/DATABASE; servers and accounts that want \
             TLS need sslmode=require)",
        ),
        3159 => (K::Misused, " (add the parameter sslmode=require)"),
        3098 => (K::Misused, " (a group of servers takes no table in memory, by which a lost grant is seen)"),
        1290 if refusal.message.contains("ENGINE") => (K::Misused, NEEDS_ENGINES),
        1286 | 3161 => (K::Misused, NEEDS_ENGINES),
        1049 => (K::Misused, " (create it, or name another one in the URL: mysql://HOST/DATABASE)"),
        1146 => (K::Unavailable, " (the tables are gone: they are made again if the user may)"),
        1064 => (K::Misused, " (MySQL 8.0.1 or MariaDB 10.6 is needed)"),
        1665 => (K::Misused, " (set binlog_format=ROW)"),
        1786 => (K::Misused, " (with GTIDs, MySQL 8.0.21 is needed: it makes a table with its row at once)"),
        code if code::READ_ONLY.contains(&code) => {
            (K::Unavailable, " (this is a replica: pass the address of the primary)")
        }
        code if code::DENIED.contains(&code) => (K::Misused, " (see `locker store sql --kind mysql`)"),
        _ if refusal.state.starts_with("42") => (K::Misused, ""),
        _ => (K::Unavailable, ""),
    }
}

/// Returns whether no TLS can be agreed on, however often it is tried.
fn is_of_tls(error: &mysql_async::Error) -> bool {
    matches!(error, mysql_async::Error::Driver(DriverError::NoClientSslFlagFromServer))
        || text(error).contains("certificate")
}

/// Returns the text of an error and of what caused it.
fn text(error: &mysql_async::Error) -> String {
    if let mysql_async::Error::Io(mysql_async::IoError::Io(error)) = error {
        return error.to_string();
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, state: &str) -> Fault {
        let refusal = ServerError { code, message: "no".into(), state: state.into() };
        of_statement(&mysql_async::Error::Server(refusal))
    }

    #[test]
    fn errors_have_a_kind_and_a_certainty() {
        for (code, state, kind, is_certain, is_lost, is_broken) in [
            (1213, "40001", ErrorKind::Unavailable, true, true, false),
            (1205, "HY000", ErrorKind::Unavailable, true, true, false),
            (1146, "42S02", ErrorKind::Unavailable, true, false, false),
            (1142, "42000", ErrorKind::Misused, true, false, false),
            (1064, "42000", ErrorKind::Misused, true, false, false),
            (1290, "HY000", ErrorKind::Unavailable, true, false, true),
            (1053, "08S01", ErrorKind::Unavailable, false, false, true),
            (1927, "70100", ErrorKind::Unavailable, false, false, true),
            (1114, "HY000", ErrorKind::Unavailable, true, false, false),
            (1180, "HY000", ErrorKind::Unavailable, false, false, false),
            (1598, "HY000", ErrorKind::Unavailable, false, false, false),
        ] {
            let fault = refused(code, state);
            assert_eq!(
                (fault.error.kind(), fault.error.is_certain(), fault.is_lost, fault.is_broken),
                (kind, is_certain, is_lost, is_broken),
                "{code}"
            );
        }
        let silence = of_statement(&mysql_async::Error::Driver(mysql_async::DriverError::ConnectionClosed));
        assert!(!silence.error.is_certain() && silence.is_broken);
    }
}
