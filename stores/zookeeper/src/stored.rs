//! The data of a value's node: the value, and how long it matters.

use super::ops::Data;
use std::time::Duration;

/// The bytes before a value: for how many microseconds it matters.
const HEAD: usize = 8;

/// Returns the data of the node for a value.
pub(super) fn stored(lasts: Duration, value: &[u8]) -> Data {
    let lasts = u64::try_from(lasts.as_micros()).unwrap_or(u64::MAX);
    [&lasts.to_be_bytes()[..], value].concat().into()
}

/// Returns the value in a node.
pub(super) fn value(mut stored: Vec<u8>) -> Vec<u8> {
    stored.drain(..HEAD.min(stored.len()));
    stored
}

/// Returns how long the value in a node matters after it was written.
pub(super) fn lasts(stored: &[u8]) -> Duration {
    let micros = stored.first_chunk().map_or(u64::MAX, |micros| u64::from_be_bytes(*micros));
    if micros == u64::MAX { Duration::MAX } else { Duration::from_micros(micros) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_stored() {
        for time in [Duration::ZERO, Duration::from_micros(7), Duration::MAX] {
            let data = stored(time, b"x\0");
            assert_eq!((value(data.to_vec()), lasts(&data)), (b"x\0".to_vec(), time));
        }
        assert_eq!((value(b"foreign".to_vec()), lasts(b"foreign")), (Vec::new(), Duration::MAX));
    }
}
