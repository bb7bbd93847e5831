//! What every transport shares: one way from a request to its answer.

use crate::{
    calls::{self, Answer, Call, Decoded, Kind, Method, Sort, name::quoted},
    carry_out::carry_out,
    limits::{Gauge, Often, Seldom, Waiting, Waits},
    metrics::{Metrics, Via},
    names::Names,
};
use locker_runtime::{Admin, Error, Locker};
use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;

/// How long the store may take to show that it is there.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long calls that do not wait may still take once the server is to go.
const LAST_CALLS: Duration = Duration::from_secs(2);

/// A running server, without its sockets.
#[derive(Debug)]
pub struct Server {
    /// The store behind everything.
    pub locker: Locker,
    /// How long a sent event is remembered.
    pub event_ttl: Duration,
    /// The same, by name.
    pub door: Admin,
    /// Which names are in use.
    pub names: Names,
    /// Who waits.
    pub waits: Waits,
    /// Open HTTP connections.
    pub connections: Gauge,
    /// Established ZeroMQ connections.
    pub zmq_connections: Arc<Gauge>,
    /// How many connections of one ZeroMQ socket may be in their handshake.
    pub zmq_handshakes: usize,
    /// How many calls of one ZeroMQ connection may be under way that do not wait.
    pub max_zmq_calls: usize,
    /// So that the log is not flooded by those who come again and again.
    pub often: Seldom,
    /// What is counted.
    pub metrics: Metrics,
    /// Set when the server is to go: waiters get 503.
    pub shutdown: CancellationToken,
}

/// A request as a transport has read it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The way it came.
    pub via: Via,
    /// The method.
    pub method: Method,
    /// The path, still encoded.
    pub path: &'a str,
    /// The query, without the question mark.
    pub query: &'a str,
    /// The form in the body.
    pub form: &'a str,
}

impl Server {
    /// Reads a request.
    ///
    /// # Errors
    /// The answer, when the request is not one.
    pub fn read(&self, request: Request<'_>) -> Result<Decoded, Answer> {
        let Request { via, method, path, query, form } = request;
        let decoded = calls::decode(method, path, query, form);
        decoded.inspect_err(|answer| self.metrics.answered(via, Sort::of(method, path), answer))
    }

