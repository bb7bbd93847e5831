//! The masters of a cluster: which there are, and a connection to each of them.
//!
//! A task asks one node per second for its view of the cluster, and all nodes when a call has failed or was redirected.
//! There is a connection to every master, also to those without slots: a slot may come at any time, and the messages
//! for the waiters of its keys are then counted at its new node.

mod absences;
mod questions;

use super::{
    connection::{Connection, ConnectionHandle, Connector},
    discovery::Discovery,
    push_receiver::PushReceiver,
    server::Server,
    slots::{NodeNumber, Owner, Owners},
    topology::{Topology, View},
    url::Clustered,
};
use absences::Absences;
use futures_util::future::join_all;
use locker_core::{
    background,
    backoff::Backoff,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    store::opening::NetworkOptions,
    sync::{Mutex, lock},
};
use questions::{LIMIT, ask_link, ask_place, join_or_grace};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::{Notify, watch};

/// The time between two questions.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// The time between two questions at first, however many calls are redirected. It doubles up to the interval while the
/// answers say nothing new.
const PAUSE: Duration = Duration::from_millis(100);

/// The shortest time between two moments at which all waiters ask again because slots have moved.
const WAKE_INTERVAL: Duration = Duration::from_secs(1);

/// After how long a cluster is taken to be another one, made anew at the same addresses, and a master to be removed.
/// Every node that answers must have said so all the time.
const REPLACED_AFTER: Duration = Duration::from_secs(5);

/// A URL of a cluster.
#[derive(Clone)]
pub(super) struct Seeds {
    pub(super) url: Clustered,
    pub(super) options: NetworkOptions,
}

/// The nodes of a cluster.
pub(super) struct Cluster {
    seeds: Seeds,
    address: String,
    connector: Box<dyn Fn(Discovery) -> Connector + Send + Sync>,
    receiver: Arc<PushReceiver>,
    owners: Arc<Owners>,
    known: Mutex<ClusterState>,
    /// How many times all nodes were asked, and why the last question failed.
    asked: watch::Sender<(u64, Option<Error>)>,
    trouble: Arc<Trouble>,
}

#[derive(Default)]
struct ClusterState {
    topology: Topology,
    links: BTreeMap<NodeNumber, Link>,
    /// The node to ask next.
    next: NodeNumber,
    /// Counts the changes of owners.
    version: u64,
    /// Whether the last view that came had slots on the move.
    is_moving: bool,
    woken: Timestamp,
    /// Whether waiters have to ask again because slots have moved.
    must_wake: bool,
    /// Since when every view is of another cluster.
    foreign_since: Option<Timestamp>,
    absences: Absences,
}

/// The connection to one master.
struct Link {
    server: Arc<Server>,
    handle: ConnectionHandle,
}

/// A call has failed or was redirected.
#[derive(Default)]
struct Trouble {
    is_there: AtomicBool,
    news: Notify,
}

impl Cluster {
    /// Starts to connect in the background.
    pub(super) fn open(
        seeds: Seeds,
        receiver: Arc<PushReceiver>,
        connector: impl Fn(Discovery) -> Connector + Send + Sync + 'static,
    ) -> Arc<Self> {
        let topology = Topology::new(seeds.url.has_tls());
        let cluster = Arc::new(Self {
            address: seeds.url.redacted(),
            seeds,
            connector: Box::new(connector),
            receiver,
            owners: Arc::default(),
            known: Mutex::new(ClusterState { topology, ..ClusterState::default() }),
            asked: watch::channel((0, None)).0,
            trouble: Arc::default(),
        });
        background::spawn(follow(Arc::downgrade(&cluster), Arc::clone(&cluster.trouble)));
        cluster
    }

    /// Makes the nodes be asked soon.
    pub(super) fn report_trouble(&self) {
        self.trouble.is_there.store(true, Ordering::SeqCst);
        self.trouble.news.notify_one();
    }

    /// Waits until the nodes are known and the first attempts to connect to them have ended. One that cannot be reached
    /// is no error, unless all are.
    pub(super) async fn ready(&self, limit: Duration) -> Result<()> {
        let by = Timestamp::now() + limit;
        let mut asked = self.asked.subscribe();
        while self.links().is_empty() {
            let lasting = asked.borrow_and_update().1.clone().filter(|error| !error.is_temporary());
            if let Some(error) = lasting {
                return Err(error);
            }
            tokio::select! {
                _ = asked.changed() => {}
                () = background::sleep_until(by) => return Err(self.unknown()),
            }
        }
        let connecting = self
            .links()
            .into_iter()
            .map(|link| async move { link.main(by.since(Timestamp::now())).await.err() });
        let errors = join_all(connecting).await;
        let lasting = errors.iter().flatten().find(|error| !error.is_temporary());
        let first = if errors.iter().all(Option::is_some) { errors.iter().flatten().next() } else { None };
        lasting.or(first).map_or(Ok(()), |error| Err(error.clone()))
    }

