//! A backend in this process, for tests of the engine: it delays, refuses, loses answers and messages, and carries
//! writes out late. `fake://WORLD?clock=ticked&delay=3ms&faults=5`: all stores of one world share their values.

mod clock;
#[cfg(test)]
mod gate;

use super::{
    backend::{ABSENT, Backend, Epoch, Inbox, Message, Outcome, Received, Version, Write},
    store::CasStore,
    ticker::{self, Ticking},
    time::Time,
};
use clock::{FakeClock, WorldClock};
use futures_util::future::BoxFuture;
#[cfg(test)]
use gate::Gate;
use locker_core::{
    background,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    id::Id,
    process::{PerProcess, world::Inhabitant},
    ranges::{misused, parse_duration},
    store::opening::Opening,
    sync::{Mutex, lock},
};
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

type Receiver = Box<dyn Fn(Received<'_>) + Send + Sync>;

/// A version and its value.
type Stored = (Version, Vec<u8>);

/// A receiver of messages, and its process in a simulation.
type Listener = (Weak<OnceLock<Receiver>>, Option<Inhabitant>);

/// The values of one world, and the processes that use them.
#[derive(Default)]
pub struct World {
    values: Mutex<BTreeMap<String, Stored>>,
    versions: AtomicU64,
    /// Whether the latest write was to survive a crash.
    is_durable: AtomicBool,
    receivers: Mutex<BTreeMap<Inbox, Listener>>,
    /// The processes whose addresses the store does not know for a while.
    deaf: Mutex<BTreeMap<Inbox, Listener>>,
    /// The values before the writes since the last that was to survive a crash.
    undo: Mutex<Vec<(String, Option<Stored>)>>,
    /// What carries late requests to the store, in a simulation: it outlives their senders.
    network: Option<Inhabitant>,
    /// The id of the epoch, and the end of its quiet time.
    epoch: Mutex<(i64, Timestamp)>,
    clock: WorldClock,
    /// The bytes of the values that were read.
    bytes_read: AtomicU64,
}

pub struct Fake {
    world: Arc<World>,
    inbox: Inbox,
    receiver: Arc<OnceLock<Receiver>>,
    /// The clock that the processes move on, if there is no other.
    ticked: Option<Arc<FakeClock>>,
    delay: Duration,
    /// How many of a hundred exchanges go wrong.
    faults: u32,
    largest: usize,
    /// The highest version that this process knows of.
    seen: AtomicU64,
    /// The epoch that this process knows of.
    epoch: Mutex<(i64, Timestamp)>,
    /// How far behind the clock of the store this process takes it to be until the next answer, in microseconds.
    behind: AtomicU64,
    #[cfg(test)]
    gate: Gate,
}

/// What goes wrong with an exchange.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Fault {
    None,
    Refused,
    RequestLost,
    AnswerLost,
    Late,
    MessagesLost,
    /// Another process writes first.
    #[cfg(test)]
    Overtaken,
}

static WORLDS: PerProcess<Mutex<HashMap<String, Arc<World>>>> = PerProcess::new();

/// Opens a store of the world that `rest`, the URL without its scheme, names.
pub fn open(rest: &str, opening: &Opening) -> Result<Arc<CasStore<Fake>>> {
    let (name, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let world =
        Arc::clone(lock(WORLDS.cell().get_or_init(Mutex::default)).entry(name.to_owned()).or_default());
    open_in(world, parameters, opening)
}

/// Opens a store of `world`, with the parameters of the URL.
pub fn open_in(world: Arc<World>, parameters: &str, opening: &Opening) -> Result<Arc<CasStore<Fake>>> {
    CasStore::new(backend_in(world, parameters)?, opening)
}

/// Makes a backend in `world`, with the parameters of the URL.
pub(super) fn backend_in(world: Arc<World>, parameters: &str) -> Result<Fake> {
    let inbox = Id::random().inbox();
    let mut fake = Fake {
        world,
        inbox,
        receiver: Arc::default(),
        ticked: None,
        delay: Duration::ZERO,
        faults: 0,
        largest: 1024 * 1024,
        seen: AtomicU64::new(0),
        epoch: Mutex::default(),
        behind: AtomicU64::new(0),
        #[cfg(test)]
        gate: Gate::default(),
    };
    let mut is_ticked = false;
    for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
        match parameter.split_once('=') {
            Some(("clock", "ticked")) => is_ticked = true,
            Some(("clock", "served")) => is_ticked = false,
            Some(("delay", delay)) => {
                fake.delay = parse_duration(delay).or_else(|_| misused("a wrong delay"))?;
            }
            Some(("faults", faults)) => fake.faults = faults.parse().or_else(|_| misused("wrong faults"))?,
            Some(("largest", bytes)) => {
                fake.largest = bytes.parse().or_else(|_| misused("a wrong size"))?;
            }
            Some(("quiet", quiet)) => {
                fake.world.begin_epoch(parse_duration(quiet).or_else(|_| misused("a wrong time"))?);
            }
            _ => return misused("fake:// has the parameters clock, delay, faults, largest and quiet"),
        }
    }
    *lock(&fake.epoch) = *lock(&fake.world.epoch);
    if is_ticked {
        fake.ticked = Some(FakeClock::start(&fake)?);
    }
    Ok(fake)
}

