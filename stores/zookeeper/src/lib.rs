//! ZooKeeper: values in nodes with versions, in one ensemble for many processes.
//!
//! A write is one transaction: it checks that no value was inserted into the bucket, sets the value at its data
//! version, puts the messages, and finds out which receivers are gone.

// The floors, from the top: a module uses only those below its own floor (tests/floors.rs).
#[cfg(test)]
mod tests;

#[cfg(feature = "_fuzz")]
#[doc(hidden)]
pub mod fuzz;

mod session;

mod announce;
mod sweep;

mod remover;

mod exchange;

mod clock;
mod draft;
mod removal;

mod client;
mod list;

mod link;
mod mails;

mod handshake;
mod health;

mod connection;

mod hosts;
mod stored;

#[cfg(not(feature = "tls"))]
mod plain;
#[cfg(feature = "tls")]
mod tls;

mod stream;

mod gauge;
mod known;
mod ops;
mod shared;
mod url;

mod errors;
mod keys;
mod wire;

use client::{Client, Limits};
use clock::ZkClock;
use errors::{Failure, Meaning};
use exchange::{Exchange, MAX_VALUE};
use futures_util::future::BoxFuture;
#[doc(hidden)]
pub use health::loses_writes;
use hosts::Servers;
use keys::Keys;
use locker_cas::{
    Backend, Draw, Epoch, Inbox, Message, Outcome, Received, Time, Values, Write, random_inbox,
    ticker::{self, Ticking},
};
use locker_core::{
    background,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    store::opening::Opening,
};
use session::{Session, Status};
use shared::Shared;
use std::{fmt, sync::Arc, time::Duration};
use tokio::sync::{oneshot, watch};
use url::Url;

/// An ensemble as a backend.
pub struct Zookeeper {
    /// The URL without user, password and files, for messages.
    address: String,
    exchange: Arc<Exchange>,
    /// The session ends when this is dropped.
    status: watch::Receiver<Status>,
}

/// How long opening a store waits for the ensemble at most.
const MAX_CONNECT: Duration = Duration::from_secs(5);

/// How much longer than a page a list takes at most: it asks for the names of all values.
const LIST_FACTOR: u32 = 10;

/// Checks a URL. Nothing is asked.
///
/// # Errors
/// `Misused`, with the part of the URL that is wrong.
pub fn check_url(url: &str) -> Result<()> {
    url::read(url).map(drop)
}

impl Zookeeper {
    /// Opens a store, and waits for the ensemble unless the options say otherwise.
    ///
    /// # Errors
    /// `Misused` for a wrong URL or option, or a store that is set up wrongly; `Unavailable`.
    pub async fn open(url: &str, opening: &Opening) -> Result<Self> {
        Self::open_drawing(Box::new(random_inbox), url, opening).await
    }

    async fn open_drawing(draw: Draw, url: &str, opening: &Opening) -> Result<Self> {
        let mut url = url::read(url)?;
        let limits = Limits::of(opening.network.command_timeout);
        let address = url.address();
        // Reads files, so not on the background thread.
        let servers = Servers::new(&mut url, opening.network.tls_ca.as_deref())?;
        background::ready()?;
        let (sender, receiver) = oneshot::channel();
        // A value may be written that much later than it was decided on.
        let margin = opening.network.command_timeout + Duration::from_secs(1);
        background::spawn(async move {
            drop(sender.send(Self::start(draw, address, url, servers, limits, margin)));
        });
        let ended = |_| Error::new(ErrorKind::Unavailable, "the background thread has ended");
        let store = receiver.await.map_err(ended)?;
        if !opening.lazy {
            let limit =
                if opening.timeout.is_zero() { MAX_CONNECT } else { MAX_CONNECT.min(opening.timeout) };
            // An ensemble may be about to elect its leader, and is waited for, unless no host has a server.
            let is_final =
                |failure: &Failure| failure.meaning == Meaning::Unreachable || !failure.error.is_temporary();
            store.connected(limit, is_final).await?;
        }
        Ok(store)
    }

