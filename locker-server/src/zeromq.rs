//! ZeroMQ: one ROUTER socket for both forms of requests.

mod connections;
pub mod frames;
mod security;
mod slots;
mod socket;
mod thread;

use crate::{
    calls::Answer,
    cli::Serve,
    metrics::Via,
    serve::Tasks,
    server::{Ended, Request, Server},
};
use bytes::Bytes;
use connections::{Client, Connections};
use frames::Ask;
use locker_runtime::primitives::rate_limiter::Quota;
use security::{Security, endpoint};
use slots::Slots;
use socket::{Event, Peer, Publisher, Router, Sender, Subscriber, Watch};
use std::{borrow::Cow, pin::pin, sync::Arc};
use thread::Thread;
use tokio_util::task::TaskTracker;

/// The sockets of a server, bound.
#[derive(Debug)]
pub struct Sockets {
    server: Arc<Server>,
    /// Of the router.
    thread: Thread,
    router: Router,
    sender: Sender,
    slots: Arc<Slots>,
    /// Who listens to what is published.
    listeners: Option<Watch>,
    peers: Option<Subscriber>,
    endpoints: Vec<(&'static str, String)>,
}

/// Binds what the options name; `None` when that is nothing.
///
/// # Errors
/// Says what cannot be bound and why.
pub async fn bind(options: &Serve, server: &Arc<Server>) -> Result<Option<Sockets>, String> {
    if options.zmq == "off" {
        return Ok(None);
    }
    if !options.store.starts_with("memory:") && (options.publish.is_some() || !options.peers.is_empty()) {
        return Err("--publish and --peer are for servers that share no store: with a shared one their limits are exact".into());
    }
    let security = Security::read(options)?;
    let handshakes = server.zmq_handshakes;
    let at = endpoint("zmq", &options.zmq, security.as_ref()).await?;
    let thread = Thread::start().map_err(|error| format!("no thread for ZeroMQ: {error}"))?;
    let keys = security.clone();
    let router = thread.run(async move { Router::bind(&at, handshakes, keys.as_ref()).await }).await;
    let (router, sender, bound) = router.map_err(|error| format!("zmq {}: {error}", options.zmq))?;
    let security = security.as_ref();
    let mut endpoints = vec![("zmq", bound)];
    let (mut publisher, mut listeners) = (None, None);
    if let Some(publish) = &options.publish {
        let at = endpoint("publish", publish, security).await?;
        let bound = Publisher::bind(&at, slots::TOPIC, handshakes, security).await;
        let (socket, watch, bound) = bound.map_err(|error| format!("publish {publish}: {error}"))?;
        endpoints.push(("publish", bound));
        (publisher, listeners) = (Some(socket), Some(watch));
    }
    let peers = connect(options, security).await?;
    let quota = Quota::fixed_window(options.max_requests, options.in_seconds);
    let slots = Arc::new(Slots::new(server.clone(), quota, options.grace, publisher));
    Ok(Some(Sockets { server: server.clone(), thread, router, sender, slots, listeners, peers, endpoints }))
}

async fn connect(options: &Serve, security: Option<&Security>) -> Result<Option<Subscriber>, String> {
    if options.peers.is_empty() {
        return Ok(None);
    }
    let mut endpoints = Vec::new();
    for peer in &options.peers {
        endpoints.push(endpoint("peer", peer, security).await?);
    }
    let subscriber = Subscriber::connect(&endpoints, slots::TOPIC, security).await;
    subscriber.map(Some).map_err(|error| format!("peer: {error}"))
}

impl Sockets {
    /// What was bound where.
    #[must_use]
    pub fn endpoints(&self) -> &[(&'static str, String)] {
        &self.endpoints
    }

    /// Serves until the server shuts down; whoever waits gets 503.
    pub(crate) fn serve(self, tasks: &mut Tasks) {
        let Self { server, thread, router, sender, slots, listeners, peers, .. } = self;
        if let Some(peers) = peers {
            let (slots, end) = (slots.clone(), server.shutdown.clone());
            tasks.spawn(async move {
                end.run_until_cancelled(slots.listen(peers)).await;
                "listening to --peer"
            });
        }
        if let Some(listeners) = listeners {
            let server = server.clone();
            tasks.spawn(async move {
                server.shutdown.run_until_cancelled(within_the_cap(&server, listeners)).await;
                "the cap on those who listen to --publish"
            });
        }
        tasks.spawn(async move {
            thread.run(calls(router, Desk { server, slots, sender })).await;
            "ZeroMQ"
        });
    }
}

/// Answers until the server shuts down, or the socket is closed.
async fn calls(mut router: Router, desk: Desk) {
    let (tasks, server) = (TaskTracker::new(), desk.server.clone());
    let mut connections = Connections::new(server.zmq_connections.clone(), server.max_zmq_calls);
    let closer = router.closer();
    while let Some(event) = server.shutdown.run_until_cancelled(router.next()).await {
        // Of a socket that is closed nobody who waits can be answered.
        let Some(event) = event else { return };
        match event {
            Event::Message(peer, frames) => {
                if let Some(client) = connections.of(peer.connection()) {
                    desk.take(peer, frames, client, &tasks);
                }
            }
            Event::Change(change) => {
                for beyond in connections.follow(change) {
                    server.refused(Via::ZeroMq);
                    let closer = closer.clone();
                    tasks.spawn(async move { closer.close(beyond).await });
                }
            }
        }
    }
    drop(desk);
    router.receive_no_more();
    // Who is still to be answered may go before that.
    while let Some(Event::Change(change)) = router.next().await {
        drop(connections.follow(change));
    }
    router.close().await;
    tasks.close();
    tasks.wait().await;
}

/// Closes the connections of listeners that are too many.
async fn within_the_cap(server: &Server, mut listeners: Watch) {
    let mut connections = Connections::new(server.zmq_connections.clone(), server.max_zmq_calls);
    let closer = listeners.closer();
    while let Some(change) = listeners.next().await {
        for beyond in connections.follow(change) {
            server.refused(Via::ZeroMq);
            closer.close(beyond).await;
        }
    }
}

/// Takes a request from its message to its answer.
#[derive(Clone, Debug)]
struct Desk {
    server: Arc<Server>,
    slots: Arc<Slots>,
    sender: Sender,
}

impl Desk {
    /// What can be answered at once is; the rest waits in a task of its own, so that later requests overtake it.
    fn take(&self, peer: Peer, mut frames: Vec<Bytes>, client: Client, tasks: &TaskTracker) {
        let desk = self.clone();
        let body = frames.split_off(frames::envelope(&frames));
        let mut work = Box::pin(async move {
            if let Some(answer) = desk.answer(&body, &client).await {
                frames.extend(answer);
                desk.sender.send(peer, frames, client);
            }
        });
        if futures_util::FutureExt::now_or_never(work.as_mut()).is_none() {
            tasks.spawn(work);
        }
    }