impl World {
    /// Makes a world whose late requests `network` carries.
    #[must_use]
    pub fn of(network: Inhabitant) -> Self {
        Self { network: Some(network), ..Self::default() }
    }

    /// Returns the number of writes so far.
    pub fn writes(&self) -> u64 {
        self.versions.load(Ordering::Relaxed)
    }

    /// Forgets the addresses of a process, or knows them again: it is then told that it may have missed messages.
    pub fn set_deaf(&self, process: &Inhabitant, is_deaf: bool) {
        let (mut receivers, mut deaf) = (lock(&self.receivers), lock(&self.deaf));
        let (from, to) = if is_deaf { (&mut *receivers, &mut *deaf) } else { (&mut *deaf, &mut *receivers) };
        let of = from.iter().filter(|(_, (_, of))| of.as_ref() == Some(process)).map(|(inbox, _)| *inbox);
        let of: Vec<Inbox> = of.collect();
        let moved: Vec<_> = of.iter().filter_map(|inbox| from.remove_entry(inbox)).collect();
        let again: Vec<_> =
            moved.iter().filter(|_| !is_deaf).filter_map(|(_, (to, _))| to.upgrade()).collect();
        to.extend(moved);
        for receiver in again {
            process.spawn(async move {
                receiver.get().into_iter().for_each(|receive| receive(Received::Gap));
            });
        }
    }

    /// Loses the writes since the last that was to survive a crash, and that one's messages do not come back.
    pub fn crash(&self) {
        let mut values = lock(&self.values);
        for (key, before) in lock(&self.undo).drain(..).rev() {
            match before {
                Some(value) => drop(values.insert(key, value)),
                None => drop(values.remove(&key)),
            }
        }
    }

    fn exchange(&self, write: Write, loses_messages: bool, lag: Duration) -> Outcome {
        let mut values = lock(&self.values);
        let (version, value) = match values.get(write.key.as_str()) {
            Some((version, value)) => (*version, Some(value)),
            None => (ABSENT, None),
        };
        let is_late = write.value.is_some() && write.epoch.is_some_and(|id| id != lock(&self.epoch).0);
        if version != write.expected || is_late {
            self.bytes_read.fetch_add(value.map_or(0, Vec::len) as u64, Ordering::Relaxed);
            return Outcome::Differs { version, value: value.cloned() };
        }
        if !self.clock.is_at(&write.basis) {
            return Outcome::Ticked(None);
        }
        let Some(value) = write.value else { return Outcome::Matched { version, gone: Vec::new() } };
        let version = i64::try_from(self.versions.fetch_add(1, Ordering::Relaxed) + 1).expect("few writes");
        let before = values.insert(write.key.as_str().to_owned(), (version, value));
        if write.durable {
            lock(&self.undo).clear();
        } else if self.network.is_some() {
            lock(&self.undo).push((write.key.as_str().to_owned(), before));
        }
        self.is_durable.store(write.durable, Ordering::Relaxed);
        drop(values);
        let messages = if loses_messages { Vec::new() } else { write.messages };
        Outcome::Matched { version, gone: self.send(messages, lag) }
    }

    /// Writes a value once more, as another process does that changes what nobody looks at.
    #[cfg(test)]
    fn overtake(&self, key: &str) {
        if let Some((version, _)) = lock(&self.values).get_mut(key) {
            *version = i64::try_from(self.versions.fetch_add(1, Ordering::Relaxed) + 1).expect("few writes");
        }
    }

    fn begin_epoch(&self, quiet: Duration) {
        let mut epoch = lock(&self.epoch);
        *epoch = (epoch.0 + 1, Timestamp::now() + quiet);
    }

