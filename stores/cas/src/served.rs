//! For backends on one server that has a clock, such as a database: connections and the queues before them, bounds of
//! the server's clock, and epochs.
//!
//! The tables of such a store have a row that is gone after anything that may have lost writes, and each write needs
//! it: its number is the id of the epoch. [`StoreState`] is what else they say.

mod listening;

mod lanes;

mod jobs;
mod server;

mod epochs;
mod hosts;
mod pipeline;
mod samples;

use crate::{
    backend::{Backend, Epoch, Inbox, Message, Outcome, Received, Values, Write},
    queue::{Sender, WeakSender},
    time::Time,
};
use futures_util::future::BoxFuture;
use locker_core::{
    background,
    error::{Error, ErrorKind, Result},
    store::opening::Opening,
};
use std::{fmt, sync::Arc, time::Duration};
use tokio::sync::{oneshot, watch};

pub use epochs::{SLACK, StoreState};
pub use hosts::first_of;
pub use jobs::{Exchange, Job, List, Numbers, fail};
pub use lanes::{CONNECT_LIMIT, Driver, Lanes};
pub use listening::{Listening, keep_listening};
pub use pipeline::Distance;
pub use server::{ANSWER_LIMIT, Receiver, Server};

/// How long opening may take.
const MAX_CONNECT: Duration = Duration::from_secs(5);

/// A backend on one server.
pub struct Served<D: Driver> {
    driver: Arc<D>,
    queues: lanes::Queues,
    /// All connections end when this is dropped.
    _closed: watch::Sender<()>,
}

impl<D: Driver> Served<D> {
    /// Opens the connections, and waits for the first unless the options say otherwise. `listen` returns what hears
    /// messages and keeps the tables in order, to which a queue for its own jobs is passed.
    ///
    /// # Errors
    /// `Unavailable`, or what `listen` could not do.
    pub async fn open<L: Listening>(
        driver: Arc<D>,
        opening: &Opening,
        listen: impl FnOnce(WeakSender<Job>) -> L,
    ) -> Result<Self> {
        background::ready()?;
        let (closed, mut ended) = watch::channel(());
        let queues = lanes::start(&driver, &ended);
        let (listener, shared) = (listen(queues.quick.downgrade()), Arc::clone(&driver));
        background::spawn(async move {
            tokio::select! {
                () = keep_listening(shared.server(), listener) => {}
                _ = ended.changed() => {}
            }
        });
        let store = Self { driver, queues, _closed: closed };
        if !opening.lazy {
            store.wait(opening).await?;
        }
        Ok(store)
    }

    /// Returns what the connections share.
    #[must_use]
    pub fn driver(&self) -> &Arc<D> {
        &self.driver
    }

    /// Returns the queue before the connections for writes that wait for the disk.
    #[must_use]
    pub fn queue(&self) -> &Sender<Job> {
        &self.queues.durable
    }

    async fn wait(&self, opening: &Opening) -> Result<()> {
        let limit = if opening.timeout.is_zero() { MAX_CONNECT } else { MAX_CONNECT.min(opening.timeout) };
        let server = self.driver.server();
        tokio::select! {
            biased;
            opened = server.opened() => opened,
            () = background::sleep(limit) => Err(Error::new(
                ErrorKind::Unavailable,
                format!("no connection to {} within {limit:?}", server.address()),
            )),
        }
    }

    async fn ask<T>(&self, durable: bool, job: impl FnOnce(oneshot::Sender<Result<T>>) -> Job) -> Result<T> {
        self.driver.server().is_asked();
        self.driver.server().opened().await?;
        let queue = if durable { &self.queues.durable } else { &self.queues.quick };
        let waiting = queue.waiting();
        let (sender, answer) = oneshot::channel();
        queue.send(job(sender));
        let server = self.driver.server();
        let answer = server.in_time(answer).await;
        if answer.is_some() {
            waiting.end();
        }
        let given_up = || Err(lost(D::PRODUCT, &format!("waited {:?}", server.answer_limit())));
        answer.and_then(std::result::Result::ok).unwrap_or_else(given_up)
    }

