//! The packets for jobs that were waiting for one connection.

use super::{
    answers::{Answer, Answers, store_state, value},
    errors::{self, code},
    facts::{self, Facts},
    session::Session,
    shared::Shared,
    sql,
};
use locker_cas::{
    ABSENT, Inbox, Message, NO_VERSION, Outcome, Version,
    served::{Exchange, Fault, Job, certainly, fail},
};
use locker_core::{
    background,
    clock::Timestamp,
    diagnostics,
    error::{Error, ErrorKind, Result},
};
use mysql_async::Row;
use std::{
    collections::BTreeSet,
    mem::{replace, take},
    sync::atomic::Ordering,
    time::Duration,
};
use tokio::sync::oneshot;

/// The pause before a write is tried again whose row another transaction has locked.
const PAUSE: Duration = Duration::from_millis(5);

/// The maximum of bytes of messages that go with a write, or in one packet.
const MAX_MAIL: usize = 256 << 10;

/// What was found of a key.
struct Present {
    version: Version,
    value: Option<Vec<u8>>,
    /// Whether the server has an epoch. A replica has none, and may lag behind.
    has_epoch: bool,
}

struct Batch<'a> {
    driver: &'a Shared,
    session: &'a Session,
    facts: Facts,
}

/// Does the jobs of one batch. Returns whether the connection is still good.
pub(super) async fn do_jobs(driver: &Shared, session: &Session, jobs: Vec<Job>) -> bool {
    // Those that come before the first connection is ready send no more than a probe.
    let facts = driver.facts().unwrap_or_default();
    let batch = Batch { driver, session, facts };
    let (mut exchanges, mut is_good) = (Vec::new(), true);
    for job in jobs {
        match job {
            Job::Exchange(exchange) => exchanges.push(exchange),
            Job::Send(messages, answer) => is_good &= tell(answer, batch.send(&messages).await),
            Job::Raise(longest, epoch, answer) => is_good &= tell(answer, batch.raise(longest, epoch).await),
            Job::List(list, answer) => {
                let rows = session.one(sql::list(&list)).await;
                let text = |row: &Row| String::from_utf8(value(row, 0)?).ok();
                let pair = |row: &Row| Some((text(row)?, value::<Vec<u8>>(row, 1)?));
                let values = rows.map(|answer| answer.rows.iter().filter_map(pair).collect());
                is_good &= tell(answer, values.map_err(|error| batch.fault(&error)));
            }
        }
    }
    if !exchanges.is_empty() {
        is_good = is_good && batch.carry_out(exchanges).await;
    }
    if is_good {
        batch.forget().await;
    }
    is_good && !session.is_closed()
}

fn tell<T>(answer: oneshot::Sender<Result<T>>, result: Result<T, Fault>) -> bool {
    let is_good = result.as_ref().err().is_none_or(|fault| !fault.is_broken);
    drop(answer.send(result.map_err(|fault| fault.error)));
    is_good
}

