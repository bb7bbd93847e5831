//! Ids of attempts.

use crate::key::hex;
use md5::{Digest, Md5};
use once_cell::sync::Lazy;
use std::{
    fmt,
    hash::{BuildHasherDefault, Hash, Hasher},
    sync::atomic::{AtomicU64, Ordering},
};
use uuid::Builder;

/// The id of one attempt to hold something or to wait for something: 128 random bits.
///
/// `Display` writes 32 lower-case hexadecimal digits, which [`Id::parse`] reads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(from = "u128", into = "u128")
)]
pub struct Id {
    // Two halves, because a u128 aligns every waiter's future to 16 bytes.
    high: u64,
    low: u64,
}

impl Id {
    pub(crate) const ZERO: Self = Self { high: 0, low: 0 };

    /// Creates a random id (UUID version 4, RFC 9562).
    ///
    /// # Panics
    /// If the operating system has no random numbers: two callers could then have the same id.
    #[must_use]
    pub fn random() -> Self {
        let mut bytes = [0; 16];
        // All bits of every id come from the operating system. A fork would copy a generator's state, and two processes
        // with the same id would hold one lock together.
        getrandom::fill(&mut bytes).expect("the operating system has no random numbers");
        Self::from(Builder::from_random_bytes(bytes).into_uuid().as_u128())
    }

    /// Creates an id that is unique in this process, for state that stays in this process.
    ///
    /// It does not ask the operating system, which would double the cost of a call that completes inline. A forked
    /// process may create the same ids, but it does not share the state that they name.
    pub(crate) fn local() -> Self {
        static FIRST: Lazy<Id> = Lazy::new(Id::random);
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // The multiplier is odd, so that all ids differ, and large, so that all of their bits vary.
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let steps = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { high: FIRST.high.wrapping_add(steps), low: FIRST.low.wrapping_add(steps.wrapping_mul(STEP)) }
    }

    /// Returns the id of a key that a client has chosen: the MD5 digest of `text`. Equal texts have equal ids.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self::from(u128::from_be_bytes(Md5::digest(text).into()))
    }

    /// Reads an id from 32 hexadecimal digits. Returns `None` if `text` is anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok().map(Self::from)).flatten()
    }
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

/// A map by id. The hash of an id is its low half, since ids are random already.
pub(crate) type IdMap<V> = std::collections::HashMap<Id, V, BuildHasherDefault<LowHalf>>;

/// A set of ids.
#[cfg(feature = "redis")]
pub(crate) type IdSet = std::collections::HashSet<Id, BuildHasherDefault<LowHalf>>;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LowHalf(u64);

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
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        u128::from(self).to_be_bytes()
    }

    #[expect(clippy::cast_possible_truncation, reason = "a shard number needs few bits")]
    pub(crate) fn shard(self, count: usize) -> usize {
        self.high as usize % count
    }

    /// Returns a number below `bound` that varies between ids: jitter without another source of randomness.
    pub(crate) fn jitter(self, bound: u32) -> u32 {
        ((self.low & 0xffff) as u32 * bound) >> 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_ids_differ_across_threads() {
        let draw = || (0..1_000).map(|_| Id::local()).collect::<Vec<_>>();
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
    fn id_round_trips_through_text() {
        let id = Id::random();
        assert_eq!(Id::parse(&id.to_string()), Some(id));
        assert_eq!(Id::parse("not an id"), None);
        assert_eq!(Id::parse(&"+".repeat(32)), None);
        assert_eq!(Id::of("a").to_string(), "0cc175b9c0f1b6a831c399e269772661");
    }
}
