//! One connection.
//!
//! The HTTP library keeps some 16 KiB per connection. A call that has to wait is therefore taken out of it: the
//! library's connection is dropped, and only the socket and the call remain. When the answer is ready, a new library
//! connection reads a synthetic request, gets the answer as its response, and continues with the client's next bytes.

use super::{
    conn_state::{ConnState, ParkedCall},
    handler::Handler,
    timer::Timer,
};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use std::{
    future::{Future, poll_fn},
    sync::Arc,
    task::Poll,
};
use tokio::net::TcpStream;

const KEEP_ALIVE: &[u8] = b"GET / HTTP/1.1\r\n\r\n";
const CLOSE: &[u8] = b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n";

/// Serves one connection until it ends.
pub(super) fn serve(permit: ConnectionPermit, stream: TcpStream) -> impl Future<Output = ()> + Send {
    let local = stream.local_addr().map(|address| address.ip());
    let timeout = permit.0.header_timeout();
    let state = local.map(|local| ConnState::new(stream, local, timeout));
    // Not an `async fn`, which would store its arguments twice for every connection.
    async move {
        let (handler, Ok(state), mut resumed) = (&permit.0, &state, false) else { return };
        while let Some(ParkedCall { work, keep_alive }) = run_http(handler, state, resumed).await {
            let Some(answer) = work.await else { return };
            let last = !keep_alive || handler.server().shutdown.is_cancelled();
            state.set_answer(answer);
            state.stream.prepend(if last { CLOSE } else { KEEP_ALIVE });
            resumed = true;
        }
    }
}

/// A permit for one connection, returned on drop.
#[derive(Debug)]
pub(super) struct ConnectionPermit(Arc<Handler>);

impl ConnectionPermit {
    /// Returns `None` if the cap on connections is reached.
    pub(super) fn take(handler: &Arc<Handler>) -> Option<Self> {
        handler.server().http_connections.try_enter().then(|| Self(handler.clone()))
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.server().http_connections.leave();
    }
}

/// Runs the HTTP library until the connection ends (`None`) or a call is parked.
async fn run_http(handler: &Handler, state: &ConnState, resumed: bool) -> Option<ParkedCall> {
    let service = service_fn(async |request| handler.respond(request, state).await);
    let connection = http1::Builder::new()
        // A client that has closed its sending side may still read. Calls that wait watch for the close themselves.
        .half_close(true)
        .timer(Timer::default())
        .header_read_timeout(handler.header_timeout())
        .max_buf_size(handler.header_size())
        .serve_connection(TokioIo::new(state.stream.clone()), service);
    let mut connection = Box::pin(connection);
    let mut shutdown = Box::pin(handler.server().shutdown.cancelled());
    let mut notified = resumed && handler.server().shutdown.is_cancelled();
    poll_fn(|context| {
        if !notified && shutdown.as_mut().poll(context).is_ready() {
            notified = true;
            connection.as_mut().graceful_shutdown();
        }
        let ended = connection.as_mut().poll(context);
        if let Some(parked) = state.take_parked() {
            return Poll::Ready(Some(parked));
        }
        ended.map(|ended| {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended with an error");
            }
            None
        })
    })
    .await
}
