//! The connection that waits for messages to this process, and that reads the server's clock.

use super::{
    answers::{store_state, value},
    driver::Driver,
    epoch, errors, facts, inbox, schema,
    session::{Idle, Session},
    sql::{self, LONGEST_WAIT},
    sweep,
};
use locker_cas::{
    Inbox, Message, Received,
    queue::WeakSender,
    served::{CONNECT_LIMIT, Job, Listening, STATEMENT_LIMIT},
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
const PROBE_INTERVAL: Duration = Duration::from_secs(30);
/// A message of a process to itself, which shows that it can be woken.
const PROBE: &str = "\u{1}probe";

type ProbeAnswer = oneshot::Receiver<Result<Vec<Inbox>>>;

/// The listening connection, opened again whenever it ends.
pub(super) struct Listener {
    driver: Arc<Driver>,
    /// The queue over which the probe is sent, and heard messages are removed.
    lanes: WeakSender<Job>,
    /// The number of the former connection, once the inbox belongs to this process.
    former: Option<u64>,
    /// Whether nobody can wake this process, so that it asks again and again.
    polls: bool,
    /// The removal of messages, which is not done if nobody waits for it.
    clearing: Option<ProbeAnswer>,
    /// Whether the user was told so.
    has_warned: bool,
}

/// What a wait has ended with.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wait {
    Woken,
    /// It was not, or there was a message already.
    Over,
}

impl Listening for Listener {
    type Session = Session;

    async fn open(&mut self) -> Result<Session> {
        let driver = &self.driver;
        // Its statements are ended by others, those of the lanes are not.
        let (target, losses) = (&driver.target, driver.losses.subscribe());
        let session = Session::open(target, Idle::Moment, CONNECT_LIMIT, losses).await?;
        tokio::select! {
            biased;
            set_up = self.set_up(&session) => set_up.map(|()| session),
            () = background::sleep(SET_UP_LIMIT) => Err(errors::lost(&format!("waited {SET_UP_LIMIT:?}"))),
        }
    }

    async fn serve(&mut self, session: Session) {
        self.work(&session).await;
        // The other connections may have ended with it.
        self.driver.losses.send_modify(|losses| *losses += 1);
    }
}

impl Listener {
    pub(super) fn new(driver: Arc<Driver>, lanes: WeakSender<Job>) -> Self {
        Self { driver, lanes, former: None, clearing: None, polls: false, has_warned: false }
    }

    async fn set_up(&mut self, session: &Session) -> Result<()> {
        let driver = &self.driver;
        let facts = facts::ask(session).await?;
        schema::ensure(session, &facts, &driver.target.user).await?;
        epoch::ensure(session, &facts).await?;
        driver.learn(facts);
        driver.hear_anew();
        self.sample(session).await?;
        match self.former {
            Some(former) => inbox::claim_again(driver, session, former).await?,
            None => inbox::claim_any(driver, session).await?,
        }
        self.former = Some(session.id);
        self.probe(session).await
    }

    /// Sends a message to this process over another connection, and finds out whether that wakes this one.
    async fn probe(&mut self, session: &Session) -> Result<()> {
        let sent = self.lanes_do(vec![Message { to: self.driver.server.inbox(), text: PROBE.into() }]);
        let started = Timestamp::now();
        let (mut is_heard, limit) = (false, Duration::from_secs_f64(LONGEST_WAIT));
        while !is_heard && Timestamp::now().since(started) < limit {
            self.wait(session, LONGEST_WAIT).await?;
            is_heard = self.hear(session).await?;
        }
        drop(sent);
        let is_late = !is_heard || Timestamp::now().since(started) >= limit;
        if is_late && !self.has_warned {
            self.has_warned = true;
            diagnostics::warn_aloud(&format!(
                "statements of this process at {} cannot be ended to wake it: it reads its messages every {:?}",
                self.driver.target.address, self.driver.target.poll
            ));
        }
        self.polls = is_late;
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

    /// Waits for a message, up to so many seconds.
    async fn wait(&self, session: &Session, seconds: f64) -> Result<Wait> {
        let heard = self.driver.heard();
        let waited = session.one(sql::wait(self.driver.server.inbox(), &heard, seconds)).await;
        match waited {
            Ok(answer) => {
                let woken = answer.rows.first().and_then(|row| value::<i64>(row, 0)) == Some(1);
                Ok(if woken { Wait::Woken } else { Wait::Over })
            }
            Err(error) if errors::code_of(&error).is_some_and(sql::is_woken) => Ok(Wait::Woken),
            Err(error) => Err(errors::of_statement(&error).error),
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
    async fn work(&mut self, session: &Session) {
        let start = Timestamp::now();
        let (mut sampled, mut probed, mut cleared) = (start, start, start);
        // Processes that were started together sweep at different times.
        let mut sweep = start + sweep::INTERVAL / 1024 * (512 + Id::random().jitter(512));
        let driver = Arc::clone(&self.driver);
        loop {
            let seconds = if self.polls { driver.target.poll.as_secs_f64() } else { LONGEST_WAIT };
            let heard = async {
                self.wait(session, seconds).await?;
                self.hear(session).await
            };
            let heard = tokio::select! {
                biased;
                () = driver.server.reopen.notified() => return,
                heard = within(heard) => heard,
            };
            if !matches!(heard, Some(Ok(_))) {
                return;
            }
            let now = Timestamp::now();
            let age = now.since(sampled);
            if age >= SAMPLE_INTERVAL && (driver.server.was_used() || age >= IDLE_INTERVAL) {
                sampled = now;
                if !matches!(within(self.sample(session)).await, Some(Ok(()))) {
                    return;
                }
            }
            if now.since(cleared) >= SAMPLE_INTERVAL && !driver.heard().is_empty() {
                cleared = now;
                self.clearing = Some(self.lanes_do(Vec::new()));
            }
            if self.polls && now.since(probed) >= PROBE_INTERVAL {
                probed = now;
                if !matches!(within(self.probe(session)).await, Some(Ok(()))) {
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

async fn within<T>(answer: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        answer = answer => Some(answer),
        () = background::sleep(STATEMENT_LIMIT) => None,
    }
}
