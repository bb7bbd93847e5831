//! Functions that run once in each slot of time, or whose result counts for a while.

#[cfg(feature = "idempotent")]
mod keep;
#[cfg(feature = "idempotent")]
mod kept;

use super::{
    LockRequest, Origin,
    lock::{Done, Entered},
};
use crate::{
    lease::{AsyncBody, Guard, Held, log_release, log_unrecorded, while_held},
    locker::Locker,
    settings::{Settings, hold_setters, margin_setters},
};
use humantime::format_duration;
#[cfg(feature = "idempotent")]
pub use keep::OnceKeep;
#[cfg(feature = "idempotent")]
pub(crate) use keep::{MAX_SIZE, check_kept};
#[cfg(feature = "idempotent")]
pub(crate) use kept::{decode, encode, kept_text, text, unread};
use locker_core::{
    error::{Error, Result},
    id::Id,
    key::Key,
    primitives::{
        HoldKind, Value,
        record::{AfterCrash, Ask, Slots},
    },
    ranges::{check_range, misused},
};
use std::{pin::pin, time::Duration};

/// The shortest and the longest slot.
const EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(366 * 24 * 60 * 60));

/// For how many slots a success is kept. With two, a call that comes two slots later is often too late to see that it
/// has missed one.
const KEPT: u32 = 3;

/// The kind of the keys of records.
const ONCE: &str = "once";

/// Setters that all records have.
macro_rules! record_setters {
    () => {
        /// Sets how long others wait if the process of a run dies. Default 10 s, 1 ms to 10 years.
        pub fn lease(mut self, lease: Duration) -> Self {
            self.settings.lease = lease;
            self
        }

        margin_setters!();

        hold_setters!();

        /// Makes errors name no place of the program.
        #[doc(hidden)]
        pub fn without_place(self) -> Self {
            Self { origin: Origin::Elsewhere, ..self }
        }
    };
}
#[cfg(feature = "idempotent")]
use record_setters;

/// A record of what has run. Created by [`Locker::once`].
///
/// With [`per`](Self::per) a success counts for a slot of time, with `keep` (feature `idempotent`) its result counts
/// for a while.
#[derive(Clone, Debug)]
#[must_use = "a record does nothing until something is run"]
pub struct Once {
    locker: Locker,
    key: Key,
    origin: Origin,
}

impl Locker {
    /// Returns the record called `name`: of several callers one runs, and its success counts for all.
    #[track_caller]
    pub fn once(&self, name: &str) -> Once {
        self.record(Key::named(self.prefix(), ONCE, name)).origin(Origin::caller())
    }

    pub(crate) fn record(&self, key: Key) -> Once {
        Once { locker: self.clone(), key, origin: Origin::Elsewhere }
    }
}

impl Once {
    pub(crate) fn origin(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }

    /// Makes one success count for a slot of time: of all callers in a slot, on all hosts, one runs. `every` is from 1
    /// s to 366 d. Slots begin at midnight UTC and every `every` from there, or at another [`from`](OncePer::from), by
    /// the clock of the store.
    pub fn per(self, every: Duration) -> OncePer {
        let Self { locker, key, origin } = self;
        let settings = locker.settings();
        let (timeout, slots) = (None, Slots::new(every));
        OncePer { locker, key, origin, settings, timeout, slots, after_crash: false }
    }
}

/// A request to run once in each slot of time. Created by [`Once::per`].
///
/// The first caller of a slot runs. The others wait for it, and are skipped once it has succeeded; if it fails or its
/// process ends, the next one runs. A run belongs to the slot in which it began. A call shortly before a slot counts
/// for it ([`early`](Self::early)), because hosts are early and late.
///
/// While the store keeps its data, a slot sees one success, and runs overlap only past a lost lease. A run whose
/// process dies between its effect and its end is repeated: see [`refuse_after_crash`](Self::refuse_after_crash), and
/// for effects that must be exactly once a unique row of the slot in the transaction of the effect.
///
/// ```
/// # use locker_runtime as locker;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> locker::Result<()> {
/// use locker::{Guard, Locker};
/// use std::time::Duration;
/// let locker = Locker::memory();
/// let report = || locker.once("report").per(Duration::from_secs(24 * 60 * 60));
/// let ran = report().run(async |_: &Guard| Ok::<_, locker::Error>("written")).await?;
/// let skipped = report().run(async |_: &Guard| Ok::<_, locker::Error>("written twice")).await?;
/// assert_eq!((ran, skipped), (Some("written"), None));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a record does nothing until something is run"]
pub struct OncePer {
    locker: Locker,
    key: Key,
    origin: Origin,
    settings: Settings,
    /// `None`: half of a slot.
    timeout: Option<Duration>,
    slots: Slots,
    after_crash: bool,
}