    fn unknown(&self) -> Error {
        let error = self.asked.borrow().1.clone();
        error.unwrap_or_else(|| {
            Error::new(ErrorKind::Unavailable, format!("no node of {} has answered yet", self.address))
        })
    }

    /// Returns the owner of a slot. Waits until `by` for one.
    pub(super) async fn owner(&self, slot: u16, by: Timestamp) -> Result<ConnectionHandle> {
        let mut asked = self.asked.subscribe();
        loop {
            if let Some(link) = self.link_of(slot) {
                return Ok(link);
            }
            self.report_trouble();
            tokio::select! {
                biased;
                _ = asked.changed() => {}
                () = background::sleep_until(by) => return Err(self.ownerless(slot).unsent()),
            }
            let lasting = asked.borrow().1.clone().filter(|error| !error.is_temporary());
            if let (true, Some(error)) = (self.links().is_empty(), lasting) {
                return Err(error.unsent());
            }
        }
    }

    /// Returns the error for a slot whose owner is not known.
    pub(super) fn ownerless(&self, slot: u16) -> Error {
        if self.links().is_empty() {
            return self.unknown();
        }
        Error::new(ErrorKind::Unavailable, format!("no node of {} has the slot {slot}", self.address))
    }

    pub(super) fn link_of(&self, slot: u16) -> Option<ConnectionHandle> {
        lock(&self.known).links.get(&self.owners.of(slot)).map(|link| link.handle.clone())
    }

    /// Returns the master that a redirection names, if it is known.
    pub(super) fn master_at(&self, place: &str) -> Option<ConnectionHandle> {
        let known = lock(&self.known);
        let number = known.topology.master_at(place)?;
        known.links.get(&number).map(|link| link.handle.clone())
    }

    /// Returns all masters.
    pub(super) fn links(&self) -> Vec<ConnectionHandle> {
        lock(&self.known).links.values().map(|link| link.handle.clone()).collect()
    }

    /// Returns a number that changes with the owners of slots, and whether a node gives slots away now.
    pub(super) fn version(&self) -> (u64, bool) {
        let known = lock(&self.known);
        (known.version, known.is_moving)
    }

    /// Asks all nodes now, however many calls are redirected.
    pub(super) async fn ask_all(&self) {
        let mut asked = self.asked.subscribe();
        let before = asked.borrow().0;
        self.report_trouble();
        tokio::select! {
            _ = asked.wait_for(|asked| asked.0 > before) => {}
            () = background::sleep(LIMIT) => {}
        }
    }

    /// Asks the next node, or all of them if there is trouble.
    async fn ask(&self) -> Outcome {
        let before = self.version().0;
        let has_trouble = self.trouble.is_there.swap(false, Ordering::SeqCst);
        let (mut up, is_whole) = self.up();
        let asks_all = has_trouble || !is_whole;
        if !asks_all {
            up.truncate(1);
        }
        let mut views = join_or_grace(up.into_iter().map(ask_link)).await;
        if !views.iter().any(Result::is_ok) {
            let Seeds { url, options } = &self.seeds;
            views = join_or_grace(url.seeds.iter().map(|info| ask_place(info, options))).await;
        }
        lock(&self.known).is_moving = views.iter().flatten().any(|view| view.is_moving);
        let is_replaced = self.is_replaced(views.iter().flatten(), asks_all);
        if asks_all {
            self.note_absences(&views);
        }
        let mut errors = Vec::new();
        let mut is_known = false;
        for view in views {
            match view {
                Ok(view) => {
                    is_known = true;
                    self.apply(&view, is_replaced);
                }
                Err(error) => errors.push(error),
            }
        }
        let error = (!is_known).then(|| self.refusal(&errors));
        self.asked.send_modify(|asked| *asked = (asked.0 + u64::from(asks_all), error));
        let wait = self.wake_waiters_if_due().unwrap_or(ASK_INTERVAL);
        let is_news = self.version().0 != before;
        Outcome { wait, is_well: is_known && is_whole, is_calm: !has_trouble || is_news }
    }

    /// Returns the connections that are up, beginning with the next one to ask, and whether all are.
    fn up(&self) -> (Vec<Arc<Connection>>, bool) {
        let mut known = lock(&self.known);
        let links = known.links.range(known.next..).chain(known.links.range(..known.next));
        let up: Vec<_> = links.filter_map(|(number, link)| Some((*number, link.handle.up()?))).collect();
        let is_whole = !up.is_empty() && up.len() == known.links.len();
        if let Some((first, _)) = up.first() {
            known.next = first + 1;
        }
        (up.into_iter().map(|(_, connection)| connection).collect(), is_whole)
    }

    /// Returns the error if no node has told its view.
    fn refusal(&self, errors: &[Error]) -> Error {
        let is_lasting = !errors.is_empty() && errors.iter().all(|error| !error.is_temporary());
        let kind = if is_lasting { ErrorKind::Misused } else { ErrorKind::Unavailable };
        let reasons: Vec<_> = errors.iter().map(Error::message).collect();
        Error::new(kind, format!("no node of {} tells the slots: {}", self.address, reasons.join("; ")))
    }

