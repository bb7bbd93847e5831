//! `locker run`, `locker ls` and `locker unlock`.

use crate::cli::{Ls, Run, Unlock};
use std::process::ExitCode;

/// Holds a lock while a command runs.
pub async fn run(_options: Run) -> ExitCode {
    ExitCode::FAILURE
}

/// Lists the locks.
pub async fn ls(_options: Ls) -> ExitCode {
    ExitCode::FAILURE
}

/// Ends a lock.
pub async fn unlock(_options: Unlock) -> ExitCode {
    ExitCode::FAILURE
}
