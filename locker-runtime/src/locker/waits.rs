//! The waits of a locker that last. It tells them to its store, so that others know what their holders wait for, and
//! looks for deadlocks among them.
//!
//! A wait enters the list after a second; shorter ones cost nothing. While the list has waits, a task of the background
//! thread tells it, and looks for deadlocks. It is woken by time alone: when all wait for each other, nothing else
//! happens.
//!
//! The same text tells the holds with a trace, and the same looks find those of the holders of a wait.

mod detection;
mod links;
mod text;

use super::{Inner, Locker, TraceContext, deadlock::Wait, traces::TracedHold};
use detection::Look;
use futures_util::FutureExt;
use locker_core::{
    background,
    clock::Timestamp,
    error::{Blocked, Error, ErrorKind, Result},
    id::Id,
    key::Key,
    primitives::{Notification, Signal},
    store::Description,
    sync::{Mutex, lock},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    num::NonZeroU64,
    panic::AssertUnwindSafe,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// When a wait enters the list.
pub(super) const LISTED_AFTER: Duration = Duration::from_secs(1);

/// When a wait is first looked at, and how long after a look the next one is.
const FIRST_LOOK: Duration = Duration::from_secs(3);
const NEXT_LOOK: Duration = Duration::from_secs(5);

/// The shortest time between two looks, and between two texts.
const ROUND: Duration = Duration::from_secs(1);

/// The time after which the text is told again, and how long the store keeps it.
const REPEAT_EVERY: Duration = Duration::from_secs(15);
const KEPT: Duration = Duration::from_secs(30);

/// The shortest time between two texts that tell other holds.
const HOLDS_EVERY: Duration = Duration::from_secs(5);

/// The maximum of waits that are told and looked at, and the same for holds.
const MOST: usize = 64;

/// Returns the subject of the waits of the locker whose ids have this tag.
fn subject(tag: u64) -> String {
    format!("waits:{tag:016x}")
}

/// A wait in the list.
#[derive(Debug)]
pub(super) struct Listed {
    wait: Wait,
    started: Timestamp,
    is_long: bool,
    /// The time of the next look for a deadlock, in microseconds.
    looks_at: AtomicU64,
    /// The same for the traces of its holders.
    links_at: AtomicU64,
    error: OnceLock<Error>,
    links: Mutex<Links>,
}

/// The traces of its holders that a wait has found.
#[derive(Debug, Default)]
struct Links {
    found: Vec<TraceContext>,
    /// How many of them the application knows.
    told: usize,
}

impl Listed {
    /// Returns the error that ends the wait, if it is to end.
    pub(super) fn error(&self) -> Option<Error> {
        self.error.get().cloned()
    }

    /// Returns the traces that were found since the last call.
    pub(super) fn new_links(&self) -> Vec<TraceContext> {
        let mut links = lock(&self.links);
        let new = links.found[links.told..].to_vec();
        links.told = links.found.len();
        new
    }

    /// Adds the traces of holders, and has the wait polled if one is new.
    fn link(&self, locker: &Locker, holders: impl Iterator<Item = TraceContext>) {
        let is_new = {
            let mut links = lock(&self.links);
            for context in holders {
                if links.found.len() < MOST && !links.found.contains(&context) {
                    links.found.push(context);
                }
            }
            links.told < links.found.len()
        };
        if is_new {
            let signal = Signal::Recheck { within: Duration::MAX };
            self.send(locker, signal);
        }
    }

    fn send(&self, locker: &Locker, signal: Signal) {
        let (key, id) = (self.wait.key.clone(), self.wait.id);
        // Without a mailbox the wait has ended.
        drop(locker.store().mailboxes().deliver(Notification { key, id, signal }));
    }

    /// Ends the wait, unless it has just been granted.
    fn fail(&self, locker: &Locker, message: String, blocked: Blocked) {
        let error = Error::new(ErrorKind::Deadlock, message).with_key(self.wait.key.as_str());
        drop(self.error.set(error.with_blocked(blocked)));
        self.send(locker, Signal::Wake);
    }
}

/// The list of a locker.
#[derive(Debug)]
pub(super) struct Waits {
    is_on: bool,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    by_id: HashMap<Id, Arc<Listed>>,
    /// Holds with a trace, and when each is told, by number.
    holds: BTreeMap<NonZeroU64, (TracedHold, Timestamp)>,
    last_hold: u64,
    has_task: bool,
}

impl Waits {
    pub(super) fn new(is_on: bool) -> Arc<Self> {
        Arc::new(Self { is_on, list: Mutex::default() })
    }

    /// Returns the waits that are told: those with holds first, then the oldest. Among those without holds, candidates
    /// of elections come last, because they wait for days.
    fn told(&self) -> Vec<Arc<Listed>> {
        let mut all: Vec<_> = lock(&self.list).by_id.values().cloned().collect();
        let order = |listed: &Arc<Listed>| {
            (listed.wait.around.is_empty(), listed.is_long, listed.started, listed.wait.id)
        };
        if all.len() > MOST {
            all.select_nth_unstable_by_key(MOST, order);
            all.truncate(MOST);
        }
        all.sort_unstable_by_key(order);
        all
    }

    /// Returns the holds that are told at `now`: the oldest.
    fn holds(&self, now: Timestamp) -> Vec<TracedHold> {
        let list = lock(&self.list);
        let due = list.holds.values().filter(|(_, told_at)| *told_at <= now);
        due.take(MOST).map(|(hold, _)| hold.clone()).collect()
    }

    /// Ends the task if nothing is left. Returns whether it has to end.
    fn ends(&self) -> bool {
        let mut list = lock(&self.list);
        list.has_task = !list.by_id.is_empty() || !list.holds.is_empty();
        !list.has_task
    }
}

impl Locker {
    /// Whether waits enter the list.
    pub(super) fn lists_waits(&self) -> bool {
        self.0.waits.is_on
    }

    /// Enters a wait, which has lasted since `started`.
    pub(super) fn list_wait(&self, wait: Wait, started: Timestamp, is_long: bool) -> Arc<Listed> {
        let first = || AtomicU64::new((started + FIRST_LOOK).as_micros());
        let listed = Arc::new(Listed {
            wait,
            started,
            is_long,
            looks_at: first(),
            links_at: first(),
            error: OnceLock::new(),
            links: Mutex::default(),
        });
        let mut list = lock(&self.0.waits.list);
        list.by_id.insert(listed.wait.id, Arc::clone(&listed));
        self.attend(&mut list);
        listed
    }

    /// Enters a hold, which is told from `told_at` on. Returns its number.
    pub(super) fn list_hold(&self, hold: TracedHold, told_at: Timestamp) -> NonZeroU64 {
        let mut list = lock(&self.0.waits.list);
        list.last_hold += 1;
        let number = NonZeroU64::MIN.saturating_add(list.last_hold);
        list.holds.insert(number, (hold, told_at));
        self.attend(&mut list);
        number
    }

    /// Removes a hold that has ended.
    pub(super) fn unlist_hold(&self, number: NonZeroU64) {
        lock(&self.0.waits.list).holds.remove(&number);
    }

    /// Starts the task, unless it runs.
    fn attend(&self, list: &mut List) {
        if !list.has_task && background::ready().is_ok() {
            list.has_task = true;
            background::spawn(attend(Arc::clone(&self.0.waits), Arc::downgrade(&self.0)));
        }
    }

    /// Reads the holders of a key, what they wait for, and so on.
    pub(crate) async fn look_from(&self, key: &Key) -> Result<Look<'_>> {
        self.ready()?;
        Ok(Look::at(self, &self.0.waits.told(), BTreeSet::from([key.clone()])).await)
    }

    /// Returns how callers wait for each other in a deadlock that the holders of a key are in, or wait for.
    pub(crate) async fn deadlock_from(&self, key: &Key) -> Result<Option<String>> {
        Ok(detection::found_from(self, self.look_from(key).await?.seen).await)
    }

    /// Removes a wait that has ended.
    pub(super) fn unlist_wait(&self, listed: &Listed) {
        lock(&self.0.waits.list).by_id.remove(&listed.wait.id);
    }
}

