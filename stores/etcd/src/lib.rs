//! etcd: values under keys with versions, in one cluster for many processes.
//!
//! A write is one transaction: it compares the revision of the last change, puts the value and the messages, and finds
//! out which receivers are gone.

// The floors, from the top: a module uses only those below its own floor (tests/floors.rs).
#[cfg(test)]
mod tests;

#[cfg(feature = "_fuzz")]
#[doc(hidden)]
pub mod fuzz;

mod session;

mod clock;

mod gauge;

mod health;
mod leases;
mod watch;

mod client;

mod endpoints;

mod errors;
mod keys;
mod mails;
mod messages;
mod url;

use client::{Client, Limits, Repeat};
use clock::EtcdClock;
use endpoints::{Endpoints, Host};
use errors::{Failure, Meaning};
use futures_util::future::BoxFuture;
use keys::{Keys, end_of_prefix, successor};
use leases::Leases;
use locker_cas::{
    Backend, Basis, Draw, Epoch, Inbox, Message, Outcome, Received, Time, Version, Write, random_inbox,
    ticker::{self, Ticking},
};
use locker_core::{
    background,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    store::opening::Opening,
};
use mails::Mails;
use messages::{Compare, KeyValue, Op, Range, RangeAnswer, Txn, TxnAnswer};
use prost::bytes::Bytes;
use session::{Session, Shared, Status};
use std::{fmt, sync::Arc, time::Duration};
use tokio::sync::{oneshot, watch as state};
use url::Url;

/// A cluster as a backend.
pub struct Etcd {
    /// The URL without user, password and files, for messages.
    address: String,
    client: Arc<Client>,
    keys: Keys,
    leases: Arc<Leases>,
    clock: Arc<EtcdClock>,
    shared: Arc<Shared>,
    /// The session ends when this is dropped.
    status: state::Receiver<Status>,
    limits: Limits,
}

/// A transaction without its leases.
#[derive(Default)]
struct Draft {
    compare: Vec<Compare>,
    /// The key and the value to put, and how long the value matters. Without a time it stays under its lease.
    value: Option<(Bytes, Bytes, Option<Duration>)>,
    /// The tick that comes with it.
    tick: Option<Op>,
    /// What to put for those who listen.
    mails: Vec<(Inbox, Bytes)>,
    /// What to do if the comparison fails.
    otherwise: Vec<Op>,
}

/// Checks a URL. Nothing is asked.
///
/// # Errors
/// `Misused`, with the part of the URL that is wrong.
pub fn check_url(url: &str) -> Result<()> {
    url::read(url).map(drop)
}

impl Etcd {
    /// Opens a store, and waits for the cluster unless the options say otherwise.
    ///
    /// # Errors
    /// `Misused` for a wrong URL or option, or a store that is set up wrongly; `Unavailable`.
    pub async fn open(url: &str, opening: &Opening) -> Result<Self> {
        Self::open_drawing(Box::new(random_inbox), url, opening).await
    }

    async fn open_drawing(draw: Draw, url: &str, opening: &Opening) -> Result<Self> {
        let url = url::read(url)?;
        let limits = Limits::of(opening.network.command_timeout);
        // Reads files, so not on the background thread.
        let hosts = endpoints::prepare(&url, opening.network.tls_ca.as_deref(), limits.member * 3 / 4)?;
        background::ready()?;
        let (sender, receiver) = oneshot::channel();
        // A value may be written that much later than its lease was chosen.
        let margin = opening.network.command_timeout + Duration::from_secs(1);
        background::spawn(async move {
            drop(sender.send(Self::start(draw, &url, hosts, limits, margin)));
        });
        let ended = |_| Error::new(ErrorKind::Unavailable, "the background thread has ended");
        let store = receiver.await.map_err(ended)?;
        if !opening.lazy {
            let limit =
                if opening.timeout.is_zero() { MAX_CONNECT } else { MAX_CONNECT.min(opening.timeout) };
            // A cluster may be about to elect its leader. A host without a server is not waited for.
            let is_final =
                |failure: &Failure| failure.meaning == Meaning::Unreachable || !failure.error.is_temporary();
            store.connected(limit, is_final).await?;
        }
        Ok(store)
    }

    /// Starts the session. To be called on the background thread.
    fn start(draw: Draw, url: &Url, hosts: Vec<Host>, limits: Limits, margin: Duration) -> Self {
        let client = Arc::new(Client::new(Endpoints::new(hosts), limits, url.login.clone()));
        let leases = Arc::new(Leases::new(Arc::clone(&client), margin));
        let (keys, shared) = (Keys::new(&url.prefix), Arc::new(Shared::new(draw)));
        let (sender, status) = state::channel(Status::Connecting);
        let clock = Arc::new(EtcdClock::new(Arc::clone(&client), keys.clone(), limits));
        let session = Session {
            address: url.address(),
            client: Arc::clone(&client),
            keys: keys.clone(),
            leases: Arc::clone(&leases),
            clock: Arc::clone(&clock),
            shared: Arc::clone(&shared),
            state: session::State::default(),
        };
        background::spawn(session.keep(sender));
        Self { address: url.address(), client, keys, leases, clock, shared, status, limits }
    }

