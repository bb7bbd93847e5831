//! `locker unlock`.

use super::store_option::{fail, open};
use crate::cli::Unlock;
use locker_runtime::{Error, Locker};
use std::process::ExitCode;

/// Ends the hold of a lock.
pub(super) async fn unlock(options: Unlock) -> ExitCode {
    let released = async { force_release(&open(&options.store).await?, &options.name).await };
    match released.await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            tracing::error!("{:?} is not held", options.name);
            ExitCode::FAILURE
        }
        Err(error) => fail(&error).into(),
    }
}

/// Ends the hold of a lock. The next waiter gets the lock. Returns `false` if the lock was not held.
///
/// # Errors
/// As `evict` of the library.
pub async fn force_release(locker: &Locker, name: &str) -> Result<bool, Error> {
    let admin = locker.admin();
    let released = admin.evict(&admin.key("lock", name)).await?;
    if released {
        tracing::warn!(name, "unlocked by force: the holder has lost the lock, the next waiter has it");
    }
    Ok(released)
}
