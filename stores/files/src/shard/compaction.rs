//! Copying what is needed of a log to a new one.

use super::{AppendOutcome, Shard};
use crate::{
    errors::errno,
    folder::{Folder, names, open_file, random},
    log::Log,
    record::{Head, Kind, Record},
};
use locker_core::{clock::Timestamp, error::Result};
use rustix::{
    fs::{self, AtFlags},
    io::Errno,
};
use std::{fs::File, io::Write};

/// From this size on a log is long, if it is also so many times as large as one that is compacted.
const LONG: u64 = 8 << 20;
const TIMES: u64 = 4;

/// A log below this size is not compacted because of replaced values.
const SMALL: u64 = 128 * 1024;

/// A shorter log takes no less room on a disk.
const PAGE: u64 = 4096;

/// A log of values that are all needed is compacted when it is this many times as large as they are.
const GROWTH: u64 = 4;

/// If the values that are needed have fewer bytes, any value that is over is a reason to compact.
const SMALL_STORE: u64 = 1 << 20;

/// What others may append to a log while it is copied.
const HEADROOM: u64 = 1 << 26;

/// How often a seal is appended if others append before it.
const SEALS: usize = 100;

/// How large a log is, and the values in it that are needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) log: u64,
    pub(crate) needed: u64,
}

impl Size {
    fn of(log: &Log) -> Self {
        Self { log: log.seen, needed: log.needed }
    }

    /// Returns the size from which on a log mostly contains replaced values.
    fn limit(self) -> u64 {
        SMALL.max(GROWTH * self.needed)
    }

    /// Returns whether something keeps the log from being compacted.
    pub(crate) fn is_long(self) -> bool {
        self.log >= LONG.max(TIMES * self.limit())
    }
}

impl Shard {
    /// Returns the size of a log that mostly contains replaced values, and again when it has grown.
    pub(crate) fn outgrown(&mut self) -> Option<Size> {
        let log = self.log.as_mut()?;
        let size = Size::of(log);
        if size.log <= size.limit().max(log.patience) {
            return None;
        }
        log.patience = size.log + SMALL.max(size.log / 4);
        Some(size)
    }

    /// Compacts the log if it is worth while, and removes what a killed process has left.
    pub(crate) fn sweep(&mut self, folder: &Folder) -> Result<()> {
        let is_worth_while = |log: &Log, now| is_large(log, now) || has_much_over(log, now);
        if !self.exists(folder) {
            return Ok(());
        }
        self.catch_up(folder)?;
        if self.log.as_ref().is_some_and(|log| is_worth_while(log, folder.now())) {
            self.compact(folder, is_worth_while)?;
        }
        self.tidy(folder).map_err(|errno| folder.failed("remove files", errno))
    }

    fn exists(&self, folder: &Folder) -> bool {
        fs::statat(&folder.logs, &*self.name, AtFlags::empty()).is_ok()
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

    /// Compacts the log if it mostly contains replaced values. Returns `false` if another process keeps it locked.
    pub(crate) fn compact_if_large(&mut self, folder: &Folder) -> Result<bool> {
        self.compact(folder, is_large)
    }

    /// Compacts the log if a half of it is not needed.
    pub(crate) fn compact_if_wasteful(&mut self, folder: &Folder) -> Result<()> {
        let is_wasteful = |log: &Log, now| log.seen > PAGE.max(2 * log.needed) || has_much_over(log, now);
        if self.exists(folder) {
            self.compact(folder, is_wasteful)?;
        }
        Ok(())
    }

    /// Copies the values that are needed to a new log if `is_wanted`. Returns `false` if another process keeps it
    /// locked.
    fn compact(&mut self, folder: &Folder, is_wanted: fn(&Log, Timestamp) -> bool) -> Result<bool> {
        let failed = |errno| folder.failed("compact a log", errno);
        let lock = folder.lock(&folder.logs, &format!("{}.lock", self.name)).map_err(failed)?;
        let Some(_locked) = lock else { return Ok(false) };
        folder.pause("locked");
        self.catch_up(folder)?;
        self.rename(folder).map_err(failed)?;
        let (next, now) = (random(), folder.now());
        // Another process may have done so a moment ago.
        let Some(log) = self.log.as_ref().filter(|log| is_wanted(log, now)) else { return Ok(true) };
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
            if matches!(self.find(folder, next)?, AppendOutcome::Won(_)) {
                return self.rename(folder).map(|()| true).map_err(failed);
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
        Ok(true)
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
    log.seen > Size::of(log).limit()
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
