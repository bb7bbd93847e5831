//! The session of this process: its connections, its inbox, and what it hears.

use super::{
    announce::{State, announce},
    clock::ZkClock,
    connection::{Change, Connection, Event},
    errors::{Failure, Meaning},
    exchange::Exchange,
    gauge::JUMP,
    handshake::{Identity, Opened},
    health,
    hosts::Servers,
    link::Link,
    ops::{ANY, Access, Done, Op},
    wire::Stat,
};
use futures_util::{
    StreamExt,
    future::{BoxFuture, join, join_all},
    stream::FuturesOrdered,
};
use locker_cas::{Received, ticked::Source, ticker};
use locker_core::{background, backoff::Backoff, clock::Timestamp, panics};
use std::{sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot, watch};

/// The state of the first connection.
#[derive(Clone, Debug)]
pub(super) enum Status {
    Connecting,
    /// From now on calls are made, whatever becomes of the session.
    Ready,
    Failed(Failure),
}

pub(super) struct Session {
    pub(super) exchange: Arc<Exchange>,
    pub(super) servers: Servers,
    pub(super) login: Option<String>,
    pub(super) state: State,
}

/// A connection at work.
struct Live {
    link: Link,
    events: mpsc::UnboundedReceiver<Event>,
    ended: oneshot::Receiver<Failure>,
}

/// What was read after an event.
enum Read {
    Mail(String, Option<Vec<u8>>),
    Clock(i64, Option<(Vec<u8>, Stat)>),
    /// The messages of these names are gone.
    Deleted(Vec<String>),
}

type Reads = FuturesOrdered<BoxFuture<'static, Result<Read, Failure>>>;

/// After how long a connection has served, so that the next one is not waited for.
const LONG: Duration = Duration::from_secs(2);

/// How long messages that were heard wait for others to be deleted with them, and how many one transaction deletes.
const DELETE_EVERY: Duration = Duration::from_millis(500);
const DELETE_AT_ONCE: usize = 500;

impl Session {
    /// Keeps the session alive until the store is dropped, which holds the other side of `status`.
    pub(super) async fn keep(mut self, status: watch::Sender<Status>) {
        let _ending = background::Ending::new();
        let exchange = Arc::clone(&self.exchange);
        let clock: &ZkClock = &exchange.clock;
        tokio::select! {
            () = self.stay_connected(&status) => {}
            () = ticker::keep(clock) => {}
            () = exchange.keep_removing() => {}
            () = exchange.keep_sweeping() => {}
            () = status.closed() => {}
        }
        ticker::leave(clock).await;
        join(self.leave_gauge(), self.end()).await;
    }

    /// Has a session that nobody keeps alive measure what passes, if no process stays.
    async fn leave_gauge(&self) {
        let (client, clock) = (&self.exchange.client, &self.exchange.clock);
        let Some(unmeasured) = clock.unmeasured() else { return };
        let opening = async {
            let (stream, zxid) = (self.servers.dial().await?, Arc::clone(&client.zxid));
            Opened::open(stream, zxid, &Identity::new(JUMP), self.login.as_deref(), client.limits.call).await
        };
        let by = Timestamp::now() + client.limits.server;
        let Ok(Opened::Accepted(connection, identity)) = client.within(by, opening).await else { return };
        // The connection ends with its link, and the session stays.
        let link = self.start(connection).link;
        if clock.measure(unmeasured, &link, identity.timeout).await.is_ok_and(|measures| !measures) {
            drop(client.within(by, link.close()).await);
        }
    }

    /// Removes what is there for this process alone.
    async fn end(&self) {
        let client = &self.exchange.client;
        let by = Timestamp::now() + client.limits.call;
        let Ok(link) = client.link(Timestamp::now() + client.limits.call / 5).await else { return };
        drop(client.within(by, self.leave(&link)).await);
        drop(client.within(by, link.close()).await);
        drop(client.clear_link(Failure::unsent("the store was dropped")));
    }

