//! The connections for writes, and the queues before them.

use super::{
    jobs::{Exchange, Job},
    pipeline::{Answer, Distance, Pipeline},
    server::{Server, within},
};
use crate::queue::{Call, Receiver, Sender, queue};
use locker_core::{
    background,
    backoff::Backoff,
    clock::Timestamp,
    error::{Error, Result},
};
use std::{
    collections::{HashSet, VecDeque},
    fmt, iter,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::watch;

/// What a server needs of its own: how to connect, and the statements.
pub trait Driver: fmt::Debug + Send + Sync + 'static {
    /// An open connection. It ends when it is dropped.
    type Session: Send + Sync + 'static;
    /// The kind of store, as [`Backend::name`](crate::Backend::name) returns it.
    const NAME: &'static str;
    /// The name of the kind of server, for messages.
    const PRODUCT: &'static str;
    /// The maximum of bytes of a key.
    const MAX_KEY: usize;

    /// Returns what is known of the server.
    fn server(&self) -> &Server;

    /// Returns how many connections there are.
    fn lanes(&self) -> Lanes;

    /// Returns the maximum of bytes of a value.
    fn max_value_len(&self) -> usize;

    /// Connects, within [`CONNECT_LIMIT`].
    fn connect(&self) -> impl Future<Output = Result<Self::Session>> + Send;

    /// Does the jobs of one batch: exchanges of different keys, or one other job. Returns whether the connection is
    /// still good.
    fn do_jobs(
        this: Arc<Self>,
        session: Arc<Self::Session>,
        durable: bool,
        jobs: Vec<Job>,
    ) -> impl Future<Output = bool> + Send;

    /// Returns whether the connection has ended: nothing can be sent.
    fn is_closed(session: &Self::Session) -> bool;

    /// Waits for the end of the connection. May never return, if that is not noticed.
    fn ended(session: &Self::Session) -> impl Future<Output = ()> + Send;

    /// Returns how far the server is, if batches may be sent before it has answered. Default: they may not.
    fn distance(&self, session: &Self::Session) -> Option<Distance> {
        let _ = session;
        None
    }
}

/// The numbers of connections.
#[derive(Clone, Copy, Debug)]
pub struct Lanes {
    /// For writes that wait for the disk, and all else if there are no others.
    pub durable: usize,
    /// For what need not survive a crash.
    pub quick: usize,
}

/// The queues before the connections.
pub(super) struct Queues {
    pub(super) durable: Sender<Job>,
    pub(super) quick: Sender<Job>,
}

/// How many connections of a lane may be left to statements that hang.
const MAX_STUCK: usize = 1;
/// How long a connection may take.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// The maximum of exchanges in one statement.
const MAX_BATCH: usize = 64;
/// The maximum of bytes of values in one statement, unless a single value is larger.
const MAX_BYTES: usize = 1 << 20;

/// Opens the connections. They end when `closed` does, or the queues.
pub(super) fn start<D: Driver>(driver: &Arc<D>, closed: &watch::Receiver<()>) -> Queues {
    let Lanes { durable, quick } = driver.lanes();
    let durable = start_some(driver, true, durable, closed);
    let quick = if quick == 0 { durable.clone() } else { start_some(driver, false, quick, closed) };
    Queues { durable, quick }
}

fn start_some<D: Driver>(
    driver: &Arc<D>,
    durable: bool,
    count: usize,
    closed: &watch::Receiver<()>,
) -> Sender<Job> {
    let (sender, jobs) = queue();
    let open = Arc::<AtomicUsize>::default();
    for _ in 0..count {
        let (driver, jobs, open) = (Arc::clone(driver), jobs.clone(), Arc::clone(&open));
        let suspicions = driver.server().suspicions();
        let (waiting, stuck) = (VecDeque::new(), Arc::default());
        let lane = Lane { driver, durable, jobs, waiting, open, stuck, suspicions };
        let mut closed = closed.clone();
        background::spawn(async move {
            tokio::select! {
                () = lane.run() => {}
                _ = closed.changed() => {}
            }
        });
    }
    sender
}

/// One connection, opened again whenever it ends.
struct Lane<D> {
    driver: Arc<D>,
    durable: bool,
    jobs: Receiver<Job>,
    /// Jobs that were taken from the queue and do not fit into the last batch.
    waiting: VecDeque<Job>,
    /// The number of its kind that are open.
    open: Arc<AtomicUsize>,
    /// The number of connections that were given up although their server may still be busy with a statement.
    stuck: Arc<AtomicUsize>,
    suspicions: watch::Receiver<u64>,
}

/// Why a connection is used no more.
enum End {
    /// The store has ended.
    Store,
    /// The connection has ended, or does not answer.
    Connection,
    /// Another connection was silent, so this one may be dead, too.
    Suspicion,
}

/// An open connection that is counted.
struct Open<S> {
    session: Arc<S>,
    since: Timestamp,
    count: Arc<AtomicUsize>,
}

impl<S> Open<S> {
    fn new(session: S, count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self { session: Arc::new(session), since: Timestamp::now(), count: Arc::clone(count) }
    }
}

impl<S> Drop for Open<S> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<D: Driver> Lane<D> {
    async fn run(mut self) {
        let (mut backoff, mut suspected) = (Backoff::default(), None);
        loop {
            self.suspicions.mark_unchanged();
            let open = match self.replace(suspected.take()).await {
                Ok(open) => open,
                Err(error) => {
                    self.refuse(&error);
                    background::sleep(backoff.next_delay()).await;
                    continue;
                }
            };
            match self.serve(&open).await {
                End::Store => return,
                End::Suspicion => suspected = Some(open),
                End::Connection => {
                    let since = open.since;
                    drop(open);
                    backoff = pause_unless_stable(backoff, since).await;
                }
            }
        }
    }

