//! One log, as far as this process has read it.

use super::{
    errors::errno,
    folder::{Folder, open_file, random},
    pieces::{Piece, Pieces},
    record::{self, HEAD, Head, Kind, Record},
};
use locker_cas::Version;
use locker_core::{
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
};
use rustix::io::Errno;
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, ErrorKind as IoErrorKind, Write},
    os::unix::fs::FileExt,
    time::Duration,
};

/// How long after its end a value may still be found: a process may have been stopped before it wrote the value.
const REMOVED_AFTER: Duration = Duration::from_secs(60);

/// The bytes of copies from which on they are written.
const COPIED_AT_ONCE: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Log {
    pub(super) file: File,
    pub(super) head: Head,
    /// The number of the log, if this process was led there by a seal.
    pub(super) id: Option<u64>,
    /// The position after the last whole record.
    pub(super) seen: u64,
    pub(super) values: BTreeMap<Box<str>, Value>,
    /// The bytes that the records of these values need.
    pub(super) needed: u64,
    /// The size below which no compaction is asked for.
    pub(super) patience: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    pub(super) version: Version,
    pub(super) at: u64,
    pub(super) len: u32,
    pub(super) over_at: Timestamp,
}

/// What became of the record that this process has appended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AppendOutcome {
    /// It is not in the log, or behind the seal.
    #[default]
    Unseen,
    Won(Version),
    Lost,
}

impl Log {
    /// Opens the log that the name of a shard leads to, after creating it if there is none.
    pub(super) fn open_first(folder: &Folder, name: &str) -> Result<Option<Self>> {
        if let Some(log) = Self::open(folder, name, None)? {
            return Ok(Some(log));
        }
        let head = Head { mark: random(), base: folder.now().as_micros().cast_signed() };
        let created = folder.create(&folder.logs, name, |file| file.write_all(&head.bytes()));
        created.map_err(|errno| folder.failed("create a log", errno))?;
        Self::open(folder, name, None)
    }

    /// Opens a log. Returns `None` if there is none with this name.
    pub(super) fn open(folder: &Folder, name: &str, id: Option<u64>) -> Result<Option<Self>> {
        let file = match open_file(&folder.logs, name) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(folder.failed("open a log", errno)),
        };
        let mut bytes = [0; HEAD];
        file.read_exact_at(&mut bytes, 0).map_err(|error| folder.failed("read a log", errno(&error)))?;
        let Some(head) = Head::read(&bytes) else {
            let message = format!(
                "the files in the directory {} are damaged, or of another version of this library",
                folder.path().display()
            );
            return Err(Error::new(ErrorKind::Conflict, message));
        };
        let seen = HEAD as u64;
        Ok(Some(Self { file, head, id, seen, values: BTreeMap::new(), needed: 0, patience: 0 }))
    }

    pub(super) fn replay(
        &mut self,
        buffer: &mut Vec<u8>,
        own: u64,
    ) -> io::Result<(AppendOutcome, Option<u64>)> {
        let (mut pieces, mut from, mut found) = (Pieces::new(buffer, self.seen), 0, AppendOutcome::Unseen);
        loop {
            let Piece { start, bytes, is_last } = pieces.next(&self.file, from)?;
            from = 0;
            let rest = loop {
                let (at, record) = match record::next(bytes, self.head.mark, from, is_last) {
                    Ok(found) => found,
                    Err(rest) => break rest,
                };
                let outcome = self.apply(&record, start + at as u64);
                if own != 0 && record.nonce == own {
                    found = outcome;
                }
                from = at + record.len();
                self.seen = start + from as u64;
                if record.kind == Kind::Seal && outcome != AppendOutcome::Lost {
                    return Ok((found, Some(record.nonce)));
                }
            };
            if is_last {
                return Ok((found, None));
            }
            from = rest;
        }
    }

    /// Takes over a record at the position `at` if it counts.
    pub(super) fn apply(&mut self, record: &Record<'_>, at: u64) -> AppendOutcome {
        let present = self.values.get(record.key).map_or(0, |value| value.version);
        let version = match record.kind {
            Kind::Write if record.version == present => self.head.base + at.cast_signed(),
            Kind::Copy => record.version,
            Kind::Seal if record.version == self.seen.cast_signed() => return AppendOutcome::Won(0),
            Kind::Write | Kind::Seal => return AppendOutcome::Lost,
        };
        let value = Value {
            version,
            at: at + (record.len() - record.value.len()) as u64,
            len: u32::try_from(record.value.len()).expect("the length of a record has 32 bits"),
            over_at: Timestamp::from_micros(record.over_at),
        };
        self.needed += value.record_len(record.key);
        if let Some(place) = self.values.get_mut(record.key) {
            self.needed -= place.record_len(record.key);
            *place = value;
        } else {
            self.values.insert(record.key.into(), value);
        }
        AppendOutcome::Won(version)
    }

    pub(super) fn read(&self, folder: &Folder, value: Value) -> Result<Vec<u8>> {
        let mut bytes = vec![0; value.len as usize];
        let read = self.file.read_exact_at(&mut bytes, value.at);
        read.map_err(|error| folder.failed("read a value", errno(&error)))?;
        Ok(bytes)
    }

    /// Writes the records of some values to a file, as they are in a log with `mark`.
    pub(super) fn copy(
        &self,
        is_wanted: impl Fn(&Value) -> bool,
        mark: u64,
        mut to: &File,
    ) -> io::Result<()> {
        let (mut bytes, mut out) = (Vec::new(), Vec::new());
        for (key, value) in self.values.iter().filter(|(_, value)| is_wanted(value)) {
            bytes.resize(value.len as usize, 0);
            self.file.read_exact_at(&mut bytes, value.at)?;
            let over_at = value.over_at.as_micros();
            Record { kind: Kind::Copy, nonce: 0, version: value.version, over_at, key, value: &bytes }
                .append_to(&mut out, mark);
            if out.len() >= COPIED_AT_ONCE {
                to.write_all(&out)?;
                out.clear();
            }
        }
        to.write_all(&out)
    }
}

impl Value {
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.over_at + REMOVED_AFTER <= now
    }

    /// Returns the bytes of the record that holds this value.
    pub(super) fn record_len(&self, key: &str) -> u64 {
        u64::from(self.len) + key.len() as u64 + 64
    }
}

/// Appends bytes by one call, so that they are in one piece.
pub(super) fn append(mut file: &File, bytes: &[u8]) -> Result<(), Errno> {
    loop {
        match file.write(bytes) {
            Ok(written) if written == bytes.len() => return Ok(()),
            // The rest would not follow the part.
            Ok(_) => return Err(Errno::NOSPC),
            Err(error) if error.kind() == IoErrorKind::Interrupted => {}
            Err(error) => return Err(errno(&error)),
        }
    }
}
