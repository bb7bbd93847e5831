//! One connection, and how a call waits on it.
//!
//! The HTTP library keeps some 16 KiB per connection. A call that has to wait is therefore taken out of it: the
//! library's part is dropped, only the socket and the call stay. When the answer is there, a new library part reads
//! a request of our own making, is given the answer, and goes on with what the client sends next.

use super::{
    Http,
    reply::{Reply, reply},
    timer::Timer,
    wire::Wire,
};
use crate::calls::Answer;
use hyper::{
    HeaderMap, Version, header::CONNECTION, http::request::Parts, server::conn::http1, service::service_fn,
};
use hyper_util::rt::TokioIo;
use std::{
    future::{Future, pending, poll_fn},
    net::IpAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};
use tokio::net::TcpStream;

/// A call on its way; `None`: its client is gone.
pub(super) type Work = Pin<Box<dyn Future<Output = Option<Answer>> + Send>>;

/// The client has gone while its call waited.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the client has gone")]
pub(super) struct Gone;

const GO_ON: &[u8] = b"GET / HTTP/1.1\r\n\r\n";
const CLOSE: &[u8] = b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n";

/// What passes between a connection and the calls on it.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) wire: Wire,
    pub(super) local: IpAddr,
    between: Mutex<Between>,
}

#[derive(Default)]
enum Between {
    #[default]
    Nothing,
    Parked(Parked),
    /// Boxed: every connection has room for it, few have one.
    Answer(Box<Answer>),
}

impl std::fmt::Debug for Between {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Parked(_) => "Parked",
            Self::Answer(_) => "Answer",
        })
    }
}

struct Parked {
    work: Work,
    keep_alive: bool,
}

impl Line {
    fn between(&self) -> MutexGuard<'_, Between> {
        self.between.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to the call that was parked on this connection.
    pub(super) fn take_answer(&self) -> Option<Answer> {
        let mut between = self.between();
        match std::mem::take(&mut *between) {
            Between::Answer(answer) => Some(*answer),
            other => {
                *between = other;
                None
            }
        }
    }

    fn take_parked(&self) -> Option<Parked> {
        let mut between = self.between();
        match std::mem::take(&mut *between) {
            Between::Parked(parked) => Some(parked),
            other => {
                *between = other;
                None
            }
        }
    }

    /// Waits for a call: on the connection, or parked when the library holds nothing else of this client (`alone`).
    pub(super) async fn wait_for(&self, mut work: Work, head: &Parts, alone: bool) -> Result<Reply, Gone> {
        let parkable = alone && head.version == Version::HTTP_11;
        let answer = match futures_util::poll!(work.as_mut()) {
            Poll::Ready(answer) => answer,
            Poll::Pending if parkable => {
                *self.between() = Between::Parked(Parked { work, keep_alive: keeps_alive(&head.headers) });
                pending().await
            }
            Poll::Pending => work.await,
        };
        answer.map(reply).ok_or(Gone)
    }
}

fn keeps_alive(headers: &HeaderMap) -> bool {
    let close = |value: &[u8]| {
        value.split(|&byte| byte == b',').any(|one| one.trim_ascii().eq_ignore_ascii_case(b"close"))
    };
    !headers.get_all(CONNECTION).iter().any(|value| close(value.as_bytes()))
}

/// Serves one connection to its end.
pub(super) fn serve(seat: Seat, stream: TcpStream) -> impl Future<Output = ()> + Send {
    let local = stream.local_addr().map(|address| address.ip());
    let wire = Wire::new(stream, seat.0.header_timeout);
    let line = local.map(|local| Line { wire, local, between: Mutex::default() });
    // Not an `async fn`, which would store its arguments twice for every connection.
    async move {
        let (http, Ok(line), mut resumed) = (&seat.0, &line, false) else { return };
        while let Some(Parked { work, keep_alive }) = talk(http, line, resumed).await {
            let Some(answer) = work.await else { return };
            let last = !keep_alive || http.server.shutdown.is_cancelled();
            *line.between() = Between::Answer(Box::new(answer));
            line.wire.prime(if last { CLOSE } else { GO_ON });
            resumed = true;
        }
    }
}

/// A place among the connections that may be, given back when dropped.
#[derive(Debug)]
pub(super) struct Seat(Arc<Http>);

impl Seat {
    /// `None`: there are as many as may be.
    pub(super) fn take(http: &Arc<Http>) -> Option<Self> {
        http.server.connections.enter().then(|| Self(http.clone()))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.server.connections.leave();
    }
}

/// Lets the library serve the connection until it ends (`None`) or a call is parked.
async fn talk(http: &Arc<Http>, line: &Line, resumed: bool) -> Option<Parked> {
    let service = service_fn(async |request| http.answer(request, line).await);
    let connection = http1::Builder::new()
        // A client that has sent all it wants to send may still read; who waits is looked after by the call.
        .half_close(true)
        .timer(Timer::default())
        .header_read_timeout(http.header_timeout)
        .max_buf_size(http.header_size)
        .serve_connection(TokioIo::new(line.wire.clone()), service);
    let mut connection = Box::pin(connection);
    let mut ending = Box::pin(http.server.shutdown.cancelled());
    let mut told = resumed && http.server.shutdown.is_cancelled();
    poll_fn(|context| {
        if !told && ending.as_mut().poll(context).is_ready() {
            told = true;
            connection.as_mut().graceful_shutdown();
        }
        let ended = connection.as_mut().poll(context);
        if let Some(parked) = line.take_parked() {
            return Poll::Ready(Some(parked));
        }
        ended.map(|ended| {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended");
            }
            None
        })
    })
    .await
}
