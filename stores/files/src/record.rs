//! The bytes of a log: a head, then records, of which each was appended by one call of `write(2)`.
//!
//! A process that is killed in the middle of that call leaves a part of a record. Readers skip it: a record counts only
//! if its checksum is right, and each begins with the mark of its log, a random number that no value contains.

use locker_cas::Version;

/// The bytes of a head.
pub(super) const HEAD: usize = 32;

/// The bytes of a record without its key and its value.
pub(super) const FIXED: usize = 52;

/// The maximum of bytes of a value.
pub(super) const MAX_VALUE: usize = 4 << 20;

/// The maximum of bytes of a key.
pub(super) const MAX_KEY: usize = 1 << 20;

/// Distinguishes the format of logs. The last byte is the format's number.
const FORMAT: [u8; 8] = *b"locker\0\x01";

/// The maximum of a base: the versions above it have room in an [`i64`].
const MAX_BASE: Version = (1 << 62) - 1;

/// The head of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// What each record of this log begins with.
    pub(super) mark: u64,
    /// The number that versions in this log begin with.
    pub(super) base: Version,
}

impl Head {
    pub(super) fn bytes(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..8].copy_from_slice(&FORMAT);
        bytes[8..16].copy_from_slice(&self.mark.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.base.to_le_bytes());
        let check = checksum(&bytes[..24]);
        bytes[24..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Returns `None` if this is not the head of a log of this format.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let right =
            bytes.len() >= HEAD && bytes[..8] == FORMAT && number(bytes, 24) == checksum(&bytes[..24]);
        let head = right.then(|| Self { mark: number(bytes, 8), base: number(bytes, 16).cast_signed() });
        head.filter(|head| (0..=MAX_BASE).contains(&head.base))
    }
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A write, if `version` is the present version of the key.
    Write = 1,
    /// A value that was copied from the log before, with its `version`.
    Copy = 2,
    /// The log ends here, if `version` is the position after the record before this one. The log that follows it is the
    /// one with the number `nonce`.
    Seal = 3,
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub(super) kind: Kind,
    /// Random: by which the process that appended a record finds it again.
    pub(super) nonce: u64,
    pub(super) version: i64,
    /// When the value may be removed, in microseconds of the shared clock.
    pub(super) over_at: u64,
    pub(super) key: &'a str,
    pub(super) value: &'a [u8],
}

impl<'a> Record<'a> {
    /// Returns the number of bytes of the record.
    pub(super) fn len(&self) -> usize {
        FIXED + self.key.len() + self.value.len()
    }

    /// Appends the bytes of the record in a log with `mark`.
    pub(super) fn append_to(&self, out: &mut Vec<u8>, mark: u64) {
        let start = out.len();
        out.reserve(self.len());
        out.extend_from_slice(&mark.to_le_bytes());
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&length(self.len()).to_le_bytes());
        out.extend_from_slice(&length(self.key.len()).to_le_bytes());
        out.extend_from_slice(&(self.kind as u32).to_le_bytes());
        out.extend_from_slice(&self.nonce.to_le_bytes());
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.over_at.to_le_bytes());
        out.extend_from_slice(self.key.as_bytes());
        out.extend_from_slice(self.value);
        let check = checksum(&out[start + 16..]);
        out[start + 8..start + 16].copy_from_slice(&check.to_le_bytes());
    }

    /// Reads the lengths of the record at the start of `bytes` and of its key, if they are possible.
    pub(super) fn lengths(bytes: &[u8]) -> Option<(usize, usize)> {
        let (len, key_len) = (half(bytes, 16), half(bytes, 20));
        (key_len + FIXED <= len && len <= FIXED + MAX_KEY + MAX_VALUE).then_some((len, key_len))
    }

    /// Returns whether more bytes may make a record of these.
    fn is_cut(bytes: &[u8]) -> bool {
        bytes.len() < FIXED || Self::lengths(bytes).is_some_and(|(len, _)| len > bytes.len())
    }

    /// Reads the record at the start of `bytes`, if there is a whole one.
    fn read(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() < FIXED {
            return None;
        }
        let (len, key_len) = Self::lengths(bytes).filter(|(len, _)| *len <= bytes.len())?;
        let kind = match half(bytes, 24) {
            1 => Kind::Write,
            2 => Kind::Copy,
            3 => Kind::Seal,
            _ => return None,
        };
        if checksum(&bytes[16..len]) != number(bytes, 8) {
            return None;
        }
        let (key, value) = bytes[FIXED..len].split_at(key_len);
        Some(Self {
            kind,
            nonce: number(bytes, 28),
            version: number(bytes, 36).cast_signed(),
            over_at: number(bytes, 44),
            key: str::from_utf8(key).ok()?,
            value,
        })
    }
}

