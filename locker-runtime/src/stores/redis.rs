//! Redis: locks across processes and machines.
//!
//! State lives in Redis and its clock decides; each request is one Lua script, the same step that
//! [`primitives`](crate::primitives) has in Rust. A hand-over is one message. See `docs/redis.md`.

mod address;
mod connection;
#[cfg(test)]
mod differential;
mod errors;
mod handoff;
mod lock;
mod outbox;
mod push_receiver;
mod rechecks;
mod runs;
mod script;
mod shared;
mod startup;

use super::opening::{Opening, RedisOptions};
use crate::{
    background,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    id::Id,
    key::Key,
    mailboxes::Mailboxes,
    primitives::{HoldRequest, IdempotencyKey, Reply, Request},
    store::{Calling, Keys, Store},
    sync::{Mutex, lock},
};
use connection::{Connector, Link};
use once_cell::sync::Lazy;
use push_receiver::Mail;
use rechecks::Rechecks;
use redis::Client;
use runs::Runs;
use script::{Answer, Invocation};
use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// One server, as one process sees it.
pub(crate) struct Redis {
    /// What may be shown of it.
    address: String,
    link: Link,
    mail: Arc<Mail>,
    runs: Runs,
    /// Whether a task looks at the runs.
    tended: AtomicBool,
    rechecks: Arc<Rechecks>,
    channel: Arc<str>,
    command_timeout: Duration,
}

/// Everybody in this process who names the same server shares one connection to it.
static OPEN: Lazy<Mutex<HashMap<Name, Weak<Redis>>>> = Lazy::new(Mutex::default);

/// A URL and how it is opened.
type Name = (String, RedisOptions);

/// Longer than anybody waits for a connection who would rather know.
const CONNECT: Duration = Duration::from_secs(5);

/// What connecting may take at least, however short the time-outs of those are who want it: a few round trips.
const LEAST: Duration = Duration::from_secs(1);

impl Redis {
    /// How long a waiter keeps its place without being heard of.
    pub(crate) const WAITER_TTL: Duration = Duration::from_secs(30);

    pub(crate) async fn open(url: &str, opening: &Opening) -> Result<Arc<Self>> {
        check_braces(&opening.prefix)?;
        let store = Self::shared(url, opening)?;
        if !opening.lazy {
            store.link.up(patience(opening)).await?;
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
        let info = address::read(url)?;
        let address = address::shown(&info);
        let client = client(info, &opening.redis)?;
        let checks =
            startup::Checks { allow_eviction: opening.redis.allow_eviction, prefix: opening.prefix.clone() };
        let channel = format!("locker:push:{}", Id::random());
        // A little less than the caller waits, so that he is told what failed; but others come after him who wait
        // longer.
        let patience = (patience(opening) * 9 / 10).max(LEAST);
        let haste = (opening.redis.command_timeout * 2).clamp(LEAST, CONNECT);
        Ok(Arc::new_cyclic(|store| {
            let mail = Arc::new(Mail::new(Weak::clone(store)));
            let connector = Connector {
                client,
                address: address.clone(),
                channel: channel.clone(),
                patience,
                haste,
                command_timeout: opening.redis.command_timeout,
                checks,
                mail: mail.clone(),
            };
            Self {
                address,
                link: Link::open(connector),
                mail,
                runs: Runs::default(),
                tended: AtomicBool::new(false),
                rechecks: Arc::default(),
                channel: channel.into(),
                command_timeout: opening.redis.command_timeout,
            }
        }))
    }

    async fn run(&self, key: &Key, request: &Request) -> Result<Reply> {
        check_braces(key.as_str())?;
        // One end for all steps of a call.
        let by = Timestamp::now() + self.limit(request);
        match request {
            Request::Lock(request) => self.lock(key, request, by).await,
            Request::Inspect => self.inspect(key, by).await,
            Request::Delete(once) => self.delete(key, *once, by).await,
            request => {
                let Some(invocation) = shared::invocation(key, request, &self.channel) else {
                    return Ok(Reply::WrongKind);
                };
                let answer = self.invoke(invocation, by).await?;
                if let Request::Semaphore(HoldRequest::Acquire { id, .. }) = request
                    && answer.is_told_twice()
                {
                    self.mail.is_told(*id, answer.number(0));
                }
                shared::reply(&answer, request)
            }
        }
    }

    /// First what it is, then how it looks.
    async fn inspect(&self, key: &Key, by: Timestamp) -> Result<Reply> {
        let answer = self.invoke(shared::kind_of(key), by).await?;
        match shared::inspect(key, answer.text()) {
            Some(invocation) => shared::reply(&self.invoke(invocation, by).await?, &Request::Inspect),
            None => shared::reply(&answer, &Request::Inspect),
        }
    }

    async fn delete(&self, key: &Key, once: IdempotencyKey, by: Timestamp) -> Result<Reply> {
        match self.inspect(key, by).await? {
            // Something may come before the late copy of a deletion that found nothing.
            Reply::Unknown if !once.retried => Ok(Reply::Unknown),
            Reply::Inspected(_) | Reply::Unknown => {
                let answer = self.invoke(shared::delete(key, once), by).await?;
                shared::reply(&answer, &Request::Delete(once))
            }
            other => Ok(other),
        }
    }

    /// Every key that starts with `prefix`, helpers left out.
    async fn scan(&self, prefix: &str) -> Result<Vec<Key>> {
        let pattern: String = prefix.chars().flat_map(escaped).chain(['*']).collect();
        let connection = self.link.up(self.command_timeout).await?;
        let (mut cursor, mut keys) = (0_u64, HashSet::new());
        loop {
            let mut command = redis::cmd("SCAN");
            command.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1000);
            let answer = connection.call(command, Timestamp::now() + self.command_timeout).await?;
            let answer = answer.map_err(|error| errors::of_call(&error))?;
            let (next, found): (u64, Vec<Vec<u8>>) =
                redis::from_redis_value(answer).map_err(|error| errors::unreadable(&error.to_string()))?;
            // Ours are texts.
            let found = found.into_iter().filter_map(|key| String::from_utf8(key).ok());
            keys.extend(found.filter(|key| !key.contains(['{', '}'])).map(|key| Key::new(&key)));
            cursor = next;
            if cursor == 0 {
                return Ok(keys.into_iter().collect());
            }
        }
    }

