//! ZeroMQ: one ROUTER socket for calls and time-slot requests.

mod connections;
mod curve;
pub(crate) mod frames;
mod socket;
mod thread;
mod time_slots;

use crate::{
    api::{Answer, CallKind},
    cli::Serve,
    metrics::Transport,
    server::{Outcome, Request, Server, Tasks},
};
use bytes::Bytes;
use connections::{Client, Connections};
use curve::{Curve, check_socket_file, endpoint};
use locker_runtime::primitives::rate_limiter::Quota;
use socket::{AnswerSender, ConnectionMonitor, Publisher, ReturnAddress, Router, RouterEvent, Subscriber};
use std::{borrow::Cow, pin::pin, sync::Arc};
use thread::Thread;
use time_slots::TimeSlots;
use tokio_util::task::TaskTracker;

/// The bound sockets of a server.
#[derive(Debug)]
pub(crate) struct Sockets {
    server: Arc<Server>,
    /// The thread of the router.
    thread: Thread,
    router: Router,
    sender: AnswerSender,
    slots: Arc<TimeSlots>,
    /// The connections of peers that listen to `--publish`.
    listeners: Option<ConnectionMonitor>,
    peers: Option<Subscriber>,
    endpoints: Vec<(&'static str, String)>,
}

/// Binds the sockets of the options. Returns `None` if ZeroMQ is off.
///
/// # Errors
/// The reason why a socket cannot be bound.
pub(crate) async fn bind(options: &Serve, server: &Arc<Server>) -> Result<Option<Sockets>, String> {
    if options.zmq == "off" {
        return Ok(None);
    }
    if !options.store.starts_with("memory:") && (options.publish.is_some() || !options.peers.is_empty()) {
        return Err("--publish and --peer are for servers without a shared store: servers with a shared store need neither".into());
    }
    let curve = Curve::read(options)?;
    let handshakes = server.max_zmq_handshakes;
    let at = endpoint("zmq", &options.zmq, curve.as_ref()).await?;
    check_socket_file("zmq", &at)?;
    let thread = Thread::start().map_err(|error| format!("cannot start the ZeroMQ thread: {error}"))?;
    let keys = curve.clone();
    let router = thread.run(async move { Router::bind(&at, handshakes, keys.as_ref()).await }).await;
    let (router, sender, bound) = router.map_err(|error| format!("zmq {}: {error}", options.zmq))?;
    let curve = curve.as_ref();
    let mut endpoints = vec![("zmq", bound)];
    let (mut publisher, mut listeners) = (None, None);
    if let Some(publish) = &options.publish {
        let at = endpoint("publish", publish, curve).await?;
        check_socket_file("publish", &at)?;
        let bound = Publisher::bind(&at, time_slots::TOPIC, handshakes, curve).await;
        let (socket, monitor, bound) = bound.map_err(|error| format!("publish {publish}: {error}"))?;
        endpoints.push(("publish", bound));
        (publisher, listeners) = (Some(socket), Some(monitor));
    }
    let peers = connect(options, curve).await?;
    let quota = Quota::fixed_window(options.max_requests, options.in_seconds);
    let slots = Arc::new(TimeSlots::new(server.clone(), quota, options.grace, publisher));
    Ok(Some(Sockets { server: server.clone(), thread, router, sender, slots, listeners, peers, endpoints }))
}

async fn connect(options: &Serve, curve: Option<&Curve>) -> Result<Option<Subscriber>, String> {
    if options.peers.is_empty() {
        return Ok(None);
    }
    let mut endpoints = Vec::new();
    for peer in &options.peers {
        endpoints.push(endpoint("peer", peer, curve).await?);
    }
    let subscriber = Subscriber::connect(&endpoints, time_slots::TOPIC, curve).await;
    subscriber.map(Some).map_err(|error| format!("peer: {error}"))
}

impl Sockets {
    /// Returns the bound endpoints with the names of their options.
    pub(crate) fn endpoints(&self) -> &[(&'static str, String)] {
        &self.endpoints
    }

    /// Serves until the server shuts down. Waiting calls then get 503.
    pub(crate) fn serve(self, tasks: &mut Tasks) {
        let Self { server, thread, router, sender, slots, listeners, peers, .. } = self;
        if let Some(peers) = peers {
            let (slots, end) = (slots.clone(), server.shutdown.clone());
            tasks.spawn(async move {
                end.run_until_cancelled(slots.count_peers(peers)).await;
                "the --peer subscription"
            });
        }
        if let Some(listeners) = listeners {
            let server = server.clone();
            tasks.spawn(async move {
                server.shutdown.run_until_cancelled(close_over_cap(&server, listeners)).await;
                "the --publish socket"
            });
        }
        tasks.spawn(async move {
            thread.run(run_router(router, Dispatcher { server, slots, sender })).await;
            "ZeroMQ"
        });
    }
}

/// Answers requests until the server shuts down or the socket is closed.
async fn run_router(mut router: Router, dispatcher: Dispatcher) {
    let (tasks, server) = (TaskTracker::new(), dispatcher.server.clone());
    let mut connections = Connections::new(server.zmq_connections.clone(), server.max_zmq_calls);
    let closer = router.closer();
    while let Some(event) = server.shutdown.run_until_cancelled(router.next()).await {
        // The waiters of a closed socket cannot be answered.
        let Some(event) = event else { return };
        match event {
            RouterEvent::Message(address, frames) => {
                if let Some(client) = connections.client(address.connection()) {
                    dispatcher.dispatch(address, frames, client, &tasks);
                }
            }
            RouterEvent::Change(change) => {
                for excess in connections.apply(change) {
                    server.connection_refused(Transport::ZeroMq);
                    let closer = closer.clone();
                    tasks.spawn(async move { closer.close(excess).await });
                }
            }
        }
    }
    drop(dispatcher);
    router.stop_receiving();
    // Clients may disconnect before they are answered.
    while let Some(RouterEvent::Change(change)) = router.next().await {
        drop(connections.apply(change));
    }
    router.close().await;
    tasks.close();
    tasks.wait().await;
}

/// Closes the connections of listeners beyond the cap.
async fn close_over_cap(server: &Server, mut listeners: ConnectionMonitor) {
    let mut connections = Connections::new(server.zmq_connections.clone(), server.max_zmq_calls);
    let closer = listeners.closer();
    while let Some(change) = listeners.next().await {
        for excess in connections.apply(change) {
            server.connection_refused(Transport::ZeroMq);
            closer.close(excess).await;
        }
    }
}

/// Turns messages into answers.
#[derive(Clone, Debug)]
struct Dispatcher {
    server: Arc<Server>,
    slots: Arc<TimeSlots>,
    sender: AnswerSender,
}

impl Dispatcher {
    /// Answers a request immediately if possible. Otherwise the request waits in its own task, and later requests may
    /// overtake it.
    fn dispatch(&self, address: ReturnAddress, mut frames: Vec<Bytes>, client: Client, tasks: &TaskTracker) {
        let dispatcher = self.clone();
        let length = frames.iter().map(Bytes::len).sum();
        let body = frames.split_off(frames::envelope(&frames));
        let mut work = Box::pin(async move {
            let bytes = dispatcher.server.zmq_bytes.permits(length);
            if let Some(answer) = dispatcher.answer(&body, &client, bytes.is_some()).await {
                frames.extend(answer);
                dispatcher.sender.send(address, frames, client);
            }
        });
        if futures_util::FutureExt::now_or_never(work.as_mut()).is_none() {
            tasks.spawn(work);
        }
    }

