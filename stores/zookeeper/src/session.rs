//! The session of this process: its connections, its inbox, and what it hears.

use super::{
    client::{Link, data},
    clock::ZkClock,
    connection::{Change, Connection, Event, Identity, Opened},
    errors::{Failure, Meaning},
    exchange::Exchange,
    hosts::Servers,
    keys::BUCKETS,
    mails::texts,
    ops::{ANY, Access, Data, Done, Kind, Op},
    wire::Stat,
};
use futures_util::{
    StreamExt,
    future::{BoxFuture, try_join_all},
    stream::FuturesOrdered,
};
use locker_cas::{
    Received,
    ticked::Source,
    ticker::{self, Ticking},
};
use locker_core::{background, backoff::Backoff, clock::Timestamp, error::ErrorKind, id::Id, panics};
use std::{
    collections::BTreeSet,
    str::from_utf8,
    sync::Arc,
    time::{Duration, SystemTime},
};
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

/// What is known from the last connection.
pub(super) struct State {
    identity: Identity,
    /// What the inbox of this process holds, by which it knows it.
    mark: Data,
    /// Whether the inbox was in place once.
    has_inbox: bool,
    /// Whether messages may have been lost, which the receiver has not been told.
    has_gap: bool,
    /// Whether the nodes of the store are there, as far as this process knows.
    has_nodes: bool,
    /// The names of messages that were heard, and are to be deleted.
    heard: BTreeSet<String>,
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
    /// The messages of these names were to be deleted.
    Deleted(Vec<String>, Done),
}

type Reads = FuturesOrdered<BoxFuture<'static, Result<Read, Failure>>>;

/// How long the inbox outlives this process.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);

/// How often messages are deleted that were heard, and how many at once.
const DELETE_EVERY: Duration = Duration::from_millis(500);
const DELETE_AT_ONCE: usize = 500;

impl Default for State {
    fn default() -> Self {
        let mark = data(Id::random().to_string().as_bytes());
        let (has_inbox, has_gap, has_nodes, heard) = Default::default();
        Self { identity: Identity::new(SESSION_TIMEOUT), mark, has_inbox, has_gap, has_nodes, heard }
    }
}

impl Session {
    /// Keeps the session alive until the store is dropped, which holds the other side of `status`.
    pub(super) async fn keep(mut self, status: watch::Sender<Status>) {
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
        self.end().await;
    }

    /// Removes what is there for this process alone.
    async fn end(self) {
        let client = &self.exchange.client;
        let by = Timestamp::now() + client.limits.call;
        let Ok(link) = client.link(Timestamp::now() + client.limits.call / 5).await else { return };
        let mail = self.exchange.keys.mail(self.exchange.shared.inbox());
        drop(client.within(by, self.remove_mail(&link, &mail)).await);
        drop(client.within(by, link.close()).await);
        drop(client.clear_link(Failure::unsent("the store was dropped")));
    }

    async fn remove_mail(&self, link: &Link, mail: &str) -> Result<(), Failure> {
        // First, so that no message comes any more.
        let inbox = self.exchange.keys.inbox(self.exchange.shared.inbox());
        link.carry_out(&Op::Delete(inbox.into(), ANY)).await?;
        let names = link.children(mail).await?;
        let mut ops: Vec<_> =
            names.iter().map(|name| Op::Delete(format!("{mail}/{name}").into(), ANY)).collect();
        ops.push(Op::Delete(mail.into(), ANY));
        link.multi(ops).await.map(drop)
    }

    /// Connects again and again.
    async fn stay_connected(&mut self, status: &watch::Sender<Status>) {
        let (mut backoff, mut failures) = (Backoff::default(), 0);
        loop {
            let failure = match self.resume().await {
                Ok(live) => {
                    (backoff, failures) = (Backoff::default(), 0);
                    self.run(live, status).await
                }
                Err(failure) => failure,
            };
            let is_first = !matches!(*status.borrow(), Status::Ready);
            failures += 1;
            let is_final = failure.meaning == Meaning::Refused;
            drop(self.exchange.client.clear_link(failure.clone()));
            if is_first && (failures >= self.servers.len() || is_final) {
                panics::contain(|| status.send_replace(Status::Failed(failure)));
            }
            // The next server is tried at once.
            if failures % self.servers.len() == 0 {
                background::sleep(backoff.next_delay()).await;
            }
        }
    }

