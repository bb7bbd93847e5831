//! The store that the options name.

use crate::cli::{Eviction, Prefix};
use locker_runtime::{Error, KeyFormat, Locker, LockerBuilder, private::bindings::with_parameter};

/// Returns the builder of a locker on the store at `url`.
pub(crate) fn builder(url: &str, eviction: Eviction, prefix: &Prefix, format: KeyFormat) -> LockerBuilder {
    let mut locker = Locker::builder().url(url);
    if eviction.allow_eviction {
        locker = with_parameter(locker, "allow_eviction", "yes");
    }
    locker.prefix(&prefix.prefix).key_format(format)
}

/// Opens the store.
///
/// # Errors
/// As [`LockerBuilder::build`].
pub(crate) async fn open(locker: LockerBuilder) -> Result<Locker, Error> {
    locker.build().await.map_err(name_the_option)
}

/// Replaces the advice for the URL by the name of the option.
fn name_the_option(error: Error) -> Error {
    let advice = error.message().replace("allow_eviction=yes in the URL", "--allow-eviction");
    if advice == error.message() { error } else { Error::new(error.kind(), advice) }
}
