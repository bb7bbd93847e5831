//! Functions that run once in each slot of time.

use super::{LockRequest, Origin, lock::Entered};
use crate::{
    lease::{AsyncBody, Guard, Held, log_release, while_held},
    locker::Locker,
    settings::{Settings, hold_setters, margin_setters},
};
use humantime::format_duration;
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

/// The kind of the keys of records.
const ONCE: &str = "once";

/// A record of what has run. Created by [`Locker::once`]; [`per`](Self::per) says for how long it counts.
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
/// process ends, the next one runs. A run belongs to the slot in which it began. A call shortly before a slot counts for
/// it ([`early`](Self::early)), because hosts are early and late.
///
/// While the store keeps its data, a slot sees one success, and runs overlap only past a lost lease. A run whose process
/// dies between its effect and its end is repeated: see [`refuse_after_crash`](Self::refuse_after_crash), and for
/// effects that must be exactly once a unique row of the slot in the transaction of the effect.
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

    /// Sets how much earlier than its slot a call counts for it, at most half of a slot. Default: 30 s, or a tenth of the
    /// slot if that is less.
    pub fn early(mut self, early: Duration) -> Self {
        self.slots.early = early;
        self
    }

    /// Sets how long others wait if the process of a run dies. Default 10 s, 1 ms to 10 years.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// Sets how long a call waits for a run of another caller. Default: half of a slot. Zero never waits.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Refuses to run again in a slot in which a run ended without success and without a failure, because its process
    /// died or its lease was lost: calls in that slot get `Lost`. The next slot runs. By default the next caller runs.
    pub fn refuse_after_crash(mut self) -> Self {
        self.after_crash = true;
        self
    }

    margin_setters!();

    hold_setters!();

    /// Makes errors name no place of the program.
    #[doc(hidden)]
    pub fn without_place(self) -> Self {
        Self { origin: Origin::Elsewhere, ..self }
    }

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
    /// Cancel safe: when the future is dropped, the body is dropped, and the next caller runs.
    pub async fn run<T, E: From<Error>>(
        self,
        body: impl AsyncFnOnce(&Guard) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        let Some(run) = self.enter().await? else { return Ok(None) };
        let ended = {
            let body = pin!(body(run.guard()));
            let body = pin!(AsyncBody::new(body, Held::by([run.guard()].into_iter())));
            while_held(body, pin!(run.guard().lost()), || run.guard().is_held()).await
        };
        match ended {
            Some(Ok(value)) => {
                log_release(run.finish().await);
                Ok(Some(value))
            }
            Some(Err(error)) => {
                log_release(run.fail().await);
                Err(error)
            }
            None => Err(run.guard().loss_error().into()),
        }
    }

    /// Returns the run of this caller, or `None` if it is to be skipped.
    pub(crate) async fn enter(&self) -> Result<Option<Run>> {
        self.check()?;
        let keep = self.slots.every.saturating_mul(2);
        let after_crash = if self.after_crash { AfterCrash::Refuse { keep } } else { AfterCrash::RunAgain };
        let ask = Ask { slots: Some(self.slots), digest: None, after_crash };
        let begin = |request: LockRequest, id: Id, entered| match entered {
            Entered::Finished => None,
            Entered::Runs { fence, slot, missed, acquired } => {
                let guard = request.hold(id, (fence, acquired)).in_slot(slot, missed);
                Some(Run { guard, keep })
            }
        };
        self.request().call(Some(&ask), LockRequest::entered, begin).await
    }

    fn request(&self) -> LockRequest {
        let Self { locker, key, origin, mut settings, timeout, slots, .. } = self.clone();
        settings.timeout = timeout.unwrap_or(slots.every / 2);
        LockRequest::new(locker, HoldKind::Record, key, settings).origin(origin)
    }

    /// Checks the settings, as the call itself does.
    pub(crate) fn check(&self) -> Result<()> {
        check_slots(self.slots)
    }
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

/// A run that goes on.
#[derive(Debug)]
pub(crate) struct Run {
    guard: Guard,
    keep: Duration,
}

impl Run {
    pub(crate) fn guard(&self) -> &Guard {
        &self.guard
    }

    pub(crate) fn into_parts(self) -> (Guard, Duration) {
        (self.guard, self.keep)
    }

    /// Ends it with success.
    pub(crate) fn finish(self) -> impl Future<Output = Result<()>> + Send {
        self.guard.finish(Value::default(), self.keep)
    }

    /// Ends it without success: the next caller runs.
    pub(crate) fn fail(self) -> impl Future<Output = Result<()>> + Send {
        self.guard.release_bounded()
    }
}