    /// `None`: the client is gone.
    async fn answer(&self, body: &[Bytes], client: &Client) -> Option<Vec<Bytes>> {
        let answer = match frames::read(body) {
            Ok(Ask::Slot) => return self.slot(client).await,
            Ok(Ask::Call { method, path, query }) => {
                let request = Request { via: Via::ZeroMq, method, path, query, form: "" };
                match self.server.read(request) {
                    Ok(decoded) => {
                        let gone = pin!(client.gone.cancelled());
                        self.server.answer(Via::ZeroMq, &decoded, gone, Some(&client.calls)).await?
                    }
                    Err(answer) => answer,
                }
            }
            Err(answer) => {
                self.server.metrics.answered(Via::ZeroMq, None, &answer);
                answer
            }
        };
        Some(vec![answer.status.to_string().into(), bytes(answer)])
    }

    async fn slot(&self, client: &Client) -> Option<Vec<Bytes>> {
        let ask = pin!(self.slots.ask());
        let go = if self.slots.may_wait() {
            let gone = pin!(client.gone.cancelled());
            match self.server.wait_for(self.server.waits.at((None, "")), ask, gone).await {
                Ended::Done(go) => go,
                Ended::Gone => return None,
                Ended::Full(_) | Ended::Going => self.slots.refuse(),
            }
        } else if let Some(_place) = client.calls.place() {
            ask.await
        } else {
            self.slots.refuse()
        };
        Some(vec![Bytes::from_static(if go { b"go" } else { b"sorry" })])
    }
}

fn bytes(answer: Answer) -> Bytes {
    match answer.body {
        Cow::Borrowed(text) => Bytes::from_static(text.as_bytes()),
        Cow::Owned(text) => text.into(),
    }
}
