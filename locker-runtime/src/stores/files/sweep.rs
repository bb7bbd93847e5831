//! What is done once a minute: every process lets go of logs that were replaced; one of them removes what is over.

use super::{Inner, folder::Folder};
use crate::{background, error::Result, sync::lock};
use std::{
    collections::HashSet,
    sync::{Arc, Weak},
    time::Duration,
};

const INTERVAL: Duration = Duration::from_secs(60);

/// Sweeps until the backend is dropped.
pub(super) fn start(inner: &Arc<Inner>) {
    let weak: Weak<Inner> = Arc::downgrade(inner);
    background::spawn(async move {
        let mut drafts = HashSet::new();
        // Processes may be short-lived.
        let mut wait = if swept_lately(&weak) { INTERVAL } else { Duration::ZERO };
        loop {
            background::sleep(wait).await;
            wait = INTERVAL;
            let Some(inner) = weak.upgrade() else { return };
            // A disk that is full, for example: the next sweep may succeed.
            let _ = sweep(&inner, &mut drafts).await;
        }
    });
}

/// Sweeps once. `drafts` are those that the sweep before has found.
pub(super) async fn sweep(inner: &Inner, drafts: &mut HashSet<String>) -> Result<()> {
    let folder = &inner.folder;
    folder.raise_floor()?;
    let sweeps = folder.lock_sweep().map_err(|errno| folder.failed("lock a file", errno))?;
    for shard in &inner.shards {
        if sweeps.is_some() {
            lock(shard).sweep(folder)?;
        } else {
            lock(shard).follow(folder);
        }
        // Other work of the thread comes in between.
        tokio::task::yield_now().await;
    }
    if let Some(sweeps) = sweeps {
        inner.socket.sweep().map_err(|errno| folder.failed("remove sockets", errno))?;
        folder.remove_other_boots()?;
        remove_drafts(folder, drafts);
        sweeps.note_time();
    }
    Ok(())
}

fn swept_lately(inner: &Weak<Inner>) -> bool {
    inner.upgrade().is_none_or(|inner| inner.folder.swept_within(10 * INTERVAL))
}

/// Removes drafts that were there a minute ago. Who has only been stopped makes another one.
fn remove_drafts(folder: &Folder, known: &mut HashSet<String>) {
    let mut drafts: HashSet<String> = folder.drafts().into_iter().collect();
    for old in known.iter().filter(|name| drafts.contains(*name)) {
        folder.remove_draft(old);
    }
    drafts.retain(|name| !known.contains(name));
    *known = drafts;
}