    /// Returns whether there is another cluster now in place of this one. Only all nodes together can say that: a node
    /// may have left this cluster for another one.
    fn is_replaced<'a>(&self, views: impl Iterator<Item = &'a View>, are_all: bool) -> bool {
        let mut known = lock(&self.known);
        let mut views = views.peekable();
        let has_answered = views.peek().is_some();
        if !views.all(|view| view.is_whole() && known.topology.is_foreign(view)) {
            known.foreign_since = None;
        } else if !are_all {
            self.trouble.is_there.store(true, Ordering::SeqCst);
        } else if has_answered {
            let now = Timestamp::now();
            return now >= *known.foreign_since.get_or_insert(now) + REPLACED_AFTER;
        }
        false
    }

    /// Notes the masters that no node knows: the slots of one that was removed are those of its heirs after a while.
    fn note_absences(&self, views: &[Result<View>]) {
        let known = &mut *lock(&self.known);
        let views: Vec<_> = views.iter().flatten().collect();
        if !views.is_empty() {
            let unknown = known.topology.owners_unknown_to(&views);
            known.topology.set_gone(known.absences.of(unknown, Timestamp::now(), REPLACED_AFTER));
        }
    }

    fn apply(&self, view: &View, is_replaced: bool) {
        let mut known = lock(&self.known);
        let change = if is_replaced && known.topology.is_foreign(view) {
            known.topology.replace(view)
        } else {
            known.topology.apply(view)
        };
        let masters = known.topology.masters();
        if change.has_moved || masters != known.links.keys().copied().collect() {
            known.version += 1;
        }
        // New connections first: from here on calls find them.
        for number in &masters {
            if !known.links.contains_key(number)
                && let Some(link) = self.link(*number, &known.topology)
            {
                known.links.insert(*number, link);
            }
        }
        known.topology.owners().for_each(|(slot, owner)| self.owners.set(slot, owner));
        known.links.retain(|number, link| {
            let stays = masters.contains(number);
            if !stays {
                link.server.leave();
            }
            stays
        });
        known.must_wake |= change.has_moved;
        drop(known);
        if change.has_failed_over {
            self.receiver.doubt_holds();
        }
    }

    fn link(&self, number: NodeNumber, topology: &Topology) -> Option<Link> {
        let (id, place) = topology.master(number)?;
        let host = match &place.hostname {
            // Certificates are for names.
            Some(name) if self.seeds.url.has_tls() => name.clone(),
            _ => place.address.clone(),
        };
        let info = self.seeds.url.node(host, place.port);
        // The options are those of the seeds, which were accepted.
        let server = Arc::new(Server::new(info, 0, &self.seeds.options).ok()?);
        let owner = Owner { id: id.into(), number, owners: Arc::clone(&self.owners) };
        let has_relocated = topology.has_relocated(number);
        let discovery = Discovery::Node { server: Arc::clone(&server), owner, has_relocated };
        Some(Link { server, handle: ConnectionHandle::open((self.connector)(discovery)) })
    }

    /// Makes the waiters ask again after slots have moved: a message may have come over the connection to the former
    /// owner after the change, and over that to the new one before. Returns the time until then if it is too early.
    fn wake_waiters_if_due(&self) -> Option<Duration> {
        let mut known = lock(&self.known);
        if !known.must_wake {
            return None;
        }
        let (now, due) = (Timestamp::now(), known.woken + WAKE_INTERVAL);
        if now < due {
            return Some(due.since(now));
        }
        (known.must_wake, known.woken) = (false, now);
        drop(known);
        self.receiver.wake_waiters();
        None
    }
}

/// The outcome of a question.
struct Outcome {
    /// How long to wait before the next one.
    wait: Duration,
    is_well: bool,
    /// Whether no call has failed, or the answers have explained why.
    is_calm: bool,
}

/// Keeps the nodes known until the cluster is dropped.
async fn follow(cluster: Weak<Cluster>, trouble: Arc<Trouble>) {
    let pauses = || Backoff::between(PAUSE, ASK_INTERVAL);
    let (mut backoff, mut pause) = (Backoff::default(), pauses());
    loop {
        let Some(open) = cluster.upgrade() else { return };
        let Outcome { mut wait, is_well, is_calm } = open.ask().await;
        drop(open);
        if is_well {
            backoff = Backoff::default();
        } else {
            wait = wait.min(backoff.next_delay());
        }
        if is_calm {
            pause = pauses();
        }
        background::sleep(pause.next_delay()).await;
        tokio::select! {
            () = background::sleep(wait) => {}
            () = trouble.news.notified() => {}
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.trouble.news.notify_one();
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("address", &self.address).finish_non_exhaustive()
    }
}
