//! The sockets. Only this file and `curve.rs` use the ZeroMQ library.
//!
//! The library is omq-tokio: it reports closed connections, so that the waits of clients that disconnected end, and it
//! needs no C++ build.

use super::{
    connections::{Change, Client},
    curve::Curve,
};
use crate::caps::Cap;
use bytes::Bytes;
use omq_tokio::{
    Endpoint, Message, MonitorEvent, Options, Socket, SocketType,
    endpoint::Host,
    message::Payload,
    options::KeepAlive,
    socket::{IdentitySocket, MonitorStream},
};
use std::{sync::Arc, time::Duration};
use tokio::sync::mpsc;

/// The size limit of messages, including 64 bytes of overhead per frame.
const MAX_MESSAGE: usize = 64 * 1024;

/// The limit of answers that a client has not read. More answers are dropped.
const MAX_UNREAD: u32 = 10_000;

/// The size of a long answer. Only long answers count towards [`Client::unread`].
const LONG_ANSWER: usize = 1024;

/// The pause after a receive error, which may repeat.
const RECEIVE_RETRY: Duration = Duration::from_millis(50);

/// The pause before an unknown host name is looked up again.
const LOOKUP_RETRY: Duration = Duration::from_secs(5);

/// The interval and the timeout of heartbeats to peers. Without them a subscriber would not notice a silent peer.
const PEER_HEARTBEAT: Duration = Duration::from_secs(2);

fn options(handshakes: usize, curve: Option<&Curve>) -> Options {
    let options = Options::default()
        .max_message_size(MAX_MESSAGE)
        .handshake_timeout(Duration::from_secs(5))
        .max_pending_handshakes(handshakes)
        .recv_hwm(1000)
        .send_hwm(MAX_UNREAD)
        .linger(Duration::from_secs(1))
        .heartbeat_interval(Duration::from_secs(30))
        .heartbeat_timeout(Duration::from_secs(30))
        .tcp_keepalive(KeepAlive::Enabled {
            idle: Duration::from_secs(30),
            intvl: Duration::from_secs(10),
            cnt: 3,
        })
        .monitor_capacity(16_384);
    match curve {
        Some(curve) => curve.serve(options),
        None => options,
    }
}

/// The socket for the requests of clients.
#[derive(Debug)]
pub(super) struct Router {
    socket: IdentitySocket,
    monitor: ConnectionMonitor,
    /// The task that applies connection changes also sends the answers, on the thread on which identities change
    /// owners: otherwise a new connection with a reused identity could get the answers of the previous one.
    answers: mpsc::UnboundedReceiver<Answer>,
    receives: bool,
}

/// The address to which the answer to a message is sent.
#[derive(Clone, Debug)]
pub(super) struct ReturnAddress {
    identity: omq_tokio::Identity,
}

/// An event of the router.
#[derive(Debug)]
pub(super) enum RouterEvent {
    Message(ReturnAddress, Vec<Bytes>),
    Change(Change),
}

/// Reports the changes of the connections of a socket.
#[derive(Debug)]
pub(super) struct ConnectionMonitor {
    socket: Socket,
    monitor: MonitorStream,
    /// Changes were missed: the next change is the full list.
    missed: bool,
}

impl ConnectionMonitor {
    fn new(socket: &Socket) -> Self {
        Self { socket: socket.clone(), monitor: socket.monitor(), missed: false }
    }

    /// Returns `None` if the socket is closed.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Change> {
        loop {
            if let Some(change) = self.step().await? {
                return Some(change);
            }
        }
    }

    /// Waits for one event, which need not be a change. Returns `None` if the socket is closed.
    async fn step(&mut self) -> Option<Option<Change>> {
        use omq_tokio::socket::MonitorRecvError as ReceiveError;
        if self.missed {
            let all = self.socket.connections().await.ok()?;
            self.missed = false;
            return Some(Some(Change::All(all.into_iter().map(|status| status.connection_id).collect())));
        }
        Some(match self.monitor.recv().await {
            Ok(MonitorEvent::HandshakeSucceeded { peer, .. }) => Some(Change::Opened(peer.connection_id)),
            Ok(MonitorEvent::Disconnected { peer, .. }) => Some(Change::Closed(peer.connection_id)),
            Ok(_) => None,
            Err(ReceiveError::Lagged(_)) => {
                self.missed = true;
                None
            }
            Err(_) => return None,
        })
    }

    pub(super) fn closer(&self) -> Closer {
        Closer(self.socket.clone())
    }
}

