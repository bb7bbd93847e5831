//! The connections for writes, and the queues before them.

use super::{
    batch::{Batch, Exchange},
    errors,
    pipeline::{Answer, Distance, Pipeline, STATEMENT_LIMIT},
    session::Session,
    shared::Shared,
};
use locker_cas::{
    Inbox, Message,
    queue::{Call, Receiver, Sender, queue},
};
use locker_core::{
    background,
    backoff::Backoff,
    clock::Timestamp,
    error::{Error, Result},
    sync::lock,
};
use std::{
    collections::{HashSet, VecDeque},
    iter,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::{oneshot, watch};

/// What a connection is to do.
pub(super) enum Job {
    Exchange(Exchange),
    Send(Vec<Message>, oneshot::Sender<Result<Vec<Inbox>>>),
    List(List, oneshot::Sender<Result<Values>>),
    /// Raises the longest hold, in the epoch with an id.
    Raise(i64, i64, oneshot::Sender<Result<()>>),
}

/// Keys with their values.
pub(super) type Values = Vec<(String, Vec<u8>)>;

/// A page of values.
pub(super) struct List {
    pub(super) from: String,
    pub(super) after: String,
    pub(super) below: String,
    pub(super) limit: i64,
}

/// The queues before the connections.
pub(super) struct Queues {
    pub(super) durable: Sender<Job>,
    pub(super) quick: Sender<Job>,
}

/// How many connections of a lane may be left to statements that hang.
const MAX_STUCK: usize = 1;
/// How long a connection may take.
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// The maximum of exchanges in one statement.
const MAX_BATCH: usize = 64;
/// The maximum of bytes of values in one statement, unless a single value is larger.
const MAX_BYTES: usize = 1 << 20;

/// Opens the connections. They end when `closed` does, or the queues.
pub(super) fn start(shared: &Arc<Shared>, closed: &watch::Receiver<()>) -> Queues {
    let [durable, quick] = [(true, shared.target.lanes), (false, 1)].map(|(durable, count)| {
        let (sender, jobs) = queue();
        for _ in 0..count {
            let (shared, jobs) = (Arc::clone(shared), jobs.clone());
            let lane = Lane { shared, durable, jobs, waiting: VecDeque::new(), stuck: Arc::default() };
            let mut closed = closed.clone();
            background::spawn(async move {
                tokio::select! {
                    () = lane.run() => {}
                    _ = closed.changed() => {}
                }
            });
        }
        sender
    });
    Queues { durable, quick }
}

/// One connection, opened again whenever it ends.
struct Lane {
    shared: Arc<Shared>,
    durable: bool,
    jobs: Receiver<Job>,
    /// Jobs that were taken from the queue and do not fit into the last batch.
    waiting: VecDeque<Job>,
    /// The number of connections that were given up although their server may still be busy with a statement.
    stuck: Arc<AtomicUsize>,
}

impl Lane {
    async fn run(mut self) {
        let mut backoff = Backoff::default();
        loop {
            match self.connect().await {
                Ok(session) => {
                    let since = Timestamp::now();
                    let open = &self.shared.clone().open[usize::from(self.durable)];
                    open.fetch_add(1, Ordering::AcqRel);
                    let continues = self.serve(&Arc::new(session)).await;
                    open.fetch_sub(1, Ordering::AcqRel);
                    if !continues {
                        return;
                    }
                    backoff = pause_unless_stable(backoff, since).await;
                }
                Err(error) => {
                    self.refuse(&error);
                    background::sleep(backoff.next_delay()).await;
                }
            }
        }
    }

    async fn connect(&self) -> Result<Session> {
        let Shared { target, named, .. } = &*self.shared;
        Session::open(target, &target.config, CONNECT_LIMIT, named, None).await
    }

    /// Answers what is waiting, if no connection is open.
    fn refuse(&mut self, error: &Error) {
        let mut refused: Vec<_> = self.waiting.drain(..).collect();
        if self.shared.open[usize::from(self.durable)].load(Ordering::Acquire) == 0 {
            refused.extend(iter::from_fn(|| self.jobs.try_recv()));
        }
        let error = error.clone().unsent();
        for job in refused {
            job.fail(&error);
        }
    }

    /// Does jobs until the connection ends. Returns `false` if the store has ended.
    async fn serve(&mut self, session: &Arc<Session>) -> bool {
        let mut pipeline = Pipeline::default();
        let continues = loop {
            let pause = pipeline.pause(|| self.distance(session));
            tokio::select! {
                biased;
                answer = pipeline.answer(), if !pipeline.is_empty() => {
                    let is_good = match answer {
                        Answer::Came { is_good } => is_good,
                        Answer::Late if self.may_give_up() => return self.give_up(pipeline),
                        Answer::Late => pipeline.end().await,
                    };
                    if !is_good {
                        break true;
                    }
                }
                () = session.ended(), if pipeline.is_empty() => break true,
                batch = self.next_batch(pause.unwrap_or_default()), if pause.is_some() => {
                    let Some(batch) = batch else { break false };
                    if session.is_closed() {
                        // The jobs are done over the next connection.
                        self.waiting.extend(batch);
                        break true;
                    }
                    if !batch.is_empty() {
                        let shared = Arc::clone(&self.shared);
                        pipeline.send(do_jobs(shared, self.durable, Arc::clone(session), batch));
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
        continues
    }

    /// Returns how far the server is, if batches may be sent before it has answered.
    fn distance(&self, session: &Session) -> Option<Distance> {
        // A pool of connections may give the connection to others after the first answer.
        let answer_time = session.answer_time().filter(|_| self.shared.named.load(Ordering::Acquire))?;
        Some(Distance { round_trip: lock(&self.shared.clock).round_trip()?, answer_time })
    }

    /// Counts one more connection that is given up, unless there are as many as may be: the server may have no
    /// connections to spare.
    fn may_give_up(&self) -> bool {
        let one_more = |stuck| (stuck < MAX_STUCK).then_some(stuck + 1);
        self.stuck.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_ok()
    }

    /// Leaves statements that hang to the background, so that the lane continues with another connection. The callers
    /// have given up.
    fn give_up(&self, mut pipeline: Pipeline) -> bool {
        let stuck = Arc::clone(&self.stuck);
        background::spawn(async move {
            pipeline.end().await;
            stuck.fetch_sub(1, Ordering::AcqRel);
        });
        true
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

/// Does the jobs of one batch. Returns whether the connection is still good.
async fn do_jobs(shared: Arc<Shared>, durable: bool, session: Arc<Session>, jobs: Vec<Job>) -> bool {
    let batch = Batch { shared: &shared, session: &session, durable: durable && shared.target.durable };
    let (mut exchanges, mut is_good) = (Vec::new(), true);
    for job in jobs {
        match job {
            Job::Exchange(exchange) => exchanges.push(exchange),
            Job::Send(messages, answer) => {
                let sent = batch.send(&messages).await;
                is_good &= sent.as_ref().err().is_none_or(|fault| !fault.is_broken);
                drop(answer.send(sent.map_err(|fault| fault.error)));
            }
            Job::Raise(longest, epoch, answer) => {
                let raised = batch.raise(longest, epoch).await;
                is_good &= raised.as_ref().err().is_none_or(|fault| !fault.is_broken);
                drop(answer.send(raised.map_err(|fault| fault.error)));
            }
            Job::List(List { from, after, below, limit }, answer) => {
                let rows = session.query(&shared.statements.list, &[&from, &after, &below, &limit]).await;
                let values = rows.map(|rows| rows.iter().map(|row| (row.get(0), row.get(1))).collect());
                is_good &= !session.is_closed();
                drop(answer.send(values.map_err(|error| batch.fault(&error).error)));
            }
        }
    }
    if exchanges.is_empty() { is_good } else { is_good & batch.carry_out(exchanges).await }
}

impl Call for Job {
    fn is_given_up(&self) -> bool {
        match self {
            Self::Exchange(exchange) => exchange.answer.is_closed(),
            Self::Send(_, answer) => answer.is_closed(),
            Self::List(_, answer) => answer.is_closed(),
            Self::Raise(_, _, answer) => answer.is_closed(),
        }
    }
}

impl Job {
    fn fail(self, error: &Error) {
        match self {
            Self::Exchange(exchange) => drop(exchange.answer.send(Err(error.clone()))),
            Self::Send(_, answer) => drop(answer.send(Err(error.clone()))),
            Self::List(_, answer) => drop(answer.send(Err(error.clone()))),
            Self::Raise(_, _, answer) => drop(answer.send(Err(error.clone()))),
        }
    }
}

/// Returns the error for a job whose answer was dropped.
pub(super) fn given_up() -> Error {
    errors::lost(&format!("waited {STATEMENT_LIMIT:?}"))
}
