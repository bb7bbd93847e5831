//! The one place that knows the ZeroMQ library.

use super::{connections::Client, security::Security};
use crate::limits::Gauge;
use bytes::Bytes;
use omq_tokio::{
    Endpoint, Message, MonitorEvent, Options, Socket, SocketType,
    endpoint::Host,
    message::Payload,
    options::KeepAlive,
    socket::{IdentitySocket, MonitorStream},
};
use std::{collections::HashSet, sync::Arc, time::Duration};
use tokio::sync::mpsc;

/// The largest message that is read, 64 bytes of bookkeeping for each of its frames included.
const MOST_MESSAGE: usize = 64 * 1024;

/// How many answers wait for a client that does not read; more are dropped.
const MOST_UNREAD: u32 = 10_000;

/// How many bytes of long answers do; more are dropped, too.
pub(super) const MOST_UNREAD_BYTES: usize = 16 << 20;

/// What is shorter takes little room, however many there are.
const LONG: usize = 1024;

/// How long nothing is received after an error, which may come again and again.
const AGAIN: Duration = Duration::from_millis(50);

/// How long a name that is not known is not asked for again.
const LATER: Duration = Duration::from_secs(5);

/// How often a peer is asked whether it is still there, and how long it may take to say so: who only listens would never
/// learn that nobody speaks any more.
const PULSE: Duration = Duration::from_secs(2);

fn options(handshakes: usize, security: Option<&Security>) -> Options {
    let options = Options::default()
        .max_message_size(MOST_MESSAGE)
        .handshake_timeout(Duration::from_secs(5))
        .max_pending_handshakes(handshakes)
        .recv_hwm(1000)
        .send_hwm(MOST_UNREAD)
        .linger(Duration::from_secs(1))
        .heartbeat_interval(Duration::from_secs(30))
        .heartbeat_timeout(Duration::from_secs(30))
        .tcp_keepalive(KeepAlive::Enabled {
            idle: Duration::from_secs(30),
            intvl: Duration::from_secs(10),
            cnt: 3,
        })
        .monitor_capacity(16_384);
    match security {
        Some(security) => security.serve(options),
        None => options,
    }
}

/// The socket that clients ask.
#[derive(Debug)]
pub(super) struct Router {
    socket: IdentitySocket,
    watch: Watch,
    /// Sent by who follows what becomes of connections, on the thread on which names change hands: another one may go by
    /// the name of one that is gone, and would take its answers for its own.
    answers: mpsc::UnboundedReceiver<Answer>,
    receives: bool,
}

/// Where a message came from.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    identity: omq_tokio::Identity,
}

/// What happens at the router.
#[derive(Debug)]
pub(super) enum Event {
    Message(Peer, Vec<Bytes>),
    Change(Change),
}

/// What has become of the connections of a socket.
#[derive(Debug)]
pub(super) enum Change {
    /// This one is there, its handshake done.
    Came(u64),
    /// This one is no more.
    Gone(u64),
    /// Much has changed: these are there now.
    Now(HashSet<u64>),
}

/// Tells what becomes of the connections of a socket.
#[derive(Debug)]
pub(super) struct Watch {
    socket: Socket,
    monitor: MonitorStream,
    /// Something was missed: a list is due.
    behind: bool,
}

impl Watch {
    fn new(socket: &Socket) -> Self {
        Self { socket: socket.clone(), monitor: socket.monitor(), behind: false }
    }

    /// `None`: the socket is closed.
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