/// What the store was told last, and when. An empty text is as good as none.
#[derive(Debug, Default)]
struct Told {
    text: String,
    at: Timestamp,
    /// The holds of the text, and when they last were others.
    holds: Vec<TracedHold>,
    holds_since: Timestamp,
    /// When it is asked again after a refusal that a repetition would get, too.
    again: Timestamp,
}

impl Told {
    /// Whether nothing is left of it in the store, and another task may tell something at once.
    fn is_over(&self) -> bool {
        let now = Timestamp::now();
        let is_gone = self.text.is_empty() || self.at + KEPT <= now;
        is_gone && self.again <= now && self.holds_since + HOLDS_EVERY <= now
    }
}

/// Tells the list, and looks for deadlocks, until nothing is left.
async fn attend(waits: Arc<Waits>, locker: Weak<Inner>) {
    let mut told = Told::default();
    while let Some(locker) = locker.upgrade().map(Locker) {
        let round = AssertUnwindSafe(round(&locker, &waits, &mut told)).catch_unwind();
        // A store that fails or panics does so in calls that can report it.
        drop(round.await);
        drop(locker);
        background::sleep(ROUND).await;
        // Not before the pause: short holds would start a task each.
        if told.is_over() && waits.ends() {
            return;
        }
    }
}

async fn round(locker: &Locker, waits: &Waits, told: &mut Told) {
    let (all, now) = (waits.told(), Timestamp::now());
    if told.holds_since + HOLDS_EVERY <= now {
        let holds = waits.holds(now);
        if holds != told.holds {
            (told.holds, told.holds_since) = (holds, now);
        }
    }
    let text = text::write(all.iter().map(|listed| &listed.wait), &told.holds);
    let is_old = !text.is_empty() && told.at + REPEAT_EVERY <= now;
    if (text != told.text || is_old) && told.again <= now {
        match tell(locker, text.clone()).await {
            Ok(()) => (told.text, told.at) = (text, now),
            // It may have been carried out.
            Err(error) if error.is_temporary() && all.is_empty() => told.again = now + HOLDS_EVERY,
            Err(error) if error.is_temporary() => {}
            Err(_) => told.again = now + REPEAT_EVERY,
        }
    }
    let old = || all.iter().filter(|listed| listed.started + FIRST_LOOK <= now);
    let is_due = |at: &AtomicU64| at.load(Ordering::Relaxed) <= now.as_micros();
    let look_again = |at: &AtomicU64| at.store((now + NEXT_LOOK).as_micros(), Ordering::Relaxed);
    let with_holds: Vec<_> = old().filter(|listed| !listed.wait.around.is_empty()).cloned().collect();
    if with_holds.iter().any(|listed| is_due(&listed.looks_at)) {
        for listed in &with_holds {
            look_again(&listed.looks_at);
        }
        detection::detect(locker, &waits.told(), &with_holds).await;
    }
    let links = old().filter(|listed| locker.links() && is_due(&listed.links_at)).cloned();
    let unlinked: Vec<_> = links.inspect(|listed| look_again(&listed.links_at)).collect();
    if !unlinked.is_empty() {
        links::find(locker, &unlinked).await;
    }
}

async fn tell(locker: &Locker, text: String) -> Result<()> {
    let texts = [Description { subject: subject(locker.0.descriptions.ids.tag()), text, keep: KEPT }];
    locker.store().describe(locker.prefix(), &texts).await
}

#[cfg(test)]
mod tests;
