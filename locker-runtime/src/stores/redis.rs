//! Redis: locks across processes and machines.
//!
//! State lives in Redis, and the clock of the server decides. Each request is one Lua script, the same step that
//! [`primitives`](crate::primitives) has in Rust. See `docs/redis.md`.
//!
//! The floors of this folder, from the top to the ground. Each file imports only from the lines below its own:
//!
//! 1. `redis`: opens stores and dispatches requests.
//! 2. `handoff/calls`: the calls of the lock, with the hand-off inside this process.
//! 3. `handoff/runs`, `handoff/rechecks`
//! 4. `session`: the connections, mailboxes and settings of one server.
//! 5. `connection`
//! 6. `push_receiver`, `pipeline`, `handshake`
//! 7. `pipeline/writer`
//! 8. `pipeline/queue`, `codec/lock`, `codec/primitives`
//! 9. `script`, with the files in `lua/`
//! 10. `errors`, `url`, `client`
//!
//! The files in `differential/` are tests and are above all others: `bugs` and `batches`, then `comparison`, then
//! `requests`.

mod client;
mod codec;
mod connection;
#[cfg(test)]
mod differential;
mod errors;
mod handoff;
mod handshake;
mod pipeline;
mod push_receiver;
mod script;
mod session;
#[cfg(test)]
mod tests;
mod url;

use super::opening::{Opening, RedisOptions};
use crate::{
    background,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    key::Key,
    mailboxes::Mailboxes,
    primitives::{HoldRequest, IdempotencyKey, Reply, Request},
    store::{Calling, Keys, Store},
    sync::{Mutex, lock},
};
use codec::{
    lock::{Grant, Run},
    primitives,
};
use handoff::calls::{Handoff, HasHandoff};
use once_cell::sync::Lazy;
use push_receiver::RunMessages;
use session::{Session, connect_timeout};
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

/// The store on one server.
pub(crate) struct Redis {
    /// The address without user and password, for messages.
    address: String,
    session: Arc<Session>,
    handoff: Handoff,
}

/// The open stores. All lockers of this process with the same URL and options share one.
static OPEN: Lazy<Mutex<HashMap<Name, Weak<Redis>>>> = Lazy::new(Mutex::default);

/// A URL and its options.
type Name = (String, RedisOptions);

impl Redis {
    /// Opens a store, and waits for its connection unless the options say otherwise.
    pub(crate) async fn open(url: &str, opening: &Opening) -> Result<Arc<Self>> {
        check_braces(&opening.prefix)?;
        let store = Self::shared(url, opening)?;
        if !opening.lazy {
            store.session.connection.main(connect_timeout(opening)).await?;
        }
        Ok(store)
    }

    fn shared(url: &str, opening: &Opening) -> Result<Arc<Self>> {
        let mut open = lock(&OPEN);
        let name = (url.to_owned(), opening.redis.clone());
        if let Some(store) = open.get(&name).and_then(Weak::upgrade) {
            return Ok(store);
        }
        background::ready()?;
        let store = Self::new(url, opening)?;
        open.retain(|_, store| store.strong_count() > 0);
        open.insert(name, Arc::downgrade(&store));
        Ok(store)
    }

    fn new(url: &str, opening: &Opening) -> Result<Arc<Self>> {
        let info = url::read(url)?;
        let address = url::redacted(&info);
        let client = client::client(info, &opening.redis)?;
        Ok(Arc::new_cyclic(|store: &Weak<Self>| {
            let session = Arc::new(Session::start(client, address.clone(), opening, store.clone()));
            let handoff = Handoff::new(Arc::clone(&session), store.clone());
            Self { address, session, handoff }
        }))
    }

    async fn run(&self, key: &Key, request: &Request) -> Result<Reply> {
        check_braces(key.as_str())?;
        // One deadline for all steps of a call.
        let by = Timestamp::now() + self.timeout(request);
        match request {
            Request::Lock(request) => self.handoff.call(key, request, by).await,
            Request::Inspect => self.inspect(key, by).await,
            Request::Delete(once) => self.delete(key, *once, by).await,
            request => {
                let Some(invocation) = primitives::invocation(key, request, &self.session.channel) else {
                    return Ok(Reply::WrongKind);
                };
                let reply = self.session.invoke(invocation, by).await?;
                if let Request::Semaphore(HoldRequest::Acquire { id, .. }) = request
                    && reply.repeats_message()
                {
                    self.session.receiver.record_grant(*id, reply.number(0));
                }
                primitives::reply(&reply, request)
            }
        }
    }

    /// Reads the kind of a key, then its state.
    async fn inspect(&self, key: &Key, by: Timestamp) -> Result<Reply> {
        let kind = self.session.invoke(primitives::kind_of(key), by).await?;
        match primitives::inspect(key, kind.text()) {
            Some(invocation) => {
                primitives::reply(&self.session.invoke(invocation, by).await?, &Request::Inspect)
            }
            None => primitives::reply(&kind, &Request::Inspect),
        }
    }

    async fn delete(&self, key: &Key, once: IdempotencyKey, by: Timestamp) -> Result<Reply> {
        match self.inspect(key, by).await? {
            // A retry continues, so that the server refuses late copies of the deletion.
            Reply::Unknown if !once.retried => Ok(Reply::Unknown),
            Reply::Inspected(_) | Reply::Unknown => {
                let reply = self.session.invoke(primitives::delete(key, once), by).await?;
                primitives::reply(&reply, &Request::Delete(once))
            }
            other => Ok(other),
        }
    }

    /// Returns the timeout of a call. A renewal ends early enough for another one within the lease.
    fn timeout(&self, request: &Request) -> Duration {
        let timeout = self.session.command_timeout;
        match request {
            Request::Lock(HoldRequest::Renew { lease, .. })
            | Request::Semaphore(HoldRequest::Renew { lease, .. }) => timeout.min(*lease / 3),
            _ => timeout,
        }
    }
}

/// Refuses keys with braces, which would move the helper keys to another slot of a cluster.
fn check_braces(key: &str) -> Result<()> {
    if key.contains(['{', '}']) {
        let message = "keys on redis cannot contain braces: choose another prefix";
        return Err(Error::new(ErrorKind::Misused, message));
    }
    Ok(())
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redis({})", self.address)
    }
}

impl Store for Redis {
    fn keys<'a>(&'a self, prefix: &'a str) -> Keys<'a> {
        Box::pin(self.session.scan(prefix))
    }

    fn call<'a>(&'a self, key: &'a Key, request: &'a Request) -> Calling<'a> {
        Calling::Pending(Box::pin(self.run(key, request)))
    }

    fn mailboxes(&self) -> &Mailboxes {
        self.session.mailboxes()
    }

    fn outage(&self) -> Option<Error> {
        self.session.connection.outage()
    }

    fn expected_rtt(&self) -> Duration {
        self.session.connection.expected_rtt()
    }

    fn waiter_ttl(&self) -> Option<Duration> {
        Some(script::WAITER_TTL)
    }
}

impl HasHandoff for Redis {
    fn handoff(&self) -> &Handoff {
        &self.handoff
    }
}

impl RunMessages for Redis {
    fn run_granted(&self, key: &Key, run: &Run) {
        self.handoff.begin(key, run);
    }

    fn run_lost(&self, key: &Key, grant: Grant) {
        self.handoff.abandon(key, grant);
    }

    fn run_deleted(&self, key: &Key, grant: Grant) -> bool {
        self.handoff.delete(key, grant)
    }
}
