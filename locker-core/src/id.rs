//! Ids of attempts.

use crate::key::hex;
use md5::{Digest, Md5};
use once_cell::race::OnceBox;
use std::{
    fmt,
    hash::{BuildHasherDefault, Hash, Hasher},
    sync::atomic::{AtomicU64, Ordering},
};
use uuid::Builder;

/// The id of one attempt to hold something or to wait for something: 128 bits, at least 62 of them random for each id.
///
/// `Display` writes 32 lower-case hexadecimal digits, which [`Id::parse`] reads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    // Two halves, because a u128 aligns every waiter's future to 16 bytes.
    high: u64,
    low: u64,
}

impl Id {
    /// The id whose bits are all zero, which no attempt has.
    pub const ZERO: Self = Self { high: 0, low: 0 };

    /// Creates a random id (UUID version 4, RFC 9562).
    ///
    /// # Panics
    /// If the operating system has no random numbers: two callers could then have the same id.
    #[must_use]
    pub fn random() -> Self {
        let mut bytes = [0; 16];
        // All bits of every id come from the operating system. A fork would copy a generator's state, and two processes
        // with the same id would hold one lock together.
        fill(&mut bytes);
        Self::from(Builder::from_random_bytes(bytes).into_uuid().as_u128())
    }

    /// Creates a random id of the form of a UUID version 4 whose first half is that of `locker`: the ids of one locker
    /// share it, so that a holder can be told from others ([`tag`](Self::tag)).
    ///
    /// # Panics
    /// As [`random`](Self::random).
    #[must_use]
    pub fn random_of(locker: Self) -> Self {
        let mut bytes = [0; 8];
        // The low half comes from the operating system for every id, for the same reason. 62 random bits under 60
        // random bits of a locker are enough: ids meet only at one key within some minutes, and a billion ids of
        // copies of one locker (after a fork) have two equal ones with a probability of a tenth.
        fill(&mut bytes);
        let low = u64::from_be_bytes(bytes) >> 2 | 0b10 << 62;
        Self { high: locker.high, low }
    }

    /// Creates a random id as [`random`](Self::random), for a waiter of the process with this address.
    ///
    /// # Panics
    /// As [`random`](Self::random).
    #[must_use]
    pub fn random_in(inbox: u32) -> Self {
        let Self { high, low } = Self::random();
        Self { high: u64::from(inbox) << 32 | high & 0xffff_ffff, low }
    }

    /// Returns the address of the process that the id was drawn for: its first 32 bits.
    #[must_use]
    pub fn inbox(self) -> u32 {
        (self.high >> 32) as u32
    }

    /// Creates an id that is unique in this process, for state that stays in this process, with the first half of
    /// `locker`.
    ///
    /// It does not ask the operating system, which would double the cost of a call that completes inline. A forked
    /// process may create the same ids, but it does not share the state that they name.
    pub fn local_of(locker: Self) -> Self {
        static FIRST: OnceBox<Id> = OnceBox::new();
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // The multiplier is odd, so that all ids differ, and large, so that all of their bits vary.
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let steps = NEXT.fetch_add(1, Ordering::Relaxed);
        let first = FIRST.get_or_init(|| Box::new(Self::random()));
        Self { high: locker.high, low: first.low.wrapping_add(steps.wrapping_mul(STEP)) }
    }

    /// Returns the half that the ids of one locker share, without the version digit: a run on Redis has the id of its
    /// first member with another one. It is not enough to end a hold.
    #[must_use]
    pub fn tag(self) -> u64 {
        self.high & !0xf000
    }

    /// Returns the id of a key that a client has chosen: the MD5 digest of `text`. Equal texts have equal ids.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self::from(u128::from_be_bytes(Md5::digest(text).into()))
    }

    /// Reads an id from 32 hexadecimal digits. Returns `None` if `text` is anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_id = text.len() == 32 && !text.starts_with('+');
        is_id.then(|| u128::from_str_radix(text, 16).ok().map(Self::from)).flatten()
    }
}

/// Fills `bytes` with random numbers.
fn fill(bytes: &mut [u8]) {
    #[cfg(feature = "_world")]
    if crate::process::world::fill(bytes) {
        return;
    }
    getrandom::fill(bytes).expect("the operating system has no random numbers");
}

impl From<u128> for Id {
    #[expect(clippy::cast_possible_truncation, reason = "each half keeps its 64 bits")]
    fn from(bits: u128) -> Self {
        Self { high: (bits >> 64) as u64, low: bits as u64 }
    }
}

impl From<Id> for u128 {
    fn from(Id { high, low }: Id) -> Self {
        Self::from(high) << 64 | Self::from(low)
    }
}

impl Hash for Id {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.low);
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(str::from_utf8(&hex(&self.to_bytes())).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(any(feature = "serde", feature = "_cas"))]
impl serde::Serialize for Id {
    /// As text in formats for people, otherwise as 16 bytes.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.to_bytes().serialize(serializer)
        }
    }
}