    /// Hears until the connection fails.
    async fn run(&mut self, mut live: Live, status: &watch::Sender<Status>) -> Failure {
        self.exchange.client.set_link(live.link.clone());
        if !matches!(*status.borrow(), Status::Ready) {
            panics::contain(|| status.send_replace(Status::Ready));
        }
        if std::mem::take(&mut self.state.has_gap) {
            self.exchange.shared.tell(Received::Gap);
        }
        let mut reads = Reads::new();
        let mut delete = background::sleep(DELETE_EVERY);
        loop {
            let result = tokio::select! {
                biased;
                failure = &mut live.ended => return failure.unwrap_or_else(|_| has_ended()),
                Some(event) = live.events.recv() => self.heard_of(event, &live.link, &mut reads),
                Some(read) = reads.next() => read.map(|read| self.take(read)),
                () = &mut delete => {
                    delete = background::sleep(DELETE_EVERY);
                    self.delete_heard(&live.link, &mut reads);
                    Ok(())
                }
            };
            if let Err(failure) = result {
                return failure;
            }
        }
    }

    /// Begins to read what an event is about.
    fn heard_of(&mut self, event: Event, link: &Link, reads: &mut Reads) -> Result<(), Failure> {
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
        } else if event.change == Change::Deleted {
            // Of the store's nodes: they are made anew.
            return Err(Failure::unsent(format!("the node {} in ZooKeeper was deleted", event.path)));
        }
        Ok(())
    }

    fn take(&mut self, read: Read) {
        match read {
            Read::Mail(name, Some(mail)) => {
                if self.state.heard.insert(name) {
                    for text in texts(&mail) {
                        self.exchange.shared.tell(Received::Text(text));
                    }
                }
            }
            Read::Clock(life, Some((text, stat))) => {
                // A text that cannot be read is reported to callers.
                drop(self.exchange.clock.find(life, &text, &stat, Source::Told));
            }
            Read::Deleted(names, Done::All(_)) => self.state.heard.retain(|name| !names.contains(name)),
            // Another process has deleted it.
            Read::Deleted(names, Done::Nothing(place, _)) => {
                names.get(place).map(|name| self.state.heard.remove(name));
            }
            Read::Mail(_, None) | Read::Clock(_, None) => {}
        }
    }

    /// Begins to delete messages that were heard.
    fn delete_heard(&self, link: &Link, reads: &mut Reads) {
        let mail = self.exchange.keys.mail(self.exchange.shared.inbox());
        let names: Vec<_> = self.state.heard.iter().take(DELETE_AT_ONCE).cloned().collect();
        if names.is_empty() {
            return;
        }
        let delete = |name: &String| Op::Delete(format!("{mail}/{name}").into(), ANY);
        let done = link.multi(names.iter().map(delete).collect());
        reads.push_back(Box::pin(async move { Ok(Read::Deleted(names, done.await?)) }));
    }

    /// Connects to the next server, with the session of the last connection if it is not over.
    async fn resume(&mut self) -> Result<Live, Failure> {
        let limits = self.exchange.client.limits;
        let connecting = async {
            let stream = self.servers.connect().await?;
            let client = &self.exchange.client;
            let (zxid, patience) = (Arc::clone(&client.zxid), limits.call);
            Connection::open(stream, zxid, &self.state.identity, self.login.as_deref(), patience).await
        };
        let opened = tokio::select! {
            biased;
            opened = connecting => opened?,
            () = background::sleep(limits.server) => {
                return Err(Failure::unreachable(format!("no answer from ZooKeeper within {:?}", limits.server)));
            }
        };
        let (connection, identity) = match opened {
            Opened::Accepted(connection, identity) => (connection, identity),
            Opened::SessionOver => {
                self.state.identity = Identity::new(SESSION_TIMEOUT);
                return Err(Failure::unsent("the session at ZooKeeper is over"));
            }
        };
        self.state.identity = identity;
        let access = if self.login.is_some() { Access::Login } else { Access::Everybody };
        let (link, calls) = Link::new(access);
        let ((tell, events), (end, ended)) = (mpsc::unbounded_channel(), oneshot::channel());
        background::spawn(async move { drop(end.send(connection.run(calls, tell).await)) });
        let mut live = Live { link, events, ended };
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

/// Puts what this process needs in place, and hears what has come meanwhile.
async fn announce(exchange: &Exchange, state: &mut State, link: Link) -> Result<(), Failure> {
    if !state.has_nodes {
        make_nodes(exchange, &link).await?;
        state.has_nodes = true;
    }
    let announced = claim(exchange, state, &link).await;
    if announced.as_ref().is_err_and(|failure| failure.meaning == Meaning::Absent) {
        state.has_nodes = false;
    }
    announced
}

async fn claim(exchange: &Exchange, state: &mut State, link: &Link) -> Result<(), Failure> {
    let (keys, shared) = (&exchange.keys, &exchange.shared);
    let was_there = loop {
        // First: whoever finds the inbox finds it, too.
        link.ensure(&keys.mail(shared.inbox()), b"").await?;
        match claim_inbox(&keys.inbox(shared.inbox()), state, link).await? {
            Some(was_there) => break was_there,
            // Waiters of this process have its number already.
            None if state.has_inbox => return Err(inbox_is_taken()),
            None => shared.draw_inbox(),
        }
    };
    // Without an inbox, others have sent nothing.
    state.has_gap |= state.has_inbox && !was_there;
    state.has_inbox = true;
    let mail = keys.mail(shared.inbox());
    let (watched, clock_watched) = (link.watch(&mail), link.watch(&keys.clock()));
    let (names, base) = (link.children(&mail), link.get(&keys.base()));
    watched.await?;
    clock_watched.await?;
    let (base, mut names) = (base.await?, names.await?);
    let (base, _) = base.ok_or_else(|| Failure::of_code(-101, &keys.base()))?;
    let base = from_utf8(&base).ok().and_then(|base| base.parse().ok()).ok_or_else(|| {
        Failure::refused(
            ErrorKind::Conflict,
            format!("the node {} of ZooKeeper holds no number", keys.base()),
        )
    })?;
    if shared.set_base(base) {
        exchange.clock.forget();
        exchange.memory.forget();
    }
    exchange.clock.clock().doubt();
    exchange.clock.ensure(link.clone()).await?;
    names.sort_unstable();
    names.retain(|name| !state.heard.contains(name));
    for read in
        try_join_all(names.into_iter().map(|name| read_mail(link, &format!("{mail}/{name}"), name))).await?
    {
        if let Read::Mail(name, Some(mail)) = read {
            state.heard.insert(name);
            texts(&mail).for_each(|text| shared.tell(Received::Text(text)));
        }
    }
    Ok(())
}

/// Creates the inbox. Returns whether it was there without a pause, or `None` if it is that of another process.
async fn claim_inbox(inbox: &str, state: &State, link: &Link) -> Result<Option<bool>, Failure> {
    let create = Op::create(inbox, &state.mark, Kind::Ephemeral);
    loop {
        let Some((mark, stat)) = link.get(inbox).await? else {
            match link.carry_out(&create).await {
                Err(failure) if failure.meaning == Meaning::Exists => continue,
                created => return created.map(|_| Some(false)),
            }
        };
        if *mark != *state.mark {
            return Ok(None);
        }
        if stat.owner == state.identity.id {
            return Ok(Some(true));
        }
        // It is of the last session of this process.
        match link.multi(vec![Op::Delete(inbox.into(), stat.version), create.clone()]).await? {
            Done::All(_) => return Ok(Some(true)),
            Done::Nothing(0, failure) if failure.meaning == Meaning::Absent => {}
            Done::Nothing(_, failure) => return Err(failure),
        }
    }
}

/// Creates the nodes of the store that are missing.
async fn make_nodes(exchange: &Exchange, link: &Link) -> Result<(), Failure> {
    let keys = &exchange.keys;
    let ends = keys.root().match_indices('/').map(|(at, _)| at).skip(1).chain([keys.root().len()]);
    for end in ends {
        let path = &keys.root()[..end];
        if link.exists(path).await?.is_none() {
            link.ensure(path, b"").await?;
        }
    }
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_micros().to_string();
    let nodes = [keys.values(), keys.mails(), keys.inboxes(), keys.clock()];
    try_join_all(nodes.iter().map(|path| link.ensure(path, b""))).await?;
    let present = link.children(&keys.values()).await?;
    if present.len() < BUCKETS as usize {
        try_join_all((0..BUCKETS).map(|number| link.ensure(&keys.bucket(number), b""))).await?;
    }
    link.ensure(&keys.base(), now.as_bytes()).await
}

fn read_mail(
    link: &Link,
    path: &str,
    name: String,
) -> impl Future<Output = Result<Read, Failure>> + Send + use<> {
    let got = link.get(path);
    async move { Ok(Read::Mail(name, got.await?.map(|(mail, _)| mail))) }
}

fn inbox_is_taken() -> Failure {
    Failure::unsent("another process has the inbox of this one at ZooKeeper")
}

fn has_ended() -> Failure {
    Failure::unsent("the connection to ZooKeeper has ended")
}
