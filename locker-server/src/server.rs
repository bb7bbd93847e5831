//! What every transport shares: one way from a request to its answer.

use crate::{
    calls::{self, Answer, Call, Method, name::quoted},
    carry_out::carry_out,
    limits::{Gauge, Waits},
    metrics::{Metrics, Via},
};
use locker_runtime::Locker;
use std::{
    future::Future,
    pin::pin,
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;

/// A running server, without its sockets.
#[derive(Debug)]
pub struct Server {
    /// The store behind everything.
    pub locker: Locker,
    /// How long a sent event is remembered.
    pub event_ttl: Duration,
    /// How many names may be in use.
    pub most_names: usize,
    /// Who waits.
    pub waits: Waits,
    /// Open HTTP connections.
    pub connections: Gauge,
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
    /// Answers a request. `gone` comes back when nobody is there any more to take the answer: the call is then
    /// given up, and `None` returned.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped call leaves its queue and takes nothing.
    pub async fn answer(&self, request: Request<'_>, gone: impl Future<Output = ()>) -> Option<Answer> {
        let Request { via, method, path, query, form } = request;
        let decoded = match calls::decode(method, path, query, form) {
            Ok(decoded) => decoded,
            Err(answer) => {
                self.metrics.answered(via, None, &answer);
                return Some(answer);
            }
        };
        let answer = self.carry(&decoded.call, gone).await?;
        self.metrics.answered(via, Some(&decoded.call), &answer);
        log(&decoded, &answer);
        Some(answer)
    }

    async fn carry(&self, call: &Call, gone: impl Future<Output = ()>) -> Option<Answer> {
        let mut work = pin!(carry_out(self, call));
        if let std::task::Poll::Ready(answer) = futures_util::poll!(work.as_mut()) {
            return Some(answer);
        }
        let started = Instant::now();
        let name = if let Call::Act { name, .. } = call { name } else { "" };
        let _waiting = match self.waits.enter(name) {
            Ok(waiting) => waiting,
            Err(answer) => return Some(answer),
        };
        let answer = tokio::select! {
            biased;
            () = gone => None,
            () = self.shutdown.cancelled() => Some(Answer::shutting_down()),
            answer = work => Some(answer),
        };
        self.metrics.waited(started.elapsed());
        answer
    }
}

/// Names and ids as a client wrote them, escaped; never keys.
fn log(decoded: &calls::Decoded, answer: &Answer) {
    let (action, name) = match &decoded.call {
        Call::Act { action, name, .. } => (action.row().segment, name.as_str()),
        Call::Delete(_, name) => ("delete", name.as_str()),
        Call::Show(_, name) => ("show", name.as_str()),
        Call::List => ("list", ""),
    };
    match &decoded.id {
        Some(id) => {
            tracing::info!(action, name = quoted(name), id = quoted(id), status = answer.status, "answered");
        }
        None => tracing::debug!(action, name = quoted(name), status = answer.status, "answered"),
    }
}
