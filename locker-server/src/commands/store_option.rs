//! The store of `run`, `ls` and `unlock`, and the exit codes for its errors.

use crate::{
    cli::{MISUSED, StoreOptions},
    store,
};
use locker_runtime::{Error, ErrorKind, Locker};

/// The exit code `EX_UNAVAILABLE`: the store is unavailable.
pub(super) const UNAVAILABLE: u8 = 69;

/// Opens the store. Stores that cannot hold a lock between processes are refused.
pub(super) async fn open(options: &StoreOptions) -> Result<Locker, Error> {
    let misused = |reason: &str| Err(Error::new(ErrorKind::Misused, reason));
    match options.store.as_deref() {
        None => misused("no store: give --store redis://host or set LOCKER_URL"),
        Some(url) if url.starts_with("memory:") => misused(
            "memory:// is the memory of one process and excludes no other process: give --store redis://host",
        ),
        Some(url) if url.starts_with("http:") || url.starts_with("https:") => misused(
            "the URL of a server is not a store yet: give the redis:// URL that the server has as --store",
        ),
        Some(url) => store::open(url, options.eviction).await,
    }
}

/// Logs an error and returns its exit code.
pub(super) fn fail(error: &Error) -> u8 {
    tracing::error!("{error}");
    if error.kind() == ErrorKind::Misused { MISUSED } else { UNAVAILABLE }
}
