//! Removes published messages (RESP3 pushes of the kind `message`) from what a Redis server sends.

const START: &[u8] = b">3\r\n$7\r\nmessage\r\n";

/// The part of a stream that may belong to a message.
#[derive(Debug, Default)]
pub(crate) struct WithoutMessages(Vec<u8>);

impl WithoutMessages {
    /// Takes the next bytes of the stream. Returns the bytes to forward and the number of messages among the others.
    pub(crate) fn filter(&mut self, data: &[u8]) -> (Vec<u8>, usize) {
        self.0.extend_from_slice(data);
        let (mut forward, mut removed) = (Vec::new(), 0);
        while let Some(start) = self.0.windows(START.len()).position(|bytes| bytes == START) {
            forward.extend(self.0.drain(..start));
            let Some(length) = message_length(&self.0) else { return (forward, removed) };
            self.0.drain(..length);
            removed += 1;
        }
        // The end may be the beginning of a message.
        let kept = (0..START.len()).rev().find(|kept| self.0.ends_with(&START[..*kept])).unwrap_or(0);
        forward.extend(self.0.drain(..self.0.len() - kept));
        (forward, removed)
    }

    /// Returns `true` if the last bytes were not forwarded because they may begin a message.
    pub(crate) fn is_cut(&self) -> bool {
        !self.0.is_empty()
    }
}

/// Returns the length of the message that `data` starts with, or `None` if it is not all there.
fn message_length(data: &[u8]) -> Option<usize> {
    let channel = START.len();
    let payload = channel + string_length(&data[channel..])?;
    let end = payload + string_length(data.get(payload..)?)?;
    (end <= data.len()).then_some(end)
}

/// Returns the length of the bulk string that `data` starts with, with its header.
fn string_length(data: &[u8]) -> Option<usize> {
    let line = data.iter().position(|byte| *byte == b'\r')?;
    let length: usize = std::str::from_utf8(data.get(1..line)?).ok()?.parse().ok()?;
    Some(line + 2 + length + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_removes_messages_however_they_arrive() {
        let message = ">3\r\n$7\r\nmessage\r\n$4\r\nchan\r\n$6\r\nhe\r\nlo\r\n";
        let stream = format!("+OK\r\n{message}>2\r\n$4\r\npong\r\n$0\r\n\r\n{message}{message}:1\r\n");
        for size in 1..stream.len() {
            let (mut filter, mut kept, mut removed) = (WithoutMessages::default(), Vec::new(), 0);
            for part in stream.as_bytes().chunks(size) {
                let (forward, count) = filter.filter(part);
                kept.extend(forward);
                removed += count;
            }
            assert_eq!(String::from_utf8(kept).unwrap(), "+OK\r\n>2\r\n$4\r\npong\r\n$0\r\n\r\n:1\r\n");
            assert_eq!(removed, 3, "in parts of {size}");
        }
    }
}