impl OncePer {
    /// Sets when slots begin: this long after midnight UTC, and every slot from there. Default 0.
    pub fn from(mut self, from: Duration) -> Self {
        self.slots.from = from;
        self
    }

    /// Sets how much earlier than its slot a call counts for it, at most half of a slot. Default: 30 s, or a tenth of
    /// the slot if that is less.
    pub fn early(mut self, early: Duration) -> Self {
        self.slots.early = early;
        self
    }

    /// Sets how long a call waits for a run of another caller. Default: half of a slot. Zero never waits.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Refuses to run again in a slot in which a run has ended in another way than by its result, because its process
    /// died, its lease was lost, it panicked, or its future was dropped: calls in that slot get `Lost`. The next slot
    /// runs. By default the next caller runs.
    pub fn refuse_after_crash(mut self) -> Self {
        self.after_crash = true;
        self
    }

    record_setters!();

    /// Sets the slots.
    #[doc(hidden)]
    pub fn slots(self, slots: Slots) -> Self {
        Self { slots, ..self }
    }

    /// Runs `body`, unless it has succeeded in this slot. Returns `None` if it was skipped.
    ///
    /// # Errors
    /// Those of the body, after which the next caller runs. `TimedOut` if another run has not ended in time; `Lost` if
    /// the run was lost, which drops the body, or if nobody knows whether the run before has succeeded
    /// ([`refuse_after_crash`](Self::refuse_after_crash)); `Misused` if a setting is wrong, or the call is inside of a
    /// run of this record; `Conflict` if the key belongs to another kind of primitive, or was deleted during the wait;
    /// `Unavailable` if the store cannot be reached.
    ///
    /// # Cancel safety
    /// Cancel safe: when the future is dropped, the body is dropped, and the next caller runs, unless
    /// [`refuse_after_crash`](Self::refuse_after_crash) is set.
    pub async fn run<T, E: From<Error>>(
        self,
        body: impl AsyncFnOnce(&Guard) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        match self.asked()?.enter().await? {
            Began::Runs(run) => run.run(body, |_| Value::default()).await.map(Some),
            Began::Done(_) => Ok(None),
        }
    }

    /// Checks the settings, as the call itself does.
    pub(crate) fn check(&self) -> Result<()> {
        check_slots(self.slots).map_err(|error| self.origin.of(error.with_key(self.key.as_str())))
    }
}

impl Asks for OncePer {
    fn asked(self) -> Result<Asked> {
        self.check()?;
        let Self { locker, key, origin, mut settings, timeout, slots, after_crash } = self;
        check_min_hold(&mut settings, &locker, after_crash)
            .map_err(|error| origin.of(error.with_key(key.as_str())))?;
        settings.timeout = timeout.unwrap_or(slots.every / 2);
        settings.max_retry = None;
        let request = LockRequest::new(locker, HoldKind::Record, key, settings).origin(origin);
        Ok(Asked::new(request, Some(slots), after_crash, slots.every.saturating_mul(KEPT)))
    }
}

/// Refuses a `min_hold` beside the refusal of crashes: a failure whose run is kept would look like a crash if the
/// process ended before. That of the locker is not used.
fn check_min_hold(settings: &mut Settings, locker: &Locker, refuses: bool) -> Result<()> {
    if refuses && settings.min_hold == locker.settings().min_hold {
        settings.min_hold = Duration::ZERO;
    }
    if refuses && !settings.min_hold.is_zero() {
        return misused(
            "min_hold keeps a failed run, which after_crash = \"refuse\" would refuse: remove one",
        );
    }
    Ok(())
}

fn check_slots(Slots { every, from, early }: Slots) -> Result<()> {
    let (shortest, longest) = EVERY;
    if !(shortest..=longest).contains(&every) {
        let every = format_duration(every);
        return misused(format!("every {every} is out of range: give 1s to 366d"));
    }
    if early > every / 2 {
        let (early, every) = (format_duration(early), format_duration(every));
        return misused(format!("early {early} is more than half of every {every}"));
    }
    check_range("from", from, Duration::ZERO)
}