    async fn leave(&self, link: &Link) -> Result<(), Failure> {
        // First, so that no message comes any more.
        let inbox = self.exchange.keys.inbox(self.exchange.shared.inbox());
        link.carry_out(&Op::Delete(inbox.as_str().into(), ANY)).await?;
        self.exchange.remove_mail(inbox.rsplit('/').next().unwrap_or_default()).await
    }

    /// Connects again and again.
    async fn stay_connected(&mut self, status: &watch::Sender<Status>) {
        let (mut backoff, mut failures, mut of_round) = (Backoff::default(), 0, None::<Failure>);
        loop {
            let started = Timestamp::now();
            let limits = self.exchange.client.limits;
            let is_first_round = failures < self.servers.len();
            let failure = match self.resume(if is_first_round { limits.server } else { limits.call }).await {
                Ok(live) => self.run(live, status).await,
                Err(failure) => failure,
            };
            drop(self.exchange.client.clear_link(failure.clone()));
            if Timestamp::now().since(started) > LONG {
                (backoff, failures, of_round) = (Backoff::default(), 0, None);
            }
            failures += 1;
            // A host without a server says nothing of the others, which may be electing a leader.
            let failure = match of_round.take() {
                Some(other) if failure.meaning == Meaning::Unreachable => other,
                _ => failure,
            };
            let is_end = failures % self.servers.len() == 0;
            if !is_end && failure.meaning != Meaning::Refused {
                // The next server is tried at once.
                of_round = Some(failure);
                continue;
            }
            if !matches!(*status.borrow(), Status::Ready) {
                panics::contain(|| status.send_replace(Status::Failed(failure)));
            }
            if is_end {
                background::sleep(backoff.next_delay()).await;
            }
        }
    }

    /// Hears until the connection fails.
    async fn run(&mut self, mut live: Live, status: &watch::Sender<Status>) -> Failure {
        self.exchange.client.set_link(live.link.clone());
        if !matches!(*status.borrow(), Status::Ready) {
            panics::contain(|| status.send_replace(Status::Ready));
            background::spawn(health::check(self.servers.clone(), self.exchange.client.limits.server));
        }
        if std::mem::take(&mut self.state.has_gap) {
            self.exchange.shared.tell(Received::Gap);
        }
        let (mut reads, mut is_deleting) = (Reads::new(), false);
        let mut delete = background::sleep(DELETE_EVERY);
        loop {
            if self.state.heard.len() >= DELETE_AT_ONCE && !is_deleting {
                is_deleting = self.delete_heard(&live.link, &mut reads);
            }
            let result = tokio::select! {
                biased;
                failure = &mut live.ended => return failure.unwrap_or_else(|_| has_ended()),
                Some(event) = live.events.recv() => self.heard_of(&event, &live.link, &mut reads),
                Some(read) = reads.next() => read.map(|read| {
                    is_deleting &= !matches!(read, Read::Deleted(_));
                    self.take(read);
                }),
                () = &mut delete => {
                    delete = background::sleep(DELETE_EVERY);
                    is_deleting = is_deleting || self.delete_heard(&live.link, &mut reads);
                    Ok(())
                }
            };
            if let Err(failure) = result {
                return failure;
            }
        }
    }

    /// Begins to read what an event is about.
    fn heard_of(&self, event: &Event, link: &Link, reads: &mut Reads) -> Result<(), Failure> {
        let (keys, inbox) = (&self.exchange.keys, self.exchange.shared.inbox());
        let name_in = |node: &str| Some(event.path.strip_prefix(node)?.strip_prefix('/')?.to_owned());
        if let Some(name) = name_in(&keys.mail(inbox)) {
            if event.change == Change::Created && !self.state.heard.contains(&name) {
                reads.push_back(Box::pin(read_mail(link, &event.path, name)));
            }
        } else if let Some(life) = name_in(&keys.clock()).and_then(|life| life.parse::<i64>().ok()) {
            let got = link.get(&event.path);
            if event.change != Change::Deleted {
                reads.push_back(Box::pin(async move { Ok(Read::Clock(life, got.await?)) }));
            }
        } else if event.change == Change::Deleted || [keys.values(), keys.base()].contains(&event.path) {
            // They are made anew, or were.
            return Err(Failure::unsent(format!("the node {} in ZooKeeper was changed by hand", event.path)));
        }
        Ok(())
    }