    /// Returns `None` if the client disconnected. `fits` says whether the cap on bytes admits the request.
    async fn answer(&self, body: &[Bytes], client: &Client, fits: bool) -> Option<Vec<Bytes>> {
        let answer = match frames::parse(body) {
            Ok(frames::Request::TimeSlot) if fits => return self.slot(client).await,
            Ok(frames::Request::TimeSlot) => return Some(slot_answer(self.slots.refuse())),
            Ok(frames::Request::Call { method, path, .. }) if !fits => {
                let answer = Answer::too_many_bytes();
                self.server.metrics.answered(Transport::ZeroMq, CallKind::of(method, path), &answer);
                answer
            }
            Ok(frames::Request::Call { method, path, query }) => {
                let transport = Transport::ZeroMq;
                let request = Request { transport, method, path, query, form: "" };
                match self.server.parse(request) {
                    Ok(parsed) => {
                        let gone = pin!(client.gone.cancelled());
                        self.server.answer(transport, &parsed, gone, Some(&client.calls)).await?
                    }
                    Err(answer) => answer,
                }
            }
            Err(answer) => {
                self.server.metrics.answered(Transport::ZeroMq, None, &answer);
                answer
            }
        };
        Some(vec![answer.status.to_string().into(), bytes(answer)])
    }

    async fn slot(&self, client: &Client) -> Option<Vec<Bytes>> {
        let ask = pin!(self.slots.request());
        let go = if self.slots.may_wait() {
            let gone = pin!(client.gone.cancelled());
            match self.server.wait_for(self.server.waits.wait_in((None, "")), ask, gone).await {
                Outcome::Done(go) => go,
                Outcome::ClientGone => return None,
                Outcome::AtCapacity(_) | Outcome::ShuttingDown => self.slots.refuse(),
            }
        } else if let Some(_permit) = client.calls.permit() {
            ask.await
        } else {
            self.slots.refuse()
        };
        Some(slot_answer(go))
    }
}

fn slot_answer(go: bool) -> Vec<Bytes> {
    vec![Bytes::from_static(if go { b"go" } else { b"sorry" })]
}

fn bytes(answer: Answer) -> Bytes {
    match answer.body {
        Cow::Borrowed(text) => Bytes::from_static(text.as_bytes()),
        Cow::Owned(text) => text.into(),
    }
}
