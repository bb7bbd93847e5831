//! The connection that waits for messages to this process, and that reads the server's clock.

use super::{
    answers::{store_state, value},
    epoch, errors, facts, inbox, schema,
    session::{Session, Use},
    shared::Shared,
    sql::{self, LONGEST_WAIT},
    sweep,
};
use locker_cas::{
    Inbox, Message, Received,
    queue::WeakSender,
    served::{Job, Listening},
};
use locker_core::{background, clock::Timestamp, diagnostics, error::Result, id::Id};
use std::{sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// The time between two samples of the clock while the store is in use.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// The same while it is not in use.
const IDLE_INTERVAL: Duration = Duration::from_secs(5);
/// How long the statements after connecting may take.
const SET_UP_LIMIT: Duration = Duration::from_secs(10);
/// The time between two probes if the last was late.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
/// After so many late probes in a row the user is told.
const MANY_LATE: u32 = 3;
/// A message of a process to itself, which shows that it can be woken.
const PROBE: &str = "\u{1}probe";

type ProbeAnswer = oneshot::Receiver<Result<Vec<Inbox>>>;

/// The listening connection, opened again whenever it ends.
pub(super) struct Listener {
    driver: Arc<Shared>,
    /// The queue over which the probe is sent, and heard messages are removed.
    lanes: WeakSender<Job>,
    /// The number of the former connection, once the inbox belongs to this process.
    former: Option<u64>,
    /// Whether nobody can wake this process, so that it asks again and again.
    polls: bool,
    /// The removal of messages, which is not done if nobody waits for it.
    clearing: Option<ProbeAnswer>,
    /// How many probes in a row were late. The server may be slow once.
    late: u32,
}

/// What hears messages.
pub(super) struct Ears {
    session: Session,
    /// Has the lock that the other waits for, and is silent.
    _bell: Session,
    name: Id,
}

impl Listening for Listener {
    type Session = Ears;

    async fn open(&mut self) -> Result<Ears> {
        tokio::select! {
            biased;
            opened = self.set_up() => opened,
            () = background::sleep(SET_UP_LIMIT) => Err(errors::lost(&format!("waited {SET_UP_LIMIT:?}"))),
        }
    }

    async fn serve(&mut self, ears: Ears) {
        self.work(&ears).await;
        // The other connections may have ended with it.
        self.driver.losses.send_modify(|losses| *losses += 1);
    }
}

impl Listener {
    pub(super) fn new(driver: Arc<Shared>, lanes: WeakSender<Job>) -> Self {
        Self { driver, lanes, former: None, clearing: None, polls: false, late: 0 }
    }

    async fn set_up(&mut self) -> Result<Ears> {
        let driver = &self.driver;
        let session = self.connect(Use::Listening).await?;
        let facts = facts::ask(&session).await?;
        schema::ensure(&session, &facts, &driver.target).await?;
        epoch::ensure(&session, &facts).await?;
        driver.learn(facts);
        driver.hear_anew();
        self.sample(&session).await?;
        let (bell, name) = (self.connect(self.driver.lane()).await?, Id::random());
        bell.one(sql::hang(name)).await.map_err(|error| errors::of_statement(&error).error)?;
        match self.former {
            Some(former) => inbox::claim_again(driver, &session, former).await?,
            None => inbox::claim_any(driver, &session).await?,
        }
        self.former = Some(session.id);
        let ears = Ears { session, _bell: bell, name };
        self.probe(&ears).await?;
        Ok(ears)
    }

    async fn connect(&self, of: Use) -> Result<Session> {
        let Shared { target, losses, .. } = &*self.driver;
        Session::open(target, of, losses.subscribe()).await
    }

    /// Sends a message to this process over another connection, and finds out whether that wakes this one.
    async fn probe(&mut self, ears: &Ears) -> Result<()> {
        let sent = self.lanes_do(vec![Message { to: self.driver.server.inbox(), text: PROBE.into() }]);
        let started = Timestamp::now();
        let (mut is_heard, limit) = (false, Duration::from_secs(LONGEST_WAIT));
        while !is_heard && Timestamp::now().since(started) < limit {
            self.wait(ears).await?;
            is_heard = self.hear(&ears.session).await?;
        }
        drop(sent);
        self.polls = !is_heard || Timestamp::now().since(started) >= limit;
        self.late = if self.polls { self.late.saturating_add(1) } else { 0 };
        if self.late == MANY_LATE {
            diagnostics::warn_aloud(&format!(
                "statements of this process at {} cannot be ended to wake it: it reads its messages every {:?}",
                self.driver.target.address, self.driver.target.poll
            ));
        }
        Ok(())
    }

    /// Gives the lanes something to do: they send messages, and remove what was heard.
    fn lanes_do(&self, messages: Vec<Message>) -> ProbeAnswer {
        let (answer, done) = oneshot::channel();
        if let Some(lanes) = self.lanes.upgrade() {
            lanes.send(Job::Send(messages, answer));
        }
        done
    }

    /// Waits for a message, or for some time.
    async fn wait(&self, ears: &Ears) -> Result<()> {
        let heard = self.driver.heard();
        let waited = ears.session.one(sql::wait(self.driver.server.inbox(), &heard, ears.name)).await;
        match waited {
            Ok(answer) if answer.rows.first().and_then(|row| value::<i64>(row, 0)) == Some(1) => {
                Err(errors::lost("the connection with the bell has ended"))
            }
            Err(error) if !errors::code_of(&error).is_some_and(sql::is_woken) => {
                Err(errors::of_statement(&error).error)
            }
            _ => Ok(()),
        }
    }

    /// Hears the messages that are there. Returns whether the probe was one of them.
    async fn hear(&self, session: &Session) -> Result<bool> {
        let driver = &self.driver;
        let known = driver.heard();
        let rows = loop {
            match session.one(sql::hear(driver.server.inbox(), &known)).await {
                Ok(answer) => break answer.rows,
                // Whoever wakes this process may come a moment late.
                Err(error) if errors::code_of(&error).is_some_and(sql::is_woken) => {}
                Err(error) => return Err(errors::of_statement(&error).error),
            }
        };
        let mut is_heard = false;
        for row in rows {
            if let Some(id) = value(&row, 0) {
                driver.hear(id);
            }
            match value::<Vec<u8>>(&row, 1).and_then(|text| String::from_utf8(text).ok()).as_deref() {
                Some(PROBE) => is_heard = true,
                Some(text) => driver.server.tell(Received::Text(text)),
                None => driver.server.tell(Received::Gap),
            }
        }
        Ok(is_heard)
    }

    async fn sample(&self, session: &Session) -> Result<()> {
        let driver = &self.driver;
        let Some(mut facts) = driver.facts() else { return Ok(()) };
        let sent = Timestamp::now();
        let rows = loop {
            match session.one(facts.sample()).await {
                Ok(answer) => break answer.rows,
                Err(error) if errors::code_of(&error).is_some_and(sql::is_woken) => {}
                Err(error) => return Err(errors::of_statement(&error).error),
            }
        };
        let Some(row) = rows.first() else { return Err(errors::lost("the table locker_meta is empty")) };
        if value::<String>(row, 8).is_some_and(|text| !matches!(&*text, "0" | "OFF")) {
            return Err(errors::lost("the server takes no writes any more"));
        }
        let is_lossy = value::<i64>(row, 7) != Some(0);
        facts.is_lossy = is_lossy;
        driver.learn(facts);
        driver.server.record(sent, &store_state(row, 0), is_lossy);
        Ok(())
    }

    /// Uses the connection until it ends, does not answer, or something is missing.
    async fn work(&mut self, ears: &Ears) {
        let session = &ears.session;
        let start = Timestamp::now();
        let (mut sampled, mut probed, mut cleared) = (start, start, start);
        // Processes that were started together sweep at different times.
        let mut sweep = start + sweep::INTERVAL / 1024 * (512 + Id::random().jitter(512));
        let driver = Arc::clone(&self.driver);
        loop {
            let heard = async {
                if self.polls {
                    background::sleep(driver.target.poll).await;
                } else {
                    self.wait(ears).await?;
                }
                self.hear(session).await
            };
            let heard = tokio::select! {
                biased;
                () = driver.server.reopen.notified() => return,
                heard = driver.server.in_time(heard) => heard,
            };
            if !matches!(heard, Some(Ok(_))) {
                return;
            }
            let now = Timestamp::now();
            let age = now.since(sampled);
            if age >= SAMPLE_INTERVAL && (driver.server.was_used() || age >= IDLE_INTERVAL) {
                sampled = now;
                if !matches!(driver.server.in_time(self.sample(session)).await, Some(Ok(()))) {
                    return;
                }
            }
            if now.since(cleared) >= SAMPLE_INTERVAL && !driver.heard().is_empty() {
                cleared = now;
                self.clearing = Some(self.lanes_do(Vec::new()));
            }
            if self.polls && now.since(probed) >= PROBE_INTERVAL {
                probed = now;
                if !matches!(driver.server.in_time(self.probe(ears)).await, Some(Ok(()))) {
                    return;
                }
            }
            if now >= sweep {
                sweep = now + sweep::INTERVAL;
                sweep::try_now(&driver);
            }
        }
    }
}
