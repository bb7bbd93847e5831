//! Keys, made of names or of functions and their arguments.

use once_cell::race::OnceBox;
use std::{
    cell::RefCell,
    cmp::Ordering,
    fmt,
    hash::{BuildHasher, Hash, Hasher},
    sync::Arc,
};

mod arguments;
mod function;
mod name;
mod named;

pub use arguments::{ArgumentsDigest, KeyBuilder, KeyFormat, KeyPart};
pub use function::{Function, FunctionDigest};
pub use named::Named;

/// Set without waiting, as all statics that a forked child shares with its parent.
static SEED: OnceBox<foldhash::quality::RandomState> = OnceBox::new();

/// The key of a primitive in a store: its full text, including the prefix. Cheap to clone.
///
/// Keys of one text are equal. `Display` writes the text.
#[derive(Clone)]
pub struct Key {
    text: Arc<str>,
    hash: u64,
}

impl Key {
    /// Creates the key with exactly this text: neither prefix nor kind is added.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self { hash: SEED.get_or_init(Box::default).hash_one(text), text: Arc::from(text) }
    }

    /// Returns the text as the store receives it.
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

/// Keys are in the order of the bytes of their texts.
impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

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

/// 128 bits (a digest or an id) as lower-case hexadecimal digits.
type Hex = [u8; 32];

/// Returns a digest as hexadecimal digits.
#[must_use]
pub fn hex(digest: &[u8]) -> Hex {
    let mut text = [0; 32];
    for (pair, byte) in text.chunks_exact_mut(2).zip(digest) {
        pair[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
        pair[1] = b"0123456789abcdef"[usize::from(byte & 15)];
    }
    text
}

thread_local! {
    /// The buffer in which keys are built.
    static BUFFER: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Builds a key from the text that `write` appends to an empty buffer.
fn build(write: impl Fn(&mut String)) -> Key {
    let with_buffer = |buffer: &mut String| {
        buffer.clear();
        write(buffer);
        Key::new(buffer)
    };
    BUFFER
        .try_with(|buffer| with_buffer(&mut buffer.borrow_mut()))
        .unwrap_or_else(|_| with_buffer(&mut String::new()))
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("hex digits are text")
}
