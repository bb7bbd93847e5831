//! One of the logs that all processes append to. A key belongs to the log that its hash names.
//!
//! # Compare and set
//!
//! A write appends a record with the key, the expected version and the new value, by one call of `write(2)`. The kernel
//! lets one process at a time append to a file of a local file system. So the records have one order, and each reader
//! comes to the same result: a record counts if the version that it expects is the present one *at its place in the
//! log*. The process that appended it reads the log up to its record to learn the result. Two system calls are a write.
//!
//! - Nobody waits for anybody: no process has anything locked while it is outside of the kernel. One that is stopped or
//!   killed before `write(2)` has done nothing, and after it has done everything.
//! - A record that is appended late expects a version that is no longer the present one, and has no effect. Versions
//!   are the positions in the sequence of all logs of a shard (`base` + offset), so none is ever used twice, also not
//!   after a key was removed and written again.
//! - A part of a record (a process was killed within `write(2)`, or the disk was full) counts for nobody.
//!
//! # Compaction
//!
//! A log that mostly contains replaced values is copied: a new file `NN.<id>` with the values of the present, then a
//! seal is appended to the old log, which names the new one. The seal counts only if nothing was appended since the
//! values were copied. Nothing counts after a seal, so a process that appends there learns that its record was not
//! carried out, and appends to the new log. The copy is complete before the seal, so nobody waits for who compacts.
//! Values that are over are left out: that is how keys are removed.
//!
//! The name `NN` leads to a log of the sequence, and the seals lead from there to the last one. After the seal, the new
//! log is renamed to `NN`, which removes the name of the old one. Who has the old one open and does not find `NN.<id>`
//! any more opens `NN`. Its file stays readable for them: a process that was stopped after `write(2)` finds its record,
//! or the seal before it.
//!
//! Only the holder of the lock `NN.lock` compacts, from before the copy until after the rename. So no late rename sets
//! the name back. The kernel releases the lock when its holder has died; the next holder renames what was not renamed.
//! A process that is stopped with the lock keeps the others from compacting this shard, but from nothing else: the log
//! grows in the meantime.
//!
//! A process compacts with a shard of its own beside the one that it uses for calls. The calls go on meanwhile, and
//! meet the seal as those of other processes do.

mod compaction;

use super::{
    errors::errno,
    folder::{Folder, random},
    log::{AppendOutcome, Log, append},
    record::{Kind, Record},
};
pub(super) use compaction::Size;
use locker_cas::Version;
use locker_core::error::{Error, Result};
use rustix::{fs, io::Errno};
use std::{ops::Bound, time::Duration};

/// A buffer above this size is freed after its use.
const LARGE: usize = 1 << 20;

/// One log, as far as this process has read it.
#[derive(Debug)]
pub(super) struct Shard {
    name: String,
    log: Option<Log>,
    buffer: Vec<u8>,
}

/// What was read of a log.
#[derive(Debug, Default)]
struct Replayed {
    /// What became of the record that was looked for.
    own: AppendOutcome,
    /// The number of the log that follows, if this one was sealed.
    next: Option<u64>,
    /// Whether the log has no name.
    is_removed: bool,
}

/// What came of an exchange.
#[derive(Debug)]
pub(super) enum Exchanged {
    Matched(Version),
    Differs(Version, Option<Vec<u8>>),
    /// There was no space, which replaced values may use.
    Full(Error),
}

/// Keys that start with a text and come after another one, up to a number of them.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) prefix: String,
    pub(super) after: Option<String>,
    pub(super) limit: usize,
}

/// A new value.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewValue<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) lasts: Duration,
}

impl Shard {
    pub(super) fn new(number: usize) -> Self {
        Self { name: format!("{number:02x}"), log: None, buffer: Vec::new() }
    }

    pub(super) fn exchange(
        &mut self,
        folder: &Folder,
        key: &str,
        expected: Version,
        value: Option<NewValue<'_>>,
    ) -> Result<Exchanged> {
        loop {
            if value.is_none() || self.present(key) != Some(expected) {
                self.catch_up(folder)?;
            }
            let present = self.present(key).unwrap_or_default();
            if present != expected {
                return Ok(Exchanged::Differs(present, self.value(folder, key)?));
            }
            let Some(NewValue { bytes, lasts }) = value else {
                return Ok(Exchanged::Matched(present));
            };
            let (nonce, over_at) = (random() | 1, (folder.now() + lasts).as_micros());
            let record = Record { kind: Kind::Write, nonce, version: expected, over_at, key, value: bytes };
            folder.pause("before the write");
            if let Err(errno) = self.append(&record) {
                let error = folder.failed("write a value", errno);
                let is_full = matches!(errno, Errno::NOSPC | Errno::DQUOT);
                return if is_full { Ok(Exchanged::Full(error)) } else { Err(error) };
            }
            folder.pause("after the write");
            let won = match self.won_at_once(&record) {
                None => self.find(folder, nonce)?,
                Some(version) => AppendOutcome::Won(version),
            };
            if let AppendOutcome::Won(version) = won {
                return Ok(Exchanged::Matched(version));
            }
        }
    }

