//! What keeps the directory in order: it copies logs, removes what is over, and keeps the floor of fences on the disk.

use super::{
    folder::{Folder, Host, SHARDS},
    inbox,
    shard::{Shard, Size},
};
use locker_core::{diagnostics, error::Result};
use std::{collections::HashSet, path::PathBuf, sync::Arc, time::Duration};

/// The directory, on the thread that may wait for the disk. It has shards of its own, as another process would.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) folder: Arc<Folder>,
    /// The drafts that the sweep before has found.
    drafts: HashSet<String>,
    /// The sizes of logs of which the user was warned.
    warned: [u64; SHARDS],
}

impl Keeper {
    pub(super) fn open(path: PathBuf, host: &Host) -> Result<Self> {
        let folder = Arc::new(Folder::open(path, host)?);
        Ok(Self { folder, drafts: HashSet::new(), warned: [0; SHARDS] })
    }

    /// Copies a log of this size, as far as its writer knows. A log that another process keeps locked grows.
    pub(super) fn copy(&mut self, number: usize, size: Size) {
        // If it fails, the log has grown when it is tried again.
        match Shard::new(number).compact_if_large(&self.folder) {
            Ok(false) => self.warn_if_long(number, size),
            Ok(true) => self.warned[number] = 0,
            Err(_) => {}
        }
    }

    /// Copies the logs of which a half is not needed, to make room on a full disk.
    pub(super) fn make_room(&self) {
        for number in 0..SHARDS {
            // The write that needs the room reports that there is none.
            let _ = Shard::new(number).compact_if_wasteful(&self.folder);
        }
    }

    /// Warns of a log that another process keeps from being copied, and again when it is twice as long.
    fn warn_if_long(&mut self, number: usize, size: Size) {
        if !size.is_long() || size.log < 2 * self.warned[number] {
            return;
        }
        self.warned[number] = size.log;
        diagnostics::warn_aloud(&format!(
            "the log {} has {} MiB, of which {} are needed, because another process keeps {0}.lock locked and does not \
             copy it: look for the process with `lslocks`, and continue it (SIGCONT) or end it",
            self.folder.log_path(&format!("{number:02x}")),
            size.log >> 20,
            size.needed.div_ceil(1 << 20)
        ));
    }

    /// Sweeps, unless another process does so, or one has done so within this time.
    pub(super) fn sweep(&mut self, unless_within: Duration) -> Result<()> {
        let folder = &*self.folder;
        folder.check_identity()?;
        folder.raise_floor()?;
        let sweeps = folder.lock_sweep().map_err(|errno| folder.failed("lock a file", errno))?;
        let Some(sweeps) = sweeps.filter(|_| !folder.swept_within(unless_within)) else { return Ok(()) };
        for number in 0..SHARDS {
            Shard::new(number).sweep(folder)?;
        }
        inbox::sweep(folder).map_err(|errno| folder.failed("remove sockets", errno))?;
        folder.remove_other_boots()?;
        self.remove_drafts();
        sweeps.note_time();
        Ok(())
    }

    /// Removes drafts that were there at the sweep before. A process that has only been stopped makes another one.
    fn remove_drafts(&mut self) {
        let mut drafts: HashSet<String> = self.folder.drafts().into_iter().collect();
        for old in self.drafts.iter().filter(|name| drafts.contains(*name)) {
            self.folder.remove_draft(old);
        }
        drafts.retain(|name| !self.drafts.contains(name));
        self.drafts = drafts;
    }
}
