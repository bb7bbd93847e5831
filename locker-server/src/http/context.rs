//! What the answers of all requests share.

use super::{
    access::AccessPolicy,
    response::{self, Response},
    unread::UnreadCap,
};
use crate::{
    api::{Answer, CallKind, Method},
    log_throttle::LogEvent,
    metrics::Transport,
    server::Server,
};
use http_body_util::BodyExt;
use hyper::{
    HeaderMap, Request,
    body::{Body, Bytes},
    header::CONTENT_TYPE,
};
use std::{sync::Arc, time::Duration};

/// The size limit of forms.
const MAX_BODY: usize = 8 * 1024;

const INCOMPLETE: &str = "the body is incomplete";

/// The server with the checks and limits of HTTP.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) server: Arc<Server>,
    pub(super) access: AccessPolicy,
    pub(super) header_timeout: Duration,
    pub(super) unread: Arc<UnreadCap>,
}

impl Context {
    /// Counts the bytes of the answer before other answers can be made.
    pub(super) fn respond(&self, answer: Answer) -> Response {
        match self.unread.count(&answer) {
            Ok(unread) => response::response(answer, unread),
            Err(refusal) => {
                if self.server.log_throttle.is_due(LogEvent::UnreadAnswers) {
                    tracing::warn!("--max-unread-bytes is reached: long answers are replaced by 503");
                }
                response::response(refusal, None)
            }
        }
    }

    /// Counts the answer to a request that was refused before it was parsed as a call.
    pub(super) fn refused(&self, method: &hyper::Method, path: &str, answer: Answer) -> Answer {
        let kind = CallKind::of(self::method(method), path);
        self.server.metrics.answered(Transport::Http, kind, &answer);
        answer
    }

    /// Returns the form in the body.
    ///
    /// # Errors
    /// 400, 413 or 415 with the reason; 503 if the server shuts down meanwhile.
    pub(super) async fn form<B>(&self, request: &mut Request<B>) -> Result<String, Answer>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let form = self.body(request).await?;
        if !form.is_empty() && !is_form(request.headers()) {
            return Err(Answer::wrong_type());
        }
        String::from_utf8(form).map_err(|_| Answer::bad_request("the body is not UTF-8"))
    }

    /// Checks that a deletion has no body: without its `fence`, more would be deleted than its client wants.
    ///
    /// # Errors
    /// 400 with the reason; 503 if the server shuts down meanwhile.
    pub(super) async fn no_body<B>(&self, request: &mut Request<B>) -> Result<(), Answer>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        match self.body(request).await {
            Ok(body) if body.is_empty() => Ok(()),
            Err(answer) if answer.status != 413 => Err(answer),
            _ => Err(Answer::bad_request("parameters of DELETE belong into the query: send no body")),
        }
    }

    async fn body<B>(&self, request: &mut Request<B>) -> Result<Vec<u8>, Answer>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        if request.body().is_end_stream() {
            return Ok(Vec::new());
        }
        let read = tokio::time::timeout(self.header_timeout, self.read(request.body_mut())).await;
        read.unwrap_or_else(|_| Err(Answer::bad_request("the body did not arrive within --header-timeout")))
    }

    /// Copies the body, so that the buffers of the HTTP library are free again.
    async fn read(&self, body: &mut (impl Body<Data = Bytes> + Unpin)) -> Result<Vec<u8>, Answer> {
        let (mut read, announced) = (Vec::new(), body.size_hint().lower());
        if announced > MAX_BODY as u64 {
            return Err(Answer::too_large(MAX_BODY));
        }
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else {
                let ends = self.server.shutdown.is_cancelled();
                return Err(if ends { Answer::shutting_down() } else { Answer::bad_request(INCOMPLETE) });
            };
            read.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            if read.len() > MAX_BODY {
                return Err(Answer::too_large(MAX_BODY));
            }
        }
        Ok(read)
    }
}

fn is_form(headers: &HeaderMap) -> bool {
    const FORM: &[u8] = b"application/x-www-form-urlencoded";
    let given = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let essence = given.split(|&byte| byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(FORM)
}

pub(super) fn method(method: &hyper::Method) -> Method {
    match *method {
        hyper::Method::GET => Method::Get,
        hyper::Method::POST => Method::Post,
        hyper::Method::DELETE => Method::Delete,
        _ => Method::Other,
    }
}
