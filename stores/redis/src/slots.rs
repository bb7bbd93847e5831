//! The slots of a cluster, and which node has them.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

/// The number of slots of every cluster.
pub(super) const SLOTS: u16 = 16_384;

/// Returns the slot of a key: of the text between its first braces, if there is one.
pub(super) fn slot_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(key).as_bytes()) % SLOTS
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |sum, byte| (sum << 8) ^ CRC[usize::from((sum >> 8) as u8 ^ byte)])
}

const CRC: [u16; 256] = crc_of_bytes();

#[allow(clippy::cast_possible_truncation, reason = "there are 256 bytes")]
const fn crc_of_bytes() -> [u16; 256] {
    let (mut table, mut byte) = ([0; 256], 0);
    while byte < 256 {
        let (mut sum, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            sum = if sum & 0x8000 == 0 { sum << 1 } else { (sum << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
}

/// The number of a node in this process. [`NOBODY`] is no node.
pub(super) type NodeNumber = u32;

pub(super) const NOBODY: NodeNumber = 0;

/// The owner of each slot, as far as this process knows.
#[derive(Debug)]
pub(super) struct Owners(Box<[AtomicU32]>);

impl Default for Owners {
    fn default() -> Self {
        Self((0..SLOTS).map(|_| AtomicU32::new(NOBODY)).collect())
    }
}

impl Owners {
    pub(super) fn of(&self, slot: u16) -> NodeNumber {
        self.0[usize::from(slot)].load(Ordering::SeqCst)
    }

    pub(super) fn set(&self, slot: u16, owner: NodeNumber) {
        self.0[usize::from(slot)].store(owner, Ordering::SeqCst);
    }
}

/// One node of a cluster, as a possible owner of keys.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    /// The id that the node has in its cluster.
    pub(super) id: Arc<str>,
    pub(super) number: NodeNumber,
    pub(super) owners: Arc<Owners>,
}

impl Owner {
    pub(super) fn has(&self, key: &str) -> bool {
        self.owners.of(slot_of(key)) == self.number
    }

    /// Returns the first key of `candidates` that is of this node, or `None` if the node has no slot.
    pub(super) fn first_of(&self, mut candidates: impl Iterator<Item = String>) -> Option<String> {
        let has_some = (0..SLOTS).any(|slot| self.owners.of(slot) == self.number);
        has_some.then(|| candidates.find(|key| self.has(key))).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_that_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
    }

    /// As `CLUSTER KEYSLOT` says.
    #[test]
    fn keys_of_one_name_share_a_slot() {
        assert_eq!(slot_of("foo"), 12_182);
        assert_eq!(slot_of("lock:a"), slot_of("{lock:a}:q"));
        assert_eq!(slot_of("{lock:a}:x:{b}"), slot_of("lock:a"));
        assert_ne!(slot_of("{}:q"), slot_of("{}:w"), "an empty tag is none");
    }
}
