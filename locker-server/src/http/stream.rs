//! The TCP stream of a connection: it cuts off slow readers, and calls that wait notice a disconnect.

use super::unread::UnreadCap;
use std::{
    io::{self, IoSlice},
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::{Instant, Sleep},
};

/// The interval of checks for a disconnect while unread bytes of the client are pending.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// How many unread bytes of a client may be pending while a call waits. Behind more, the system might have no room for
/// the end of the connection.
const MAX_PENDING: u64 = 32 * 1024;

/// How long a client may read nothing of its answer, as a multiple of the timeout of a request.
pub(super) const WRITE_TIMEOUT_FACTOR: u32 = 6;

/// A stream that the HTTP library reads and writes.
#[derive(Debug)]
pub(super) struct Stream {
    reader: OwnedReadHalf,
    client: Client,
    /// That of a request.
    timeout: Duration,
    unread: Arc<UnreadCap>,
    /// Set while the client reads nothing, and nothing is read from it.
    stall: Option<Stall>,
}

/// The time since a client has stopped reading.
#[derive(Debug)]
struct Stall {
    timeout: Pin<Box<Sleep>>,
    timeouts: u32,
    /// How many answers had been refused before it.
    refusals: usize,
}

/// The client of a connection, for the calls on it.
#[derive(Clone, Debug)]
pub(super) struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    writer: OwnedWriteHalf,
    local: IpAddr,
    drained: AtomicBool,
}

impl Stream {
    /// `timeout` is that of a request.
    ///
    /// # Errors
    /// The connection is already closed.
    pub(super) fn new(stream: TcpStream, timeout: Duration, unread: Arc<UnreadCap>) -> io::Result<Self> {
        let local = stream.local_addr()?.ip();
        let (reader, writer) = stream.into_split();
        let client = Client(Arc::new(Inner { writer, local, drained: AtomicBool::new(false) }));
        Ok(Self { reader, client, timeout, unread, stall: None })
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Completes when the client has read nothing for the timeout of a request.
    fn poll_stall(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Self { timeout, unread, .. } = self;
        let begin = || Stall {
            timeout: Box::pin(tokio::time::sleep(*timeout)),
            timeouts: 0,
            refusals: unread.refusals(),
        };
        self.stall.get_or_insert_with(begin).timeout.as_mut().poll(context)
    }

    /// Returns `true` if the client may read nothing for another timeout: not if other clients get no long answers.
    fn may_stall_on(&mut self) -> bool {
        let Some(stall) = &mut self.stall else { return true };
        stall.timeouts += 1;
        stall.timeout.as_mut().reset(Instant::now() + self.timeout);
        stall.timeouts < WRITE_TIMEOUT_FACTOR && stall.refusals == self.unread.refusals()
    }
}

impl Client {
    /// The address at which the client reached the server.
    pub(super) fn local(&self) -> IpAddr {
        self.0.local
    }

    /// Reads only what has already arrived, and then the end of the stream.
    pub(super) fn drain(&self) {
        self.0.drained.store(true, Ordering::Relaxed);
    }

    /// Closes both directions. The HTTP library gets an error when it reads or writes.
    pub(super) fn close(&self) {
        self.shut_down(std::net::Shutdown::Both);
    }

    fn shut_down(&self, how: std::net::Shutdown) {
        if let Err(error) = socket2::SockRef::from(self.socket()).shutdown(how) {
            tracing::debug!(%error, "the connection was already closed");
        }
    }

    fn socket(&self) -> &TcpStream {
        self.0.writer.as_ref()
    }

    /// Returns how many bytes of the client are unread. None is an error, as when reading them.
    fn pending(&self) -> io::Result<u64> {
        match rustix::io::ioctl_fionread(self.socket())? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            pending => Ok(pending),
        }
    }