impl Batch<'_> {
    /// Carries out exchanges of different keys and answers them. Returns whether the connection is still good.
    async fn carry_out(&self, exchanges: Vec<Exchange>) -> bool {
        let (mut writes, looks): (Vec<_>, Vec<_>) =
            exchanges.into_iter().partition(|exchange| exchange.write.value.is_some());
        // Two transactions that lock rows in one order do not wait for each other in a circle.
        writes.sort_by(|one, other| one.key().cmp(other.key()));
        let mut is_good = looks.is_empty() || self.answer_looks(looks).await;
        let (large, mut writes): (Vec<_>, Vec<_>) = writes.into_iter().partition(has_much_mail);
        for exchange in large {
            if is_good {
                is_good = self.write_and_send(exchange).await;
            } else {
                writes.push(exchange);
            }
        }
        while is_good && !writes.is_empty() {
            let some = self.some_of(&mut writes);
            is_good = self.write(some).await;
        }
        // Nothing of these was sent.
        let error = || Error::new(ErrorKind::Unavailable, "the connection has ended").unsent();
        is_good || fail(writes, &Fault { error: error(), is_lost: false, is_broken: true })
    }

    /// Takes the writes that go in one packet.
    fn some_of(&self, writes: &mut Vec<Exchange>) -> Vec<Exchange> {
        let mut bytes = 0;
        let fits = |exchange: &Exchange| {
            let messages: usize = exchange.write.messages.iter().map(|message| message.text.len() + 30).sum();
            let value = exchange.write.value.as_ref().map_or(0, Vec::len);
            bytes += 2 * (value + messages + 4 * exchange.key().len()) + 1_500;
            bytes < self.facts.packet / 4 * 3
        };
        let count = writes.iter().map(fits).take_while(|fits| *fits).count().max(1);
        let rest = writes.split_off(count);
        replace(writes, rest)
    }

    /// Carries out a write, and sends its messages afterwards.
    async fn write_and_send(&self, mut exchange: Exchange) -> bool {
        let messages = take(&mut exchange.write.messages);
        let (answer, outcome) = oneshot::channel();
        let asked = replace(&mut exchange.answer, answer);
        let mut is_good = self.write(vec![exchange]).await;
        let outcome = match outcome.await {
            Ok(Ok(Outcome::Matched { version, .. })) => {
                let sent = self.send(&messages).await;
                is_good &= sent.as_ref().err().is_none_or(|fault| !fault.is_broken);
                // The write was carried out.
                sent.map(|gone| Outcome::Matched { version, gone }).map_err(|fault| fault.error.unknown())
            }
            outcome => outcome.unwrap_or_else(|_| Err(silent().error)),
        };
        drop(asked.send(outcome));
        is_good
    }

    async fn answer_looks(&self, looks: Vec<Exchange>) -> bool {
        let keys = looks.iter().map(|exchange| (exchange.key(), exchange.write.expected));
        let found = match self.look(keys.collect()).await {
            Ok(found) => found,
            Err(fault) => return fail(looks, &Fault { error: certainly(&fault.error), ..fault }),
        };
        for (Exchange { write, answer, .. }, present) in looks.into_iter().zip(found) {
            let Present { version, value, has_epoch } = present;
            drop(answer.send(match version == write.expected {
                true if has_epoch => Ok(Outcome::Matched { version, gone: Vec::new() }),
                true => Err(Error::new(ErrorKind::Unavailable, "MySQL was started anew, or is a replica")),
                false => Ok(Outcome::Differs { version, value }),
            }));
        }
        true
    }

    /// Reads keys. A value is left out if its version is the one that is named.
    async fn look(&self, keys: Vec<(&str, Version)>) -> Result<Vec<Present>, Fault> {
        let statements: Vec<_> = keys.iter().map(|(key, version)| self.facts.look(key, *version)).collect();
        let sent = Timestamp::now();
        let answers = self.session.run(&statements).await;
        if let Some(error) = &answers.error {
            return Err(self.fault(error));
        }
        answers.done.iter().map(|answer| self.present(sent, answer)).collect()
    }

    /// Reads the answer to a look that was sent at `sent`.
    fn present(&self, sent: Timestamp, answer: &Answer) -> Result<Present, Fault> {
        let Some(row) = answer.rows.first() else { return Err(self.without_a_row()) };
        let state = store_state(row, 2);
        self.driver.server.record(sent, &state, self.facts.is_lossy);
        let has_epoch = state.epoch.is_some();
        Ok(Present { version: value(row, 0).unwrap_or(ABSENT), value: value(row, 1), has_epoch })
    }

    /// Carries out writes in one packet, and answers them.
    async fn write(&self, writes: Vec<Exchange>) -> bool {
        let packet = Packet::new(&self.facts, &writes);
        let sent = Timestamp::now();
        let mut answers = self.session.run(&packet.statements).await;
        if answers.done.len() <= packet.commit {
            return self.answer_failed(writes, &packet, answers).await;
        }
        let gone = self.wake(&packet, &mut answers).await;
        let is_good = answers.error.as_ref().is_none_or(|error| !errors::of_statement(error).is_broken);
        let (mut again, mut times) = (Vec::new(), Vec::new());
        for (exchange, at) in writes.into_iter().zip(&packet.places) {
            let Some(done) = answers.done.get(*at).filter(|done| done.affected == 1) else {
                match answers.done.get(1).filter(|_| packet.is_single()) {
                    Some(look) => match self.present(sent, look) {
                        Ok(present) => differs(exchange, present),
                        Err(_) => again.push(exchange),
                    },
                    None => again.push(exchange),
                }
                continue;
            };
            let version = done.insert_id;
            // Otherwise it only follows the one before.
            times.extend((version != exchange.write.expected + 1).then_some(version));
            let is_told = |inbox: &Inbox| exchange.write.messages.iter().any(|message| message.to == *inbox);
            let gone = gone.iter().copied().filter(is_told).collect();
            drop(exchange.answer.send(Ok(Outcome::Matched { version, gone })));
        }
        self.driver.server.record_times(sent, times);
        if again.is_empty() { is_good } else { is_good & self.answer_lost(again).await }
    }

    /// Answers writes of which none was carried out, or nothing is known.
    async fn answer_failed(&self, writes: Vec<Exchange>, packet: &Packet, answers: Answers) -> bool {
        let Some(error) = &answers.error else { return fail(writes, &silent()) };
        let mut fault = self.fault(error);
        if !packet.is_single() && answers.done.len() == packet.commit {
            // A commit that fails may have been carried out.
            return fail(writes, &Fault { error: fault.error.unknown(), is_lost: false, is_broken: true });
        }
        if !packet.is_single() && !error.is_fatal() {
            // The transaction is open still. If this fails, the server ends it with the connection.
            fault.is_broken |= self.session.one("ROLLBACK".into()).await.is_err();
        }
        if fault.is_lost && !fault.is_broken { self.answer_lost(writes).await } else { fail(writes, &fault) }
    }

    /// Answers writes that were not carried out with what is there.
    async fn answer_lost(&self, writes: Vec<Exchange>) -> bool {
        let keys = writes.iter().map(|exchange| (exchange.key(), NO_VERSION));
        match self.look(keys.collect()).await {
            Ok(found) => {
                writes.into_iter().zip(found).for_each(|(exchange, present)| differs(exchange, present));
                true
            }
            Err(fault) => fail(writes, &Fault { error: certainly(&fault.error), ..fault }),
        }
    }

    /// Sends messages. Returns the inboxes that nobody listens to.
    async fn send(&self, messages: &[Message]) -> Result<Vec<Inbox>, Fault> {
        let (mut gone, mut rest) = (Vec::new(), messages);
        while !rest.is_empty() {
            let some;
            (some, rest) = rest.split_at(count_of(rest));
            let packet = Packet::of_messages(some);
            let mut answers = self.session.run(&packet.statements).await;
            if answers.done.len() <= packet.commit {
                return Err(answers.error.as_ref().map_or_else(silent, |error| self.fault(error)));
            }
            gone.extend(self.wake(&packet, &mut answers).await);
        }
        Ok(gone)
    }

    /// Returns the inboxes that nobody listens to, and wakes the others that the packet has not reached: the server
    /// carries out nothing behind one that is gone.
    async fn wake(&self, packet: &Packet, answers: &mut Answers) -> Vec<Inbox> {
        let Some(owners) = answers.done.get(packet.commit + 1).and_then(|answer| answer.rows.first()) else {
            return Vec::new();
        };
        let is_gone = |at: &usize| value::<u64>(owners, *at).is_none();
        let gone = (0..packet.told.len()).filter(is_gone).map(|at| packet.told[at]).collect();
        let mut next = answers.done.len() - (packet.commit + 2);
        while let Some(code) =
            answers.error.as_ref().and_then(errors::code_of).filter(|code| is_of_a_wake(*code))
        {
            if code == code::NOT_OWNER {
                self.warn_of_users();
            }
            answers.error = None;
            next += 1;
            let rest: Vec<_> = packet.told.iter().skip(next).map(|inbox| sql::wake(*inbox)).collect();
            if rest.is_empty() {
                break;
            }
            let more = self.session.run(&rest).await;
            next += more.done.len();
            answers.error = more.error;
        }
        gone
    }

    fn warn_of_users(&self) {
        if !self.driver.has_told.swap(true, Ordering::AcqRel) {
            diagnostics::warn_aloud(&format!(
                "processes with another user at {} cannot be woken: they hear messages up to a second later; use one \
                 user, or grant the right to kill their statements",
                self.driver.target.address
            ));
        }
    }

    /// Raises the longest hold, unless another epoch has begun.
    async fn raise(&self, longest: i64, id: i64) -> Result<(), Fault> {
        let statements = [self.facts.raise(longest, id), self.facts.is_raised(id)];
        let rows = self.session.run(&statements).await.last().map_err(|error| self.fault(&error))?;
        let Some(row) = rows.first() else { return Err(self.without_a_row()) };
        if value::<i64>(row, 0) == Some(1) {
            if self.facts.is_lossy {
                let written_after = facts::written_after(value(row, 1));
                let refused = |error| Fault { error, is_lost: false, is_broken: false };
                background::sleep(written_after.map_err(refused)?).await;
                self.session.one(sql::written(longest)).await.map_err(|error| self.fault(&error))?;
            }
            self.driver.server.raised(longest, id);
        }
        Ok(())
    }

    /// Removes messages that were heard.
    async fn forget(&self) {
        let heard = self.driver.removable();
        if heard.is_empty() {
            return;
        }
        if self.session.one(sql::forget(self.driver.server.inbox(), &heard)).await.is_ok() {
            self.driver.removed(&heard);
        }
    }

    fn without_a_row(&self) -> Fault {
        self.driver.server.reopen.notify_one();
        Fault { error: errors::lost("the table locker_meta is empty"), is_lost: false, is_broken: false }
    }

    fn fault(&self, error: &mysql_async::Error) -> Fault {
        if errors::code_of(error) == Some(code::NO_SUCH_TABLE) {
            self.driver.server.reopen.notify_one();
        }
        errors::of_statement(error)
    }
}

