//! Redis: locks across processes and machines.
//!
//! State lives in Redis, and the clock of the server decides. Each request is one Lua script, the same step that
//! [`primitives`](locker_core::primitives) has in Rust. See `docs/reference/redis.md`.

// The floors, from the top: a module uses only those below its own floor (tests/floors.rs).
#[cfg(test)]
mod tests;

#[cfg(feature = "_fuzz")]
#[doc(hidden)]
pub mod fuzz;

mod catalog;
mod handoff;

mod session;

mod router;

mod cluster;

mod connection;

#[cfg(test)]
mod differential;
mod handshake;

mod pipeline;
mod push_receiver;

mod codec;
mod discovery;

mod script;
mod sentinel;

mod records;
mod server;
mod strict;
mod topology;

mod errors;
mod resolver;
mod slots;
mod url;
mod watchers;

use codec::{
    lock::{Grant, Run},
    primitives,
};
use handoff::calls::{Handoff, HasHandoff};
use locker_core::{
    background,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    key::Key,
    mailboxes::Mailboxes,
    primitives::{HoldRequest, IdempotencyKey, Reply, Request, Signal, record},
    process::PerProcess,
    store::{
        Answering, Calling, Description, KeyPage, Store,
        opening::{NetworkOptions, Opening},
        url::StoreUrl,
    },
    sync::{Mutex, lock},
};
use push_receiver::RunMessages;
use router::Origin;
use session::{Session, connect_timeout};
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};
use url::{Options, without_options};

/// The store on one server at a time, or on a cluster.
pub struct Redis {
    /// The address without user and password, for messages.
    address: String,
    session: Arc<Session>,
    handoff: Handoff,
}

/// The open stores. All lockers of this process with the same URL and options share one.
static OPEN: PerProcess<Mutex<HashMap<Name, Weak<Redis>>>> = PerProcess::new();

/// A URL without its options, these options, those of all networks, and the prefix, which is in the keys of records.
type Name = (String, Options, NetworkOptions, String);

impl Redis {
    /// Opens a store, and waits for its connection unless the options say otherwise.
    ///
    /// # Errors
    /// `Misused` for a wrong URL or option, or a store that is set up wrongly; `Unavailable`.
    pub async fn open(url: &str, opening: &Opening) -> Result<Arc<Self>> {
        let store = Self::shared(url, opening)?;
        if !opening.lazy {
            store.session.router.ready(connect_timeout(opening)).await?;
        }
        Ok(store)
    }

    fn shared(url: &str, opening: &Opening) -> Result<Arc<Self>> {
        let (parts, options) = read(url, opening)?;
        let mut open = lock(OPEN.cell().get_or_init(Mutex::default));
        let name = (without_options(url), options, opening.network.clone(), opening.prefix.clone());
        if let Some(store) = open.get(&name).and_then(Weak::upgrade) {
            return Ok(store);
        }
        background::ready()?;
        let store = Self::new(Origin::new(&parts, &opening.network)?, options, opening);
        open.retain(|_, store| store.strong_count() > 0);
        open.insert(name, Arc::downgrade(&store));
        Ok(store)
    }

    fn new(origin: Origin, options: Options, opening: &Opening) -> Arc<Self> {
        let address = origin.address();
        Arc::new_cyclic(|store: &Weak<Self>| {
            let session = Arc::new(Session::start(origin, options, opening, store.clone()));
            let handoff = Handoff::new(Arc::clone(&session), store.clone());
            Self { address, session, handoff }
        })
    }

    async fn execute(&self, key: &Key, request: &Request) -> Result<Reply> {
        check_braces(key.as_str())?;
        if let Some(strict) = self.session.settings.strict {
            strict.check(request)?;
        }
        // One deadline for all steps of a call.
        let by = Timestamp::now() + self.timeout(request);
        match request {
            Request::Lock(request) => self.handoff.call(key, request, by).await,
            Request::Inspect => Box::pin(self.inspect(key, by)).await,
            Request::Delete(once) => Box::pin(self.delete(key, *once, by)).await,
            request => {
                let Some(invocation) = primitives::invocation(key, request, &self.session.channel) else {
                    return Ok(Reply::WrongKind);
                };
                let watchers = &self.session.receiver.watchers;
                let waiter = watchers.before(key, request);
                let reply = match self.session.invoke(invocation, by).await {
                    Ok(reply) => {
                        if let Request::Semaphore(_) = request {
                            self.handoff.go_on_after(&reply, key, primitives::removal);
                        }
                        primitives::reply(&reply, request)
                    }
                    Err(error) => Err(error),
                };
                if let Some(waiter) = waiter {
                    watchers.after(key, waiter, &reply);
                }
                reply
            }
        }
    }

