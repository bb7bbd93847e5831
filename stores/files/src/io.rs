//! What calls need of the files: the logs, and the sockets of other processes.

use super::{
    folder::{Folder, SHARDS},
    inbox::Socket,
    record,
    shard::{Exchanged, NewValue, Range, Shard, Size},
};
use locker_cas::{Outcome, Write};
use locker_core::error::{Error, Result};
use std::{mem::replace, sync::Arc};

/// The logs and the socket of this process, on the thread that uses them for calls. Nothing here syncs or copies a log.
#[derive(Debug)]
pub(super) struct Io {
    pub(super) folder: Arc<Folder>,
    pub(super) socket: Socket,
    shards: Box<[Shard]>,
}

/// What came of a write.
pub(super) enum Written {
    Done {
        outcome: Outcome,
        /// The size of the log if it is to be copied.
        outgrown: Option<Size>,
    },
    /// There was no space for it.
    Full(Error),
}

impl Written {
    fn unchanged(outcome: Outcome) -> Self {
        Self::Done { outcome, outgrown: None }
    }
}

impl Io {
    pub(super) fn new(folder: Arc<Folder>) -> Result<Self> {
        let socket = Socket::bind(&folder)?;
        Ok(Self { folder, socket, shards: (0..SHARDS).map(Shard::new).collect() })
    }

    pub(super) fn exchange(&mut self, write: &Write) -> Result<Written> {
        let (key, number) = (write.key.as_str(), shard_of(write.key.as_str()));
        let value = write.value.as_deref().map(|bytes| NewValue { bytes, lasts: write.lasts });
        let exchanged = self.with(number, |shard, folder| shard.exchange(folder, key, write.expected, value));
        let exchanged = exchanged.map_err(|error| error.with_key(key))?;
        // After the write: a process that is stopped before it is granted nothing in a directory that was moved.
        self.folder.check_identity().map_err(|error| {
            let error = error.with_key(key);
            let is_written = value.is_some() && matches!(exchanged, Exchanged::Matched(_));
            if is_written { error.unknown() } else { error }
        })?;
        Ok(match exchanged {
            Exchanged::Full(error) => Written::Full(error.with_key(key)),
            Exchanged::Differs(version, value) => Written::unchanged(Outcome::Differs { version, value }),
            Exchanged::Matched(version) if value.is_none() => {
                Written::unchanged(Outcome::Matched { version, gone: Vec::new() })
            }
            Exchanged::Matched(version) => {
                let gone = self.socket.send(&write.messages);
                let outgrown = self.shards[number].outgrown();
                Written::Done { outcome: Outcome::Matched { version, gone }, outgrown }
            }
        })
    }

    pub(super) fn list(
        &mut self,
        number: usize,
        range: &Range,
        before: Option<&str>,
    ) -> Result<Vec<(String, Vec<u8>)>> {
        let found = self.with(number, |shard, folder| shard.list(folder, range, before))?;
        self.folder.check_identity()?;
        Ok(found)
    }

    /// Reads what was appended to a log that this process uses, so that it lets go of one that was replaced.
    pub(super) fn follow(&mut self, number: usize) {
        self.with(number, Shard::follow);
    }

    /// Uses a shard. If that panics, another one takes its place, which reads the log anew.
    fn with<R>(&mut self, number: usize, act: impl FnOnce(&mut Shard, &Folder) -> R) -> R {
        let mut shard = replace(&mut self.shards[number], Shard::new(number));
        let result = act(&mut shard, &self.folder);
        self.shards[number] = shard;
        result
    }
}

/// Returns the number of the log that a key belongs to.
#[expect(clippy::cast_possible_truncation, reason = "the remainder is small")]
pub(super) fn shard_of(key: &str) -> usize {
    (record::checksum(key.as_bytes()) % SHARDS as u64) as usize
}
