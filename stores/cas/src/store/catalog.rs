//! The list of keys, and the texts about them.

use super::CasStore;
use crate::{
    backend::{ABSENT, Backend, Outcome, Version, Write},
    entry::Stored,
};
use futures_util::future::try_join_all;
use locker_core::{
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    key::Key,
    primitives::Context,
    store::{Description, KeyPage},
    sync::lock,
};
use std::{collections::HashMap, time::Duration};

/// The first byte of the value of a text.
const TEXT: u8 = b'T';

/// Keys of texts begin with this, which no key of an application does.
const RESERVED: char = '\u{1}';

/// How many texts are read or written at the same time.
const AT_ONCE: usize = 64;

/// How often the write of a text is repeated after a write of another process.
const WRITES: u32 = 5;

impl<B: Backend> CasStore<B> {
    pub(super) async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<KeyPage> {
        let limit = limit.max(1);
        let (mut keys, mut after) = (Vec::new(), after.map(str::to_owned));
        loop {
            let found = self.backend.list(prefix, after.as_deref(), limit).await?;
            let is_end = found.len() < limit;
            for (key, value) in found {
                if keys.len() == limit {
                    return Ok(KeyPage { keys, next: after });
                }
                if self.is_in_use(&key, &value) {
                    keys.push(Key::new(&key));
                }
                after = Some(key);
            }
            if is_end {
                return Ok(KeyPage { keys, next: None });
            }
            if keys.len() == limit {
                return Ok(KeyPage { keys, next: after });
            }
        }
    }

    /// Returns whether a value is that of a key in use. A value that cannot be read is shown, so that it can be found.
    fn is_in_use(&self, key: &str, value: &[u8]) -> bool {
        if key.starts_with(RESERVED) {
            return false;
        }
        let Ok(mut stored) = Stored::from_bytes(value) else { return true };
        let counts_gaps = stored.entry.counts_gaps().unwrap_or(false);
        let (now, _) = self.backend.time().at_stamp(stored.stamp, counts_gaps);
        let (key, mut notifications) = (Key::new(key), Vec::new());
        stored.entry.is_in_use_at(&mut Context::new(&key, now, &mut notifications))
    }

    pub(super) async fn keep_texts(&self, prefix: &str, descriptions: &[Description]) -> Result<()> {
        for some in descriptions.chunks(AT_ONCE) {
            try_join_all(some.iter().map(|text| self.keep_text(prefix, text))).await?;
        }
        Ok(())
    }

    async fn keep_text(&self, prefix: &str, description: &Description) -> Result<()> {
        let mut write = Write {
            value: Some([&[TEXT], description.text.as_bytes()].concat()),
            lasts: description.keep,
            ..look(prefix, &description.subject)
        };
        write.expected = lock(&self.told).version(&write.key);
        for _ in 0..WRITES {
            match self.exchange(write.clone()).await? {
                Outcome::Matched { version, .. } => {
                    lock(&self.told).add(write.key, version, description.keep);
                    return Ok(());
                }
                Outcome::Differs { version, .. } => write.expected = version,
                Outcome::Ticked(_) => {}
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "other processes write the same text"))
    }

    pub(super) async fn texts(&self, prefix: &str, subjects: &[String]) -> Result<Vec<Option<String>>> {
        let mut texts = Vec::with_capacity(subjects.len());
        for some in subjects.chunks(AT_ONCE) {
            texts.extend(try_join_all(some.iter().map(|subject| self.text(prefix, subject))).await?);
        }
        Ok(texts)
    }

    async fn text(&self, prefix: &str, subject: &str) -> Result<Option<String>> {
        let Outcome::Differs { value: Some(value), .. } = self.exchange(look(prefix, subject)).await? else {
            return Ok(None);
        };
        let text = value.split_first().filter(|(first, _)| **first == TEXT).map(|(_, text)| text.to_vec());
        Ok(text.and_then(|text| String::from_utf8(text).ok()))
    }
}

/// The least number of texts at which those that are over are forgotten.
const ROOM: usize = 64;

/// The versions of the texts that this process has told, and when they are over.
#[derive(Debug, Default)]
pub(crate) struct Told {
    versions: HashMap<Key, (Version, Timestamp)>,
    /// The number of texts at which those that are over are forgotten.
    room: usize,
}

impl Told {
    fn version(&self, key: &Key) -> Version {
        self.versions.get(key).map_or(ABSENT, |(version, _)| *version)
    }

    fn add(&mut self, key: Key, version: Version, keep: Duration) {
        let now = Timestamp::now();
        self.versions.insert(key, (version, now + keep));
        if self.versions.len() > self.room.max(ROOM) {
            self.versions.retain(|_, (_, until)| *until > now);
            self.room = 2 * self.versions.len();
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.versions.len()
    }
}

/// A comparison that returns the value of a text.
fn look(prefix: &str, subject: &str) -> Write {
    Write::look(Key::new(&format!("{RESERVED}{prefix}{subject}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that describes a new name for each call keeps few of them.
    #[test]
    fn texts_that_are_over_are_forgotten() {
        let (mut told, hour) = (Told::default(), Duration::from_secs(3600));
        let key = |number: usize| Key::new(&number.to_string());
        for number in 0..ROOM {
            told.add(key(number), 5, Duration::ZERO);
            assert_eq!(told.len(), number + 1, "there is room");
        }
        for number in 0..ROOM {
            told.add(key(1_000 + number), 7, hour);
            assert_eq!(told.len(), number + 1, "those that are over made room");
        }
        told.add(key(2_000), 7, hour);
        assert_eq!(told.room, 2 * (ROOM + 1), "nothing was over: they are looked at once in a while");
        assert_eq!((told.version(&key(1_000)), told.version(&key(0))), (7, ABSENT));
    }
}