/// Closes connections.
#[derive(Clone, Debug)]
pub(super) struct Closer(Socket);

impl Closer {
    /// Drops all unsent and unread messages of a connection. A connection that has already closed is ignored.
    pub(super) async fn close(&self, connection: u64) {
        if let Err(error) = self.0.disconnect_peer(connection).await {
            tracing::debug!(%error, "the connection was already closed");
        }
    }
}

impl ReturnAddress {
    pub(super) fn connection(&self) -> u64 {
        self.identity.peer_info().connection_id
    }
}

impl Router {
    pub(super) async fn bind(
        endpoint: &Endpoint,
        handshakes: usize,
        curve: Option<&Curve>,
    ) -> omq_tokio::Result<(Self, AnswerSender, String)> {
        let socket = Socket::new(SocketType::Router, options(handshakes, curve));
        let monitor = ConnectionMonitor::new(&socket);
        let socket = IdentitySocket::try_from(socket)?;
        let bound = socket.bind(endpoint.clone()).await?;
        let (sender, answers) = mpsc::unbounded_channel();
        Ok((Self { socket, monitor, answers, receives: true }, AnswerSender(sender), bound.to_string()))
    }

    /// Sends answers until an event happens. Returns `None` if the socket is closed or all [`AnswerSender`]s are
    /// dropped.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> Option<RouterEvent> {
        loop {
            // Not within the `select!`: endless messages would delay the list indefinitely.
            if self.monitor.missed {
                return self.monitor.next().await.map(RouterEvent::Change);
            }
            tokio::select! {
                biased;
                step = self.monitor.step() => if let Some(change) = step? {
                    return Some(RouterEvent::Change(change));
                },
                answer = self.answers.recv() => answer?.send(&self.socket),
                received = received(|| self.socket.recv_from()), if self.receives => {
                    let (identity, message) = received?;
                    let frames = (0..message.len()).filter_map(|index| message.part_bytes(index)).collect();
                    return Some(RouterEvent::Message(ReturnAddress { identity }, frames));
                }
            }
        }
    }

    /// Stops receiving messages.
    pub(super) fn stop_receiving(&mut self) {
        self.receives = false;
    }

    pub(super) fn closer(&self) -> Closer {
        self.monitor.closer()
    }

    pub(super) async fn close(self) {
        if let Err(error) = self.socket.into_inner().close().await {
            tracing::debug!(%error, "cannot close the ZeroMQ socket");
        }
    }
}

/// Sends answers.
#[derive(Clone, Debug)]
pub(super) struct AnswerSender(mpsc::UnboundedSender<Answer>);

impl AnswerSender {
    /// Sends an answer. The answer is dropped if the client disconnected or leaves too much unread.
    pub(super) fn send(&self, address: ReturnAddress, frames: Vec<Bytes>, client: Client) {
        let Some(frames) = UnreadAnswer::count(frames, &client.unread) else {
            tracing::debug!("a long answer was dropped: the client reads too slowly");
            return;
        };
        if self.0.send(Answer { address, message: message(frames), client }).is_err() {
            tracing::debug!("an answer was dropped: the socket is closed");
        }
    }
}

/// An answer to be sent.
#[derive(Debug)]
struct Answer {
    address: ReturnAddress,
    message: Message,
    client: Client,
}

impl Answer {
    fn send(self, socket: &IdentitySocket) {
        if self.client.gone.is_cancelled() {
            return;
        }
        if let Err(error) = socket.try_send_to(self.address.identity.as_ref(), self.message) {
            tracing::debug!(%error, "an answer was dropped");
        }
    }
}

/// The last frame of a long answer. The whole answer counts until this frame is sent or dropped.
struct UnreadAnswer {
    frame: Bytes,
    length: usize,
    unread: Arc<Cap>,
}

