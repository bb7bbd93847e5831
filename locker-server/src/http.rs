//! HTTP/1.1.

mod connection;
mod guard;
mod reply;
mod tally;
mod timer;
mod tokens;
mod unreadable;
mod wire;

use crate::{
    calls::{Answer, Decoded, Method, Sort},
    limits::{Gauge, Often},
    metrics::Via,
    openapi,
    server::{Request, Server},
};
use bytes::Bytes;
use connection::{Gone, Line, Seat};
pub use guard::Guard;
use http_body_util::{BodyExt, Limited};
use hyper::{
    body::Incoming,
    header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING},
    http::request::Parts,
};
use reply::{Reply, reply};
use std::{net::IpAddr, pin::pin, sync::Arc, time::Duration};
pub use tokens::Tokens;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
};
use tokio_util::task::TaskTracker;

/// The largest form that is read.
const MOST_BODY: usize = 8 * 1024;

/// How many connections beyond the cap are told so at a time; more are closed without a word.
pub(crate) const MOST_REFUSED: usize = 64;

/// What the HTTP side needs beyond the server itself.
#[derive(Debug)]
pub struct Http {
    /// Who is asked.
    server: Arc<Server>,
    /// Who may ask.
    guard: Guard,
    /// The most bytes of a request line with its headers.
    header_size: usize,
    /// The longest time a request may take to arrive; a connection without one is closed after it, too.
    header_timeout: Duration,
    /// Connections beyond the cap that are being told so.
    refusing: Gauge,
}

impl Http {
    /// Nothing is served yet.
    #[must_use]
    pub fn new(server: Arc<Server>, guard: Guard, header_size: usize, header_timeout: Duration) -> Self {
        Self { server, guard, header_size, header_timeout, refusing: Gauge::new(MOST_REFUSED) }
    }

    /// Serves until the server shuts down; connections with an answer on its way are served to its end.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) {
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                () = self.server.shutdown.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => self.clone().take(stream, &connections),
                Err(error) => {
                    if self.server.often.is_due(Often::NotAccepted) {
                        tracing::warn!(%error, "cannot accept a connection");
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        drop(listener);
        connections.close();
        connections.wait().await;
    }

    fn take(self: Arc<Self>, stream: TcpStream, connections: &TaskTracker) {
        let Some(seat) = Seat::take(&self) else {
            self.server.refused(Via::Http);
            if self.refusing.enter() {
                tokio::spawn(async move {
                    refuse(stream).await;
                    self.refusing.leave();
                });
            }
            return;
        };
        prepare(&stream);
        // Boxed, because a task's own size is rounded up to much more.
        connections.spawn(Box::pin(connection::serve(seat, stream)));
    }

    async fn answer(self: &Arc<Self>, request: hyper::Request<Incoming>, line: &Line) -> Result<Reply, Gone> {
        if let Some(answer) = line.take_answer() {
            return Ok(reply(answer));
        }
        let (head, body) = request.into_parts();
        let read = self.read(&head, body, line.local).await;
        // Of every request, so that no body that is still to come is taken for what the next one has brought.
        let alone = line.wire.holds_nothing_more(length(&head));
        match read {
            Ok(decoded) => {
                let (server, wire) = (self.server.clone(), line.wire.clone());
                let work =
                    async move { server.answer(Via::Http, &decoded, pin!(wire.hung_up()), None).await };
                line.wait_for(Box::pin(work), &head, alone).await
            }
            Err(answer) => Ok(reply(answer)),
        }
    }

    /// What is asked; `Err`: the answer, where nothing is to be carried out.
    async fn read(&self, head: &Parts, body: Incoming, local: IpAddr) -> Result<Decoded, Answer> {
        self.guard.check_origin(head, local).map_err(|answer| self.refused(head, answer))?;
        let path = head.uri.path();
        if let "/healthz" | "/readyz" | "/openapi.json" = path {
            return Err(self.own(&head.method, path).await);
        }
        self.guard.check_token(&head.headers).map_err(|answer| self.refused(head, answer))?;
        if path == "/metrics" {
            return Err(self.own(&head.method, path).await);
        }
        let form = self.form(head, body).await.map_err(|answer| self.refused(head, answer))?;
        let Ok(form) = std::str::from_utf8(&form) else {
            return Err(self.refused(head, Answer::bad_request("the body is not UTF-8")));
        };
        let query = head.uri.query().unwrap_or_default();
        self.server.read(Request { via: Via::Http, method: method(&head.method), path, query, form })
    }

    /// Counts an answer to what was not read as a call.
    fn refused(&self, head: &Parts, answer: Answer) -> Answer {
        let call = Sort::of(method(&head.method), head.uri.path());
        self.server.metrics.answered(Via::Http, call, &answer);
        answer
    }

    /// What is about the server and not about names.
    async fn own(&self, method: &hyper::Method, path: &str) -> Answer {
        if method != hyper::Method::GET {
            return Answer::wrong_method("GET");
        }
        match path {
            "/healthz" => Answer::text("ok"),
            "/readyz" => self.server.ready().await,
            "/metrics" => Answer::text(self.server.render_metrics()),
            _ => {
                openapi::document().map_or_else(|error| Answer::unavailable(error.to_string()), Answer::json)
            }
        }
    }

    async fn form(&self, head: &Parts, body: Incoming) -> Result<Bytes, Answer> {
        use hyper::body::Body;
        if head.method != hyper::Method::POST || body.is_end_stream() {
            return Ok(Bytes::new());
        }
        if body.size_hint().lower() > MOST_BODY as u64 {
            return Err(Answer::too_large(MOST_BODY));
        }
        let collected = Limited::new(body, MOST_BODY).collect();
        match tokio::time::timeout(self.header_timeout, collected).await {
            Ok(Ok(body)) => {
                let body = body.to_bytes();
                if body.is_empty() || is_form(head) { Ok(body) } else { Err(Answer::wrong_type()) }
            }
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                Err(Answer::too_large(MOST_BODY))
            }
            Ok(Err(_)) => Err(Answer::bad_request("the body broke off")),
            Err(_) => Err(Answer::bad_request("the body did not arrive in time")),
        }
    }
}

