//! Copying what is needed of a log to a new one.

use super::{Own, Shard};
use crate::{
    clock::Timestamp,
    diagnostics,
    error::Result,
    stores::files::{
        errors::errno,
        folder::{Folder, names, open_file, random},
        log::Log,
        record::{Head, Kind, Record},
    },
};
use rustix::{
    fs::{self, AtFlags},
    io::Errno,
};
use std::{fs::File, io::Write};

/// A log below this size is not compacted because of replaced values.
const SMALL: u64 = 128 * 1024;

/// A log of values that are all needed is compacted when it is this many times as large as they are.
const GROWTH: u64 = 4;

/// If the values that are needed have fewer bytes, any value that is over is a reason to compact.
const SMALL_STORE: u64 = 1 << 20;

/// What others may append to a log while it is copied.
const HEADROOM: u64 = 1 << 26;

/// From this size on a log is long, if it is also so many times as large as one that is compacted.
const LONG: u64 = 8 << 20;
const TIMES: u64 = 4;

/// How often a seal is appended if others append before it.
const SEALS: usize = 100;

impl Shard {
    /// Lets go of replaced logs, and removes values that are over and what a killed process has left.
    pub(in crate::stores::files) fn sweep(&mut self, folder: &Folder) -> Result<()> {
        let is_used = self.log.is_some();
        if !is_used && fs::statat(&folder.logs, &*self.name, AtFlags::empty()).is_err() {
            return Ok(());
        }
        self.catch_up(folder)?;
        if self.log.as_ref().is_some_and(|log| has_much_over(log, folder.now())) {
            self.compact(folder, has_much_over)?;
        }
        let tidied = self.tidy(folder);
        if !is_used {
            self.log = None;
        }
        tidied.map_err(|errno| folder.failed("remove files", errno))
    }

    /// Removes logs that were not completed, or not renamed.
    fn tidy(&mut self, folder: &Folder) -> Result<(), Errno> {
        let is_left = |name: &String| name.strip_prefix(&self.name).is_some_and(|rest| rest.len() == 17);
        let left = |names: Vec<String>| names.into_iter().filter(is_left).collect::<Vec<_>>();
        if left(names(&folder.logs)?).is_empty() {
            return Ok(());
        }
        let Some(_locked) = folder.lock(&folder.logs, &format!("{}.lock", self.name))? else { return Ok(()) };
        let left = left(names(&folder.logs)?);
        if self.catch_up(folder).is_ok() && self.log.is_some() {
            self.rename(folder)?;
            for name in &left {
                remove(folder, name);
            }
        }
        Ok(())
    }

    /// Compacts the log if it mostly contains replaced values.
    pub(super) fn compact_if_large(&mut self, folder: &Folder) {
        let Some(log) = &self.log else { return };
        if is_large(log, folder.now()) {
            // The write itself was carried out.
            let _ = self.compact(folder, is_large);
            if let Some(log) = &mut self.log {
                log.patience = log.seen + SMALL;
            }
        }
    }

    /// Copies the values that are needed to a new log if `is_wanted`, unless another process does so.
    pub(super) fn compact(&mut self, folder: &Folder, is_wanted: fn(&Log, Timestamp) -> bool) -> Result<()> {
        let failed = |errno| folder.failed("compact a log", errno);
        let lock = folder.lock(&folder.logs, &format!("{}.lock", self.name)).map_err(failed)?;
        let Some(_locked) = lock else {
            self.log.iter_mut().for_each(|log| warn_if_long(folder, &self.name, log));
            return Ok(());
        };
        folder.pause("locked");
        self.catch_up(folder)?;
        self.rename(folder).map_err(failed)?;
        let (next, now) = (random(), folder.now());
        // Another process may have done so a moment ago.
        let Some(log) = self.log.as_ref().filter(|log| is_wanted(log, now)) else { return Ok(()) };
        let name = format!("{}.{next:016x}", self.name);
        let head = Head { mark: random(), base: log.head.base + (log.seen + HEADROOM).cast_signed() };
        let (mut copied, first) = (log.seen, log.seen);
        let copy = |file: &mut File| {
            file.write_all(&head.bytes())?;
            log.copy(|value| !value.is_over(now), head.mark, file)
        };
        folder.create(&folder.logs, &name, copy).map_err(failed)?;
        let file = open_file(&folder.logs, &name).map_err(failed)?;
        for _ in 0..SEALS {
            folder.pause("before the seal");
            let seal = Record {
                kind: Kind::Seal,
                nonce: next,
                version: copied.cast_signed(),
                over_at: 0,
                key: "",
                value: b"",
            };
            if let Err(errno) = self.append(&seal) {
                remove(folder, &name);
                return Err(failed(errno));
            }
            folder.pause("after the seal");
            if matches!(self.find(folder, next)?, Own::Won(_)) {
                return self.rename(folder).map_err(failed);
            }
            let Some(log) = self.log.as_ref().filter(|log| log.seen - first < HEADROOM / 2) else { break };
            let since = log.head.base + copied.cast_signed();
            if let Err(error) = log.copy(|value| value.version >= since, head.mark, &file) {
                remove(folder, &name);
                return Err(failed(errno(&error)));
            }
            copied = log.seen;
        }
        remove(folder, &name);
        Ok(())
    }

    /// Gives the last log the name of the shard. Only with the lock.
    fn rename(&self, folder: &Folder) -> Result<(), Errno> {
        let Some(log) = &self.log else { return Ok(()) };
        let named = fs::statat(&folder.logs, &*self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        if let Some(id) = log.id
            && named.st_ino != fs::fstat(&log.file)?.st_ino
        {
            folder.pause("before the rename");
            let last = format!("{}.{id:016x}", self.name);
            fs::renameat(&folder.logs, &*last, &folder.logs, &*self.name)?;
        }
        folder.pause("after the rename");
        Ok(())
    }
}

/// Whether a log mostly contains replaced values.
fn is_large(log: &Log, _now: Timestamp) -> bool {
    log.seen > limit(log).max(log.patience)
}

/// Returns the size from which on a log mostly contains replaced values.
fn limit(log: &Log) -> u64 {
    SMALL.max(GROWTH * log.needed)
}

/// Warns of a log that another process keeps from being compacted, and again when it is twice as long.
fn warn_if_long(folder: &Folder, name: &str, log: &mut Log) {
    if log.seen < LONG.max(TIMES * limit(log)).max(2 * log.warned) {
        return;
    }
    log.warned = log.seen;
    diagnostics::warn_aloud(&format!(
        "the log {} has {} MiB, of which {} are needed, because another process keeps {0}.lock locked and does not \
         compact it: look for the process with `lslocks`, and continue it (SIGCONT) or end it",
        folder.log_path(name),
        log.seen >> 20,
        log.needed.div_ceil(1 << 20)
    ));
}

/// Whether it is worth while to remove the values that are over.
fn has_much_over(log: &Log, now: Timestamp) -> bool {
    let over = log.values.iter().filter(|(_, value)| value.is_over(now));
    let over = over.map(|(key, value)| value.record_len(key)).sum::<u64>();
    over > 0 && (over >= log.needed / 8 || log.needed < SMALL_STORE)
}

fn remove(folder: &Folder, name: &str) {
    let _ = fs::unlinkat(&folder.logs, name, AtFlags::empty());
}
