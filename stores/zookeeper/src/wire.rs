//! The encoding of ZooKeeper's protocol: numbers with their high byte first, texts and bytes after their lengths.
//!
//! It is written by hand. The client libraries for Rust run on threads and reactors of their own in statics, which a
//! forked child would share with its parent, and do not tell whether a request has left the process.

/// The most that is read as one answer: a list of the names in a bucket has no limit on the server.
pub(super) const MAX_ANSWER: usize = 64 << 20;

/// Bytes to send.
#[derive(Clone, Debug, Default)]
pub(super) struct Body(pub(super) Vec<u8>);

impl Body {
    pub(super) fn int(mut self, number: i32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(super) fn long(mut self, number: i64) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(super) fn flag(mut self, is_set: bool) -> Self {
        self.0.push(is_set.into());
        self
    }

    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        // A request is far below the limit of a server.
        self = self.int(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
        self.0.extend(bytes);
        self
    }

    pub(super) fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }
}

/// Bytes that came. Each function returns `None` at their end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn int(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    pub(super) fn long(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        Some(self.array::<1>()? != [0])
    }

    /// Bytes, which are none also if there is no value.
    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        match self.int()? {
            -1 => Some(&[]),
            len => self.take(usize::try_from(len).ok()?),
        }
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        str::from_utf8(self.bytes()?).ok()
    }
}

/// Reads a list of texts.
pub(super) fn texts(reader: &mut Reader<'_>) -> Option<Vec<String>> {
    let len = usize::try_from(reader.int()?.max(0)).ok()?;
    // The number is not believed: a vector that grows needs no more than what came.
    (0..len).map(|_| reader.text().map(str::to_owned)).collect()
}

/// What ZooKeeper tells of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stat {
    /// The transaction that wrote its data.
    pub(super) mzxid: i64,
    /// The last one that added or removed a child.
    pub(super) pzxid: i64,
    /// When its data was written, on the clock of the leader in milliseconds.
    pub(super) mtime: i64,
    /// The number of writes of its data.
    pub(super) version: i32,
    /// The session whose end removes it.
    pub(super) owner: i64,
}

impl Stat {
    pub(super) fn read(from: &mut Reader<'_>) -> Option<Self> {
        let _czxid = from.long()?;
        let mzxid = from.long()?;
        let _ctime = from.long()?;
        let mtime = from.long()?;
        let version = from.int()?;
        let (_cversion, _aversion) = (from.int()?, from.int()?);
        let owner = from.long()?;
        let (_len, _children) = (from.int()?, from.int()?);
        Some(Self { mzxid, pzxid: from.long()?, mtime, version, owner })
    }
}

/// Takes the first whole frame off `input`. An error if its length is none that ZooKeeper sends.
pub(super) fn next_frame<'a>(input: &mut &'a [u8]) -> Result<Option<&'a [u8]>, i32> {
    let mut reader = Reader(input);
    let Some(len) = reader.int() else { return Ok(None) };
    let len = usize::try_from(len).ok().filter(|len| *len <= MAX_ANSWER).ok_or(len)?;
    let frame = reader.take(len);
    if frame.is_some() {
        *input = reader.0;
    }
    Ok(frame)
}

/// Puts a frame behind `output`.
pub(super) fn put_frame(output: &mut Vec<u8>, head: &[i32], body: &[u8]) {
    let len = 4 * head.len() + body.len();
    output.extend(i32::try_from(len).unwrap_or(i32::MAX).to_be_bytes());
    output.extend(head.iter().flat_map(|number| number.to_be_bytes()));
    output.extend(body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_written() {
        let body = Body::default().int(-7).long(1 << 40).flag(true).text("key ä").bytes(b"\0\xff");
        let mut reader = Reader(&body.0);
        assert_eq!((reader.int(), reader.long(), reader.flag()), (Some(-7), Some(1 << 40), Some(true)));
        assert_eq!((reader.text(), reader.bytes()), (Some("key ä"), Some(&b"\0\xff"[..])));
        assert_eq!((reader.int(), reader.long(), reader.bytes()), (None, None, None));
        assert_eq!(Reader(&[0xff; 4]).bytes(), Some(&[][..]), "no value");
        assert_eq!(Reader(&[0xff, 0xff, 0xff, 0xfe]).bytes(), None);
        assert_eq!(texts(&mut Reader(&[0x7f, 0xff, 0xff, 0xff])), None, "more than came");
    }

    #[test]
    fn frames_are_taken_whole() {
        let mut whole = Vec::new();
        put_frame(&mut whole, &[1, 2], b"x");
        put_frame(&mut whole, &[], b"");
        for end in 0..13 {
            assert_eq!(next_frame(&mut &whole[..end]), Ok(None));
        }
        let mut input = &whole[..];
        assert_eq!(next_frame(&mut input), Ok(Some(&[0, 0, 0, 1, 0, 0, 0, 2, b'x'][..])));
        assert_eq!(next_frame(&mut input), Ok(Some(&[][..])));
        assert!(input.is_empty());
        assert_eq!(next_frame(&mut &b"-ERR unknown"[..]), Err(i32::from_be_bytes(*b"-ERR")));
        assert_eq!(next_frame(&mut &[0xff; 8][..]), Err(-1));
    }
}
