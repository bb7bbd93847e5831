//! The identity of one attempt.

use crate::key::hex;
use md5::{Digest, Md5};
use once_cell::sync::Lazy;
use std::{
    fmt,
    hash::{BuildHasherDefault, Hash, Hasher},
    sync::atomic::{AtomicU64, Ordering},
};
use uuid::Builder;

/// 128 random bits that name one attempt to hold or await something; shown as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(from = "u128", into = "u128")
)]
pub struct Id {
    // Two halves, because what holds a u128 is padded to multiples of 16 bytes, and every waiter holds some.
    high: u64,
    low: u64,
}

impl Id {
    pub(crate) const ZERO: Self = Self { high: 0, low: 0 };

    /// A new random id (UUID version 4).
    ///
    /// # Panics
    /// When the operating system has no random numbers: without them nobody could be told from anybody else.
    #[must_use]
    pub fn random() -> Self {
        let mut bytes = [0; 16];
        // Of every id all bits come from the operating system: what is kept in this process, a fork would copy, and two
        // processes with one id would hold together what only one may.
        getrandom::fill(&mut bytes).expect("the operating system has no random numbers");
        Self::from(Builder::from_random_bytes(bytes).into_uuid().as_u128())
    }

    /// A new id for what stays in this process: no other call of it returns the same. Made without asking the operating
    /// system, which takes as long as the rest of a call that is answered at once. A forked process may have the same
    /// ones, but not the same state to name with them.
    pub(crate) fn local() -> Self {
        static FIRST: Lazy<Id> = Lazy::new(Id::random);
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Odd, so that all of them differ, and large, so that all their bits do.
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let steps = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { high: FIRST.high.wrapping_add(steps), low: FIRST.low.wrapping_add(steps.wrapping_mul(STEP)) }
    }

    /// The id that stands for a key chosen by a client, so that the same key finds its hold again.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self::from(u128::from_be_bytes(Md5::digest(text).into()))
    }

    /// The 32 hexadecimal digits back into an id.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok().map(Self::from)).flatten()
    }
}

impl From<u128> for Id {
    #[expect(clippy::cast_possible_truncation, reason = "the halves are what is wanted")]
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

/// Ids are random already: their low half is their hash.
pub(crate) type IdMap<V> = std::collections::HashMap<Id, V, BuildHasherDefault<LowHalf>>;

/// Ids without values.
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

    /// A number below `bound` that differs from id to id: jitter without another source of randomness.
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
    fn text_and_id_convert_both_ways() {
        let id = Id::random();
        assert_eq!(Id::parse(&id.to_string()), Some(id));
        assert_eq!(Id::parse("not an id"), None);
        assert_eq!(Id::parse(&"+".repeat(32)), None);
        assert_eq!(Id::of("a").to_string(), "0cc175b9c0f1b6a831c399e269772661");
    }
}