    async fn invoke(&self, invocation: Invocation, by: Timestamp) -> Result<Answer> {
        let connection = self.link.near(by.since(Timestamp::now())).await?;
        let invocation = Arc::new(invocation);
        match connection.run(&invocation, by).await? {
            Err(error) if errors::is_unknown_script(&error) => {
                // The server has done nothing, and may have forgotten more than scripts.
                if self.mail.knows_scripts.swap(false, Ordering::AcqRel) {
                    self.mail.resync();
                }
                Answer::of_call(Box::pin(connection.run_in_full(&invocation, by)).await?)
            }
            answer => Answer::of_call(answer),
        }
    }

    /// A renewal is given up early enough for another one within the lease.
    fn limit(&self, request: &Request) -> Duration {
        match request {
            Request::Lock(HoldRequest::Renew { lease, .. })
            | Request::Semaphore(HoldRequest::Renew { lease, .. }) => self.command_timeout.min(*lease / 3),
            _ => self.command_timeout,
        }
    }
}

fn patience(opening: &Opening) -> Duration {
    if opening.timeout.is_zero() { CONNECT } else { CONNECT.min(opening.timeout) }
}

/// Braces would take the helper keys to another slot of a cluster.
fn check_braces(key: &str) -> Result<()> {
    if key.contains(['{', '}']) {
        let message = "keys on redis cannot contain braces: choose another prefix";
        return Err(Error::new(ErrorKind::Misused, message));
    }
    Ok(())
}

#[cfg(feature = "redis-tls")]
fn client(info: redis::ConnectionInfo, options: &RedisOptions) -> Result<Client> {
    drop(rustls::crypto::ring::default_provider().install_default());
    if let Some(pem) = &options.tls_ca {
        check_authority(pem)?;
    }
    let certificates = redis::TlsCertificates { client_tls: None, root_cert: options.tls_ca.clone() };
    let client = if options.tls_ca.is_some() && matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. }) {
        Client::build_with_tls(info, certificates)
    } else {
        Client::open(info)
    };
    client.map_err(|error| Error::new(ErrorKind::Misused, error.to_string()).with_source(error))
}

#[cfg(feature = "redis-tls")]
fn check_authority(pem: &[u8]) -> Result<()> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    match CertificateDer::pem_slice_iter(pem).next() {
        Some(Ok(_)) => Ok(()),
        _ => Err(Error::new(
            ErrorKind::Misused,
            "tls_ca holds no certificate: it takes one or more in PEM form",
        )),
    }
}

#[cfg(not(feature = "redis-tls"))]
fn client(info: redis::ConnectionInfo, _options: &RedisOptions) -> Result<Client> {
    Client::open(info).map_err(|error| Error::new(ErrorKind::Misused, error.to_string()).with_source(error))
}

/// What has a meaning in patterns, made to have none.
fn escaped(letter: char) -> impl Iterator<Item = char> {
    ['\\'].into_iter().filter(move |_| "\\*?[]".contains(letter)).chain([letter])
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redis({})", self.address)
    }
}

impl Store for Redis {
    fn keys<'a>(&'a self, prefix: &'a str) -> Keys<'a> {
        Box::pin(self.scan(prefix))
    }

    fn call<'a>(&'a self, key: &'a Key, request: &'a Request) -> Calling<'a> {
        Calling::Pending(Box::pin(self.run(key, request)))
    }

    fn mailboxes(&self) -> &Mailboxes {
        &self.mail.boxes
    }

    fn outage(&self) -> Option<Error> {
        self.link.outage()
    }

    fn expected_rtt(&self) -> Duration {
        self.link.expected_rtt()
    }

    fn waiter_ttl(&self) -> Option<Duration> {
        Some(Self::WAITER_TTL)
    }
}
