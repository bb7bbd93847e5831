//! The names of the nodes.

use locker_cas::Inbox;
use locker_core::error::{Error, ErrorKind, Result};
use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

/// How many nodes the values are divided among. Part of the stored format.
pub(super) const BUCKETS: u32 = 256;

/// The longest name of a value's node.
const MAX_NAME: usize = 4_000;

/// The name of the key without a text: no node has an empty name.
const EMPTY: &str = "%";

/// The paths of one store: each is below the root of its URL.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    root: String,
    /// That of the buckets. 0 until it is known.
    generation: Arc<AtomicI64>,
}

/// Where a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The number of its bucket.
    pub(super) number: usize,
    /// The node that it is in, whose data version counts the insertions.
    pub(super) bucket: Arc<str>,
    pub(super) value: Arc<str>,
}

impl Keys {
    pub(super) fn new(root: &str) -> Self {
        Self { root: root.to_owned(), generation: Arc::default() }
    }

    /// Takes over the present generation. Returns whether it is another one.
    pub(super) fn set_generation(&self, generation: i64) -> bool {
        let before = self.generation.swap(generation, Ordering::AcqRel);
        before != 0 && before != generation
    }

    pub(super) fn root(&self) -> &str {
        &self.root
    }

    /// Returns where the value of a key is.
    pub(super) fn place(&self, key: &str) -> Result<Place> {
        let name = name(key);
        if name.len() > MAX_NAME {
            let len = name.len();
            let message = format!(
                "the key is too long for ZooKeeper: its node would have a name of {len} bytes, and {MAX_NAME} are the most"
            );
            return Err(Error::new(ErrorKind::Misused, message));
        }
        let number = bucket_of(key);
        let bucket = self.bucket(number);
        let value = format!("{bucket}/{name}").into();
        Ok(Place { number: usize::try_from(number).unwrap_or(0), bucket: bucket.into(), value })
    }

    /// Names the present generation of the buckets.
    pub(super) fn values(&self) -> String {
        format!("{}/key", self.root)
    }

    /// The buckets of one generation. If they are removed, others of another name are made: what processes know of
    /// former buckets fits none of them.
    pub(super) fn generation(&self, generation: i64) -> String {
        format!("{}/key/{generation}", self.root)
    }

    pub(super) fn bucket(&self, number: u32) -> String {
        self.bucket_of(self.generation.load(Ordering::Acquire), number)
    }

    pub(super) fn bucket_of(&self, generation: i64, number: u32) -> String {
        format!("{}/{number:02x}", self.generation(generation))
    }

    /// The messages to a process.
    pub(super) fn mail(&self, inbox: Inbox) -> String {
        format!("{}/mail/{inbox:08x}", self.root)
    }

    pub(super) fn mails(&self) -> String {
        format!("{}/mail", self.root)
    }

    /// There while a process listens.
    pub(super) fn inbox(&self, inbox: Inbox) -> String {
        format!("{}/inbox/{inbox:08x}", self.root)
    }

    pub(super) fn inboxes(&self) -> String {
        format!("{}/inbox", self.root)
    }

    /// A number below every fence.
    pub(super) fn base(&self) -> String {
        format!("{}/base", self.root)
    }

    /// Names the present life of the clock.
    pub(super) fn clock(&self) -> String {
        format!("{}/clock", self.root)
    }

    /// The time, in one life of the clock.
    pub(super) fn life(&self, life: i64) -> String {
        format!("{}/clock/{life}", self.root)
    }

    pub(super) fn gauges(&self) -> String {
        format!("{}/gauge", self.root)
    }

    /// There until a session that nobody keeps alive is over.
    pub(super) fn gauge(&self, number: u64) -> String {
        format!("{}/gauge/{number:016x}", self.root)
    }

    /// There while a process looks for values that nobody removes.
    pub(super) fn sweeper(&self) -> String {
        format!("{}/sweeper", self.root)
    }
}

/// Returns the bucket of a key: by FNV-1a, whose low bits depend on all bytes.
fn bucket_of(key: &str) -> u32 {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325, add);
    u32::try_from((hash ^ hash >> 32) % u64::from(BUCKETS)).unwrap_or(0)
}

/// Returns the name of the node for a key: what a name may not contain has its bytes encoded.
fn name(key: &str) -> String {
    if key.is_empty() {
        return EMPTY.to_owned();
    }
    let is_dots = key.chars().all(|letter| letter == '.');
    let mut name = String::with_capacity(key.len());
    for letter in key.chars() {
        if is_allowed(letter) && !is_dots {
            name.push(letter);
        } else {
            for byte in letter.encode_utf8(&mut [0; 4]).bytes() {
                write!(name, "%{byte:02X}").expect("a string takes any text");
            }
        }
    }
    name
}

/// Returns the key that a node is for.
pub(super) fn key_of(name: &str) -> Option<String> {
    if name == EMPTY {
        return Some(String::new());
    }
    let mut parts = name.split('%');
    let mut key = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        key.push(u8::from_str_radix(code, 16).ok()?);
        key.extend(rest.as_bytes());
    }
    String::from_utf8(key).ok()
}

/// The first letter after those that a name may contain: it comes after the halves of those above U+FFFF.
pub(super) const FIRST_EXCLUDED: char = '\u{e000}';

/// Returns whether a name may contain a letter. ZooKeeper sees those above U+FFFF as two of the excluded ones.
fn is_allowed(letter: char) -> bool {
    let is_excluded = |letter: char| letter.is_control() || "/%".contains(letter);
    !is_excluded(letter) && letter < FIRST_EXCLUDED
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_have_names_that_are_read_back() {
        let mut names = HashSet::new();
        let keys = [
            "",
            "%",
            "%%",
            "a",
            "lock:a b",
            "a/b",
            ".",
            "..",
            "...",
            ".a",
            "ä",
            "\u{f8ff}",
            "\u{10ffff}",
            "\n",
        ];
        for key in keys {
            let name = name(key);
            assert_eq!(key_of(&name).as_deref(), Some(key), "{name}");
            assert!(!name.is_empty() && name != "." && name != ".." && !name.contains('/'), "{name}");
            assert!(names.insert(name));
        }
        for foreign in ["%f", "%zz", "a%c3"] {
            assert_eq!(key_of(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn buckets_are_part_of_the_format() {
        assert_eq!(["", "lock:a", "lock:b"].map(bucket_of), BUCKETS_OF);
        let count =
            (0..10_000).map(|number: u32| bucket_of(&number.to_string())).collect::<HashSet<_>>().len();
        assert_eq!(count, 256);
    }

    const BUCKETS_OF: [u32; 3] = [193, 180, 193];

    #[test]
    fn long_keys_are_refused() {
        let keys = Keys::new("/locker");
        assert_eq!(&*keys.place("a").unwrap().value, format!("{}/a", keys.bucket(bucket_of("a"))));
        assert!(keys.place(&"x".repeat(MAX_NAME)).is_ok());
        let error = keys.place(&"\n".repeat(MAX_NAME / 2)).unwrap_err();
        assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Misused, true), "{error}");
        assert!(error.message().contains("too long"), "{error}");
    }
}