    /// Returns the values of a range whose keys come before a text.
    pub(super) fn list(
        &mut self,
        folder: &Folder,
        Range { prefix, after, limit }: &Range,
        before: Option<&str>,
    ) -> Result<Vec<(String, Vec<u8>)>> {
        self.catch_up(folder)?;
        let Some(log) = &self.log else { return Ok(Vec::new()) };
        let after = after.as_deref().filter(|after| *after >= &**prefix);
        let first = after.map_or(Bound::Included(&**prefix), Bound::Excluded);
        let found = log.values.range::<str, _>((first, Bound::Unbounded));
        let is_wanted = |key: &str| key.starts_with(prefix) && before.is_none_or(|before| key < before);
        let found = found.take_while(|(key, _)| is_wanted(key)).take(*limit);
        found.map(|(key, value)| Ok((key.to_string(), log.read(folder, *value)?))).collect()
    }

    /// Reads what was appended to the log if this process uses it.
    pub(super) fn follow(&mut self, folder: &Folder) {
        if self.log.is_some() && self.catch_up(folder).is_err() {
            self.log = None;
        }
    }

    /// Returns the version of a key, as far as this process has read the log.
    fn present(&self, key: &str) -> Option<Version> {
        let log = self.log.as_ref()?;
        Some(log.values.get(key).map_or(0, |value| value.version))
    }

    fn value(&self, folder: &Folder, key: &str) -> Result<Option<Vec<u8>>> {
        let Some((log, value)) = self.log.as_ref().and_then(|log| Some((log, log.values.get(key)?))) else {
            return Ok(None);
        };
        log.read(folder, *value).map(Some)
    }

    fn append(&mut self, record: &Record<'_>) -> Result<(), Errno> {
        let Some(log) = &self.log else { return Err(Errno::BADF) };
        self.buffer.clear();
        record.append_to(&mut self.buffer, log.head.mark);
        append(&log.file, &self.buffer)
    }

    fn catch_up(&mut self, folder: &Folder) -> Result<()> {
        self.find(folder, 0).map(drop)
    }

    /// Reads what was appended to the log, and to the logs that follow it. Returns what became of the record with the
    /// number `own`.
    fn find(&mut self, folder: &Folder, own: u64) -> Result<AppendOutcome> {
        let (mut found, mut is_certain) = (AppendOutcome::Unseen, own == 0);
        loop {
            let error = match self.replay(folder, own) {
                Ok(Replayed { own: seen, next, is_removed }) => {
                    if seen != AppendOutcome::Unseen {
                        found = seen;
                    }
                    if let Some(next) = next {
                        // Nothing counts behind a seal.
                        is_certain = true;
                        match Log::open(folder, &format!("{}.{next:016x}", self.name), Some(next)) {
                            Ok(log) => {
                                self.log = log;
                                continue;
                            }
                            Err(error) => error,
                        }
                    } else if is_removed {
                        folder.failed("keep files", Errno::NOENT)
                    } else if found == AppendOutcome::Unseen && !is_certain {
                        folder.failed("find a value that was written", Errno::IO)
                    } else {
                        return Ok(found);
                    }
                }
                Err(error) => error,
            };
            self.log = None;
            // If the outcome is known, the next call reports the error.
            return if found == AppendOutcome::Unseen {
                Err(if is_certain { error } else { error.unknown() })
            } else {
                Ok(found)
            };
        }
    }

    /// Reads what was appended to the present log.
    fn replay(&mut self, folder: &Folder, own: u64) -> Result<Replayed> {
        if self.log.is_none() {
            self.log = Log::open_first(folder, &self.name)?;
        }
        let Some(log) = &mut self.log else { return Ok(Replayed::default()) };
        let failed = |errno| folder.failed("read a log", errno);
        // Looked up before the log is read: a log that was replaced had its seal before it lost its name.
        let stat = fs::fstat(&log.file).map_err(failed)?;
        let is_removed = stat.st_nlink == 0;
        if stat.st_size.cast_unsigned() == log.seen {
            return Ok(Replayed { is_removed, ..Replayed::default() });
        }
        let replayed = log.replay(&mut self.buffer, own);
        #[cfg(test)]
        folder.pauses.largest.fetch_max(self.buffer.len(), std::sync::atomic::Ordering::Relaxed);
        if self.buffer.capacity() > LARGE {
            self.buffer = Vec::new();
        }
        let (own, next) = replayed.map_err(|error| failed(errno(&error)))?;
        Ok(Replayed { own, next, is_removed })
    }

    /// Returns the version of a record that was appended if nothing else was appended since this process has read the
    /// log. This saves reading it.
    fn won_at_once(&mut self, record: &Record<'_>) -> Option<Version> {
        let log = self.log.as_mut()?;
        let (at, found) = (log.seen, fs::fstat(&log.file).ok()?);
        let end = at + record.len() as u64;
        if found.st_nlink == 0 || found.st_size.cast_unsigned() != end {
            return None;
        }
        let AppendOutcome::Won(version) = log.apply(record, at) else { return None };
        log.seen = end;
        Some(version)
    }
}
