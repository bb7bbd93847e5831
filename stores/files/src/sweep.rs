//! What is done once a minute: one process removes what is over, and each lets go of logs that were replaced.

use super::{
    folder::SHARDS,
    io::Io,
    keeper::Keeper,
    worker::{WeakWorker, Worker},
};
use locker_core::{background, error::Result};
use std::time::Duration;

/// The time between two sweeps of one process, and of all.
pub(super) const INTERVAL: Duration = Duration::from_secs(60);

/// Sweeps until the threads have ended.
pub(super) fn start(io: &Worker<Io>, keeper: &Worker<Keeper>) {
    let (io, keeper) = (io.downgrade(), keeper.downgrade());
    background::spawn(async move {
        // Processes may be short-lived.
        let Some(first) = keeper.upgrade() else { return };
        let was_swept = first.run(|keeper| keeper.folder.swept_within(10 * INTERVAL)).await;
        drop(first);
        let mut wait = if was_swept.unwrap_or(true) { INTERVAL } else { Duration::ZERO };
        loop {
            background::sleep(wait).await;
            wait = INTERVAL;
            // A disk that is full, for example: the next sweep may succeed.
            if sweep(&io, &keeper, INTERVAL).await.is_none() {
                return;
            }
        }
    });
}

/// Sweeps, unless a process has done so within this time. Returns `None` if the threads have ended.
pub(super) async fn sweep(
    io: &WeakWorker<Io>,
    keeper: &WeakWorker<Keeper>,
    unless_within: Duration,
) -> Option<Result<()>> {
    let swept = keeper.upgrade()?.run(move |keeper| keeper.sweep(unless_within)).await.flatten();
    for number in 0..SHARDS {
        // Calls come in between.
        io.upgrade()?.run(move |io| io.follow(number)).await.ok()?;
    }
    Some(swept)
}
