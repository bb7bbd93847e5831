//! A connection that can be watched for its end while a call waits.

use super::{tally::Tally, unreadable};
use std::{
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
    time::Sleep,
};

/// How often a client is looked at that has sent more than the call that waits.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How often a client is waited for that takes nothing of its answer, as long as for a request each time.
const PATIENCE: u32 = 12;

/// One end is read and written by the HTTP library, clones of it see when the peer is gone.
#[derive(Clone, Debug)]
pub(super) struct Wire(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    stream: TcpStream,
    patience: Duration,
    side: Mutex<Side>,
}

/// What is known of what was read, and what is put in between.
#[derive(Debug, Default)]
struct Side {
    /// To be read before anything else.
    primed: &'static [u8],
    /// Still to be written, in place of what the library has written.
    owed: &'static [u8],
    tally: Tally,
    /// Since the peer takes nothing: until then it may.
    stuck: Option<Pin<Box<Sleep>>>,
}

impl Wire {
    /// `timeout`: of a request.
    pub(super) fn new(stream: TcpStream, timeout: Duration) -> Self {
        Self(Arc::new(Inner { stream, patience: timeout * PATIENCE, side: Mutex::default() }))
    }

    /// Whether the library has read one whole request with a body of `length` bytes and nothing beyond. Asked once
    /// per request.
    pub(super) fn holds_nothing_more(&self, length: usize) -> bool {
        self.side().tally.claim(length)
    }

    /// Lets the library read this first.
    pub(super) fn prime(&self, bytes: &'static [u8]) {
        self.side().primed = bytes;
    }

    fn side(&self) -> MutexGuard<'_, Side> {
        self.0.side.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Comes back when the peer has closed its end, also where something unread is before the end: a client that
    /// pipelines and goes away would otherwise keep its place in a queue.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn hung_up(&self) {
        // Polled, because that needs no room in the call that waits; what is boxed is rare.
        while poll_fn(|context| self.0.stream.poll_read_ready(context)).await.is_ok() {
            match Box::pin(self.0.stream.ready(Interest::READABLE)).await {
                Ok(ready) if !ready.is_read_closed() => Box::pin(tokio::time::sleep(LOOK_EVERY)).await,
                _ => return,
            }
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let primed = std::mem::take(&mut self.side().primed);
        if !primed.is_empty() {
            buffer.put_slice(primed);
            return Poll::Ready(Ok(()));
        }
        loop {
            ready!(self.0.stream.poll_read_ready(context))?;
            if let Some(read) = self.read(buffer)? {
                let filled = buffer.filled();
                self.side().tally.add(&filled[filled.len() - read..]);
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl Wire {
    /// How much there was to read; `None`: nothing yet. After a short read there is nothing more: the next look waits
    /// for news without asking the system first. Both within one `try_io`, which forgets only the news from before
    /// the read: what has come since stays known.
    fn read(&self, buffer: &mut ReadBuf<'_>) -> io::Result<Option<usize>> {
        let (room, mut short) = (buffer.remaining(), None);
        let read = self.0.stream.try_io(Interest::READABLE, || {
            let read = self.0.stream.try_read_buf(buffer)?;
            if read > 0 && read < room {
                short = Some(read);
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(read)
        });
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(short),
            read => read.map(Some),
        }
    }

    /// Whether the library refuses a request by itself: then another answer is written for it.
    fn replaces(&self, written: &[u8]) -> bool {
        let Some(refusal) = unreadable::refusal(written) else { return false };
        self.side().owed = refusal;
        true
    }

    fn write(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let room = self.0.stream.poll_write_ready(context)?.is_ready();
            let written = if room {
                self.0.stream.try_write(bytes)
            } else {
                ready!(self.poll_patience(context));
                // The system tells of room only where there is much: whoever takes an answer slowly has made some.
                socket2::SockRef::from(&self.0.stream).send(bytes)
            };
            match written {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && room => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
                written => {
                    self.side().stuck = None;
                    return Poll::Ready(written);
                }
            }
        }
    }

    /// Over when the peer has taken nothing for too long: its answer would be kept as long as it likes.
    fn poll_patience(&self, context: &mut Context<'_>) -> Poll<()> {
        let until = || Box::pin(tokio::time::sleep(self.0.patience));
        self.side().stuck.get_or_insert_with(until).as_mut().poll(context)
    }
}

/// Not vectored: an answer is short, and copied into one piece sooner than written from two.
impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.replaces(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        self.write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let owed = self.side().owed;
            if owed.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let written = ready!(self.write(context, owed))?;
            self.side().owed = &owed[written..];
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(context))?;
        Poll::Ready(match socket2::SockRef::from(&self.0.stream).shutdown(std::net::Shutdown::Write) {
            Err(error) if error.kind() != io::ErrorKind::NotConnected => Err(error),
            _ => Ok(()),
        })
    }
}
