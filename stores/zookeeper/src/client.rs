//! Requests to the ensemble, through the present connection of this process.

use super::{
    connection::{Answer, Call},
    errors::{Failure, OK},
    ops::{self, Access, Data, Done, Kind, Op},
    wire::{Body, Reader, Stat},
};
use locker_core::{
    background,
    clock::Timestamp,
    error::ErrorKind,
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
use tokio::sync::{mpsc, oneshot, watch};

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

/// One connection. Requests are carried out in the order in which they are made, and those that only read see all that
/// the server knew when it answered the ones before.
#[derive(Clone, Debug)]
pub(super) struct Link {
    calls: mpsc::UnboundedSender<Call>,
    access: Access,
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
        let is_open = |link: &Option<Link>| link.as_ref().is_some_and(|link| !link.calls.is_closed());
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

impl Link {
    pub(super) fn new(access: Access) -> (Self, mpsc::UnboundedReceiver<Call>) {
        let (calls, receiver) = mpsc::unbounded_channel();
        (Self { calls, access }, receiver)
    }

    /// Makes a request. It is on its way when this returns; the answer may be dropped.
    fn ask(&self, code: i32, body: Body) -> impl Future<Output = Result<Answer, Failure>> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        let sent = self.calls.send(Call { code, body, answer });
        async move {
            sent.map_err(|_| Failure::unsent("the connection to ZooKeeper has ended"))?;
            answered.await.unwrap_or_else(|_| Err(Failure::unknown("the connection to ZooKeeper has ended")))
        }
    }

    /// Makes a request about one node, and reads its answer.
    fn ask_about<T, R: FnOnce(&mut Reader<'_>) -> Option<T> + Send>(
        &self,
        code: i32,
        path: &str,
        body: Body,
        read: R,
    ) -> impl Future<Output = Result<T, Failure>> + Send + use<T, R> {
        let (asked, path) = (self.ask(code, body), path.to_owned());
        async move {
            let answer = asked.await?;
            if answer.code != OK {
                return Err(Failure::of_code(answer.code, &path));
            }
            read(&mut Reader(&answer.body)).ok_or_else(not_readable)
        }
    }

    /// Returns the data of a node, `None` if there is none.
    pub(super) fn get(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<Option<(Vec<u8>, Stat)>, Failure>> + Send + use<> {
        let body = Body::default().text(path).flag(false);
        let got = self.ask_about(4, path, body, |reader| {
            let data = reader.bytes()?.to_vec();
            Some((data, Stat::read(reader)?))
        });
        async move { if_present(got.await) }
    }

    /// Returns what is known of a node, `None` if there is none.
    pub(super) fn exists(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<Option<Stat>, Failure>> + Send + use<> {
        let body = Body::default().text(path).flag(false);
        let got = self.ask_about(3, path, body, Stat::read);
        async move { if_present(got.await) }
    }

    /// Returns the names in a node.
    pub(super) fn children(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<Vec<String>, Failure>> + Send + use<> {
        self.ask_about(8, path, Body::default().text(path).flag(false), |reader| reader.texts())
    }

    /// Has this session hear of all changes of a node and of those in it.
    pub(super) fn watch(&self, path: &str) -> impl Future<Output = Result<(), Failure>> + Send + use<> {
        const RECURSIVE: i32 = 1;
        self.ask_about(106, path, Body::default().text(path).int(RECURSIVE), |_| Some(()))
    }

    /// Carries out one operation. Returns what is known of the node if its data was set.
    pub(super) fn carry_out(
        &self,
        op: &Op,
    ) -> impl Future<Output = Result<Option<Stat>, Failure>> + Send + use<> {
        let (body, is_set) = (op.write(Body::default(), self.access), matches!(op, Op::Set(..)));
        self.ask_about(op.code(), op.path(), body, move |reader| {
            if is_set { Stat::read(reader).map(Some) } else { Some(None) }
        })
    }

    /// Creates a node, unless it exists.
    pub(super) fn ensure(
        &self,
        path: &str,
        data: &[u8],
    ) -> impl Future<Output = Result<(), Failure>> + Send + use<> {
        let created = self.carry_out(&Op::create(path, data, Kind::Kept));
        async move {
            match created.await {
                Err(failure) if failure.meaning != super::errors::Meaning::Exists => Err(failure),
                _ => Ok(()),
            }
        }
    }

    /// Carries out all operations, or none.
    pub(super) fn multi(&self, ops: Vec<Op>) -> impl Future<Output = Result<Done, Failure>> + Send + use<> {
        const MULTI: i32 = 14;
        let asked = self.ask(MULTI, ops::request(&ops, self.access));
        async move {
            let answer = asked.await?;
            if answer.code != OK && answer.body.is_empty() {
                let path = ops.first().map_or("", Op::path);
                return Err(Failure::of_code(answer.code, path));
            }
            ops::answer(&ops, &answer.body).ok_or_else(not_readable)
        }
    }

    /// Ends the session, and so removes what is there with it.
    pub(super) fn close(&self) -> impl Future<Output = Result<Answer, Failure>> + Send + use<> {
        const CLOSE: i32 = -11;
        self.ask(CLOSE, Body::default())
    }
}

/// The answer has come: only it cannot be read.
fn not_readable() -> Failure {
    let failure = Failure::unknown("ZooKeeper has sent an answer of an unknown form");
    Failure {
        error: failure.error.with_source(Failure::refused(ErrorKind::Conflict, "unknown form").error),
        ..failure
    }
}

fn if_present<T>(got: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match got {
        Ok(found) => Ok(Some(found)),
        Err(failure) if failure.meaning == super::errors::Meaning::Absent => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Returns the data for a node.
pub(super) fn data(bytes: &[u8]) -> Data {
    bytes.into()
}
