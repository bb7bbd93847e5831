//! What a connection and the calls on it share.

use super::stream::Stream;
use crate::{api::Answer, sync::lock};
use hyper::{HeaderMap, Version, header::CONNECTION, http::request::Parts};
use std::{
    future::{Future, pending},
    net::IpAddr,
    pin::Pin,
    sync::Mutex,
    task::Poll,
};
use tokio::net::TcpStream;

/// A call in progress. It ends with `None` if its client disconnects.
pub(super) type Work = Pin<Box<dyn Future<Output = Option<Answer>> + Send>>;

/// The client disconnected while its call waited.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the client disconnected")]
pub(super) struct ClientGone;

/// The state of one connection.
#[derive(Debug)]
pub(super) struct ConnState {
    pub(super) stream: Stream,
    /// The address at which the client reached the server.
    pub(super) local: IpAddr,
    call: Mutex<CallState>,
}

/// The call that was taken out of the HTTP library.
#[derive(Default)]
enum CallState {
    #[default]
    None,
    Parked(ParkedCall),
    /// Boxed, because every connection reserves space for it and few use it.
    Answered(Box<Answer>),
}

impl std::fmt::Debug for CallState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Parked(_) => "Parked",
            Self::Answered(_) => "Answered",
        })
    }
}

/// A call that waits outside the HTTP library.
pub(super) struct ParkedCall {
    pub(super) work: Work,
    pub(super) keep_alive: bool,
}

impl ConnState {
    pub(super) fn new(stream: TcpStream, local: IpAddr, header_timeout: std::time::Duration) -> Self {
        Self { stream: Stream::new(stream, header_timeout), local, call: Mutex::default() }
    }

    /// Stores the answer to the parked call. The HTTP library gets it with its next request.
    pub(super) fn set_answer(&self, answer: Answer) {
        *lock(&self.call) = CallState::Answered(Box::new(answer));
    }

    /// Takes the answer to the call that was parked on this connection.
    pub(super) fn take_answer(&self) -> Option<Answer> {
        let mut call = lock(&self.call);
        match std::mem::take(&mut *call) {
            CallState::Answered(answer) => Some(*answer),
            other => {
                *call = other;
                None
            }
        }
    }

    /// Takes the parked call.
    pub(super) fn take_parked(&self) -> Option<ParkedCall> {
        let mut call = lock(&self.call);
        match std::mem::take(&mut *call) {
            CallState::Parked(parked) => Some(parked),
            other => {
                *call = other;
                None
            }
        }
    }

    /// Waits for a call. The call is parked if the HTTP library holds nothing else of this client (`alone`).
    pub(super) async fn wait_for(
        &self,
        mut work: Work,
        head: &Parts,
        alone: bool,
    ) -> Result<Answer, ClientGone> {
        let parkable = alone && head.version == Version::HTTP_11;
        let answer = match futures_util::poll!(work.as_mut()) {
            Poll::Ready(answer) => answer,
            Poll::Pending if parkable => {
                let keep_alive = keeps_alive(&head.headers);
                *lock(&self.call) = CallState::Parked(ParkedCall { work, keep_alive });
                pending().await
            }
            Poll::Pending => work.await,
        };
        answer.ok_or(ClientGone)
    }
}

fn keeps_alive(headers: &HeaderMap) -> bool {
    let close = |value: &[u8]| {
        value.split(|&byte| byte == b',').any(|one| one.trim_ascii().eq_ignore_ascii_case(b"close"))
    };
    !headers.get_all(CONNECTION).iter().any(|value| close(value.as_bytes()))
}
