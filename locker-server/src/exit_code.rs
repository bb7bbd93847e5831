//! The exit codes of the program. `docs/reference/cli.md` has them as a table.

use locker_runtime::ErrorKind;

/// What was asked for is done.
pub(crate) const SUCCESS: u8 = 0;

/// `EX_USAGE`: wrong options, or a refusal that lasts until an administrator acts.
pub(crate) const MISUSED: u8 = 64;

/// `EX_DATAERR`: the key is of another kind of primitive, or its data are of a later version.
pub(crate) const CONFLICT: u8 = 65;

/// `EX_UNAVAILABLE`: the store cannot be reached, or cannot serve.
pub(crate) const UNAVAILABLE: u8 = 69;

/// `EX_TEMPFAIL`: the lock was lost, or was not acquired in time.
pub(crate) const NOT_HELD: u8 = 75;

/// Returns the exit code of a command that ended with an error of this kind.
pub(crate) fn of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Misused => MISUSED,
        ErrorKind::Conflict => CONFLICT,
        ErrorKind::Lost
        | ErrorKind::NotHeld
        | ErrorKind::TimedOut
        | ErrorKind::RetriesExhausted
        | ErrorKind::Deadlock
        | ErrorKind::Limited => NOT_HELD,
        _ => UNAVAILABLE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_exit_codes() {
        for (kind, code) in [
            (ErrorKind::Misused, 64),
            (ErrorKind::Conflict, 65),
            (ErrorKind::Unavailable, 69),
            (ErrorKind::Lost, 75),
            (ErrorKind::TimedOut, 75),
        ] {
            assert_eq!(of(kind), code, "{kind}");
        }
    }
}