/// The length of the body on the wire; of one that does not tell, a length that none has.
fn length(head: &Parts) -> usize {
    match (head.headers.get(CONTENT_LENGTH), head.headers.contains_key(TRANSFER_ENCODING)) {
        (Some(length), false) => {
            length.to_str().ok().and_then(|text| text.parse().ok()).unwrap_or(usize::MAX)
        }
        (None, false) => 0,
        _ => usize::MAX,
    }
}

fn is_form(head: &Parts) -> bool {
    const FORM: &[u8] = b"application/x-www-form-urlencoded";
    let given = head.headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let essence = given.split(|&byte| byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(FORM)
}

fn method(method: &hyper::Method) -> Method {
    match *method {
        hyper::Method::GET => Method::Get,
        hyper::Method::POST => Method::Post,
        hyper::Method::DELETE => Method::Delete,
        _ => Method::Other,
    }
}

/// A peer that vanishes without a word is noticed within a minute, so that its waits end.
fn prepare(stream: &TcpStream) {
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(30))
        .with_interval(Duration::from_secs(10))
        .with_retries(3);
    let set = socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive);
    if let Err(error) = set.and(stream.set_nodelay(true)) {
        tracing::debug!(%error, "a connection cannot be prepared");
    }
}

/// Tells a client beyond the cap, and does not wait for it.
async fn refuse(mut stream: TcpStream) {
    const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nCache-Control: no-store\r\n\
        Content-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\
        Content-Length: 20\r\n\r\ntoo many connections";
    let sent = async {
        stream.write_all(FULL).await?;
        stream.shutdown().await?;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    };
    if !matches!(tokio::time::timeout(Duration::from_secs(1), sent).await, Ok(Ok(_))) {
        tracing::debug!("a client beyond the cap on connections did not take its answer");
    }
}
