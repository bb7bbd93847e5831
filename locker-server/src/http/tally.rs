//! Where requests end in what was read, as far as that is needed to know that nothing is left over.

/// Counts what lies behind the head of the request that is being answered. What it does not understand (a head in
/// several pieces, pipelined requests, lines that end in a bare line feed) it counts no more: that costs memory while
/// calls wait, nothing else.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// How many bytes came behind the head, once there is one. Every connection has room for it.
    behind: Option<u32>,
    lost: bool,
}

impl Tally {
    pub(super) fn add(&mut self, read: &[u8]) {
        let behind = match (self.behind, head(read)) {
            _ if self.lost => return,
            (Some(behind), _) => read.len().checked_add(behind as usize),
            (None, head) => head.map(|head| read.len() - head),
        };
        self.behind = behind.and_then(|behind| u32::try_from(behind).ok());
        self.lost = self.behind.is_none();
    }

    /// Whether exactly a body of this length is behind the head; starts over with the next request.
    pub(super) fn claim(&mut self, length: usize) -> bool {
        self.lost |= self.behind.take().map(|behind| behind as usize) != Some(length);
        !self.lost
    }
}

/// The length of a head that lies at the start.
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

    fn claims(reads: &[&str], length: usize) -> bool {
        let mut tally = Tally::default();
        for read in reads {
            tally.add(read.as_bytes());
        }
        tally.claim(length)
    }

    #[test]
    fn one_whole_request_leaves_nothing() {
        assert!(claims(&["GET / HTTP/1.1\r\nHost: x\r\n\r\n"], 0));
        assert!(claims(&["POST / HTTP/1.1\r\n\r\nbody"], 4));
        assert!(claims(&["POST / HTTP/1.1\r\n\r\n", "bo", "dy"], 4));
    }

    #[test]
    fn anything_else_may_leave_something() {
        assert!(!claims(&[], 0));
        assert!(!claims(&["GET / HTTP/1.1\r\n\r\nGET"], 0));
        assert!(!claims(&["POST / HTTP/1.1\r\n\r\nbody"], 3));
        assert!(!claims(&["GET / HT", "TP/1.1\r\n\r\n"], 0));
        assert!(!claims(&["GET / HTTP/1.1\n\nGET / HTTP/1.1\r\n\r\n"], 0));
        assert!(!claims(&["GET / HTTP/1.1\r\nX: y\n\r\nGET / HTTP/1.1\r\n\r\n"], 0));
        assert!(!claims(&["\r\n\r\nGET / HTTP/1.1\r\n\r\n"], 0));
    }

    #[test]
    fn it_goes_on_with_the_next_request_and_stays_lost() {
        let mut tally = Tally::default();
        for _ in 0..3 {
            tally.add(b"GET / HTTP/1.1\r\n\r\n");
            assert!(tally.claim(0));
        }
        tally.add(b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n");
        assert!(!tally.claim(0));
        tally.add(b"GET / HTTP/1.1\r\n\r\n");
        assert!(!tally.claim(0));
    }
}
