//! `locker unlock`.

use super::{
    store_option::fail,
    target::{hint, open},
};
use crate::cli::Unlock;
use locker_runtime::{Error, Key, Locker};
use std::process::ExitCode;

/// Ends the holds of a key.
pub(super) async fn unlock(options: Unlock) -> ExitCode {
    match released(&options).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => fail(&error).into(),
    }
}

async fn released(options: &Unlock) -> Result<bool, Error> {
    let (locker, key) = open(&options.store, &options.target).await?;
    let is_released = force_release(&locker, &key, options.fence).await?;
    if !is_released {
        hint(&locker.admin(), &options.target);
    }
    Ok(is_released)
}

/// Ends the holds of a key with this fence or a lower one, by default all current ones. The next waiter gets the lock.
/// Returns `false` if there was none.
///
/// # Errors
/// As `evict_up_to` of the library.
pub async fn force_release(locker: &Locker, key: &Key, fence: Option<u64>) -> Result<bool, Error> {
    let admin = locker.admin();
    let holders = admin.inspect(key).await?.map_or_else(Vec::new, |seen| seen.holders);
    let (ended, later): (Vec<_>, Vec<_>) =
        holders.into_iter().partition(|held| fence.is_none_or(|fence| held.fence <= fence));
    let last = ended.iter().map(|held| held.fence).max();
    let released = match last {
        Some(last) => admin.evict_up_to(key, last).await?,
        None => false,
    };
    let key = key.as_str();
    for held in ended.iter().filter(|_| released) {
        let holder = held.note.as_deref().unwrap_or("unknown");
        tracing::warn!(
            key,
            fence = held.fence,
            holder,
            "unlocked by force: the holder has lost the lock, the next waiter has it"
        );
    }
    match later.first() {
        Some(held) if !released => tracing::error!(key, fence = held.fence, "held with a later fence only"),
        None if !released => tracing::error!("{key:?} is not held"),
        _ => {}
    }
    Ok(released)
}
