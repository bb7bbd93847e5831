//! The connection that hears messages, opened again whenever it ends.

use super::{lanes::pause_unless_stable, server::Server};
use crate::backend::Received;
use locker_core::{
    background,
    backoff::Backoff,
    clock::Timestamp,
    diagnostics,
    error::{ErrorKind, Result},
};
use std::mem::{replace, take};

/// What hears messages to this process and keeps the tables in order.
pub trait Listening: Send + 'static {
    /// An open connection.
    type Session: Send;

    /// Connects, and makes what is missing.
    fn open(&mut self) -> impl Future<Output = Result<Self::Session>> + Send;

    /// Uses the connection until it ends or does not answer.
    fn serve(&mut self, session: Self::Session) -> impl Future<Output = ()> + Send;

    /// Called after it could not be opened. Does nothing by default.
    fn failed(&mut self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// Keeps a connection open. The future is dropped when the store ends.
pub async fn keep_listening(server: &Server, mut listener: impl Listening) {
    let (mut backoff, mut is_first, mut has_warned) = (Backoff::default(), true, false);
    loop {
        match listener.open().await {
            Ok(session) => {
                let since = Timestamp::now();
                server.opens();
                has_warned = false;
                if !take(&mut is_first) {
                    server.tell(Received::Gap);
                }
                listener.serve(session).await;
                backoff = pause_unless_stable(backoff, since).await;
            }
            Err(error) => {
                listener.failed().await;
                if server.is_open()
                    && error.kind() != ErrorKind::Unavailable
                    && !replace(&mut has_warned, true)
                {
                    diagnostics::warn_aloud(&format!("{} is not listened to: {error}", server.address()));
                }
                server.fails(error);
                background::sleep(backoff.next_delay()).await;
            }
        }
    }
}
