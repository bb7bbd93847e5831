//! Tracks where requests end in the bytes read, to tell whether anything is left over behind a request.

/// Counts the bytes behind the head of the current request. It stops counting when it meets a head in several pieces,
/// pipelined requests or lines that end in a bare line feed: calls of that connection then take more memory while they
/// wait.
#[derive(Debug, Default)]
pub(super) struct Leftover {
    /// The number of bytes behind the head, once a head was read.
    behind: Option<u32>,
    unknown: bool,
}

impl Leftover {
    pub(super) fn add(&mut self, read: &[u8]) {
        let behind = match (self.behind, head(read)) {
            _ if self.unknown => return,
            (Some(behind), _) => read.len().checked_add(behind as usize),
            (None, head) => head.map(|head| read.len() - head),
        };
        self.behind = behind.and_then(|behind| u32::try_from(behind).ok());
        self.unknown = self.behind.is_none();
    }

    /// Returns `true` if exactly a body of this length is behind the head. Starts over for the next request.
    pub(super) fn is_exactly(&mut self, length: usize) -> bool {
        self.unknown |= self.behind.take().map(|behind| behind as usize) != Some(length);
        !self.unknown
    }
}

/// Returns the length of the head at the start of `read`.
fn head(read: &[u8]) -> Option<usize> {
    let mut line = 0;
    for end in memchr::memchr_iter(b'\n', read) {
        match &read[line..end] {
            b"\r" if line > 0 => return Some(end + 1),
            [.., b'\r'] if end > line + 1 => line = end + 1,
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_exactly(reads: &[&str], length: usize) -> bool {
        let mut leftover = Leftover::default();
        for read in reads {
            leftover.add(read.as_bytes());
        }
        leftover.is_exactly(length)
    }

    #[test]
    fn a_whole_request_leaves_nothing() {
        assert!(is_exactly(&["GET / HTTP/1.1\r\nHost: x\r\n\r\n"], 0));
        assert!(is_exactly(&["POST / HTTP/1.1\r\n\r\nbody"], 4));
        assert!(is_exactly(&["POST / HTTP/1.1\r\n\r\n", "bo", "dy"], 4));
    }

    #[test]
    fn other_bytes_may_leave_something() {
        assert!(!is_exactly(&[], 0));
        assert!(!is_exactly(&["GET / HTTP/1.1\r\n\r\nGET"], 0));
        assert!(!is_exactly(&["POST / HTTP/1.1\r\n\r\nbody"], 3));
        assert!(!is_exactly(&["GET / HT", "TP/1.1\r\n\r\n"], 0));
        assert!(!is_exactly(&["GET / HTTP/1.1\n\nGET / HTTP/1.1\r\n\r\n"], 0));
        assert!(!is_exactly(&["GET / HTTP/1.1\r\nX: y\n\r\nGET / HTTP/1.1\r\n\r\n"], 0));
        assert!(!is_exactly(&["\r\n\r\nGET / HTTP/1.1\r\n\r\n"], 0));
    }

    #[test]
    fn it_restarts_per_request_until_unknown() {
        let mut leftover = Leftover::default();
        for _ in 0..3 {
            leftover.add(b"GET / HTTP/1.1\r\n\r\n");
            assert!(leftover.is_exactly(0));
        }
        leftover.add(b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n");
        assert!(!leftover.is_exactly(0));
        leftover.add(b"GET / HTTP/1.1\r\n\r\n");
        assert!(!leftover.is_exactly(0));
    }
}