    /// Connects. A connection that is only suspected is better than none: the server may be slow, or have no
    /// connections to spare.
    async fn replace(&self, suspected: Option<Open<D::Session>>) -> Result<Open<D::Session>> {
        let connecting = self.driver.connect();
        let session = match suspected {
            None => connecting.await?,
            Some(open) => match within(self.driver.server().answer_limit() / 3, connecting).await {
                Some(Ok(session)) => session,
                Some(Err(_)) | None => return Ok(open),
            },
        };
        Ok(Open::new(session, &self.open))
    }

    /// Answers what is waiting, if no connection is open.
    fn refuse(&mut self, error: &Error) {
        let mut refused: Vec<_> = self.waiting.drain(..).collect();
        if self.open.load(Ordering::Acquire) == 0 {
            refused.extend(iter::from_fn(|| self.jobs.try_recv()));
        }
        let error = error.clone().unsent();
        for job in refused {
            job.fail(&error);
        }
    }

    /// Does jobs until the connection is used no more.
    async fn serve(&mut self, open: &Open<D::Session>) -> End {
        let (mut pipeline, session) = (Pipeline::default(), &open.session);
        // The other connections are replaced before the callers ask again.
        let limit = self.driver.server().answer_limit() * 5 / 6;
        let mut suspicions = self.suspicions.clone();
        let end = loop {
            let pause = pipeline.pause(|| self.driver.distance(session));
            tokio::select! {
                biased;
                answer = pipeline.answer(limit), if !pipeline.is_empty() => {
                    let is_good = match answer {
                        Answer::Came { is_good } => is_good,
                        Answer::Late => {
                            self.driver.server().suspect();
                            if self.may_give_up() {
                                return self.give_up(pipeline);
                            }
                            pipeline.end().await
                        }
                    };
                    if !is_good {
                        break End::Connection;
                    }
                    // This one was not silent.
                    suspicions.mark_unchanged();
                }
                () = D::ended(session), if pipeline.is_empty() => break End::Connection,
                () = suspicion(&mut suspicions, open.since + limit), if pipeline.is_empty() => break End::Suspicion,
                batch = self.next_batch(pause.unwrap_or_default()), if pause.is_some() => {
                    let Some(batch) = batch else { break End::Store };
                    if D::is_closed(session) {
                        // The jobs are done over the next connection.
                        self.waiting.extend(batch);
                        break End::Connection;
                    }
                    if !batch.is_empty() {
                        let (driver, session) = (Arc::clone(&self.driver), Arc::clone(session));
                        pipeline.send(D::do_jobs(driver, session, self.durable, batch));
                    }
                }
            }
        };
        if !pipeline.is_empty() {
            // The server may have answered all of them.
            background::spawn(async move {
                pipeline.end().await;
            });
        }
        end
    }

    /// Counts one more connection that is given up, unless there are as many as may be: the server may have no
    /// connections to spare.
    fn may_give_up(&self) -> bool {
        let one_more = |stuck| (stuck < MAX_STUCK).then_some(stuck + 1);
        self.stuck.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_ok()
    }

    /// Leaves statements that hang to the background, so that the lane continues with another connection. The callers
    /// have given up.
    fn give_up(&self, mut pipeline: Pipeline) -> End {
        let stuck = Arc::clone(&self.stuck);
        background::spawn(async move {
            pipeline.end().await;
            stuck.fetch_sub(1, Ordering::AcqRel);
        });
        End::Connection
    }

    /// Waits for this time, and then for a job. Returns it with others, if the store has not ended.
    async fn next_batch(&mut self, pause: Duration) -> Option<Vec<Job>> {
        if !pause.is_zero() {
            background::sleep(pause).await;
        }
        if self.waiting.is_empty() {
            let first = self.jobs.recv().await?;
            self.waiting.push_back(first);
        }
        Some(self.take_batch())
    }

    /// Takes jobs for one batch: exchanges of different keys, or one other job.
    fn take_batch(&mut self) -> Vec<Job> {
        let (mut batch, mut keys, mut bytes) = (Vec::new(), HashSet::new(), 0);
        while batch.len() < MAX_BATCH {
            let Some(job) = self.waiting.pop_front().or_else(|| self.jobs.try_recv()) else { break };
            if job.is_given_up() {
                continue;
            }
            let fits = match &job {
                Job::Exchange(Exchange { write, .. }) => {
                    bytes += write.value.as_ref().map_or(0, Vec::len);
                    (batch.is_empty() || bytes <= MAX_BYTES) && keys.insert(write.key.clone())
                }
                _ => batch.is_empty(),
            };
            let is_single = !matches!(job, Job::Exchange(_));
            if !fits {
                self.waiting.push_front(job);
                break;
            }
            batch.push(job);
            if is_single {
                break;
            }
        }
        batch
    }
}

/// Waits until another connection has been silent. Suspicions before `from` do not count: this connection was opened
/// during that silence.
async fn suspicion(suspicions: &mut watch::Receiver<u64>, from: Timestamp) {
    loop {
        // The sender lives as long as the server.
        let _ = suspicions.changed().await;
        if Timestamp::now() >= from {
            return;
        }
    }
}

/// Pauses after a connection that did not last: its successor may end at once, too. Returns the state for the next
/// pause.
pub(super) async fn pause_unless_stable(mut backoff: Backoff, since: Timestamp) -> Backoff {
    const STABLE: Duration = Duration::from_secs(1);
    if Timestamp::now() >= since + STABLE {
        return Backoff::default();
    }
    background::sleep(backoff.next_delay()).await;
    backoff
}

#[cfg(test)]
mod tests;