    fn send(&self, messages: Vec<Message>, lag: Duration) -> Vec<Inbox> {
        let mut gone = Vec::new();
        for Message { to, text } in messages {
            let listener = lock(&self.receivers).get(&to).cloned();
            match listener.and_then(|(receiver, process)| Some((receiver.upgrade()?, process))) {
                Some((receiver, process)) => at(process.as_ref(), async move {
                    background::sleep(lag).await;
                    if let Some(receive) = receiver.get() {
                        receive(Received::Text(&text));
                    }
                }),
                None => gone.push(to),
            }
        }
        gone
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

/// Runs a task in a process of a simulation; without one, in this process.
fn at(process: Option<&Inhabitant>, task: impl Future<Output = ()> + Send + 'static) {
    match process {
        Some(process) => process.spawn(task),
        None => background::spawn(task),
    }
}

/// Returns how late a message arrives: some lag behind by seconds.
fn lag(delay: Duration, faults: u32) -> Duration {
    let lags = Inhabitant::here().is_some() && random(100) < faults;
    if lags { Duration::from_millis(random(3_000).into()) } else { delay }
}

impl Fake {
    /// Returns the bytes of the values that were read in this world.
    #[cfg(test)]
    pub(super) fn bytes_read(&self) -> u64 {
        self.world.bytes_read.load(Ordering::Relaxed)
    }

    /// Returns the number of writes to this world.
    #[cfg(test)]
    pub(super) fn writes(&self) -> u64 {
        self.world.writes()
    }

    /// Returns whether the latest write to this world was to survive a crash.
    #[cfg(test)]
    pub(super) fn was_durable(&self) -> bool {
        self.world.is_durable.load(Ordering::Relaxed)
    }

    /// Lets time stand still for that long, as it does while no process is connected.
    #[cfg(test)]
    pub(super) fn add_gap(&self, gap: Duration) {
        // What this process has seen pass is no part of the gap.
        self.ticked.iter().for_each(|ticked| ticked.leave());
        self.world.clock.move_on(Duration::from_micros(1), gap);
        if let Some(ticked) = &self.ticked {
            ticked.find(Timestamp::now());
        }
    }

    /// Forgets the time, as a process does whose store has gone back.
    #[cfg(test)]
    pub(super) fn forget_clock(&self) {
        self.ticked.as_ref().expect("a ticked clock").clock().forget();
    }

    /// Lets other processes move the time on, of which this one is not told.
    #[cfg(test)]
    pub(super) fn move_time_on(&self, by: Duration) {
        self.world.clock.move_on(by, Duration::ZERO);
    }

    /// Begins an epoch, of which processes learn from their next answer.
    #[cfg(test)]
    pub(super) fn begin_epoch(&self, quiet: Duration) {
        self.world.begin_epoch(quiet);
    }

    /// Lets this process take the clock for behind until the next answer, as one on a machine that was paused does.
    #[cfg(test)]
    pub(super) fn set_clock_back(&self, by: Duration) {
        self.behind.store(u64::try_from(by.as_micros()).expect("a short time"), Ordering::Relaxed);
    }

    /// Stops to listen, as a process does whose connection is replaced.
    #[cfg(test)]
    pub(super) fn stop_listening(&self) {
        lock(&self.world.receivers).remove(&self.inbox);
    }

    /// Listens again.
    #[cfg(test)]
    pub(super) fn listen_again(&self) {
        lock(&self.world.receivers).insert(self.inbox, self.listener());
    }

    /// Returns what holds up the exchanges of this process.
    #[cfg(test)]
    pub(super) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Returns a value and its version.
    #[cfg(test)]
    pub(super) fn value(&self, key: &str) -> (Version, Vec<u8>) {
        lock(&self.world.values)[key].clone()
    }

    /// Sets a value, as a server does that has lost the last writes and got others.
    #[cfg(test)]
    pub(super) fn set_value(&self, key: &str, version: Version, value: Vec<u8>) {
        lock(&self.world.values).insert(key.to_owned(), (version, value));
    }

    /// Removes a value that is over.
    #[cfg(test)]
    pub(super) fn remove(&self, key: &str) {
        lock(&self.world.values).remove(key);
    }

    /// Takes over the clock that an answer has brought to a request that was sent at `sent`.
    fn learn(&self, outcome: Outcome, sent: Timestamp) -> Outcome {
        let Some(ticked) = &self.ticked else { return outcome };
        match outcome {
            Outcome::Ticked(_) => Outcome::Ticked(ticked.find(sent)),
            Outcome::Differs { .. } => {
                ticked.find(sent);
                outcome
            }
            outcome @ Outcome::Matched { .. } => outcome,
        }
    }

    fn fault(&self) -> Fault {
        const FAULTS: [Fault; 5] =
            [Fault::Refused, Fault::RequestLost, Fault::AnswerLost, Fault::Late, Fault::MessagesLost];
        if random(100) < self.faults { FAULTS[random(5) as usize] } else { Fault::None }
    }

    fn listener(&self) -> Listener {
        (Arc::downgrade(&self.receiver), Inhabitant::here())
    }

    /// Returns how late the messages of one exchange arrive.
    fn lag(&self) -> Duration {
        if Inhabitant::here().is_some() { lag(self.delay / 2, self.faults) } else { Duration::ZERO }
    }

    /// Waits for one way of the network: half of the delay, as any network up to half of that more or less. With equal
    /// times, the same one of several processes would win each conflict.
    async fn wait(&self) {
        if !self.delay.is_zero() {
            let half = self.delay / 2;
            background::sleep(half / 2 + half / 256 * random(257)).await;
        }
    }
}

impl Backend for Fake {
    fn exchange(&self, write: Write) -> BoxFuture<'_, Result<Outcome>> {
        let unavailable = |message| Error::new(ErrorKind::Unavailable, message);
        if let Some(ticked) = &self.ticked {
            ticked.clock().note_use();
        }
        let (sent, leaves) = (Timestamp::now(), write.leaves);
        Box::pin(async move {
            let fault = self.fault();
            #[cfg(test)]
            let fault = self.gate.next_fault().unwrap_or(fault);
            #[cfg(test)]
            self.gate.see(&write);
            self.wait().await;
            #[cfg(test)]
            self.gate.pass().await;
            #[cfg(test)]
            if fault == Fault::Overtaken {
                self.world.overtake(write.key.as_str());
            }
            let answer = match fault {
                #[cfg(test)]
                Fault::Overtaken => Ok(self.world.exchange(write, false, self.lag())),
                Fault::Refused => return Err(unavailable("the write was refused")),
                Fault::RequestLost => Err(unavailable("the request was lost").unknown()),
                Fault::Late => {
                    let (world, lag) = (Arc::clone(&self.world), self.lag());
                    at(self.world.network.as_ref(), async move {
                        background::sleep(Duration::from_micros(random(20_000).into())).await;
                        world.exchange(write, false, lag);
                    });
                    Err(unavailable("the write is late").unknown())
                }
                Fault::AnswerLost => {
                    self.world.exchange(write, false, self.lag());
                    Err(unavailable("the answer was lost").unknown())
                }
                Fault::None | Fault::MessagesLost => {
                    Ok(self.world.exchange(write, fault == Fault::MessagesLost, self.lag()))
                }
            };
            #[cfg(test)]
            self.gate.note(&answer);
            self.wait().await;
            self.behind.store(0, Ordering::Relaxed);
            *lock(&self.epoch) = *lock(&self.world.epoch);
            let answer = answer.map(|outcome| self.learn(outcome, sent));
            if let (Some(ticked), true, Ok(Outcome::Matched { .. })) = (&self.ticked, leaves, &answer) {
                ticked.leave();
            }
            self.seen.fetch_max(self.world.versions.load(Ordering::Relaxed), Ordering::Relaxed);
            answer
        })
    }

    fn send(&self, messages: Vec<Message>) -> BoxFuture<'_, Result<Vec<Inbox>>> {
        Box::pin(async move { Ok(self.world.send(messages, self.lag())) })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, Vec<u8>)>>> {
        Box::pin(async move {
            let values = lock(&self.world.values);
            let meant =
                |key: &String| key.starts_with(prefix) && after.is_none_or(|after| key.as_str() > after);
            let found = values.iter().filter(|(key, _)| meant(key)).take(limit);
            Ok(found.map(|(key, (_, value))| (key.clone(), value.clone())).collect())
        })
    }