    fn take(&mut self, read: Read) {
        match read {
            Read::Mail(name, mail) => self.state.hear(name, mail, &self.exchange.shared),
            Read::Clock(life, Some((text, stat))) => {
                // A text that cannot be read is reported to callers.
                drop(self.exchange.clock.find(life, &text, &stat, Source::Told));
            }
            Read::Deleted(names) => {
                for name in names {
                    self.state.heard.remove(&name);
                }
            }
            Read::Clock(_, None) => {}
        }
    }

    /// Begins to delete messages that were heard. Returns whether there are any.
    fn delete_heard(&self, link: &Link, reads: &mut Reads) -> bool {
        let mail = self.exchange.keys.mail(self.exchange.shared.inbox());
        let names: Vec<_> = self.state.heard.iter().take(DELETE_AT_ONCE).cloned().collect();
        if names.is_empty() {
            return false;
        }
        let ops: Vec<_> = names.iter().map(|name| Op::Delete(format!("{mail}/{name}").into(), ANY)).collect();
        let (link, done) = (link.clone(), link.multi(ops.clone()));
        reads.push_back(Box::pin(async move {
            if let Done::Nothing(..) = done.await? {
                // The answer to a former deletion was lost, or somebody has deleted some of them.
                for deleted in join_all(ops.iter().map(|op| link.carry_out(op))).await {
                    if let Err(failure) = deleted
                        && failure.meaning != Meaning::Absent
                    {
                        return Err(failure);
                    }
                }
            }
            Ok(Read::Deleted(names))
        }));
        true
    }

    /// Has a connection carry out requests until its link is dropped.
    fn start(&self, connection: Box<Connection>) -> Live {
        let access = if self.login.is_some() { Access::Login } else { Access::Everybody };
        let (link, calls) = Link::new(access);
        let ((tell, events), (end, ended)) = (mpsc::unbounded_channel(), oneshot::channel());
        background::spawn(async move { drop(end.send(connection.run(calls, tell).await)) });
        Live { link, events, ended }
    }

    /// Connects to the next server, with the session of the last connection if it is not over. The server has `limit`
    /// to accept it.
    async fn resume(&mut self, limit: Duration) -> Result<Live, Failure> {
        let connecting = async {
            let stream = self.servers.connect().await?;
            let client = &self.exchange.client;
            let (zxid, patience) = (Arc::clone(&client.zxid), client.limits.call);
            Opened::open(stream, zxid, &self.state.identity, self.login.as_deref(), patience).await
        };
        let opened = tokio::select! {
            biased;
            opened = connecting => opened?,
            () = background::sleep(limit) => {
                let address = self.servers.address();
                return Err(Failure::unsent(format!("no answer from ZooKeeper at {address} within {limit:?}")));
            }
        };
        let (connection, identity) = match opened {
            Opened::Accepted(connection, identity) => (connection, identity),
            Opened::SessionOver => {
                self.state.identity = State::default().identity;
                return Err(Failure::unsent("the session at ZooKeeper is over"));
            }
        };
        self.state.identity = identity;
        let mut live = self.start(connection);
        let link = live.link.clone();
        // A silent server ends the connection, and so this.
        tokio::select! {
            biased;
            announced = announce(&self.exchange, &mut self.state, link) => announced?,
            failure = &mut live.ended => return Err(failure.unwrap_or_else(|_| has_ended())),
        }
        Ok(live)
    }
}

fn read_mail(
    link: &Link,
    path: &str,
    name: String,
) -> impl Future<Output = Result<Read, Failure>> + Send + use<> {
    let got = link.get(path);
    async move { Ok(Read::Mail(name, got.await?.map(|(mail, _)| mail))) }
}

fn has_ended() -> Failure {
    Failure::unsent("the connection to ZooKeeper has ended")
}