/// Returns slots, with the defaults for what is not given, after checking them.
///
/// # Errors
/// `Misused` if one is out of range.
pub fn slots(every: Duration, from: Option<Duration>, early: Option<Duration>) -> Result<Slots> {
    let default = Slots::new(every);
    let slots = Slots { every, from: from.unwrap_or(default.from), early: early.unwrap_or(default.early) };
    check_slots(slots).map(|()| slots)
}

impl Ends {
    /// Returns whether a run that ends in another way than by its result is not repeated.
    #[must_use]
    pub fn refuses(self) -> bool {
        self.refuses
    }
}

/// A request for a record.
pub trait Asks: Send {
    /// Returns what is asked, after checking the settings.
    ///
    /// # Errors
    /// `Misused` if a setting is wrong.
    fn asked(self) -> Result<Asked>;
}

/// What is asked of a record.
#[derive(Debug)]
pub struct Asked {
    request: LockRequest,
    ask: Ask,
    ends: Ends,
}

/// How a run ends.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// How long a success counts.
    pub(crate) keep: Duration,
    /// Whether a run that ends in another way than by its result is not repeated.
    pub(crate) refuses: bool,
    /// How many bytes its result may have.
    #[cfg(feature = "idempotent")]
    pub(crate) at_most: usize,
}

impl Asked {
    fn new(request: LockRequest, slots: Option<Slots>, refuses: bool, keep: Duration) -> Self {
        let after_crash = if refuses { AfterCrash::Refuse { keep } } else { AfterCrash::RunAgain };
        let ends = Ends {
            keep,
            refuses,
            #[cfg(feature = "idempotent")]
            at_most: 0,
        };
        Self { request, ask: Ask { slots, digest: None, after_crash }, ends }
    }

    #[cfg(feature = "idempotent")]
    pub(super) fn into_parts(self) -> (LockRequest, Ask, Ends) {
        (self.request, self.ask, self.ends)
    }

    /// Changes the request.
    pub(crate) fn with(self, change: impl FnOnce(LockRequest) -> Result<LockRequest>) -> Result<Self> {
        Ok(Self { request: change(self.request)?, ..self })
    }

    /// Returns the run of this caller, or the result of another one.
    pub(crate) async fn enter(self) -> Result<Began<Run>> {
        let Self { request, ask, ends } = self;
        let begin = |request: LockRequest, id: Id, entered| match entered {
            Entered::Finished(done) => Began::Done(done),
            Entered::Runs { fence, slot, missed, acquired } => {
                let guard = request.hold(id, (fence, acquired)).in_slot(slot, missed);
                let guard = if ends.refuses { guard.unknown_when_dropped() } else { guard };
                Began::Runs(Run { guard, ends })
            }
        };
        request.call(Some(&ask), LockRequest::entered, begin).await
    }
}

/// What a call of a record does.
#[derive(Debug)]
pub enum Began<R> {
    /// It runs.
    Runs(R),
    /// Another run has succeeded.
    Done(Done),
}

impl<R> Began<R> {
    pub(crate) fn map<S>(self, map: impl FnOnce(R) -> S) -> Began<S> {
        match self {
            Self::Runs(run) => Began::Runs(map(run)),
            Self::Done(done) => Began::Done(done),
        }
    }

    /// Returns the run, or `None` if the call is skipped.
    pub(crate) fn run(self) -> Option<R> {
        match self {
            Self::Runs(run) => Some(run),
            Self::Done(_) => None,
        }
    }
}

/// A run that goes on.
#[derive(Debug)]
pub(crate) struct Run {
    guard: Guard,
    ends: Ends,
}

impl Run {
    pub(crate) fn into_parts(self) -> (Guard, Ends) {
        (self.guard, self.ends)
    }

    /// Runs `body` unless the run is lost, and ends it: with what `kept` makes of its result if it succeeds.
    async fn run<T, E: From<Error>>(
        self,
        body: impl AsyncFnOnce(&Guard) -> Result<T, E>,
        kept: impl FnOnce(&T) -> Value,
    ) -> Result<T, E> {
        let Self { guard, ends: Ends { keep, .. } } = self;
        let ended = {
            let body = pin!(body(&guard));
            let body = pin!(AsyncBody::new(body, Held::by([&guard].into_iter())));
            while_held(body, pin!(guard.lost()), || guard.is_held()).await
        };
        match ended {
            Some(Ok(result)) => {
                let value = kept(&result);
                log_unrecorded(guard.finish(value, keep).await);
                Ok(result)
            }
            Some(Err(error)) => {
                log_release(guard.release_bounded().await);
                Err(error)
            }
            None => Err(guard.loss_error().into()),
        }
    }
}
