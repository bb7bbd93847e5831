//! The statements for writes and comparisons that were waiting for one connection.

use super::{
    errors,
    session::{Parameter, Session},
    shared::{Shared, as_parameters, gone},
};
use locker_cas::{
    Inbox, Message, NO_VERSION, Outcome, Version, Write,
    served::{Exchange, Fault, Job, List, Numbers, certainly, fail},
};
use locker_core::{background, clock::Timestamp, error::Result};
use std::{collections::HashMap, time::Duration};
use tokio_postgres::Row;

/// The keys that were written.
type Done = HashMap<String, Written>;

struct Written {
    version: Version,
    /// The inboxes that nobody listens to. `None` if the messages must still be sent.
    gone: Option<Vec<Inbox>>,
}

/// The present versions and values of keys that differ from what was expected.
type Found = HashMap<String, (Version, Option<Vec<u8>>)>;

/// What the exchanges of a batch have in common.
struct Batch<'a> {
    shared: &'a Shared,
    session: &'a Session,
    /// Whether the writes must survive a crash.
    durable: bool,
}

/// Does the jobs of one batch. Returns whether the connection is still good.
pub(super) async fn do_jobs(shared: &Shared, session: &Session, durable: bool, jobs: Vec<Job>) -> bool {
    let batch = Batch { shared, session, durable };
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

/// The pause before a write is tried again whose row another transaction has locked.
const PAUSE: Duration = Duration::from_millis(5);

impl Batch<'_> {
    /// Carries out exchanges of different keys and answers them. Returns whether the connection is still good.
    async fn carry_out(&self, exchanges: Vec<Exchange>) -> bool {
        let (writes, looks): (Vec<_>, Vec<_>) =
            exchanges.into_iter().partition(|exchange| exchange.write.value.is_some());
        let look = looks.iter().map(|exchange| (exchange.key(), exchange.write.expected));
        let (done, found) = tokio::join!(self.write(&writes), self.look(look.collect()));
        let is_good = Self::answer_looks(looks, found);
        is_good & self.answer_writes(writes, done).await
    }

    fn answer_looks(looks: Vec<Exchange>, found: Result<Found, Fault>) -> bool {
        let mut found = match found {
            Ok(found) => found,
            Err(fault) => return fail(looks, &Fault { error: certainly(&fault.error), ..fault }),
        };
        for Exchange { write, answer, .. } in looks {
            let present = found.remove(write.key.as_str());
            let (version, value) = present.unwrap_or((write.expected, None));
            drop(answer.send(Ok(if version == write.expected {
                Outcome::Matched { version, gone: Vec::new() }
            } else {
                Outcome::Differs { version, value }
            })));
        }
        true
    }

    async fn answer_writes(&self, writes: Vec<Exchange>, done: Result<Done, Fault>) -> bool {
        let is_alone = writes.len() == 1;
        let done = match done {
            Ok(done) => done,
            Err(fault) if fault.is_lost => Done::new(),
            Err(fault) => return fail(writes, &fault),
        };
        let is_done = |exchange: &Exchange| done.contains_key(exchange.key());
        let (written, lost): (Vec<_>, Vec<_>) = writes.into_iter().partition(is_done);
        let look = lost.iter().map(|exchange| (exchange.key(), NO_VERSION)).collect();
        let (is_good, found) = tokio::join!(self.answer_written(written, done), self.look(look));
        let mut found = match found {
            Ok(found) => found,
            Err(fault) => {
                return is_good & fail(lost, &Fault { error: certainly(&fault.error), ..fault });
            }
        };
        for Exchange { write, answer, .. } in lost {
            let (version, value) = found.remove(write.key.as_str()).unwrap_or((0, None));
            let is_locked = version == write.expected && version != 0 && !is_alone;
            let outcome = Ok(Outcome::Differs { version, value });
            if is_locked {
                // This statement has not waited for the lock, as that of a single write does.
                background::spawn(async move {
                    background::sleep(PAUSE).await;
                    drop(answer.send(outcome));
                });
            } else {
                drop(answer.send(outcome));
            }
        }
        is_good
    }

    /// Sends the messages that were not sent with the writes, and answers the writes.
    async fn answer_written(&self, written: Vec<Exchange>, mut done: Done) -> bool {
        let mut later = Vec::new();
        for exchange in written {
            match done.remove(exchange.key()) {
                Some(Written { version, gone: Some(gone) }) => {
                    drop(exchange.answer.send(Ok(Outcome::Matched { version, gone })));
                }
                Some(Written { version, gone: None }) => later.push((exchange, version)),
                None => {}
            }
        }
        if later.is_empty() {
            return true;
        }
        let messages = later.iter().flat_map(|(exchange, _)| &exchange.write.messages);
        match self.send(messages).await {
            Ok(all_gone) => {
                for (Exchange { write, answer, .. }, version) in later {
                    let is_told = |inbox: &Inbox| write.messages.iter().any(|message| message.to == *inbox);
                    let gone = all_gone.iter().copied().filter(is_told).collect();
                    drop(answer.send(Ok(Outcome::Matched { version, gone })));
                }
                true
            }
            // The writes were carried out.
            Err(fault) => {
                let error = fault.error.clone().unknown();
                fail(later.into_iter().map(|(exchange, _)| exchange), &Fault { error, ..fault })
            }
        }
    }

    /// Sends messages. Returns the inboxes that nobody listens to.
    async fn send(&self, messages: impl IntoIterator<Item = &Message>) -> Result<Vec<Inbox>, Fault> {
        let (inboxes, texts) = as_parameters(messages);
        let rows = self.session.query(&self.shared.statements.send, &[&inboxes, &texts]).await;
        let rows = rows.map_err(|error| self.fault(&error))?;
        Ok(rows.first().map(|row| gone(row, 1)).unwrap_or_default())
    }

    /// Raises the longest hold, unless another epoch has begun.
    async fn raise(&self, longest: i64, id: i64) -> Result<(), Fault> {
        let rows = self.session.query(&self.shared.statements.raise, &[&longest, &id]).await;
        let rows = rows.map_err(|error| self.fault(&error))?;
        let Some(row) = rows.first() else { return Err(self.without_a_row()) };
        if row.get::<_, Option<i64>>(0) == Some(id) {
            self.shared.server.raised(longest, id);
        }
        Ok(())
    }

    /// Finds the keys that have another version or none.
    async fn look(&self, looks: Vec<(&str, Version)>) -> Result<Found, Fault> {
        if looks.is_empty() {
            return Ok(Found::new());
        }
        let (keys, versions): (Vec<_>, Vec<_>) = looks.into_iter().unzip();
        let sent = Timestamp::now();
        let rows = self.session.query(&self.shared.statements.look, &[&keys, &versions]).await;
        let rows = rows.map_err(|error| self.fault(&error))?;
        if let Some(row) = rows.first() {
            self.shared.record(sent, row);
        }
        let present = |row: &Row| {
            Some((row.get::<_, Option<_>>(0)?, (row.get::<_, Option<_>>(1).unwrap_or(0), row.get(2))))
        };
        Ok(rows.iter().filter_map(present).collect())
    }

    async fn write(&self, writes: &[Exchange]) -> Result<Done, Fault> {
        let sent = Timestamp::now();
        let rows = match writes {
            [] => return Ok(Done::new()),
            [one] => self.write_one(one).await,
            many => self.write_many(many).await,
        };
        let rows = rows.map_err(|error| self.fault(&error))?;
        let mut done = Done::new();
        for row in &rows {
            // Only the statement that also sends has further columns.
            let gone = (row.len() > 2).then(|| gone(row, 3));
            done.insert(row.get(0), Written { version: row.get(1), gone });
        }
        for Exchange { write, .. } in writes.iter().filter(|exchange| exchange.write.messages.is_empty()) {
            if let Some(written) = done.get_mut(write.key.as_str()) {
                written.gone = Some(Vec::new());
            }
        }
        self.shared
            .server
            .record_times(sent, writes.iter().filter_map(|exchange| written_at(&exchange.write, &done)));
        Ok(done)
    }

    async fn write_one(&self, one: &Exchange) -> Result<Vec<Row>, tokio_postgres::Error> {
        let Exchange { write, removals, epoch, .. } = one;
        let statements = self.shared.statements.writing(self.durable);
        let (key, value, Numbers { lasts, fence, held_until }) = (one.key(), &write.value, one.numbers());
        if write.expected == 0 {
            let parameters: [Parameter<'_>; 7] = [&key, value, &lasts, &fence, &held_until, removals, epoch];
            return self.session.query(&statements.insert, &parameters).await;
        }
        if write.messages.is_empty() || self.durable {
            let parameters: [Parameter<'_>; 7] =
                [&key, &write.expected, value, &lasts, &fence, &held_until, epoch];
            return self.session.query(&statements.update, &parameters).await;
        }
        let (inboxes, texts) = as_parameters(&write.messages);
        let parameters: [Parameter<'_>; 9] =
            [&key, &write.expected, value, &lasts, &fence, &held_until, epoch, &inboxes, &texts];
        self.session.query(&statements.update_and_send, &parameters).await
    }

    async fn write_many<'a>(&self, many: &'a [Exchange]) -> Result<Vec<Row>, tokio_postgres::Error> {
        let writes = || many.iter().map(|exchange| &exchange.write);
        let keys: Vec<&str> = writes().map(|write| write.key.as_str()).collect();
        let versions: Vec<i64> = writes().map(|write| write.expected).collect();
        let values: Vec<&[u8]> = writes().filter_map(|write| write.value.as_deref()).collect();
        let lasts: Vec<i64> = many.iter().map(|exchange| exchange.numbers().lasts).collect();
        let fences: Vec<i64> = many.iter().map(|exchange| exchange.numbers().fence).collect();
        let held: Vec<i64> = many.iter().map(|exchange| exchange.numbers().held_until).collect();
        let removals: Vec<i64> = many.iter().map(|exchange| exchange.removals).collect();
        let epochs: Vec<i64> = many.iter().map(|exchange| exchange.epoch).collect();
        let statements = self.shared.statements.writing(self.durable);
        let messages = || writes().flat_map(|write| &write.messages);
        if self.durable || messages().next().is_none() {
            let parameters: [Parameter<'_>; 8] =
                [&keys, &versions, &values, &lasts, &fences, &held, &removals, &epochs];
            return self.session.query(&statements.many, &parameters).await;
        }
        let of = |write: &'a Write| write.messages.iter().map(|_| write.key.as_str());
        let told: Vec<&str> = writes().flat_map(of).collect();
        let (inboxes, texts) = as_parameters(messages());
        let parameters: [Parameter<'_>; 11] =
            [&keys, &versions, &values, &lasts, &fences, &held, &removals, &epochs, &told, &inboxes, &texts];
        self.session.query(&statements.many_and_send, &parameters).await
    }

    fn without_a_row(&self) -> Fault {
        self.shared.server.reopen.notify_one();
        Fault { error: errors::lost("the table locker_meta is empty"), is_lost: false, is_broken: false }
    }

    fn fault(&self, error: &tokio_postgres::Error) -> Fault {
        if errors::is_missing_table(error) {
            self.shared.server.reopen.notify_one();
        }
        errors::of_statement(error)
    }
}

/// Returns the time of the server at which a write was carried out, which is the version of the value, unless that only
/// follows the one before.
fn written_at(write: &Write, done: &Done) -> Option<i64> {
    done.get(write.key.as_str())
        .map(|written| written.version)
        .filter(|version| *version != write.expected + 1)
}