fn silent() -> Fault {
    Fault { error: errors::lost("a statement has no answer"), is_lost: false, is_broken: true }
}

/// Answers a write that was not carried out.
fn differs(Exchange { write, answer, .. }: Exchange, Present { version, value, .. }: Present) {
    let outcome = Ok(Outcome::Differs { version, value });
    if version != write.expected || version == ABSENT {
        return drop(answer.send(outcome));
    }
    // Another transaction has locked the row, and the statement has not waited.
    background::spawn(async move {
        background::sleep(PAUSE).await;
        drop(answer.send(outcome));
    });
}

fn has_much_mail(exchange: &Exchange) -> bool {
    count_of(&exchange.write.messages) < exchange.write.messages.len()
}

/// Returns how many messages go in one packet.
fn count_of(messages: &[Message]) -> usize {
    let mut bytes = 0;
    let fits = |message: &&Message| {
        bytes += message.text.len() + 100;
        bytes <= MAX_MAIL
    };
    messages.iter().take_while(fits).count().max(1).min(messages.len())
}

fn is_of_a_wake(code: u16) -> bool {
    matches!(code, code::NO_SUCH_THREAD | code::NOT_OWNER)
}

/// The statements of one packet.
struct Packet {
    statements: Vec<String>,
    /// The places of the writes.
    places: Vec<usize>,
    /// The place of the statement with which all have been carried out.
    commit: usize,
    /// Whom to wake, in this order.
    told: Vec<Inbox>,
}

