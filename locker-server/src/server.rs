//! The part of a server that all transports share: parsing, waiting within the caps, counting and logging.

use crate::{
    api::{self, Action, Answer, Call, CallKind, Method, ParsedCall, name::quoted},
    caps::{Cap, Wait, WaitCaps},
    live::Live,
    log_throttle::{LogEvent, LogThrottle},
    metrics::{Metrics, Transport},
    open_files::ConnectionCap,
    service::Service,
};
use std::{
    future::{Future, poll_fn},
    num::NonZeroU64,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long calls that do not wait may still take after the shutdown has begun.
const CALL_GRACE: Duration = Duration::from_secs(2);

/// The tasks of a server. Each returns its name. If one of them ends before the shutdown, the server ends.
pub(crate) type Tasks = JoinSet<&'static str>;

/// A running server, without its sockets.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) service: Service,
    pub(crate) waits: Arc<WaitCaps>,
    /// The cap on open HTTP connections.
    pub(crate) http_connections: ConnectionCap,
    /// The cap on established ZeroMQ connections.
    pub(crate) zmq_connections: ConnectionCap,
    /// How many connections of one ZeroMQ socket may be in their handshake.
    pub(crate) max_zmq_handshakes: usize,
    /// How many unanswered calls that do not wait one ZeroMQ connection may have.
    pub(crate) max_zmq_calls: usize,
    /// The cap on the bytes of unanswered calls of all ZeroMQ connections.
    pub(crate) zmq_bytes: Cap,
    pub(crate) log_throttle: LogThrottle,
    pub(crate) metrics: Metrics,
    /// What the page shows.
    pub(crate) live: Arc<Live>,
    /// Cancelled when the server shuts down. Waiting calls then get 503.
    pub(crate) shutdown: CancellationToken,
}

/// A request as a transport received it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) transport: Transport,
    pub(crate) method: Method,
    /// The path, still encoded.
    pub(crate) path: &'a str,
    /// The query, without the question mark.
    pub(crate) query: &'a str,
    /// The form in the body.
    pub(crate) form: &'a str,
}

/// The outcome of a wait.
#[derive(Debug)]
pub(crate) enum Outcome<T> {
    Done(T),
    /// A cap on waits is reached, and nothing was requested from a store across a network. Contains 503 or 429.
    AtCapacity(Answer),
    ClientGone,
    ShuttingDown,
}

impl Server {
    /// Parses a request.
    ///
    /// # Errors
    /// The answer to a wrong request.
    pub(crate) fn parse(&self, request: Request<'_>) -> Result<ParsedCall, Answer> {
        let Request { transport, method, path, query, form } = request;
        let parsed = api::parse(method, path, query, form).and_then(|parsed| match parsed.call {
            Call::Action { action: Action::BeginRun, .. } if transport == Transport::ZeroMq => Err(
                Answer::bad_request("begin is for HTTP, where a header tells a result from the key of a run"),
            ),
            _ => Ok(parsed),
        });
        parsed.inspect_err(|answer| self.metrics.answered(transport, CallKind::of(method, path), answer))
    }

