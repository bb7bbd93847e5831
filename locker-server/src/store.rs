//! The store that the options name.

use crate::cli::Eviction;
use locker_runtime::{Error, Locker};

/// Opens it.
///
/// # Errors
/// As [`locker_runtime::LockerBuilder::build`].
pub(crate) async fn open(url: &str, eviction: Eviction) -> Result<Locker, Error> {
    let locker = Locker::builder().url(url).allow_eviction(eviction.allow_eviction).build().await;
    locker.map_err(in_options)
}

/// The library advises in Rust.
fn in_options(error: Error) -> Error {
    let advice = error.message().replace("allow_eviction(true)", "--allow-eviction");
    if advice == error.message() { error } else { Error::new(error.kind(), advice) }
}
