//! The connection that hears messages to this process, and that reads the server's clock.

use super::{
    boot, errors,
    lanes::{CONNECT_LIMIT, Job, pause_unless_stable},
    pipeline::STATEMENT_LIMIT,
    schema,
    session::Session,
    shared::{Shared, Status},
    sql::LOCK_SPACE,
    sweep,
};
use crate::{
    background,
    backoff::Backoff,
    clock::Timestamp,
    diagnostics,
    error::Result,
    id::Id,
    stores::cas::{Inbox, Received},
};
use futures_util::FutureExt;
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::sync::{mpsc::WeakUnboundedSender, oneshot};

/// The time between two samples of the clock while the store is in use.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// The same while it is not in use.
const IDLE_INTERVAL: Duration = Duration::from_secs(5);
/// How long a process waits for a message to itself.
const PROBE_LIMIT: Duration = Duration::from_secs(1);

/// The listening connection, opened again whenever it ends.
pub(super) struct Listener {
    pub(super) shared: Arc<Shared>,
    /// The queue over which the probe is sent.
    pub(super) lanes: WeakUnboundedSender<Job>,
    /// Whether the inbox may still change.
    pub(super) may_poll: bool,
    pub(super) polls: bool,
}

impl Listener {
    /// Keeps a connection open. The future is dropped when the store ends.
    pub(super) async fn run(mut self) {
        let (mut backoff, mut is_first) = (Backoff::default(), true);
        loop {
            match self.open().await {
                Ok(session) => {
                    let since = Timestamp::now();
                    self.shared.status.send_replace(Status::Open);
                    if !std::mem::take(&mut is_first) {
                        self.shared.tell(Received::Gap);
                    }
                    self.serve(&session).await;
                    backoff = pause_unless_stable(backoff, since).await;
                }
                Err(error) => {
                    self.boot_elsewhere().await;
                    // Errors of an open store are those of its other connections.
                    self.shared.status.send_if_modified(|status| {
                        let is_open = matches!(status, Status::Open);
                        if !is_open {
                            *status = Status::Failed(error);
                        }
                        !is_open
                    });
                    background::sleep(backoff.next_delay()).await;
                }
            }
        }
    }

    /// Makes the row of `locker_boot` if this connection has an address of its own that cannot be reached. The other
    /// connections may have a new server, and need the row.
    async fn boot_elsewhere(&self) {
        let target = &self.shared.target;
        if target.listen.is_none() || !matches!(*self.shared.status.borrow(), Status::Open) {
            return;
        }
        let booted = async {
            let session = Session::open(target, &target.config, CONNECT_LIMIT, &Arc::default(), None).await?;
            boot::ensure(&session, target).await
        };
        tokio::select! {
            // It is tried again after the next failure.
            _ = booted => {}
            () = background::sleep(SET_UP_LIMIT) => {}
        }
    }

    async fn open(&mut self) -> Result<Session> {
        let target = &self.shared.target;
        let config = target.listen.as_ref().unwrap_or(&target.config);
        let weak = Arc::downgrade(&self.shared);
        let notified = move |channel: &str, text: &str| {
            if let Some(shared) = weak.upgrade().filter(|shared| channel == self::channel(shared.inbox())) {
                shared.receive(text);
            }
        };
        // A pool may be in between: this connection has no prepared statements.
        let session =
            Session::open(target, config, CONNECT_LIMIT, &Arc::default(), Some(Box::new(notified))).await?;
        tokio::select! {
            biased;
            set_up = self.set_up(&session) => set_up.map(|()| session),
            () = background::sleep(SET_UP_LIMIT) => Err(errors::lost(&format!("waited {SET_UP_LIMIT:?}"))),
        }
    }

