//! PostgreSQL: values in a table, which are compared and set by single statements, and messages by `NOTIFY`.
//!
//! A store has a few connections, never one per lock: some for writes that wait for the disk, one for all others, and
//! one that hears messages and reads the server's clock. They are driven by the background thread.

// The floors, from the top: a module uses only those below its own floor (tests/floors.rs).
#[cfg(test)]
mod tests;

mod listener;

mod sweep;

mod lanes;

mod batch;
mod epoch;
mod inbox;
mod schema;

mod session;
mod shared;

mod sql;
mod url;

mod clock;
mod errors;
mod pipeline;
mod store_state;
#[cfg(feature = "tls")]
mod tls;

use batch::Exchange;
use futures_util::future::BoxFuture;
use lanes::{Job, List, Queues};
use listener::Listener;
use locker_cas::{Backend, Draw, Epoch, Inbox, Message, Outcome, Received, Time, Write, random_inbox};
use locker_core::{
    background,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    store::opening::Opening,
    sync::lock,
};
pub use schema::{grants_sql, schema_sql};
use shared::Shared;
use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::sync::{oneshot, watch};

/// The backend on one database.
pub struct Postgres {
    shared: Arc<Shared>,
    queues: Queues,
    /// All connections end when this is dropped.
    _closed: watch::Sender<()>,
}

/// The longest key: an entry of the index has at most a third of a page.
const MAX_KEY: usize = 2_000;
/// The largest value.
const MAX_VALUE: usize = 4 << 20;
/// How long opening may take.
const MAX_CONNECT: Duration = Duration::from_secs(5);

/// Checks a URL. Nothing is asked.
///
/// # Errors
/// `Misused`, with the part of the URL that is wrong.
pub fn check_url(url: &str, opening: &Opening) -> Result<()> {
    url::read(url, opening).map(drop)
}

impl Postgres {
    /// Opens a store, and waits for its connection unless the options say otherwise.
    ///
    /// # Errors
    /// `Misused` for a wrong URL or option, or a store that is set up wrongly; `Unavailable`.
    pub async fn open(url: &str, opening: &Opening) -> Result<Self> {
        Self::open_drawing(Box::new(random_inbox), url, opening).await
    }

    async fn open_drawing(draw: Draw, url: &str, opening: &Opening) -> Result<Self> {
        let target = url::read(url, opening)?;
        background::ready()?;
        // A store that is opened lazily finds out later whether it hears messages, and must poll if it does not.
        let may_poll = opening.lazy && target.listen.is_none();
        let shared = Arc::new(Shared::new(target, may_poll, draw));
        let (closed, ending) = watch::channel(());
        let queues = lanes::start(&shared, &ending);
        let listener = Listener::new(Arc::clone(&shared), queues.quick.downgrade(), !opening.lazy);
        let mut ended = ending;
        background::spawn(async move {
            tokio::select! {
                () = listener.run() => {}
                _ = ended.changed() => {}
            }
        });
        let store = Self { shared, queues, _closed: closed };
        if !opening.lazy {
            store.wait(opening).await?;
        }
        Ok(store)
    }

    async fn wait(&self, opening: &Opening) -> Result<()> {
        let limit = if opening.timeout.is_zero() { MAX_CONNECT } else { MAX_CONNECT.min(opening.timeout) };
        tokio::select! {
            biased;
            opened = self.shared.opened() => opened,
            () = background::sleep(limit) => Err(Error::new(
                ErrorKind::Unavailable,
                format!("no connection to {} within {limit:?}", self.shared.target.address),
            )),
        }
    }

    async fn ask<T>(&self, durable: bool, job: impl FnOnce(oneshot::Sender<Result<T>>) -> Job) -> Result<T> {
        self.shared.is_used.store(true, Ordering::Release);
        self.shared.opened().await?;
        let queue = if durable { &self.queues.durable } else { &self.queues.quick };
        let waiting = queue.waiting();
        let (sender, answer) = oneshot::channel();
        queue.send(job(sender));
        tokio::select! {
            biased;
            answer = answer => {
                waiting.end();
                answer.unwrap_or_else(|_| Err(lanes::given_up()))
            }
            () = background::sleep(pipeline::STATEMENT_LIMIT) => Err(lanes::given_up()),
        }
    }
}

impl Backend for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn exchange(&self, write: Write) -> BoxFuture<'_, Result<Outcome>> {
        // Known before the caller has made its value, or at that time.
        let removals = lock(&self.shared.removed).count;
        let known = *lock(&self.shared.epoch);
        Box::pin(async move {
            check(&write)?;
            let (epoch, hold) = (write.epoch.unwrap_or(known.id), store_state::counted(write.holds));
            if write.value.is_some() && hold > if epoch == known.id { known.longest } else { 0 } {
                let raise = |answer| Job::Raise(store_state::rounded_up(hold), epoch, answer);
                self.ask(true, raise).await.map_err(Error::certain)?;
            }
            let durable = write.durable && write.value.is_some();
            self.ask(durable, |answer| Job::Exchange(Exchange { write, removals, epoch, answer })).await
        })
    }

    fn send(&self, messages: Vec<Message>) -> BoxFuture<'_, Result<Vec<Inbox>>> {
        Box::pin(self.ask(false, |answer| Job::Send(messages, answer)))
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, Vec<u8>)>>> {
        let list = List {
            from: prefix.to_owned(),
            after: after.unwrap_or_default().to_owned(),
            below: end_of(prefix),
            limit: i64::try_from(limit).unwrap_or(i64::MAX),
        };
        Box::pin(self.ask(true, |answer| Job::List(list, answer)))
    }

    fn time(&self) -> Time {
        lock(&self.shared.clock).time(Timestamp::now())
    }

    fn fence_floor(&self) -> u64 {
        let removed = u64::try_from(lock(&self.shared.removed).fence).unwrap_or(0);
        // Of an unknown time, the lower bound is 0.
        removed.max(self.time().now.as_micros())
    }

    fn fence_is_time(&self) -> bool {
        true
    }

    fn epoch(&self) -> Epoch {
        lock(&self.shared.epoch).at(Timestamp::now())
    }

    fn inbox(&self) -> Inbox {
        self.shared.inbox()
    }

    fn listen(&self, receiver: Box<dyn Fn(Received<'_>) + Send + Sync>) {
        // Called once.
        let _ = self.shared.receiver.set(receiver);
    }

    fn max_value_len(&self) -> usize {
        MAX_VALUE
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Postgres({})", self.shared.target.address)
    }
}

/// Returns a text above all texts that start with `prefix`.
fn end_of(prefix: &str) -> String {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        // Of the order of code points, which is that of the bytes. The next one may be no letter.
        if let Some(next) = (u32::from(last) + 1..).take(0x801).find_map(char::from_u32) {
            end.push(next);
            return end;
        }
    }
    char::MAX.to_string().repeat(MAX_KEY / 4 + 1)
}

fn check(write: &Write) -> Result<()> {
    let key = write.key.as_str();
    let misused = |message: String| Err(Error::new(ErrorKind::Misused, message).with_key(key));
    if key.len() > MAX_KEY {
        return misused(format!(
            "keys on PostgreSQL have at most {MAX_KEY} bytes, this one has {}",
            key.len()
        ));
    }
    if key.contains('\0') {
        return misused("keys on PostgreSQL cannot contain the character NUL".into());
    }
    match write.value.as_ref().map_or(0, Vec::len) {
        len if len > MAX_VALUE => misused(format!("the value has {len} bytes, more than {MAX_VALUE}")),
        _ => Ok(()),
    }
}