    fn check(&self, write: &Write) -> Result<()> {
        let key = write.key.as_str();
        let misused = |message: String| Err(Error::new(ErrorKind::Misused, message).with_key(key));
        let (product, longest, largest) = (D::PRODUCT, D::MAX_KEY, self.driver.max_value_len());
        if key.len() > longest {
            return misused(format!(
                "keys on {product} have at most {longest} bytes, this one has {}",
                key.len()
            ));
        }
        if key.contains('\0') {
            return misused(format!("keys on {product} cannot contain the character NUL"));
        }
        match write.value.as_ref().map_or(0, Vec::len) {
            len if len > largest => misused(format!("the value has {len} bytes, more than {largest}")),
            _ => Ok(()),
        }
    }
}

impl<D: Driver> Backend for Served<D> {
    fn name(&self) -> &'static str {
        D::NAME
    }

    fn exchange(&self, write: Write) -> BoxFuture<'_, Result<Outcome>> {
        // Known before the caller has made its value, or at that time.
        let (removals, known) = (self.driver.server().removals(), self.driver.server().known_epoch());
        Box::pin(async move {
            self.check(&write)?;
            let (epoch, hold) = (write.epoch.unwrap_or(known.id), epochs::counted(write.holds));
            if write.value.is_some() && hold > if epoch == known.id { known.longest } else { 0 } {
                let raise = |answer| Job::Raise(epochs::rounded_up(hold), epoch, answer);
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
    ) -> BoxFuture<'a, Result<Values>> {
        let list = List {
            from: prefix.to_owned(),
            after: after.unwrap_or_default().to_owned(),
            below: end_of(prefix, D::MAX_KEY),
            limit: i64::try_from(limit).unwrap_or(i64::MAX),
        };
        Box::pin(self.ask(true, |answer| Job::List(list, answer)))
    }

    fn time(&self) -> Time {
        self.driver.server().time()
    }

    fn fence_floor(&self) -> u64 {
        self.driver.server().fence_floor()
    }

    fn fence_is_time(&self) -> bool {
        true
    }

    fn epoch(&self) -> Epoch {
        self.driver.server().epoch()
    }

    fn inbox(&self) -> Inbox {
        self.driver.server().inbox()
    }

    fn listen(&self, receiver: Box<dyn Fn(Received<'_>) + Send + Sync>) {
        // Called once.
        let _ = self.driver.server().receiver.set(receiver);
    }

    fn max_value_len(&self) -> usize {
        self.driver.max_value_len()
    }
}

impl<D: Driver> fmt::Debug for Served<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", D::PRODUCT, self.driver.server().address())
    }
}

/// Why a statement failed.
#[derive(Debug)]
pub struct Fault {
    /// What callers get.
    pub error: Error,
    /// The statement has lost a conflict with another transaction, and was not carried out.
    pub is_lost: bool,
    /// A new connection is needed.
    pub is_broken: bool,
}

/// Returns the error for a missing answer of a server of this product: the outcome is unknown.
#[must_use]
pub fn lost(product: &str, why: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("no answer from {product}: {why}")).unknown()
}

/// Returns the error of a call that has changed nothing: only the present value could not be read.
#[must_use]
pub fn certainly(error: &Error) -> Error {
    Error::new(error.kind(), error.message())
}

/// Returns a text above all texts that start with `prefix`, if none is longer than `longest`.
fn end_of(prefix: &str, longest: usize) -> String {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        // Of the order of code points, which is that of the bytes. The next one may be no letter.
        if let Some(next) = (u32::from(last) + 1..).take(0x801).find_map(char::from_u32) {
            end.push(next);
            return end;
        }
    }
    char::MAX.to_string().repeat(longest / 4 + 1)
}