    /// Waits for the first connection. Later ones are waited for by each call.
    async fn ready(&self) -> Result<()> {
        if matches!(*self.status.borrow(), Status::Ready) {
            return Ok(());
        }
        self.connected(self.limits.call, |failure| !failure.error.is_temporary()).await
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
            Status::Connecting => self.client.trouble(),
        };
        Err(failed.map_or_else(
            || {
                let message = format!("no connection to {} within {limit:?}", self.address);
                Error::new(ErrorKind::Unavailable, message)
            },
            |failure| failure.before().error,
        ))
    }

    async fn txn(&self, by: Timestamp, request: Txn, repeat: Repeat) -> Result<TxnAnswer, Failure> {
        let answer: TxnAnswer = self.client.call_until(by, "/etcdserverpb.KV/Txn", request, repeat).await?;
        self.shared.saw(answer.revision());
        Ok(answer)
    }

    async fn write(&self, write: Write) -> Result<Outcome> {
        let sent = Timestamp::now();
        let by = sent + self.limits.call;
        self.ready().await?;
        if write.epoch.is_some_and(|epoch| epoch != self.clock.epoch()) {
            let message = "the cluster was restored from a copy, or is another one";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        let key = self.keys.key(write.key.as_str());
        let value = write.value.map(Bytes::from);
        let has_value = value.is_some();
        let left = if has_value && write.leaves { self.clock.leave(&write.basis) } else { None };
        // What is promised needs a lease of its own, however late the ends in the value seem: time may have stood
        // still.
        let lasts = (!write.only_waits).then_some(write.lasts);
        let mut mails = self.mails(write.messages);
        let mut draft = Draft {
            compare: vec![Compare::is_at(key.clone(), write.expected)],
            mails: mails.beside(key.len() * 3 + value.as_ref().map_or(0, Bytes::len)),
            value: value.map(|value| (key.clone(), value, lasts)),
            tick: left.as_ref().map(|left| left.op.clone()),
            otherwise: vec![Op::get(key), self.clock.get()],
        };
        draft.compare.extend(self.clock.compare(&write.basis));
        let repeat = if has_value || !draft.mails.is_empty() { Repeat::No } else { Repeat::Yes };
        let answer = match self.carry_out(&draft, by, repeat).await {
            Err(failure) if failure.meaning == Meaning::NoSpace => {
                return self.after_no_space(draft.compare, failure).await;
            }
            answer => answer?,
        };
        if !answer.succeeded {
            return self.differs(&answer, write.expected, &write.basis, sent).await;
        }
        if let Some(left) = left {
            self.clock.note_own(left);
        }
        let version = if has_value { answer.revision() } else { write.expected };
        let puts = usize::from(has_value) + usize::from(draft.tick.is_some());
        let mut gone = gone(&draft.mails, answer.responses.iter().skip(puts));
        if !mails.is_empty() {
            // Messages are hints: the write counts without them.
            gone.extend(self.send_all(mails).await.unwrap_or_default());
        }
        Ok(Outcome::Matched { version, gone })
    }

    /// Returns what a transaction has found that was refused.
    async fn differs(
        &self,
        answer: &TxnAnswer,
        expected: Version,
        basis: &Basis,
        sent: Timestamp,
    ) -> Result<Outcome> {
        let found = if let Some(kv) = answer.read(1) {
            Some(self.clock.refused(kv, basis, sent)?)
        } else {
            // It was deleted.
            self.clock.make().await?;
            None
        };
        Ok(answer.outcome(expected, basis, found))
    }

    /// Makes a transaction. If one of its leases is over, it was not carried out: it is made with new ones.
    async fn carry_out(&self, draft: &Draft, by: Timestamp, repeat: Repeat) -> Result<TxnAnswer, Failure> {
        let mut tries = 0;
        loop {
            let request = tokio::select! {
                biased;
                request = self.with_leases(draft) => request.map_err(Failure::before)?,
                () = background::sleep_from(Timestamp::now(), by - self.limits.member / 2) => {
                    return Err(Failure::silence(&self.address).before());
                }
            };
            match self.txn(by, request, repeat).await {
                Err(failure) if failure.meaning == Meaning::LeaseGone && tries < 2 => {
                    self.leases.forget();
                    tries += 1;
                }
                answer => return answer,
            }
        }
    }

    async fn with_leases(&self, draft: &Draft) -> Result<Txn, Failure> {
        let mut success = Vec::with_capacity(draft.mails.len() + 1);
        if let Some((key, value, lasts)) = &draft.value {
            success.push(match lasts {
                Some(lasts) => Op::put(key.clone(), value.clone(), self.leases.of_value(*lasts).await?),
                None => Op::replace(key.clone(), value.clone()),
            });
        }
        success.extend(draft.tick.clone());
        if !draft.mails.is_empty() {
            let lease = self.leases.of_messages().await?;
            let put = |(inbox, text): &(Inbox, Bytes)| {
                let compare = vec![Compare::exists(self.keys.inbox(*inbox))];
                let success = vec![Op::put(self.keys.mail(*inbox), text.clone(), lease)];
                Op::txn(Txn { compare, success, failure: Vec::new() })
            };
            success.extend(draft.mails.iter().map(put));
        }
        Ok(Txn { compare: draft.compare.clone(), success, failure: draft.otherwise.clone() })
    }

    /// Finds out whether a write was carried out in spite of the answer that there is no space: it has arrived.
    async fn after_no_space(&self, compare: Vec<Compare>, failure: Failure) -> Result<Outcome> {
        let by = Timestamp::now() + self.limits.call;
        let look = self.txn(by, Txn { compare, ..Txn::default() }, Repeat::Yes).await;
        Err(match look {
            Ok(answer) if answer.succeeded => failure.before().error,
            _ => failure.error,
        })
    }

    fn mails(&self, messages: Vec<Message>) -> Mails {
        let keys = self.keys.inbox(0).len() + self.keys.mail(0).len();
        Mails::new(messages, keys + 100)
    }

    async fn send_all(&self, mut mails: Mails) -> Result<Vec<Inbox>> {
        let mut all = Vec::new();
        while !mails.is_empty() {
            let draft = Draft { mails: mails.next(), ..Draft::default() };
            let answer = self.carry_out(&draft, Timestamp::now() + self.limits.call, Repeat::Yes).await?;
            all.extend(gone(&draft.mails, answer.responses.iter()));
        }
        Ok(all)
    }

    async fn page(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<(String, Vec<u8>)>> {
        self.ready().await?;
        let first = self.keys.key(prefix);
        let end = end_of_prefix(&first);
        let mut start = first;
        if let Some(after) = after.filter(|after| *after >= prefix) {
            start = successor(&self.keys.key(after));
        }
        let mut page = Vec::new();
        while page.len() < limit && start < end {
            let wanted = i64::try_from(limit - page.len()).unwrap_or(i64::MAX);
            let range = Range { key: start, end: end.clone(), limit: wanted, revision: 0 };
            let answer: RangeAnswer = self.client.call("/etcdserverpb.KV/Range", range, Repeat::Yes).await?;
            let last = answer.kvs.last().map(|last| successor(&last.key));
            let entry = |kv: KeyValue| Some((self.keys.text(&kv.key)?.to_owned(), kv.value));
            page.extend(answer.kvs.into_iter().filter_map(entry));
            match last {
                Some(last) if answer.more => start = last,
                _ => break,
            }
        }
        Ok(page)
    }
}

/// How long opening a store waits for the cluster at most.
const MAX_CONNECT: Duration = Duration::from_secs(5);

/// Returns the receivers whose inboxes were absent.
fn gone<'a>(batch: &[(Inbox, Bytes)], answers: impl Iterator<Item = &'a messages::OpAnswer>) -> Vec<Inbox> {
    let was_put = |answer: &messages::OpAnswer| answer.txn.as_ref().is_some_and(|txn| txn.succeeded);
    batch.iter().zip(answers).filter(|(_, answer)| !was_put(answer)).map(|((inbox, _), _)| *inbox).collect()
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Backend for Etcd {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn exchange(&self, write: Write) -> BoxFuture<'_, Result<Outcome>> {
        self.clock.clock().note_use();
        Box::pin(self.write(write))
    }

    fn send(&self, messages: Vec<Message>) -> BoxFuture<'_, Result<Vec<Inbox>>> {
        Box::pin(async move {
            self.ready().await?;
            self.send_all(self.mails(messages)).await
        })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, Vec<u8>)>>> {
        Box::pin(self.page(prefix, after, limit))
    }

    fn time(&self) -> Time {
        self.clock.clock().time().unwrap_or_else(Time::unknown)
    }

    fn settle(&self) -> BoxFuture<'_, ()> {
        Box::pin(ticker::settle(&*self.clock))
    }

    fn epoch(&self) -> Epoch {
        Epoch { id: self.clock.epoch(), quiet: None }
    }

    fn fence_floor(&self) -> u64 {
        self.shared.fence_floor()
    }

    fn reads_first(&self) -> bool {
        true
    }

    fn inbox(&self) -> Inbox {
        self.shared.inbox()
    }

    fn listen(&self, receiver: Box<dyn Fn(Received<'_>) + Send + Sync>) {
        let _ = self.shared.receiver.set(receiver);
    }

    fn max_value_len(&self) -> usize {
        1 << 20
    }
}