    fn time(&self) -> Time {
        let behind = Duration::from_micros(self.behind.load(Ordering::Relaxed));
        let served = || Time::served(Timestamp::shared_now() - behind - self.delay, self.delay);
        self.ticked.as_ref().map_or_else(served, |ticked| ticked.clock().time().unwrap_or_else(Time::unknown))
    }

    fn settle(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if let Some(ticked) = &self.ticked {
                ticker::settle(&**ticked).await;
            }
        })
    }

    fn inbox(&self) -> Inbox {
        self.inbox
    }

    fn epoch(&self) -> Epoch {
        let (id, until) = *lock(&self.epoch);
        let left = until.since(Timestamp::now());
        Epoch { id, quiet: (!left.is_zero()).then_some(left) }
    }

    fn fence_floor(&self) -> u64 {
        let now = Timestamp::shared_now().as_micros();
        if self.ticked.is_some() { self.seen.load(Ordering::Relaxed) << 16 } else { now }
    }

    fn fence_is_time(&self) -> bool {
        self.ticked.is_none()
    }

    fn reads_first(&self) -> bool {
        self.ticked.is_some()
    }

    fn name(&self) -> &'static str {
        "fake"
    }

    fn listen(&self, receiver: Receiver) {
        // It is called once.
        let _ = self.receiver.set(receiver);
        lock(&self.world.receivers).insert(self.inbox, self.listener());
    }

    fn max_value_len(&self) -> usize {
        self.largest
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        lock(&self.world.receivers).remove(&self.inbox);
        self.ticked.iter().for_each(|ticked| ticked.end());
    }
}

impl fmt::Debug for Fake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fake")
    }
}

/// Returns a random number below `bound`.
fn random(bound: u32) -> u32 {
    Id::random().jitter(bound)
}
