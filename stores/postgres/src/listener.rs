//! The connection that hears messages to this process, and that reads the server's clock.

use super::{
    epoch, errors, inbox, schema,
    session::{Session, Use},
    shared::Shared,
    sweep,
};
use futures_util::FutureExt;
use locker_cas::{
    Inbox, Received,
    queue::WeakSender,
    served::{Job, Listening},
};
use locker_core::{background, clock::Timestamp, diagnostics, error::Result, id::Id, sync::lock};
use std::{
    future::pending,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::sync::oneshot;

/// The time between two samples of the clock while the store is in use.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// The same while it is not in use.
const IDLE_INTERVAL: Duration = Duration::from_secs(5);
/// How long a process waits for a message to itself.
const PROBE_LIMIT: Duration = Duration::from_secs(1);

/// How many probes in a row are late before the user is told so.
const MAX_LATE: u32 = 10;

/// The listening connection, opened again whenever it ends.
pub(super) struct Listener {
    shared: Arc<Shared>,
    /// The queue over which the probe is sent.
    lanes: WeakSender<Job>,
    /// Whether the inbox may still become that of a process that polls.
    may_poll: bool,
    /// Whether a connection was heard, so that the inbox belongs to this process.
    is_direct: bool,
    /// Whether waiters ask again and again, because the present connection has not heard its probe.
    polls: bool,
    /// The number of probes that were not heard, and the last one, which counts only as long as somebody waits for it.
    late: (u32, Option<ProbeAnswer>),
}

type ProbeAnswer = oneshot::Receiver<Result<Vec<Inbox>>>;

impl Listening for Listener {
    type Session = Session;

    async fn open(&mut self) -> Result<Session> {
        self.connect().await
    }

    /// Uses the connection until it ends or does not answer.
    async fn serve(&mut self, session: Session) {
        let (shared, is_direct) = (Arc::clone(&self.shared), self.is_direct);
        let cannot_claim = async {
            if !is_direct || inbox::claim_again(&shared, &session).await.is_ok() {
                pending::<()>().await;
            }
        };
        tokio::select! {
            () = self.work(&session) => {}
            () = cannot_claim => {}
        }
    }

    async fn failed(&mut self) {
        self.ensure_epoch_elsewhere().await;
    }
}

impl Listener {
    pub(super) fn new(shared: Arc<Shared>, lanes: WeakSender<Job>, may_poll: bool) -> Self {
        Self { shared, lanes, may_poll, is_direct: false, polls: false, late: (0, None) }
    }

    /// Makes the row of `locker_boot` if this connection has an address of its own that cannot be reached. The other
    /// connections may have a new server, and need the row.
    async fn ensure_epoch_elsewhere(&self) {
        let target = &self.shared.target;
        if target.listen.is_none() || !self.shared.server.is_open() {
            return;
        }
        let ensured = async {
            let session = Session::open(target, &target.config, &Arc::default(), Use::Own(None)).await?;
            epoch::ensure(&session, target).await
        };
        tokio::select! {
            // It is tried again after the next failure.
            _ = ensured => {}
            () = background::sleep(SET_UP_LIMIT) => {}
        }
    }

    async fn connect(&mut self) -> Result<Session> {
        let target = &self.shared.target;
        let config = target.listen.as_ref().unwrap_or(&target.config);
        let weak = Arc::downgrade(&self.shared);
        let notified = move |channel: &str, text: &str| {
            if let Some(shared) = weak.upgrade().filter(|shared| channel == *lock(&shared.channel)) {
                shared.receive(text);
            }
        };
        // A pool may be in between: this connection has no prepared statements.
        let session =
            Session::open(target, config, &Arc::default(), Use::Own(Some(Box::new(notified)))).await?;
        tokio::select! {
            biased;
            set_up = self.set_up(&session) => set_up.map(|()| session),
            () = background::sleep(SET_UP_LIMIT) => Err(errors::lost(&format!("waited {SET_UP_LIMIT:?}"))),
        }
    }

    async fn set_up(&mut self, session: &Session) -> Result<()> {
        let target = &self.shared.target;
        // What was missing is made now.
        let _ = self.shared.server.reopen.notified().now_or_never();
        if self.is_direct {
            // First, because until then others take the process for gone.
            inbox::claim(&self.shared, session).await?;
        }
        schema::ensure(session, &target.schema, target.config.get_user().unwrap_or("the user")).await?;
        epoch::ensure(session, target).await?;
        inbox::listen(&self.shared, session).await?;
        if self.hears(session).await? {
            if !self.is_direct {
                // Not before: a connection of a pool would keep the lock for others.
                inbox::claim_any(&self.shared, session).await?;
            }
            self.is_heard();
        } else {
            self.is_not_heard();
        }
        self.may_poll = false;
        self.sample(session).await
    }

    fn is_heard(&mut self) {
        self.shared.named.store(self.shared.target.listen.is_none(), Ordering::Release);
        (self.is_direct, self.polls, self.late) = (true, false, (0, None));
    }

    fn is_not_heard(&mut self) {
        if std::mem::replace(&mut self.polls, true) || self.is_direct {
            return;
        }
        self.warn_deaf("is this a pool of connections?");
        if self.may_poll {
            self.shared.poll_inbox();
        }
    }

    fn warn_deaf(&self, guess: &str) {
        let target = &self.shared.target;
        diagnostics::warn_aloud(&format!(
            "messages from {} are not heard ({guess}): waiters ask again every {:?}; pass the server itself with the \
             parameter listen=HOST:PORT",
            target.address, target.poll
        ));
    }

    /// Sends a message to this process over another connection. Returns whether it is heard.
    async fn hears(&self, session: &Session) -> Result<bool> {
        self.shared.named.store(false, Ordering::Release);
        // That of an earlier connection.
        let _ = self.shared.probe.notified().now_or_never();
        let sent = self.send_probe();
        let late = async {
            // A process that has its inbox goes on, and hears the probe later.
            if !self.is_direct {
                sent.await.unwrap_or_else(|_| Err(errors::lost("the probe was not sent")))?;
            }
            background::sleep(PROBE_LIMIT).await;
            Ok(false)
        };
        tokio::select! {
            biased;
            () = self.shared.probe.notified() => Ok(true),
            () = session.ended() => Err(errors::lost("the connection ended before the probe was heard")),
            late = late => late,
        }
    }

    /// Sends another probe if a connection that should hear it has not.
    fn probe_again(&mut self) {
        if self.polls && self.is_direct {
            self.late = (self.late.0.saturating_add(1), Some(self.send_probe()));
            if self.late.0 == MAX_LATE {
                self.warn_deaf("does it lead to another server now?");
            }
        }
    }

    fn send_probe(&self) -> ProbeAnswer {
        let (answer, sent) = oneshot::channel();
        if let Some(lanes) = self.lanes.upgrade() {
            // The probe before this one counts no more.
            lanes.give_up();
            lanes.send(Job::Send(vec![self.shared.probe_message()], answer));
        }
        sent
    }

    async fn sample(&self, session: &Session) -> Result<()> {
        let sent = Timestamp::now();
        let inbox = i64::from(self.shared.server.inbox());
        let rows = session.query(&self.shared.statements.sample, &[&inbox]).await;
        let rows = rows.map_err(|error| errors::of_statement(&error).error)?;
        let Some(row) = rows.first() else { return Err(errors::lost("a sample has no row")) };
        let state = self.shared.record(sent, row);
        if state.removals < 0 {
            return Err(errors::lost("the table locker_meta is empty"));
        }
        let channel: Option<&str> = row.get(0);
        if self.is_direct && channel != Some(&**lock(&self.shared.channel)) {
            return Err(errors::lost("the tables have another secret"));
        }
        Ok(())
    }

    async fn work(&mut self, session: &Session) {
        let start = Timestamp::now();
        let (mut sampled, mut suspicions) = (start, self.shared.server.suspicions());
        // Processes that were started together sweep at different times.
        let mut sweep = start + sweep::INTERVAL / 1024 * (512 + Id::random().jitter(512));
        loop {
            let poll = self.shared.target.poll;
            let interval = if self.polls { poll.min(SAMPLE_INTERVAL) } else { SAMPLE_INTERVAL };
            let mut is_suspected = false;
            tokio::select! {
                biased;
                () = session.ended() => return,
                () = self.shared.server.reopen.notified() => return,
                // The server was slow: messages are heard after all.
                () = self.shared.probe.notified(), if self.polls => {
                    if !self.is_direct {
                        return;
                    }
                    self.shared.server.tell(Received::Gap);
                    self.is_heard();
                }
                // This one may be silent, too: the next sample shows it.
                _ = suspicions.changed() => is_suspected = true,
                () = background::sleep(interval) => {}
            }
            if self.polls {
                self.shared.server.tell(Received::Gap);
            }
            let now = Timestamp::now();
            let age = now.since(sampled);
            let is_due = age >= SAMPLE_INTERVAL && (self.shared.server.was_used() || age >= IDLE_INTERVAL);
            if is_due || is_suspected {
                sampled = now;
                match self.shared.server.in_time(self.sample(session)).await {
                    Some(Ok(())) => {}
                    Some(Err(_)) => return,
                    None => return self.shared.server.suspect(),
                }
                self.probe_again();
            }
            if now >= sweep {
                sweep = now + sweep::INTERVAL;
                if !self.shared.server.in_time(sweep::try_now(&self.shared, session)).await.unwrap_or(false) {
                    return;
                }
            }
        }
    }
}

/// How long the statements after connecting may take, without those that make the tables.
const SET_UP_LIMIT: Duration = Duration::from_secs(10);
