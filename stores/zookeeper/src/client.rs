//! Requests to the ensemble, through the present connection of this process.

use super::{errors::Failure, link::Link};
use locker_core::{
    background,
    clock::Timestamp,
    sync::{Mutex, lock},
};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::watch;

/// The present connection, shared by all calls.
pub(super) struct Client {
    link: watch::Sender<Option<Link>>,
    /// The last transaction that this process has seen.
    pub(super) zxid: Arc<AtomicI64>,
    pub(super) limits: Limits,
    /// Why there is no connection.
    trouble: Mutex<Option<Failure>>,
    /// The smoothed time to an answer, in microseconds.
    answer_time: AtomicU64,
}

/// How long calls take at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// One call.
    pub(super) call: Duration,
    /// One server: to connect to it, or to begin a session.
    pub(super) server: Duration,
}

impl Limits {
    /// Returns limits that leave some time of `command_timeout` to the caller, who learns more from an answer of this
    /// module than from a time-out.
    pub(super) fn of(command_timeout: Duration) -> Self {
        Self { call: command_timeout * 9 / 10, server: command_timeout * 45 / 100 }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("zxid", &self.zxid).finish_non_exhaustive()
    }
}

impl Client {
    pub(super) fn new(limits: Limits) -> Self {
        let (zxid, trouble, answer_time) = Default::default();
        Self { link: watch::channel(None).0, zxid, limits, trouble, answer_time }
    }

    /// Has calls use this connection.
    pub(super) fn set_link(&self, link: Link) {
        *lock(&self.trouble) = None;
        self.link.send_replace(Some(link));
    }

    /// Has calls wait for the next connection.
    pub(super) fn clear_link(&self, trouble: Failure) -> Option<Link> {
        *lock(&self.trouble) = Some(trouble);
        self.link.send_replace(None)
    }

    pub(super) fn saw(&self, zxid: i64) {
        self.zxid.fetch_max(zxid, Ordering::AcqRel);
    }

    pub(super) fn zxid(&self) -> i64 {
        self.zxid.load(Ordering::Acquire)
    }

    /// Returns why there is no connection.
    pub(super) fn trouble(&self) -> Option<Failure> {
        lock(&self.trouble).clone()
    }

    /// Returns the connection, and waits for one almost until the time `by`.
    pub(super) async fn link(&self, by: Timestamp) -> Result<Link, Failure> {
        let mut link = self.link.subscribe();
        let is_open = |link: &Option<Link>| link.as_ref().is_some_and(Link::is_open);
        let found = tokio::select! {
            biased;
            found = link.wait_for(is_open) => found.ok().and_then(|link| link.clone()),
            () = background::sleep_from(Timestamp::now(), by - self.limits.call / 10) => None,
        };
        found.ok_or_else(|| {
            let trouble = self.trouble().map(Failure::before);
            trouble.unwrap_or_else(|| Failure::unsent("no connection to ZooKeeper"))
        })
    }

    /// Waits for an answer up to the time `by`.
    pub(super) async fn within<T>(
        &self,
        by: Timestamp,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let sent = Timestamp::now();
        let answer = tokio::select! {
            biased;
            answer = answer => answer,
            () = background::sleep_from(sent, by) => Err(Failure::unknown("no answer from ZooKeeper")),
        };
        if answer.is_ok() {
            let took = Timestamp::now().since(sent).as_micros();
            let before = u128::from(self.answer_time.load(Ordering::Relaxed));
            let smoothed = u64::try_from((7 * before + took) / 8).unwrap_or(u64::MAX);
            self.answer_time.store(smoothed, Ordering::Relaxed);
        }
        answer
    }

    /// Makes requests that may be repeated, on one connection after the other until they are answered or it is `by`.
    pub(super) async fn repeat<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        by: Timestamp,
        ask: impl Fn(Link) -> F,
    ) -> Result<T, Failure> {
        loop {
            let link = self.link(by).await?;
            let failure = match self.within(by, ask(link)).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let may_repeat = failure.is_unserved() || !failure.error.is_certain();
            if !may_repeat || Timestamp::now() + PAUSE >= by {
                return Err(failure);
            }
            background::sleep(PAUSE).await;
        }
    }

    /// Returns the smoothed time to an answer.
    pub(super) fn round_trip(&self) -> Duration {
        Duration::from_micros(self.answer_time.load(Ordering::Relaxed))
    }
}

/// How long before a request is made again: the session may be on its way to another server.
pub(super) const PAUSE: Duration = Duration::from_millis(10);
