//! The functions that the code of the attributes calls. Not public: anything here may change in any version.

pub mod bindings;
mod consts;
mod each;
mod entry;
mod leader;
mod once;
mod outcome;
mod scope;

#[cfg(feature = "idempotent")]
pub use crate::handles::once::Began;
pub use crate::{global::global, handles::LockRequest};
pub use consts::{
    LONGEST, MOST, SHORTEST, SHORTEST_INTERVAL, check_max_hold, check_min_hold, check_stop_before,
    check_timeout, checked_every, checked_interval, checked_margin, checked_max_retry, checked_max_size,
    checked_size, checked_time, checked_timeout,
};
pub use core::{
    convert::Infallible,
    file, line,
    mem::drop,
    module_path,
    option::Option::{None, Some},
    pin::pin,
    primitive::{u32, u64, usize},
    result::Result::{Err, Ok},
    time::Duration,
};
pub use each::{Each, Requests, acquire_each, acquire_each_blocking, each, each_key};
pub use entry::{admit, admit_blocking, rate, rate_key, read, semaphore, semaphore_key, write};
pub use leader::{TermCopy, copy, leader, term};
pub use locker_core::{
    key::{Function, FunctionDigest, KeyBuilder},
    primitives::rate_limiter::Quota,
};
pub use once::{
    AsyncRun, BlockingRun, Ended, Skipped, begin, begin_blocking, end, end_certainly, end_with, enter,
    enter_blocking, once_key, once_per,
};
#[cfg(feature = "idempotent")]
pub use once::{Kept, idempotent, same};
pub use outcome::{FromLocker, Outcome, never};
pub use scope::{
    AsyncScope, BlockingScope, acquire, acquire_blocking, call, cancel_on_lost, capture, leave,
    leave_checked, run,
};

use crate::{handles::Origin, locker::Locker};
use locker_core::{key::Key, primitives::HoldKind};
use std::ops::Deref;

/// A value of the option `locker = ..`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a locker: `locker = ..` takes a `Locker`, or anything that dereferences to \
               one, such as `Arc<Locker>` or `LazyLock<Locker>`",
    label = "not a locker"
)]
pub trait AsLocker {
    /// Borrows the locker.
    fn as_locker(&self) -> &Locker;
}

impl AsLocker for Locker {
    fn as_locker(&self) -> &Locker {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<D: Deref<Target: AsLocker> + ?Sized> AsLocker for D {
    fn as_locker(&self) -> &Locker {
        (**self).as_locker()
    }
}

/// Borrows the locker of the option `locker = ..`.
pub fn locker<L: AsLocker + ?Sized>(locker: &L) -> &Locker {
    locker.as_locker()
}

/// Returns the builder of a lock's key; the arguments follow.
#[must_use]
pub fn lock_key<'a>(locker: &'a Locker, function: &'a FunctionDigest) -> KeyBuilder<'a> {
    key_builder(locker, function, ":lock|")
}

fn key_builder<'a>(locker: &'a Locker, function: &'a FunctionDigest, kind: &'static str) -> KeyBuilder<'a> {
    locker.describe(function);
    KeyBuilder::new(locker.prefix(), locker.key_format(), function, kind)
}

/// Returns the request for the lock `key`.
pub fn lock(locker: &Locker, function: &'static Function, key: Key) -> LockRequest {
    locker.request(HoldKind::Lock, key).origin(Origin::Function(function))
}
