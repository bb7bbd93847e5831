//! The table from errors of PostgreSQL to errors for callers.

use locker_cas::served::{self, Fault};
use locker_core::error::{Error, ErrorKind};
use std::error::Error as _;
use tokio_postgres::error::Severity;

/// Returns why a statement failed. If the server has answered without ending the connection, it has not carried out
/// the statement. Otherwise it may have done so, or may still do so.
pub(super) fn of_statement(error: &tokio_postgres::Error) -> Fault {
    let Some(refusal) = error.as_db_error() else {
        return Fault { error: lost(&text(error)), is_lost: false, is_broken: true };
    };
    let code = refusal.code().code();
    let (kind, hint) = kind_and_hint(code);
    let message = format!("PostgreSQL refused: {} ({code}){hint}", refusal.message());
    let has_ended = matches!(refusal.parsed_severity(), Some(Severity::Fatal | Severity::Panic));
    let is_broken = has_ended || code.starts_with("08") || code.starts_with("57P") || code == "25006";
    let error = Error::new(kind, message);
    Fault {
        error: if has_ended || code.starts_with("08") { error.unknown() } else { error },
        is_lost: matches!(code, "40001" | "40P01" | "55P03"),
        is_broken,
    }
}

/// Returns the error of an attempt to connect to `address`.
pub(super) fn of_connecting(error: &tokio_postgres::Error, address: &str) -> Error {
    if let Some(refusal) = error.as_db_error() {
        let code = refusal.code().code();
        let (kind, hint) = kind_and_hint(code);
        return Error::new(kind, format!("{address} refused: {} ({code}){hint}", refusal.message()));
    }
    let text = text(error);
    let kind =
        if text.starts_with("invalid configuration") { ErrorKind::Misused } else { ErrorKind::Unavailable };
    let hint = if text.contains("does not allow writes") {
        " (is this a standby, or default_transaction_read_only set?)"
    } else {
        ""
    };
    Error::new(kind, format!("cannot connect to {address}: {text}{hint}"))
}

/// Returns the error for a missing answer: the outcome is unknown.
pub(super) fn lost(why: &str) -> Error {
    served::lost("PostgreSQL", why)
}

/// Returns whether the server does not know a prepared statement, or knows another one by its name: statements of one
/// client reach several connections of a pool.
pub(super) fn is_of_a_pool(error: &tokio_postgres::Error) -> bool {
    has_code(error, &["26000", "42P05"])
}

/// Returns whether tables are missing.
pub(super) fn is_missing_table(error: &tokio_postgres::Error) -> bool {
    has_code(error, &["42P01", "3F000"])
}

/// Returns whether the user lacks a permission.
pub(super) fn is_not_permitted(error: &tokio_postgres::Error) -> bool {
    has_code(error, &["42501"])
}

fn has_code(error: &tokio_postgres::Error, codes: &[&str]) -> bool {
    error.code().is_some_and(|code| codes.contains(&code.code()))
}

/// Returns the kind of an error code, and a hint. Any other code is a mistake of this crate or of the user, so that a
/// retry does not help.
fn kind_and_hint(code: &str) -> (ErrorKind, &'static str) {
    use ErrorKind as K;
    match code {
        "53300" => (
            K::Unavailable,
            " (raise max_connections: a process needs its lanes and two connections, see the parameter `lanes`)",
        ),
        "57014" => (K::Unavailable, " (canceled, for example by statement_timeout)"),
        "25006" => (K::Unavailable, " (this is a standby: pass the address of the primary)"),
        "28000" => (
            K::Misused,
            " (pass user and password in the URL: postgres://USER:PASSWORD@HOST; servers that want TLS need \
             sslmode=require)",
        ),
        "28P01" => (K::Misused, " (pass user and password in the URL: postgres://USER:PASSWORD@HOST)"),
        "3D000" => (K::Misused, " (create it, or name another one in the URL: postgres://HOST/DATABASE)"),
        "42501" => (
            K::Misused,
            " (the user of the URL needs SELECT, INSERT, UPDATE and DELETE on the tables locker_*)",
        ),
        "42P01" | "3F000" => (K::Unavailable, " (the tables are gone: they are made again)"),
        _ => match &code[..2] {
            "08" | "25" | "40" | "53" | "54" | "55" | "57" | "58" | "XX" => (K::Unavailable, ""),
            _ => (K::Misused, ""),
        },
    }
}

/// Returns the text of an error and of what caused it.
fn text(error: &tokio_postgres::Error) -> String {
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
