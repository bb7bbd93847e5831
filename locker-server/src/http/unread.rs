//! The cap on the bytes of long answers that clients have not read.
//!
//! The HTTP library gets a long answer piece by piece, so that it keeps little of it. What it has not taken counts.

use super::stream::Stream;
use crate::sync::lock;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::{
    collections::HashMap,
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::{Duration, Instant},
};

/// The size of a piece. Longer answers are long.
const PIECE: usize = 16 * 1024;

/// How long a client must have read nothing before its connection may be closed for the answers of others.
const STALLED: Duration = Duration::from_secs(1);

/// The long answers that are being sent.
#[derive(Debug)]
pub(super) struct UnreadAnswers {
    limit: usize,
    answers: Mutex<Answers>,
}

#[derive(Debug, Default)]
struct Answers {
    bytes: usize,
    next: u64,
    open: HashMap<u64, OpenAnswer>,
}

#[derive(Debug)]
struct OpenAnswer {
    bytes: usize,
    read_at: Instant,
    stream: Stream,
}

/// A long answer. It counts until all of it was taken or it is dropped.
#[derive(Debug)]
struct Unread {
    answers: Arc<UnreadAnswers>,
    number: u64,
}

/// The body of an answer.
#[derive(Debug)]
pub(super) struct AnswerBody {
    rest: Bytes,
    unread: Option<Unread>,
}

impl UnreadAnswers {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, answers: Mutex::default() })
    }

    /// Returns the body that is sent on `stream`. If the cap is reached, closes the connections whose clients have read
    /// nothing for the longest time. Returns `None` if all clients are reading.
    pub(super) fn body(self: &Arc<Self>, body: Bytes, stream: &Stream) -> Option<AnswerBody> {
        let unread = if body.len() > PIECE { Some(self.admit(body.len(), stream)?) } else { None };
        Some(AnswerBody { rest: body, unread })
    }

    fn admit(self: &Arc<Self>, bytes: usize, stream: &Stream) -> Option<Unread> {
        let (mut answers, now) = (lock(&self.answers), Instant::now());
        if !answers.make_room(bytes, self.limit, now) {
            return None;
        }
        let number = answers.next;
        answers.next += 1;
        answers.bytes += bytes;
        answers.open.insert(number, OpenAnswer { bytes, read_at: now, stream: stream.clone() });
        Some(Unread { answers: self.clone(), number })
    }
}

impl Answers {
    /// Closes as few connections as possible, and none if that would not be enough.
    fn make_room(&mut self, bytes: usize, limit: usize, now: Instant) -> bool {
        let mut excess = (self.bytes + bytes).saturating_sub(limit);
        let mut stalled: Vec<_> = self
            .open
            .iter()
            .filter(|_| excess > 0)
            .filter(|(_, answer)| now.saturating_duration_since(answer.read_at) >= STALLED)
            .map(|(number, answer)| (answer.read_at, *number, answer.bytes))
            .collect();
        if stalled.iter().map(|(_, _, bytes)| bytes).sum::<usize>() < excess {
            return false;
        }
        stalled.sort_unstable();
        for (_, number, bytes) in stalled {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(bytes);
            if let Some(answer) = self.remove(number) {
                answer.stream.close();
            }
        }
        true
    }

    fn remove(&mut self, number: u64) -> Option<OpenAnswer> {
        let answer = self.open.remove(&number)?;
        self.bytes -= answer.bytes;
        Some(answer)
    }
}

impl Unread {
    fn was_read(&self) {
        if let Some(answer) = lock(&self.answers.answers).open.get_mut(&self.number) {
            answer.read_at = Instant::now();
        }
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        drop(lock(&self.answers.answers).remove(self.number));
    }
}

impl AnswerBody {
    /// Returns a body that does not count.
    pub(super) fn uncounted(rest: Bytes) -> Self {
        Self { rest, unread: None }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let Some(unread) = &self.unread else {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.rest)))));
        };
        unread.was_read();
        let length = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(length);
        if self.rest.is_empty() {
            self.unread = None;
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::{TcpListener, TcpStream};

    const LONG: usize = 20_000;

    async fn pair() -> (Stream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (Stream::new(listener.accept().await.unwrap().0, Duration::from_secs(5)), client)
    }

    fn long() -> Bytes {
        vec![b'x'; LONG].into()
    }

    async fn is_closed(client: &TcpStream) {
        let end =
            async || client.readable().await.is_ok() && client.try_read(&mut [0]).is_ok_and(|read| read == 0);
        locker_harness::until("the end", end).await;
    }

    fn stall(answers: &Arc<UnreadAnswers>, number: u64, seconds: u64) {
        let mut answers = lock(&answers.answers);
        answers.open.get_mut(&number).unwrap().read_at -= Duration::from_secs(seconds);
    }

    #[tokio::test]
    async fn longest_stalled_connection_is_closed() {
        let answers = UnreadAnswers::new(2 * LONG);
        let [(one, _reads), (two, closed), (three, _new)] = [pair().await, pair().await, pair().await];
        let first = answers.body(long(), &one).unwrap();
        let second = answers.body(long(), &two).unwrap();
        assert!(answers.body(long(), &three).is_none(), "both clients are reading");
        assert!(answers.body(Bytes::from_static(b"short"), &three).is_some());
        stall(&answers, 0, 2);
        stall(&answers, 1, 3);
        let third = answers.body(long(), &three).unwrap();
        is_closed(&closed).await;
        assert_eq!(lock(&answers.answers).bytes, 2 * LONG);
        drop((first, second, third));
        assert_eq!(lock(&answers.answers).bytes, 0);
    }

    #[tokio::test]
    async fn no_connection_is_closed_in_vain() {
        let answers = UnreadAnswers::new(2 * LONG);
        let (stream, _client) = pair().await;
        let kept = answers.body(long(), &stream).unwrap();
        stall(&answers, 0, 60);
        assert!(answers.body(vec![0; 3 * LONG].into(), &stream).is_none());
        assert_eq!(lock(&answers.answers).open.len(), 1);
        drop(kept);
    }

    #[tokio::test]
    async fn answers_count_until_they_are_taken() {
        let answers = UnreadAnswers::new(LONG);
        let (stream, _client) = pair().await;
        let mut body = answers.body(long(), &stream).unwrap();
        let mut taken = Vec::new();
        while let Some(piece) = http_body_util::BodyExt::frame(&mut body).await {
            assert_eq!(lock(&answers.answers).bytes, if taken.is_empty() { LONG } else { 0 });
            taken.extend_from_slice(piece.unwrap().data_ref().unwrap());
        }
        assert_eq!(taken, long());
    }
}