/// Returns the first whole record at or after `from`, and where it begins.
///
/// What is skipped is a part of a record for ever: a file is appended to by one process at a time, so all bytes before
/// a whole record are final.
///
/// # Errors
/// Without one, returns where a record may begin that goes on behind these bytes. Behind the last bytes of a file none
/// does.
pub(super) fn next(
    bytes: &[u8],
    mark: u64,
    from: usize,
    is_last: bool,
) -> Result<(usize, Record<'_>), usize> {
    let (mark, mut at) = (mark.to_le_bytes(), from);
    loop {
        let rest = &bytes[at.min(bytes.len())..];
        match rest.windows(mark.len()).position(|window| window == mark) {
            Some(skipped) => at += skipped,
            // A part of a mark.
            None => return Err(bytes.len() - rest.len().min(mark.len() - 1)),
        }
        if let Some(record) = Record::read(&bytes[at..]) {
            return Ok((at, record));
        }
        if !is_last && Record::is_cut(&bytes[at..]) {
            return Err(at);
        }
        at += 1;
    }
}

/// A checksum against parts of records, and the hash by which a key is assigned to its log. It is part of the format.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |sum: u64, word: u64| {
        let product = (sum ^ word).wrapping_mul(FACTOR);
        product ^ product >> 29
    };
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(bytes.len() as u64, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(mix(sum, u64::from_le_bytes(last)), FACTOR)
}

fn length(len: usize) -> u32 {
    u32::try_from(len).expect("the backend refuses keys and values that are as long")
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn half(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: u64 = 0x0123_4567_89ab_cdef;

    fn record(key: &'static str, value: &'static [u8]) -> Record<'static> {
        Record { kind: Kind::Write, nonce: 7, version: -3, over_at: u64::MAX, key, value }
    }

    #[test]
    fn heads_are_read_again() {
        let head = Head { mark: MARK, base: 1 << 50 };
        assert_eq!(Head::read(&head.bytes()), Some(head));
        assert_eq!(Head::read(&head.bytes()[..HEAD - 1]), None);
        for at in 0..HEAD {
            let mut bytes = head.bytes();
            bytes[at] ^= 1;
            assert_eq!(Head::read(&bytes), None, "{at}");
        }
    }

    /// Versions rise from the base, and 0 is the version of an absent value.
    #[test]
    fn base_leaves_room_for_versions() {
        for base in [i64::MIN, -1, i64::MAX, 1 << 62] {
            assert_eq!(Head::read(&Head { mark: MARK, base }.bytes()), None, "{base}");
        }
    }

    #[test]
    fn parts_of_records_are_skipped() {
        let (first, second) = (record("one", b"value"), record("another", b""));
        let (mut one, mut two) = (Vec::new(), Vec::new());
        first.append_to(&mut one, MARK);
        second.append_to(&mut two, MARK);
        assert_eq!((one.len(), two.len()), (first.len(), second.len()));
        for cut in 0..one.len() {
            let part = &one[..cut];
            assert!(next(part, MARK, 0, true).is_err(), "{cut}");
            assert_eq!(next(&[part, &two].concat(), MARK, 0, true), Ok((cut, second)), "{cut}");
            let twice = [part, part, &two, &one].concat();
            assert_eq!(next(&twice, MARK, 0, true), Ok((2 * cut, second)), "{cut}");
            assert_eq!(next(&twice, MARK, 2 * cut + two.len(), true), Ok((2 * cut + two.len(), first)));
        }
    }

    /// The records are the same, wherever a piece ends.
    #[test]
    fn records_go_on_in_the_next_piece() {
        let records = [record("one", b"value"), record("another", b""), record("", b"third")];
        let mut bytes = b"torn".to_vec();
        for record in &records {
            record.append_to(&mut bytes, MARK);
            bytes.extend_from_slice(&MARK.to_le_bytes()[..5]);
        }
        for end in 0..bytes.len() {
            let (mut from, mut found) = (0, Vec::new());
            for (piece, is_last) in [(&bytes[..end], false), (&bytes[..], true)] {
                from = loop {
                    match next(piece, MARK, from, is_last) {
                        Ok((at, record)) => {
                            found.push(record);
                            from = at + record.len();
                        }
                        Err(rest) => break rest,
                    }
                };
            }
            assert_eq!(found, records, "{end}");
        }
    }

    #[test]
    fn changed_bytes_are_noticed() {
        let mut bytes = Vec::new();
        record("key", b"a value of some length").append_to(&mut bytes, MARK);
        for at in 0..bytes.len() {
            bytes[at] ^= 0x10;
            assert!(next(&bytes, MARK, 0, true).is_err(), "{at}");
            bytes[at] ^= 0x10;
        }
    }
}