    /// Answers a parsed request.
    ///
    /// `gone` completes when the client has disconnected. A call that may wait is then abandoned, and the result is
    /// `None`. Every other call is carried out. `unanswered` caps the calls of one client that do not wait.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped call leaves its queue and takes nothing.
    #[expect(
        clippy::manual_async_fn,
        reason = "an `async fn` would store its arguments twice in every waiter"
    )]
    pub(crate) fn answer<'a>(
        &'a self,
        transport: Transport,
        parsed: &'a ParsedCall,
        gone: Pin<&'a mut (impl Future<Output = ()> + Send)>,
        unanswered: Option<&'a Cap>,
    ) -> impl Future<Output = Option<Answer>> + Send {
        async move {
            let call = &parsed.call;
            let work = pin!(self.service.answer(call));
            if !call.may_wait() {
                let answer = match unanswered.map(Cap::permit) {
                    Some(None) => Answer::too_many_unanswered(),
                    _permit => self.finish(work).await,
                };
                return Some(self.answered(transport, parsed, answer));
            }
            // In a block, so that the outcome takes no space beside the wait.
            let without_waiting = {
                let outcome = self.wait_for(self.waits.wait_in(call.queue()), work, gone).await;
                match outcome {
                    Outcome::Done(answer) => return Some(self.answered(transport, parsed, answer)),
                    Outcome::ClientGone => {
                        self.metrics.gone(transport, call.kind());
                        return None;
                    }
                    Outcome::ShuttingDown => {
                        return Some(self.answered(transport, parsed, Answer::shutting_down()));
                    }
                    Outcome::AtCapacity(refusal) => {
                        Box::pin(self.answer_without_waiting(call, refusal, unanswered))
                    }
                }
            };
            let answer = without_waiting.await;
            Some(self.answered(transport, parsed, answer))
        }
    }

    fn answered(&self, transport: Transport, parsed: &ParsedCall, answer: Answer) -> Answer {
        self.metrics.answered(transport, Some(parsed.call.kind()), &answer);
        log(parsed, &answer);
        answer
    }

    /// Returns the metrics in the text format of Prometheus.
    pub(crate) fn render_metrics(&self) -> String {
        self.metrics.render(self.http_connections.count(), self.zmq_connections.count())
    }

    /// Counts and logs a connection beyond the cap.
    pub(crate) fn connection_refused(&self, transport: Transport) {
        self.metrics.refused(transport);
        let event = match transport {
            Transport::Http => LogEvent::HttpRefused,
            Transport::ZeroMq => LogEvent::ZmqRefused,
        };
        if self.log_throttle.is_due(event) {
            match transport {
                Transport::Http => tracing::warn!(
                    limit = self.http_connections.limit(),
                    "--max-connections is reached, or the limit on open files: further HTTP connections get 503"
                ),
                Transport::ZeroMq => tracing::warn!(
                    limit = self.zmq_connections.limit(),
                    "--max-zmq-connections is reached, or the limit on open files: further connections are closed"
                ),
            }
        }
    }

    /// Completes a call that does not wait, even if its client disconnects. Only a shutdown may end the call before
    /// the store replies.
    async fn finish(&self, mut work: Pin<&mut (impl Future<Output = Answer> + Send)>) -> Answer {
        if let Poll::Ready(answer) = futures_util::poll!(work.as_mut()) {
            return answer;
        }
        let deadline = async {
            self.shutdown.cancelled().await;
            tokio::time::sleep(CALL_GRACE).await;
        };
        tokio::select! {
            biased;
            answer = work => answer,
            () = Box::pin(deadline) => Answer::shutting_down(),
        }
    }

    /// Answers a call when a cap on waits is reached: a call that need not wait is carried out. Returns `refusal` if
    /// it would have to wait; the call has then taken nothing.
    async fn answer_without_waiting(&self, call: &Call, refusal: Answer, unanswered: Option<&Cap>) -> Answer {
        // The embedded store has already been polled once, and the call had to wait.
        if self.service.is_embedded() {
            self.service.note_refusal(call);
            return refusal;
        }
        let _permit = match unanswered.map(Cap::permit) {
            Some(None) => return Answer::too_many_unanswered(),
            permit => permit,
        };
        let answer = self.service.answer(&call.without_waiting()).await;
        if answer.status == 408 { refusal } else { answer }
    }

    /// Waits for `work` within the caps on waits.
    ///
    /// An immediate reply of the embedded store is not a wait. A call to a store across a network counts as a wait
    /// before the first request is sent, so that a refused call has requested nothing. Both futures are pinned by the
    /// caller, because futures passed by value would take their space twice.
    ///
    /// # Cancel safety
    /// As `work`.
    #[expect(
        clippy::manual_async_fn,
        reason = "an `async fn` would store its arguments twice in every waiter"
    )]
    pub(crate) fn wait_for<'a, T>(
        &'a self,
        mut wait: Wait<'a>,
        mut work: Pin<&'a mut (impl Future<Output = T> + Send)>,
        mut gone: Pin<&'a mut (impl Future<Output = ()> + Send)>,
    ) -> impl Future<Output = Outcome<T>> + Send {
        async move {
            if self.service.is_embedded()
                && let Poll::Ready(done) = futures_util::poll!(work.as_mut())
            {
                return Outcome::Done(done);
            }
            if let Err(refusal) = wait.enter() {
                return Outcome::AtCapacity(refusal);
            }
            let mut shutdown = pin!(self.shutdown.cancelled());
            poll_fn(|context| {
                if gone.as_mut().poll(context).is_ready() {
                    Poll::Ready(Outcome::ClientGone)
                } else if shutdown.as_mut().poll(context).is_ready() {
                    Poll::Ready(Outcome::ShuttingDown)
                } else {
                    work.as_mut().poll(context).map(Outcome::Done)
                }
            })
            .await
        }
    }
}

/// Logs an answer. Names and ids of clients are quoted and escaped; keys are never logged.
fn log(parsed: &ParsedCall, answer: &Answer) {
    if parsed.id.is_none() && !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    let (kind, action, name) = logged(&parsed.call);
    let (name, status) = (quoted(name), answer.status);
    if let Some(id) = &parsed.id {
        tracing::info!(kind, action, %name, id = %quoted(id), status, "answered");
    } else {
        tracing::debug!(kind, action, %name, status, "answered");
    }
}

/// Logs a change that a session of the page has made. Nothing is logged of a call that changes nothing.
pub(crate) fn log_change(session: NonZeroU64, parsed: &ParsedCall, answer: &Answer) {
    if parsed.call.kind().changes() {
        let (kind, action, name) = logged(&parsed.call);
        tracing::info!(session, kind, action, name = %quoted(name), status = answer.status, "changed by the page");
    }
}

/// Returns the kind, the action and the name of a call.
fn logged(call: &Call) -> (Option<&'static str>, &'static str, &str) {
    let (resource, action, name) = match call {
        Call::Action { action, name, .. } => {
            (Some(action.row().resource), action.row().segment, name.as_str())
        }
        Call::Delete(resource, name) => (Some(*resource), "delete", name.as_str()),
        Call::Evict(resource, name, _) => (Some(*resource), "evict", name.as_str()),
        Call::Show(resource, name) => (Some(*resource), "show", name.as_str()),
        Call::Stats(resource, name) => (Some(*resource), "stats", name.as_str()),
        Call::List(_) => (None, "list", ""),
        Call::Explain(_) => (None, "explain", ""),
    };
    (resource.map(api::Resource::segment), action, name)
}