impl Packet {
    fn new(facts: &Facts, writes: &[Exchange]) -> Self {
        let messages = writes.iter().flat_map(|exchange| &exchange.write.messages);
        let told: BTreeSet<Inbox> = messages.map(|message| message.to).collect();
        let mut packet =
            Self { statements: Vec::new(), places: Vec::new(), commit: 0, told: told.into_iter().collect() };
        let is_single = writes.len() == 1 && packet.told.is_empty();
        if !is_single {
            packet.statements.push("BEGIN".into());
        }
        for exchange in writes {
            let write = packet.add(facts.write(exchange));
            if !exchange.write.messages.is_empty() {
                packet.add(sql::mail_after(&exchange.write.messages));
            }
            // Within a transaction a value that a stopped process does not read would keep its rows locked.
            if is_single {
                packet.add(format!("{} WHERE ROW_COUNT()=0", facts.look(exchange.key(), NO_VERSION)));
            }
            packet.places.push(write);
        }
        if !is_single {
            packet.commit = packet.add("COMMIT".into());
        }
        packet.wakes()
    }

    fn of_messages(messages: &[Message]) -> Self {
        let told: BTreeSet<Inbox> = messages.iter().map(|message| message.to).collect();
        let told = told.into_iter().collect();
        Self { statements: vec![sql::mail(messages)], places: Vec::new(), commit: 0, told }.wakes()
    }

    /// Adds what wakes the receivers.
    fn wakes(mut self) -> Self {
        if !self.told.is_empty() {
            self.statements.push(sql::owners(&self.told));
            let told = take(&mut self.told);
            self.statements.extend(told.iter().map(|inbox| sql::wake(*inbox)));
            self.told = told;
        }
        self
    }

    fn add(&mut self, statement: String) -> usize {
        self.statements.push(statement);
        self.statements.len() - 1
    }

    /// Whether a single statement is all that is written.
    fn is_single(&self) -> bool {
        self.commit == 0
    }
}