#[cfg(any(feature = "serde", feature = "_cas"))]
impl<'de> serde::Deserialize<'de> for Id {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return <[u8; 16]>::deserialize(deserializer).map(|bytes| Self::from(u128::from_be_bytes(bytes)));
        }
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("an id has 32 hexadecimal digits"))
    }
}

/// A map by id. The hash of an id is its low half, since ids are random already.
pub(crate) type IdMap<V> = std::collections::HashMap<Id, V, BuildHasherDefault<LowHalf>>;

/// A set of ids.
#[cfg(feature = "redis")]
pub type IdSet = std::collections::HashSet<Id, BuildHasherDefault<LowHalf>>;

/// The hasher of ids: its result is the low half of the id.
#[derive(Clone, Copy, Debug, Default)]
pub struct LowHalf(u64);

impl Hasher for LowHalf {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, bits: u64) {
        self.0 = bits;
    }
}

impl Id {
    /// Returns the 16 bytes of the id, the highest first.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        u128::from(self).to_be_bytes()
    }

    pub(crate) fn shard(self, count: usize) -> usize {
        // Not the lowest bits, by which maps of one shard find their entries.
        (self.low >> 32) as usize % count
    }

    /// Returns the low half, of which 62 bits are random.
    #[cfg(feature = "_cas")]
    #[must_use]
    pub fn low_half(self) -> u64 {
        self.low
    }

    /// Returns a number below `bound` that varies between ids: jitter without another source of randomness.
    #[must_use]
    pub fn jitter(self, bound: u32) -> u32 {
        ((self.low & 0xffff) as u32 * bound) >> 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_ids_differ_across_threads() {
        let locker = Id::random();
        let draw = || (0..1_000).map(|_| Id::local_of(locker)).collect::<Vec<_>>();
        let drawn: Vec<Id> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(draw)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let distinct: std::collections::HashSet<Id> = drawn.iter().copied().collect();
        assert_eq!(distinct.len(), 4_000);
        let shards: std::collections::HashSet<usize> = drawn.iter().map(|id| id.shard(16)).collect();
        assert_eq!(shards.len(), 16);
    }

    #[test]
    fn ids_of_a_locker_share_their_tag_only() {
        let (one, other) = (Id::random(), Id::random());
        let drawn: std::collections::HashSet<Id> = (0..10_000).map(|_| Id::random_of(one)).collect();
        assert_eq!(drawn.len(), 10_000);
        for id in drawn {
            let text = id.to_string();
            assert_eq!((id.tag(), &text[12..13]), (one.tag(), "4"), "{text}");
            assert!("89ab".contains(&text[16..17]), "{text}");
        }
        assert_ne!(Id::random_of(other).tag(), one.tag());
        assert_eq!(Id::local_of(one).tag(), one.tag());
    }

    #[test]
    fn id_round_trips_through_text() {
        let id = Id::random();
        assert_eq!(Id::parse(&id.to_string()), Some(id));
        assert_eq!(Id::parse("not an id"), None);
        assert_eq!(Id::parse(&"+".repeat(32)), None);
        assert_eq!(Id::parse(&format!("+{}", "1".repeat(31))), None);
        assert_eq!(Id::of("a").to_string(), "0cc175b9c0f1b6a831c399e269772661");
    }

    #[cfg(feature = "_cas")]
    #[test]
    fn ids_of_a_process_begin_with_its_inbox() {
        for inbox in [0, 1, 0xfeed_beef, u32::MAX] {
            let locker = Id::random_in(inbox);
            let ids = [locker, Id::random_in(inbox), Id::random_of(locker), Id::local_of(locker)];
            assert_eq!(ids.map(Id::inbox), [inbox; 4]);
            assert_ne!(ids[0], ids[1]);
            assert_eq!(ids[2].tag(), locker.tag());
            for id in &ids[..3] {
                let text = id.to_string();
                assert!(text.starts_with(&format!("{inbox:08x}")), "{text}");
                assert!(&text[12..13] == "4" && "89ab".contains(&text[16..17]), "{text}");
            }
        }
        let tags = [Id::random_in(7), Id::random_in(7)].map(Id::tag);
        assert_ne!(tags[0], tags[1], "two lockers of one process");
    }

    #[cfg(feature = "_cas")]
    #[test]
    fn id_is_stored_as_bytes() {
        let id = Id::random();
        let bytes = postcard::to_stdvec(&id).unwrap();
        assert_eq!(bytes, id.to_bytes());
        assert_eq!(postcard::from_bytes(&bytes), Ok(id));
    }

    #[cfg(any(feature = "serde", feature = "_cas"))]
    #[test]
    fn id_is_text_for_people() {
        use serde::{Deserialize, de::IntoDeserializer};

        struct Shown(Id);

        impl fmt::Display for Shown {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                serde::Serialize::serialize(&self.0, f)
            }
        }

        let read = |text: &str| {
            let deserializer: serde::de::value::StrDeserializer<'_, serde::de::value::Error> =
                text.into_deserializer();
            Id::deserialize(deserializer)
        };
        let id = Id::random();
        let text = Shown(id).to_string();
        assert_eq!(text, id.to_string());
        assert_eq!(read(&text), Ok(id));
        assert!(read(&text[1..]).is_err());
    }
}