    async fn set_up(&mut self, session: &Session) -> Result<()> {
        let target = &self.shared.target;
        // What was missing is made now.
        let _ = self.shared.reopen.notified().now_or_never();
        schema::ensure(session, &target.schema, target.config.get_user().unwrap_or("the user")).await?;
        boot::ensure(session, target).await?;
        let failed = |error: tokio_postgres::Error| errors::of_statement(&error).error;
        session.run(&format!("LISTEN {}", channel(self.shared.inbox()))).await.map_err(failed)?;
        if self.hears(session).await? {
            // A connection of a pool would keep the lock for others.
            let number = i64::from(self.shared.inbox()) - (1 << 31);
            let lock = format!("SELECT pg_advisory_lock_shared({LOCK_SPACE}, ({number})::int)");
            session.run(&lock).await.map_err(failed)?;
            self.shared.named.store(target.listen.is_none(), Ordering::Release);
            self.polls = false;
        } else if !std::mem::replace(&mut self.polls, true) {
            diagnostics::warn_aloud(&format!(
                "messages from {} are not heard (is this a pool of connections?): waiters ask again every {:?}; pass \
                 the server itself with the parameter listen=HOST:PORT",
                target.address, target.poll
            ));
            if self.may_poll {
                self.shared.poll_inbox();
            }
        }
        self.may_poll = false;
        self.sample(session).await
    }

    /// Sends a message to this process over another connection. Returns whether it is heard.
    async fn hears(&self, session: &Session) -> Result<bool> {
        self.shared.named.store(false, Ordering::Release);
        // That of an earlier connection.
        let _ = self.shared.probe.notified().now_or_never();
        let (answer, sent) = oneshot::channel();
        if let Some(lanes) = self.lanes.upgrade() {
            drop(lanes.send(Job::Send(vec![self.shared.probe_message()], answer)));
        }
        sent.await.unwrap_or_else(|_| Err(errors::lost("the probe was not sent")))?;
        tokio::select! {
            biased;
            () = self.shared.probe.notified() => Ok(true),
            () = session.ended() => Err(errors::lost("the connection ended before the probe was heard")),
            () = background::sleep(PROBE_LIMIT) => Ok(false),
        }
    }

    async fn sample(&self, session: &Session) -> Result<()> {
        let sent = Timestamp::now();
        let rows = session.query(&self.shared.statements.sample, &[]).await;
        let rows = rows.map_err(|error| errors::of_statement(&error).error)?;
        let Some(row) = rows.first() else { return Err(errors::lost("a sample has no row")) };
        let marks = self.shared.record(sent, row);
        if marks.removals < 0 {
            return Err(errors::lost("the table locker_meta is empty"));
        }
        self.shared.record_time(sent, marks.now);
        Ok(())
    }

    /// Uses the connection until it ends or does not answer.
    async fn serve(&self, session: &Session) {
        let start = Timestamp::now();
        let interval =
            if self.polls { self.shared.target.poll.min(SAMPLE_INTERVAL) } else { SAMPLE_INTERVAL };
        let mut sampled = start;
        // Processes that were started together sweep at different times.
        let mut sweep = start + sweep::INTERVAL / 1024 * (512 + Id::random().jitter(512));
        loop {
            tokio::select! {
                biased;
                () = session.ended() => return,
                () = self.shared.reopen.notified() => return,
                // The server was slow: messages are heard after all.
                () = self.shared.probe.notified(), if self.polls => return,
                () = background::sleep(interval) => {}
            }
            if self.polls {
                self.shared.tell(Received::Gap);
            }
            let now = Timestamp::now();
            let is_used = self.shared.is_used.load(Ordering::Acquire);
            if now.since(sampled) >= if is_used { SAMPLE_INTERVAL } else { IDLE_INTERVAL } {
                sampled = now;
                self.shared.is_used.store(false, Ordering::Release);
                let sample = within(self.sample(session)).await;
                if sample.is_none_or(|sample| sample.is_err()) {
                    return;
                }
            }
            if now >= sweep {
                sweep = now + sweep::INTERVAL;
                if !within(sweep::try_now(&self.shared, session)).await.unwrap_or(false) {
                    return;
                }
            }
        }
    }
}

/// How long the statements after connecting may take, without those that make the tables.
const SET_UP_LIMIT: Duration = Duration::from_secs(10);

async fn within<T>(answer: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        answer = answer => Some(answer),
        () = background::sleep(STATEMENT_LIMIT) => None,
    }
}

fn channel(inbox: Inbox) -> String {
    format!("locker_{inbox:08x}")
}
