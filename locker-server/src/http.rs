//! HTTP/1.1: the listener.

mod access;
mod connection;
mod context;
mod handler;
mod response;
mod router;
mod sessions;
mod stream;
mod tokens;
mod unread;

pub(crate) use access::AccessPolicy;
pub(crate) use handler::Handler;
pub(crate) use tokens::Tokens;

use crate::{caps::Cap, log_throttle::LogEvent, metrics::Transport};
use connection::ConnectionPermit;
use socket2::{SockRef, TcpKeepalive};
use std::{io, sync::Arc, time::Duration};
use stream::WRITE_TIMEOUT_FACTOR;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
};
use tokio_util::task::TaskTracker;

/// How many connections beyond the cap get a 503 at a time, if there are files enough. More are closed without an
/// answer.
pub(crate) const MAX_REFUSING: usize = 64;

/// How long a client may be away from the network.
const VANISHED_AFTER: Duration = Duration::from_secs(30);

/// The pause after a failed accept.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// The HTTP side of a server.
#[derive(Debug)]
pub(crate) struct Http {
    handler: Arc<Handler>,
    /// Connections beyond the cap that are getting a 503.
    refusing: Arc<Cap>,
}

impl Http {
    /// `refusing` limits how many connections beyond the cap get a 503 at a time.
    pub(crate) fn new(handler: Handler, refusing: usize) -> Self {
        Self { handler: Arc::new(handler), refusing: Arc::new(Cap::new(refusing)) }
    }

    /// Serves until the server shuts down. Answers that are being sent are completed.
    pub(crate) async fn serve(self, listener: TcpListener) {
        let (server, connections) = (self.handler.server().clone(), TaskTracker::new());
        loop {
            let accepted = tokio::select! {
                () = server.shutdown.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => self.accept(stream, &connections),
                Err(error) => {
                    if server.log_throttle.is_due(LogEvent::AcceptFailed) {
                        tracing::warn!(%error, "cannot accept a connection");
                    }
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
        drop(listener);
        connections.close();
        connections.wait().await;
    }

    fn accept(&self, stream: TcpStream, connections: &TaskTracker) {
        let Some(permit) = ConnectionPermit::take(&self.handler) else {
            self.handler.server().connection_refused(Transport::Http);
            if self.refusing.try_enter() {
                let refusing = self.refusing.clone();
                tokio::spawn(async move {
                    refuse(stream).await;
                    refusing.leave();
                });
            }
            return;
        };
        // The system counts a client that reads nothing as one that has vanished.
        let timeout = VANISHED_AFTER.max(self.handler.header_timeout() * WRITE_TIMEOUT_FACTOR);
        if let Err(error) = set_options(&stream, timeout) {
            tracing::debug!(%error, "cannot set the options of a connection");
        }
        // Boxed, because tokio rounds the size of a task up.
        connections.spawn(Box::pin(connection::serve(permit, stream)));
    }
}

/// A client that vanishes is noticed within `timeout`, and its waits end. While an answer is unacknowledged, the system
/// does not probe the client; other systems than Linux then repeat the answer for as long as they are configured.
#[cfg_attr(
    not(any(target_os = "android", target_os = "linux")),
    expect(unused_variables, reason = "see above")
)]
fn set_options(stream: &TcpStream, timeout: Duration) -> io::Result<()> {
    let keepalive =
        TcpKeepalive::new().with_time(VANISHED_AFTER / 2).with_interval(VANISHED_AFTER / 6).with_retries(3);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(any(target_os = "android", target_os = "linux"))]
    socket.set_tcp_user_timeout(Some(timeout))?;
    stream.set_nodelay(true)
}

/// Sends a 503 to a client beyond the cap, for at most one second.
async fn refuse(mut stream: TcpStream) {
    const REFUSAL: &[u8] =
        b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nCache-Control: no-store\r\n\
        Content-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\
        Content-Length: 20\r\n\r\ntoo many connections";
    let sent = async {
        stream.write_all(REFUSAL).await?;
        stream.shutdown().await?;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    };
    if !matches!(tokio::time::timeout(Duration::from_secs(1), sent).await, Ok(Ok(_))) {
        tracing::debug!("a client beyond the cap on connections did not read its answer");
    }
}