    /// Completes when the client has closed its end, even if unread bytes precede the close: otherwise a client that
    /// pipelines requests and disconnects would keep its place in a queue. Completes also if too many bytes are unread.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn disconnected(&self) {
        // `poll_fn` takes no space in the waiting call; the boxed futures are rare.
        while std::future::poll_fn(|context| self.socket().poll_read_ready(context)).await.is_ok() {
            let ready = Box::pin(self.socket().ready(Interest::READABLE)).await;
            if ready.map_or(true, tokio::io::Ready::is_read_closed) {
                return;
            }
            match self.socket().try_io(Interest::READABLE, || self.pending()) {
                Ok(pending) if pending <= MAX_PENDING => Box::pin(tokio::time::sleep(CHECK_INTERVAL)).await,
                // All was read: the next event tells of more.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return,
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // The answers of further requests would gather in the HTTP library. The next write wakes this task.
        if self.stall.is_some() {
            return Poll::Pending;
        }
        match Pin::new(&mut self.reader).poll_read(context, buffer) {
            Poll::Pending if self.client.0.drained.load(Ordering::Relaxed) => Poll::Ready(Ok(())),
            read => read,
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            let room = self.client.socket().poll_write_ready(context)?.is_ready();
            let written = if room {
                self.client.socket().try_write_vectored(pieces)
            } else {
                ready!(self.poll_stall(context));
                // The system reports room only when there is much of it: a slow reader may have made a little.
                socket2::SockRef::from(self.client.socket()).send_vectored(pieces)
            };
            match written {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && (room || self.may_stall_on()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
                written => {
                    if self.stall.take().is_some() {
                        context.waker().wake_by_ref();
                    }
                    return Poll::Ready(written);
                }
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.client.shut_down(std::net::Shutdown::Write);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Answer;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        task::JoinHandle,
        time::sleep,
    };

    const TIMEOUT: Duration = Duration::from_secs(5);

    /// Answers a client without end. Returns the client, the cap on unread answers, and the time when the server has
    /// closed the connection.
    async fn endless_answer() -> (TcpStream, Arc<UnreadCap>, JoinHandle<Duration>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let unread = Arc::new(UnreadCap::new(0));
        let accepted = listener.accept().await.unwrap().0;
        // Sizes that are set do not grow. Others would make room while the paused clock moves on.
        socket2::SockRef::from(&client).set_recv_buffer_size(1 << 16).unwrap();
        socket2::SockRef::from(&accepted).set_send_buffer_size(1 << 16).unwrap();
        let mut stream = Stream::new(accepted, TIMEOUT, unread.clone()).unwrap();
        let started = Instant::now();
        let closed = tokio::spawn(async move {
            let piece = vec![0; 65_536];
            let error = loop {
                if let Err(error) = stream.write_all(&piece).await {
                    break error;
                }
            };
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
            started.elapsed()
        });
        (client, unread, closed)
    }

    fn refuse_a_long_answer(unread: &Arc<UnreadCap>) {
        assert_eq!(unread.count(&Answer::text("x".repeat(100_000))).unwrap_err().status, 503);
    }

    #[track_caller]
    fn assert_about(measured: Duration, expected: Duration) {
        assert!((expected..expected + TIMEOUT / 10).contains(&measured), "{measured:?}");
    }

    /// The paused clock moves on to the next timer of any task.
    #[tokio::test(start_paused = true)]
    async fn client_that_reads_nothing_has_six_timeouts() {
        let (_client, unread, closed) = endless_answer().await;
        refuse_a_long_answer(&unread);
        assert_about(closed.await.unwrap(), TIMEOUT * WRITE_TIMEOUT_FACTOR);
    }

    /// Such clients could use up the cap, and ask again.
    #[tokio::test(start_paused = true)]
    async fn client_that_keeps_others_waiting_has_one() {
        let (_client, unread, closed) = endless_answer().await;
        sleep(TIMEOUT / 2).await;
        refuse_a_long_answer(&unread);
        assert_about(closed.await.unwrap(), TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_reader_may_keep_others_waiting() {
        let (mut client, unread, closed) = endless_answer().await;
        let mut piece = vec![0; 1 << 20];
        for _ in 0..20 {
            sleep(TIMEOUT * 9 / 10).await;
            refuse_a_long_answer(&unread);
            assert!(client.read(&mut piece).await.unwrap() > 0);
        }
        assert!(!closed.is_finished());
    }
}