impl UnreadAnswer {
    /// Returns `None` if the client has too much unread.
    fn count(mut frames: Vec<Bytes>, unread: &Arc<Cap>) -> Option<Vec<Bytes>> {
        let length = frames.iter().map(Bytes::len).sum();
        if length < LONG_ANSWER {
            return Some(frames);
        }
        let frame = frames.pop().filter(|_| unread.try_add(length))?;
        frames.push(Bytes::from_owner(Self { frame, length, unread: unread.clone() }));
        Some(frames)
    }
}

impl AsRef<[u8]> for UnreadAnswer {
    fn as_ref(&self) -> &[u8] {
        &self.frame
    }
}

impl Drop for UnreadAnswer {
    fn drop(&mut self) {
        self.unread.subtract(self.length);
    }
}

/// Receives the next message. Errors about single messages are skipped. Returns `None` if the socket is closed.
///
/// # Cancel safety
/// As the future of `receive`.
async fn received<T, F>(mut receive: impl FnMut() -> F) -> Option<T>
where
    F: Future<Output = omq_tokio::Result<T>>,
{
    loop {
        match receive().await {
            Ok(received) => return Some(received),
            Err(omq_tokio::Error::Closed) => return None,
            Err(error) => {
                tracing::warn!(%error, "cannot receive a message");
                tokio::time::sleep(RECEIVE_RETRY).await;
            }
        }
    }
}

fn message(frames: Vec<Bytes>) -> Message {
    Message::multipart_payloads(frames.into_iter().map(Payload::from_bytes))
}

/// Publishes grants to other servers.
#[derive(Clone, Debug)]
pub(super) struct Publisher(Socket);

impl Publisher {
    /// Refuses subscriptions to anything but `topic`, because nothing else is published.
    pub(super) async fn bind(
        endpoint: &Endpoint,
        topic: &'static str,
        handshakes: usize,
        curve: Option<&Curve>,
    ) -> omq_tokio::Result<(Self, ConnectionMonitor, String)> {
        let options = options(handshakes, curve)
            .subscription_admission(move |request| topic.as_bytes().starts_with(request.prefix));
        let socket = Socket::new(SocketType::Pub, options);
        let monitor = ConnectionMonitor::new(&socket);
        let bound = socket.bind(endpoint.clone()).await?;
        Ok((Self(socket), monitor, bound.to_string()))
    }

    pub(super) fn publish(&self, frames: Vec<Bytes>) {
        if let Err(error) = self.0.try_send(message(frames)) {
            tracing::debug!(%error, "cannot publish to the peers");
        }
    }
}

/// Receives the grants of other servers. Reconnects to servers that are away.
#[derive(Debug)]
pub(super) struct Subscriber(Socket);

impl Subscriber {
    pub(super) async fn connect(
        endpoints: &[Endpoint],
        topic: &'static str,
        curve: Option<&Curve>,
    ) -> omq_tokio::Result<Self> {
        let base = Options::default()
            .max_message_size(MAX_MESSAGE)
            .handshake_timeout(Duration::from_secs(5))
            .heartbeat_interval(PEER_HEARTBEAT)
            .heartbeat_timeout(PEER_HEARTBEAT);
        let options = match curve {
            Some(curve) => curve.call(base),
            None => base,
        };
        let socket = Socket::new(SocketType::Sub, options);
        socket.subscribe(topic).await?;
        for endpoint in endpoints {
            if matches!(endpoint, Endpoint::Tcp { host: Host::Name(_), .. }) {
                tokio::spawn(connect_when_resolved(socket.clone(), endpoint.clone()));
            } else {
                socket.connect(endpoint.clone()).await?;
            }
        }
        Ok(Self(socket))
    }

    /// Returns `None` if the socket is closed.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next(&self) -> Option<Vec<Bytes>> {
        let message = received(|| self.0.recv()).await?;
        Some((0..message.len()).filter_map(|index| message.part_bytes(index)).collect())
    }
}

/// Connects when the host name of the peer can be resolved, which may only be when the peer runs.
async fn connect_when_resolved(socket: Socket, endpoint: Endpoint) {
    while let Err(error) = socket.connect(endpoint.clone()).await {
        if matches!(error, omq_tokio::Error::Closed) {
            return;
        }
        tracing::warn!(%endpoint, %error, "cannot resolve the host name of a peer, retrying");
        tokio::time::sleep(LOOKUP_RETRY).await;
    }
}

#[cfg(test)]
mod tests;