    /// What was heard at once, which may be that something was missed; `None`: the socket is closed.
    async fn step(&mut self) -> Option<Option<Change>> {
        use omq_tokio::socket::MonitorRecvError as Missed;
        if self.behind {
            let now = self.socket.connections().await.ok()?;
            self.behind = false;
            return Some(Some(Change::Now(now.into_iter().map(|status| status.connection_id).collect())));
        }
        Some(match self.monitor.recv().await {
            Ok(MonitorEvent::HandshakeSucceeded { peer, .. }) => Some(Change::Came(peer.connection_id)),
            Ok(MonitorEvent::Disconnected { peer, .. }) => Some(Change::Gone(peer.connection_id)),
            Ok(_) => None,
            Err(Missed::Lagged(_)) => {
                self.behind = true;
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
    /// What it has sent or was to be sent is dropped; one that is gone already is none to close.
    pub(super) async fn close(&self, connection: u64) {
        if let Err(error) = self.0.disconnect_peer(connection).await {
            tracing::debug!(%error, "a connection was not there to be closed");
        }
    }
}

impl Peer {
    pub(super) fn connection(&self) -> u64 {
        self.identity.peer_info().connection_id
    }
}

impl Router {
    pub(super) async fn bind(
        endpoint: &Endpoint,
        handshakes: usize,
        security: Option<&Security>,
    ) -> omq_tokio::Result<(Self, Sender, String)> {
        let socket = Socket::new(SocketType::Router, options(handshakes, security));
        let watch = Watch::new(&socket);
        let socket = IdentitySocket::try_from(socket)?;
        let bound = socket.bind(endpoint.clone()).await?;
        let (sender, answers) = mpsc::unbounded_channel();
        Ok((Self { socket, watch, answers, receives: true }, Sender(sender), bound.to_string()))
    }

    /// Sends answers until something happens. `None`: the socket is closed, or there is no [`Sender`] any more.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Event> {
        loop {
            // By itself: beside messages that come without end the list would never be there.
            if self.watch.behind {
                return self.watch.next().await.map(Event::Change);
            }
            tokio::select! {
                biased;
                heard = self.watch.step() => if let Some(change) = heard? {
                    return Some(Event::Change(change));
                },
                answer = self.answers.recv() => answer?.send(&self.socket),
                received = received(|| self.socket.recv_from()), if self.receives => {
                    let (identity, message) = received?;
                    let frames = (0..message.len()).filter_map(|index| message.part_bytes(index)).collect();
                    return Some(Event::Message(Peer { identity }, frames));
                }
            }
        }
    }

    /// What comes next is no message any more.
    pub(super) fn receive_no_more(&mut self) {
        self.receives = false;
    }

    pub(super) fn closer(&self) -> Closer {
        self.watch.closer()
    }

    pub(super) async fn close(self) {
        if let Err(error) = self.socket.into_inner().close().await {
            tracing::debug!(%error, "the ZeroMQ socket did not close in order");
        }
    }
}

/// Sends answers.
#[derive(Clone, Debug)]
pub(super) struct Sender(mpsc::UnboundedSender<Answer>);

impl Sender {
    /// An answer to a client that is gone, or that leaves too much unread, is dropped.
    pub(super) fn send(&self, peer: Peer, frames: Vec<Bytes>, client: Client) {
        let Some(frames) = Unread::counted(frames, &client.unread) else {
            tracing::debug!("a long answer was dropped");
            return;
        };
        if self.0.send(Answer { peer, message: message(frames), client }).is_err() {
            tracing::debug!("an answer was dropped: the socket is closed");
        }
    }
}

/// An answer on its way.
#[derive(Debug)]
struct Answer {
    peer: Peer,
    message: Message,
    client: Client,
}

impl Answer {
    fn send(self, socket: &IdentitySocket) {
        if self.client.gone.is_cancelled() {
            return;
        }
        if let Err(error) = socket.try_send_to(self.peer.identity.as_ref(), self.message) {
            tracing::debug!(%error, "an answer was dropped");
        }
    }
}

/// The last frame of a long answer: all of it counts until it is sent or dropped.
struct Unread {
    frame: Bytes,
    length: usize,
    all: Arc<Gauge>,
}

impl Unread {
    /// `None`: there is no room for it.
    fn counted(mut frames: Vec<Bytes>, all: &Arc<Gauge>) -> Option<Vec<Bytes>> {
        let length = frames.iter().map(Bytes::len).sum();
        if length < LONG {
            return Some(frames);
        }
        let frame = frames.pop().filter(|_| all.add(length))?;
        frames.push(Bytes::from_owner(Self { frame, length, all: all.clone() }));
        Some(frames)
    }
}

impl AsRef<[u8]> for Unread {
    fn as_ref(&self) -> &[u8] {
        &self.frame
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.all.take_off(self.length);
    }
}

/// What comes next, over errors that are about one message; `None`: the socket is closed.
///
/// # Cancel safety
/// As what `receive` gives.
async fn received<T, F>(mut receive: impl FnMut() -> F) -> Option<T>
where
    F: Future<Output = omq_tokio::Result<T>>,
{
    loop {
        match receive().await {
            Ok(received) => return Some(received),
            Err(omq_tokio::Error::Closed) => return None,
            Err(error) => {
                tracing::warn!(%error, "a message cannot be received");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

fn message(frames: Vec<Bytes>) -> Message {
    Message::multipart_payloads(frames.into_iter().map(Payload::from_bytes))
}

/// Tells other servers.
#[derive(Clone, Debug)]
pub(super) struct Publisher(Socket);

impl Publisher {
    /// Subscriptions to anything but `topic` are not kept: nothing else is told.
    pub(super) async fn bind(
        endpoint: &Endpoint,
        topic: &'static str,
        handshakes: usize,
        security: Option<&Security>,
    ) -> omq_tokio::Result<(Self, Watch, String)> {
        let options = options(handshakes, security)
            .subscription_admission(move |request| topic.as_bytes().starts_with(request.prefix));
        let socket = Socket::new(SocketType::Pub, options);
        let watch = Watch::new(&socket);
        let bound = socket.bind(endpoint.clone()).await?;
        Ok((Self(socket), watch, bound.to_string()))
    }

    pub(super) fn publish(&self, frames: Vec<Bytes>) {
        if let Err(error) = self.0.try_send(message(frames)) {
            tracing::debug!(%error, "the peers were not told");
        }
    }
}

/// Listens to other servers; connects again and again to those that are not there.
#[derive(Debug)]
pub(super) struct Subscriber(Socket);

impl Subscriber {
    pub(super) async fn connect(
        endpoints: &[Endpoint],
        topic: &'static str,
        security: Option<&Security>,
    ) -> omq_tokio::Result<Self> {
        let base = Options::default()
            .max_message_size(MOST_MESSAGE)
            .handshake_timeout(Duration::from_secs(5))
            .heartbeat_interval(PULSE)
            .heartbeat_timeout(PULSE);
        let options = match security {
            Some(security) => security.call(base),
            None => base,
        };
        let socket = Socket::new(SocketType::Sub, options);
        socket.subscribe(topic).await?;
        for endpoint in endpoints {
            if matches!(endpoint, Endpoint::Tcp { host: Host::Name(_), .. }) {
                tokio::spawn(connected(socket.clone(), endpoint.clone()));
            } else {
                socket.connect(endpoint.clone()).await?;
            }
        }
        Ok(Self(socket))
    }

    /// `None`: the socket is closed.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next(&self) -> Option<Vec<Bytes>> {
        let message = received(|| self.0.recv()).await?;
        Some((0..message.len()).filter_map(|index| message.part_bytes(index)).collect())
    }
}

/// Connects, as soon as the name of the peer is known anywhere: it may be so only when the peer is there.
async fn connected(socket: Socket, endpoint: Endpoint) {
    while let Err(error) = socket.connect(endpoint.clone()).await {
        if matches!(error, omq_tokio::Error::Closed) {
            return;
        }
        tracing::warn!(%endpoint, %error, "a peer cannot be found yet");
        tokio::time::sleep(LATER).await;
    }
}

#[cfg(test)]
mod tests;