    /// Reads the kind of a key, with the waiters of a semaphore as of then, and then its state.
    async fn inspect(&self, key: &Key, by: Timestamp) -> Result<Reply> {
        let kind = self.session.invoke(primitives::kind_of(key), by).await?;
        let Some(invocation) = primitives::inspect(key, primitives::before_waiters(kind.text())) else {
            return primitives::reply(&kind, &Request::Inspect);
        };
        let mut reply = primitives::reply(&self.session.invoke(invocation, by).await?, &Request::Inspect)?;
        if let Reply::Inspected(seen) = &mut reply {
            seen.waiters = primitives::waiters(kind.text());
        }
        Ok(reply)
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
            | Request::Semaphore(HoldRequest::Renew { lease, .. })
            | Request::Record(record::Request::Hold(HoldRequest::Renew { lease, .. })) => {
                timeout.min(*lease / 3)
            }
            _ => timeout,
        }
    }
}

/// Checks a URL and its options. Nothing is asked.
///
/// # Errors
/// `Misused`, with the part of the URL that is wrong.
pub fn check_url(url: &str, opening: &Opening) -> Result<()> {
    let (url, _) = read(url, opening)?;
    Origin::new(&url, &opening.network).map(drop)
}

fn read(url: &str, opening: &Opening) -> Result<(StoreUrl, Options)> {
    check_braces(&opening.prefix)?;
    let url = url::read(url)?;
    let options = Options::of(&url, opening.network.command_timeout)?;
    Ok((url, options))
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
    fn page<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Answering<'a, KeyPage> {
        Box::pin(catalog::page(&self.session, prefix, after, limit))
    }

    fn describe<'a>(&'a self, prefix: &'a str, descriptions: &'a [Description]) -> Answering<'a, ()> {
        Box::pin(catalog::describe(&self.session, prefix, descriptions))
    }

    fn descriptions<'a>(
        &'a self,
        prefix: &'a str,
        subjects: &'a [String],
    ) -> Answering<'a, Vec<Option<String>>> {
        Box::pin(catalog::descriptions(&self.session, prefix, subjects))
    }

    fn call<'a>(&'a self, key: &'a Key, request: &'a Request) -> Calling<'a> {
        Calling::Pending(Box::pin(self.execute(key, request)))
    }

    fn mailboxes(&self) -> &Mailboxes {
        self.session.mailboxes()
    }

    fn outage(&self, key: &Key) -> Option<Error> {
        self.session.router.outage(key.as_str())
    }

    fn has_replied_since(&self, key: &Key, time: Timestamp) -> bool {
        self.session.router.link_of(key.as_str()).is_some_and(|link| link.has_replied_since(time))
    }

    fn expected_rtt(&self, key: &Key) -> Duration {
        self.session.router.link_of(key.as_str()).map_or(Duration::ZERO, |link| link.expected_rtt())
    }

    fn waiter_ttl(&self) -> Option<Duration> {
        Some(script::WAITER_TTL)
    }

    fn fence_is_time(&self) -> bool {
        true
    }

    fn longest_lease(&self) -> Duration {
        self.session.settings.strict.map_or(Duration::MAX, |strict| strict.longest)
    }

    fn name(&self) -> &'static str {
        "redis"
    }
}

impl HasHandoff for Redis {
    fn handoff(&self) -> &Handoff {
        &self.handoff
    }
}

impl RunMessages for Redis {
    fn run_granted(&self, key: &Key, run: &Run) {
        self.handoff.told_of(key, run);
    }

    fn run_lost(&self, key: &Key, grant: Grant) {
        self.handoff.doubt_run(key, grant, Signal::Wake);
    }

    fn runs_doubted(&self) {
        self.handoff.doubt();
    }

    fn run_deleted(&self, key: &Key, grant: Grant) -> bool {
        self.handoff.doubt_run(key, grant, Signal::Deleted)
    }
}
