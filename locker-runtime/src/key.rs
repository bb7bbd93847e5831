//! Names and arguments become keys.

use once_cell::sync::Lazy;
use std::{
    fmt,
    hash::{BuildHasher, Hash, Hasher},
    sync::Arc,
};

static SEED: Lazy<foldhash::quality::RandomState> = Lazy::new(Default::default);

/// The full text of a key, prefix included, with its hash. Cheap to clone.
#[derive(Clone)]
pub struct Key {
    text: Arc<str>,
    hash: u64,
}

impl Key {
    /// The key with exactly this text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self { hash: SEED.hash_one(text), text: Arc::from(text) }
    }

    /// The text as it is sent to a store.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn hash_value(&self) -> u64 {
        self.hash
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.text == other.text
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.text, f)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// placeholder
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyFormat {
    /// e
    #[default]
    Escaped,
    /// p
    Python,
}

impl Key {
    pub(crate) fn named(prefix: &str, kind: &str, name: &str) -> Self {
        Self::new(&format!("{prefix}{kind}:{name}"))
    }
}
