//! The store that the options name.

use crate::cli::{Eviction, Prefix};
use locker_runtime::{Error, KeyFormat, Locker};

/// Opens the store at `url`.
///
/// # Errors
/// As [`locker_runtime::LockerBuilder::build`].
pub(crate) async fn open(
    url: &str,
    eviction: Eviction,
    prefix: &Prefix,
    format: KeyFormat,
) -> Result<Locker, Error> {
    let locker = Locker::builder().url(url);
    #[cfg(feature = "redis")]
    let locker = locker.allow_eviction(eviction.allow_eviction);
    #[cfg(not(feature = "redis"))]
    let _ = eviction;
    locker.prefix(&prefix.prefix).key_format(format).build().await.map_err(name_the_option)
}

/// Replaces the library's advice in Rust by the name of the option.
fn name_the_option(error: Error) -> Error {
    let advice = error.message().replace("allow_eviction(true)", "--allow-eviction");
    if advice == error.message() { error } else { Error::new(error.kind(), advice) }
}