    /// Answers a request that has been read. `gone` comes back when nobody is there any more to take the answer: a
    /// call that waits is then given up, and `None` returned; every other one is carried out all the same. `room` is
    /// for those that do not wait and are not answered yet, of a client that sends one before the other is answered.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped call leaves its queue and takes nothing.
    #[expect(
        clippy::manual_async_fn,
        reason = "an `async fn` would store its arguments twice in every waiter"
    )]
    pub fn answer<'a>(
        &'a self,
        via: Via,
        decoded: &'a Decoded,
        gone: Pin<&'a mut (impl Future<Output = ()> + Send)>,
        room: Option<&'a Gauge>,
    ) -> impl Future<Output = Option<Answer>> + Send {
        async move {
            let call = &decoded.call;
            let work = pin!(carry_out(self, call));
            if !call.may_wait() {
                let answer = match room.map(Gauge::place) {
                    Some(None) => Answer::crowded(),
                    _place => self.to_its_end(work).await,
                };
                return Some(self.answered(via, decoded, answer));
            }
            // In brackets, so that how it has ended takes no room beside the wait.
            let without_waiting = {
                let ended = self.wait_for(self.waits.at(call.place()), work, gone).await;
                match ended {
                    Ended::Done(answer) => return Some(self.answered(via, decoded, answer)),
                    Ended::Gone => {
                        self.metrics.gone(via, call.sort());
                        return None;
                    }
                    Ended::Going => return Some(self.answered(via, decoded, Answer::shutting_down())),
                    Ended::Full(full) => Box::pin(self.without_waiting(call, full, room)),
                }
            };
            let answer = without_waiting.await;
            Some(self.answered(via, decoded, answer))
        }
    }

    fn answered(&self, via: Via, decoded: &Decoded, answer: Answer) -> Answer {
        self.metrics.answered(via, Some(decoded.call.sort()), &answer);
        log(decoded, &answer);
        answer
    }

    /// Whether the store answers.
    pub async fn ready(&self) -> Answer {
        match tokio::time::timeout(PATIENCE, self.door.ping()).await {
            Ok(Ok(())) => Answer::text("ready"),
            Ok(Err(error)) => self.failed(&error),
            Err(_) => Answer::unavailable("the store does not answer"),
        }
    }

    /// The answer to a call that has failed; where the store is to blame, it is logged.
    pub(crate) fn failed(&self, error: &Error) -> Answer {
        let answer = Answer::from(error);
        if answer.status == 503 {
            self.store_failed(error);
        }
        answer
    }

    /// Logs that the store does not answer.
    pub(crate) fn store_failed(&self, error: &Error) {
        if self.often.is_due(Often::NoStore) {
            tracing::warn!(%error, "the store does not answer; calls get 503, ZeroMQ `sorry`");
        }
    }

    /// The text for Prometheus.
    #[must_use]
    pub fn render_metrics(&self) -> String {
        self.metrics.render(self.waits.now(), self.connections.now(), self.zmq_connections.now())
    }

    /// Counts and logs a connection that is one too many.
    pub fn refused(&self, via: Via) {
        self.metrics.refused(via);
        let often = match via {
            Via::Http => Often::HttpRefused,
            Via::ZeroMq => Often::ZmqRefused,
        };
        if self.often.is_due(often) {
            match via {
                Via::Http => tracing::warn!(
                    most = self.connections.most(),
                    "--max-connections is reached: further HTTP connections get 503"
                ),
                Via::ZeroMq => tracing::warn!(
                    most = self.zmq_connections.most(),
                    "--max-zmq-connections is reached: further ZeroMQ connections are closed"
                ),
            }
        }
    }

    /// Carries out what does not wait, whoever is gone meanwhile; only a server that is going may end before a store
    /// that does not answer.
    async fn to_its_end(&self, mut work: Pin<&mut (impl Future<Output = Answer> + Send)>) -> Answer {
        if let Poll::Ready(answer) = futures_util::poll!(work.as_mut()) {
            return answer;
        }
        let late = async {
            self.shutdown.cancelled().await;
            tokio::time::sleep(LAST_CALLS).await;
        };
        tokio::select! {
            biased;
            answer = work => answer,
            () = Box::pin(late) => Answer::shutting_down(),
        }
    }

    /// There is no room for one more to wait: a call that need not wait is carried out all the same. `full` then means
    /// that nothing was taken.
    async fn without_waiting(&self, call: &Call, full: Answer, room: Option<&Gauge>) -> Answer {
        // In the embedded store it has been asked for, and had to wait.
        if self.door.is_embedded() {
            return full;
        }
        let _place = match room.map(Gauge::place) {
            Some(None) => return Answer::crowded(),
            place => place,
        };
        let answer = carry_out(self, &call.without_waiting()).await;
        if answer.status == 408 { full } else { answer }
    }

    /// Waits for `work`, within the caps on waits. What the embedded store answers at once is no wait; what asks a
    /// store across a network counts from before it asks, so that a refused call has asked for nothing. Both futures
    /// are pinned by the caller: passed by value they would take their space twice.
    ///
    /// # Cancel safety
    /// As `work`.
    #[expect(
        clippy::manual_async_fn,
        reason = "an `async fn` would store its arguments twice in every waiter"
    )]
    pub fn wait_for<'a, T>(
        &'a self,
        mut waiting: Waiting<'a>,
        mut work: Pin<&'a mut (impl Future<Output = T> + Send)>,
        mut gone: Pin<&'a mut (impl Future<Output = ()> + Send)>,
    ) -> impl Future<Output = Ended<T>> + Send {
        async move {
            if self.door.is_embedded()
                && let Poll::Ready(done) = futures_util::poll!(work.as_mut())
            {
                return Ended::Done(done);
            }
            let started = Instant::now();
            if let Err(full) = waiting.enter() {
                return Ended::Full(full);
            }
            let mut ending = pin!(self.shutdown.cancelled());
            let ended = poll_fn(|context| {
                if gone.as_mut().poll(context).is_ready() {
                    Poll::Ready(Ended::Gone)
                } else if ending.as_mut().poll(context).is_ready() {
                    Poll::Ready(Ended::Going)
                } else {
                    work.as_mut().poll(context).map(Ended::Done)
                }
            })
            .await;
            self.metrics.waited(started.elapsed());
            ended
        }
    }
}

/// How a wait has ended.
#[derive(Debug)]
pub enum Ended<T> {
    /// With what was waited for.
    Done(T),
    /// Before it began: too many wait already, and nothing was asked for or it was taken back. With 503 or 429.
    Full(Answer),
    /// Nobody is there any more to take the answer.
    Gone,
    /// The server is going.
    Going,
}

/// Names and ids as a client wrote them, in quotes and escaped; never keys.
fn log(decoded: &Decoded, answer: &Answer) {
    if decoded.id.is_none() && !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    let (kind, action, name) = match &decoded.call {
        Call::Act { action, name, .. } => (Some(action.row().kind), action.row().segment, name.as_str()),
        Call::Delete(kind, name) => (Some(*kind), "delete", name.as_str()),
        Call::Show(kind, name) => (Some(*kind), "show", name.as_str()),
        Call::List => (None, "list", ""),
    };
    let (kind, name, status) = (kind.map(Kind::segment), quoted(name), answer.status);
    if let Some(id) = &decoded.id {
        tracing::info!(kind, action, %name, id = %quoted(id), status, "answered");
    } else {
        tracing::debug!(kind, action, %name, status, "answered");
    }
}
