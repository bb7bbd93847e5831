//! A TCP stream that can be watched for a disconnect while a call waits.

use super::{leftover::Leftover, rejections};
use crate::sync::lock;
use std::{
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
    time::Sleep,
};

/// The interval of checks for a disconnect while unread bytes of the client are pending.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// How long a client may read nothing of its answer, as a multiple of the timeout of a request.
const WRITE_TIMEOUT_FACTOR: u32 = 12;

/// A stream that the HTTP library reads and writes. Its clones observe when the peer disconnects.
#[derive(Clone, Debug)]
pub(super) struct Stream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    stream: TcpStream,
    write_timeout: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes to be read before those of the client.
    prepended: &'static [u8],
    /// Bytes still to be written in place of the library's own.
    pending: &'static [u8],
    leftover: Leftover,
    /// Set while the peer reads nothing: the end of its time.
    write_deadline: Option<Pin<Box<Sleep>>>,
}

impl Stream {
    /// `timeout` is that of a request.
    pub(super) fn new(stream: TcpStream, timeout: Duration) -> Self {
        Self(Arc::new(Inner {
            stream,
            write_timeout: timeout * WRITE_TIMEOUT_FACTOR,
            state: Mutex::default(),
        }))
    }

    /// Returns `true` if the library has read one whole request with a body of `length` bytes and nothing more. Must be
    /// called once per request.
    pub(super) fn is_drained(&self, length: usize) -> bool {
        self.state().leftover.is_exactly(length)
    }

    /// Makes the library read `bytes` before the client's next bytes.
    pub(super) fn prepend(&self, bytes: &'static [u8]) {
        self.state().prepended = bytes;
    }

    /// Closes both directions. Whoever reads or writes gets an error.
    pub(super) fn close(&self) {
        if let Err(error) = socket2::SockRef::from(&self.0.stream).shutdown(std::net::Shutdown::Both) {
            tracing::debug!(%error, "the connection was already closed");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }

    /// Completes when the peer has closed its end, even if unread bytes precede the close: otherwise a client that
    /// pipelines requests and disconnects would keep its place in a queue.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn closed_by_peer(&self) {
        // `poll_fn` takes no space in the waiting call; the boxed futures are rare.
        while poll_fn(|context| self.0.stream.poll_read_ready(context)).await.is_ok() {
            match Box::pin(self.0.stream.ready(Interest::READABLE)).await {
                Ok(ready) if !ready.is_read_closed() => Box::pin(tokio::time::sleep(CHECK_INTERVAL)).await,
                _ => return,
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let prepended = std::mem::take(&mut self.state().prepended);
        if !prepended.is_empty() {
            buffer.put_slice(prepended);
            return Poll::Ready(Ok(()));
        }
        loop {
            ready!(self.0.stream.poll_read_ready(context))?;
            if let Some(read) = self.read(buffer)? {
                let filled = buffer.filled();
                self.state().leftover.add(&filled[filled.len() - read..]);
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl Stream {
    /// Returns the number of bytes read, or `None` if none are available yet.
    ///
    /// After a short read no more bytes are available: the readiness is cleared without another system call. Both
    /// happen within one `try_io`, which clears only the readiness from before the read.
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

    /// Returns `true` if the library rejects a request on its own. Another answer is then written instead.
    fn replaces(&self, written: &[u8]) -> bool {
        let Some(replacement) = rejections::replacement(written) else { return false };
        self.state().pending = replacement;
        true
    }

    fn write(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let room = self.0.stream.poll_write_ready(context)?.is_ready();
            let written = if room {
                self.0.stream.try_write(bytes)
            } else {
                ready!(self.poll_write_deadline(context));
                // The system reports room only when there is much of it: a slow reader may have made a little.
                socket2::SockRef::from(&self.0.stream).send(bytes)
            };
            match written {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && room => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
                written => {
                    self.state().write_deadline = None;
                    return Poll::Ready(written);
                }
            }
        }
    }

    /// Completes when the peer has read nothing for too long.
    fn poll_write_deadline(&self, context: &mut Context<'_>) -> Poll<()> {
        let until = || Box::pin(tokio::time::sleep(self.0.write_timeout));
        self.state().write_deadline.get_or_insert_with(until).as_mut().poll(context)
    }
}

/// Not vectored: answers are short, and copying them into one piece is cheaper than writing two.
impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.replaces(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        self.write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let pending = self.state().pending;
            if pending.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let written = ready!(self.write(context, pending))?;
            self.state().pending = &pending[written..];
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