    /// Starts the session. To be called on the background thread.
    fn start(
        draw: Draw,
        address: String,
        url: Url,
        servers: Servers,
        limits: Limits,
        margin: Duration,
    ) -> Self {
        let client = Arc::new(Client::new(limits));
        let (keys, shared) = (Keys::new(&url.root), Arc::new(Shared::new(draw)));
        let clock = Arc::new(ZkClock::new(Arc::clone(&client), keys.clone(), Arc::clone(&shared)));
        let exchange = Arc::new(Exchange::new(client, keys, clock, shared, margin));
        let (sender, status) = watch::channel(Status::Connecting);
        let state = announce::State::default();
        let session = Session { exchange: Arc::clone(&exchange), servers, login: url.login, state };
        background::spawn(session.keep(sender));
        Self { address, exchange, status }
    }

    /// Waits for the first connection. Later ones are waited for by each call.
    async fn ready(&self) -> Result<()> {
        if matches!(*self.status.borrow(), Status::Ready) {
            return Ok(());
        }
        let limit = self.exchange.client.limits.call;
        self.connected(limit, |failure| !failure.error.is_temporary()).await
    }

    /// Waits up to `limit` for the first connection, or for a failure that is final.
    async fn connected(&self, limit: Duration, is_final: impl Fn(&Failure) -> bool) -> Result<()> {
        let mut status = self.status.clone();
        let decided = status.wait_for(|status| match status {
            Status::Ready => true,
            Status::Connecting => false,
            Status::Failed(failure) => is_final(failure),
        });
        let state = tokio::select! {
            biased;
            state = decided => state.map_or(Status::Connecting, |state| state.clone()),
            () = background::sleep(limit) => self.status.borrow().clone(),
        };
        // This call was not sent, whatever became of those of the session.
        let failed = match state {
            Status::Ready => return Ok(()),
            Status::Failed(failure) => Some(failure),
            Status::Connecting => self.exchange.client.trouble(),
        };
        Err(failed.map_or_else(
            || {
                let message = format!("no connection to {} within {limit:?}", self.address);
                Error::new(ErrorKind::Unavailable, message)
            },
            |failure| failure.before().error,
        ))
    }

    async fn page(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Values> {
        self.ready().await?;
        let (client, keys) = (&self.exchange.client, &self.exchange.keys);
        let by = Timestamp::now() + LIST_FACTOR * client.limits.call;
        let asked =
            client.repeat(by, |link| async move { list::page(&link, keys, prefix, after, limit).await });
        Ok(asked.await?)
    }
}

impl fmt::Debug for Zookeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zookeeper").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Backend for Zookeeper {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    fn exchange(&self, write: Write) -> BoxFuture<'_, Result<Outcome>> {
        self.exchange.clock.clock().note_use();
        Box::pin(async move {
            self.ready().await?;
            self.exchange.carry_out(write).await
        })
    }

    fn send(&self, messages: Vec<Message>) -> BoxFuture<'_, Result<Vec<Inbox>>> {
        Box::pin(async move {
            self.ready().await?;
            self.exchange.send(messages).await
        })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Values>> {
        Box::pin(self.page(prefix, after, limit))
    }

    fn time(&self) -> Time {
        self.exchange.clock.clock().time().unwrap_or_else(Time::unknown)
    }

    fn settle(&self) -> BoxFuture<'_, ()> {
        Box::pin(ticker::settle(&*self.exchange.clock))
    }

    fn epoch(&self) -> Epoch {
        Epoch { id: self.exchange.shared.epoch(), quiet: None }
    }

    fn fence_floor(&self) -> u64 {
        self.exchange.shared.fence_floor(self.exchange.client.zxid())
    }

    fn reads_first(&self) -> bool {
        true
    }

    fn inbox(&self) -> Inbox {
        self.exchange.shared.inbox()
    }

    fn listen(&self, receiver: Box<dyn Fn(Received<'_>) + Send + Sync>) {
        let _ = self.exchange.shared.receiver.set(receiver);
    }

    fn max_value_len(&self) -> usize {
        MAX_VALUE
    }
}
