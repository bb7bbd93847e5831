//! Names and arguments become keys.

use once_cell::sync::Lazy;
use std::{
    cell::RefCell,
    fmt,
    hash::{BuildHasher, Hash, Hasher},
    sync::Arc,
};

mod arguments;
mod function;
mod name;

pub use arguments::{KeyBuilder, KeyFormat, KeyPart};
pub use function::{Function, FunctionDigest};

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
        self.hash == other.hash && (Arc::ptr_eq(&self.text, &other.text) || self.text == other.text)
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

/// 128 bits, of a digest or an id, as lower-case hex.
type Hex = [u8; 32];

pub(crate) fn hex(digest: &[u8]) -> Hex {
    let mut text = [0; 32];
    for (pair, byte) in text.chunks_exact_mut(2).zip(digest) {
        pair[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
        pair[1] = b"0123456789abcdef"[usize::from(byte & 15)];
    }
    text
}

thread_local! {
    /// Room for a key that is put together.
    static ROOM: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The key with the text that `write` adds to an empty one.
fn build(write: impl Fn(&mut String)) -> Key {
    let with_room = |room: &mut String| {
        room.clear();
        write(room);
        Key::new(room)
    };
    ROOM.try_with(|room| with_room(&mut room.borrow_mut())).unwrap_or_else(|_| with_room(&mut String::new()))
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("hex digits are text")
}
