//! What a locker records of its calls and holds: metrics (feature `metrics`), and spans (feature `tracing`).
//!
//! A [`Call`] is counted once, with its outcome; one that is dropped before its end was cancelled. A [`Record`] belongs
//! to a hold. Neither costs more than a look if nothing is recorded. A forked child records nothing of its parent.

#[cfg(feature = "metrics")]
mod handles;
mod holders;
#[cfg(feature = "metrics")]
mod labels;
#[cfg(not(feature = "metrics"))]
mod nothing;
#[cfg(feature = "metrics")]
mod table;

use super::Locker;
#[cfg(feature = "metrics")]
pub(crate) use handles::{Metering, Recorded};
use holders::Holders;
use locker_core::{
    clock::Timestamp,
    diagnostics::Span,
    error::{ErrorKind, Result},
    key::Key,
    primitives::HoldKind,
};
#[cfg(not(feature = "metrics"))]
pub(crate) use nothing::{Metering, Recorded};
use once_cell::race::OnceBox;
use std::{
    fmt,
    mem::{forget, take},
    num::NonZeroU64,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// The kind of a primitive that callers acquire or wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Lock,
    Semaphore,
    ReadWrite,
    Record,
    Rate,
    Event,
    Watchdog,
    Barrier,
    Latch,
}

impl From<HoldKind> for Kind {
    fn from(kind: HoldKind) -> Self {
        match kind {
            HoldKind::Lock => Self::Lock,
            HoldKind::Semaphore { .. } => Self::Semaphore,
            HoldKind::Record => Self::Record,
            // `HoldKind` may grow: a new kind is added here.
            _ => Self::ReadWrite,
        }
    }
}

/// What a call or a hold is about.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) locker: &'a Locker,
    pub(crate) key: &'a Key,
    pub(crate) kind: Kind,
    pub(crate) function: Option<&'static str>,
}

/// A request, a handle or a hold.
pub(crate) trait Counted: Sync {
    fn subject(&self) -> Subject<'_>;
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Granted,
    Failed(ErrorKind),
    Cancelled,
}

impl Outcome {
    fn label(self) -> String {
        match self {
            Self::Granted => "granted".to_owned(),
            Self::Failed(kind) => label_of(kind),
            Self::Cancelled => "cancelled".to_owned(),
        }
    }
}

/// Returns the label of an error: its text, in one word.
fn label_of(kind: ErrorKind) -> String {
    // Only stores that an application implements say that nothing is held.
    let kind = if kind == ErrorKind::NotHeld { ErrorKind::Conflict } else { kind };
    kind.to_string().replace(' ', "_")
}

/// One call under way.
pub(crate) struct Call<'a> {
    of: &'a dyn Counted,
    /// Set once the call waits.
    wait: OnceBox<Wait>,
    is_over: AtomicBool,
}

/// The wait of a call, if it is recorded.
struct Wait {
    since: Timestamp,
    is_counted: bool,
    span: Span,
}

impl<'a> Call<'a> {
    pub(crate) fn start(of: &'a dyn Counted) -> Self {
        Self { of, wait: OnceBox::new(), is_over: AtomicBool::new(false) }
    }

    /// Notes that the call, which began at `since`, waits from now on.
    pub(crate) fn waits(&self, since: Timestamp) {
        if self.wait.get().is_none() {
            self.begin_wait(since);
        }
    }

    #[cold]
    fn begin_wait(&self, since: Timestamp) {
        let Subject { locker, key, kind, function } = self.of.subject();
        let is_counted = locker.recorded().waits(kind);
        let span = Span::of_wait(key.as_str(), function);
        locker.recorded().holders().each(key, &span, |holder| span.follow(holder));
        if is_counted || span.is_on() {
            // An error means that it waits already, which it has just not done.
            let _ = self.wait.set(Box::new(Wait { since, is_counted, span }));
        }
    }

    /// Counts a call that has ended without waiting.
    #[inline]
    pub(crate) fn count(of: &impl Counted, outcome: Result<(), ErrorKind>) {
        let subject = of.subject();
        let recorded = subject.locker.recorded();
        if recorded.is_on() {
            recorded.acquired(&subject, outcome.map_or_else(Outcome::Failed, |()| Outcome::Granted));
        }
    }

    /// Ends the call if `checked` is an error.
    pub(crate) fn check<T>(&self, checked: Result<T>) -> Result<T> {
        checked.inspect_err(|error| self.end(Err(error.kind())))
    }

    /// Ends the call with the fence that was granted, if there is one, or with the kind of its error.
    #[inline]
    pub(crate) fn end(&self, outcome: Result<Option<u64>, ErrorKind>) {
        self.is_over.store(true, Ordering::Relaxed);
        if self.wait.get().is_some() || self.of.subject().locker.recorded().is_on() {
            self.record(outcome);
        }
    }

    #[inline(never)]
    fn record(&self, outcome: Result<Option<u64>, ErrorKind>) {
        if self.wait.get().is_some() && !self.of.subject().locker.is_of_this_process() {
            // The wait is that of the parent.
            self.is_over.store(false, Ordering::Relaxed);
            return;
        }
        if let Some(wait) = self.wait.get()
            && let Ok(Some(fence)) = outcome
        {
            wait.span.note("fence", fence);
        }
        self.finish(outcome.map_or_else(Outcome::Failed, |_| Outcome::Granted));
    }

    fn finish(&self, outcome: Outcome) {
        let subject = self.of.subject();
        let recorded = subject.locker.recorded();
        recorded.acquired(&subject, outcome);
        if let Some(wait) = self.wait.get() {
            if wait.is_counted {
                recorded.waited(&subject, Timestamp::now().since(wait.since));
            }
            if wait.span.is_on() {
                wait.span.note("outcome", outcome.label());
            }
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if *self.is_over.get_mut() {
            return;
        }
        if self.of.subject().locker.is_of_this_process() {
            self.finish(Outcome::Cancelled);
        } else {
            forget(take(&mut self.wait));
        }
    }
}

impl fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").finish_non_exhaustive()
    }
}

/// Why a hold was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    MaxHold,
    Expired,
    Taken,
    /// Only its release showed it.
    Gone,
}

impl Loss {
    #[cfg(feature = "metrics")]
    const ALL: [Self; 4] = [Self::MaxHold, Self::Expired, Self::Taken, Self::Gone];

    pub(crate) fn why(self) -> &'static str {
        match self {
            Self::MaxHold => "held longer than max_hold",
            Self::Expired => "not renewed before the lease was over",
            Self::Taken => "another may hold it",
            Self::Gone => "the hold was gone at its release",
        }
    }

    #[cfg(feature = "metrics")]
    fn cause(self) -> &'static str {
        match self {
            Self::MaxHold => "max_hold",
            Self::Expired => "expired",
            Self::Taken => "taken",
            Self::Gone => "gone",
        }
    }
}

/// What is recorded of one hold.
#[derive(Debug)]
pub(crate) struct Record {
    is_counted: bool,
    span: Span,
    /// Its number among the holds whose traces are told.
    traced: Option<NonZeroU64>,
}

impl Record {
    /// Begins with the grant at `since`, in the code of the caller.
    pub(crate) fn begin(subject: &Subject<'_>, fence: u64, since: Timestamp) -> Self {
        let recorded = subject.locker.recorded();
        let traced = subject.locker.trace_hold(subject.key, fence, since);
        let is_counted = recorded.holds(subject);
        let span = Span::of_hold(subject.key.as_str(), subject.function, fence);
        recorded.holders().add(subject.key, &span);
        Self { is_counted, span, traced }
    }

    /// Ends the hold, which lasted for `held`. How it ended is told to [`ended`](Self::ended) once that is known.
    pub(crate) fn end(&self, of: &dyn Counted, held: Duration) {
        if !self.is_counted && !self.span.is_on() && self.traced.is_none() {
            return;
        }
        let subject = of.subject();
        let recorded = subject.locker.recorded();
        if let Some(number) = self.traced {
            subject.locker.unlist_hold(number);
        }
        if self.is_counted {
            recorded.held(&subject, held);
        }
        recorded.holders().remove(subject.key, &self.span);
    }

    /// Notes how the hold has ended.
    pub(crate) fn ended(&self, is_lost: bool) {
        self.span.note("outcome", if is_lost { "lost" } else { "released" });
    }

    /// Counts a loss.
    pub(crate) fn lost(of: &dyn Counted, loss: Loss) {
        let subject = of.subject();
        subject.locker.recorded().lost(&subject, loss);
    }

    /// Keeps the span for good: a forked child has only a copy of it.
    pub(crate) fn leave_to_parent(&mut self) {
        forget(take(&mut self.span));
    }
}

impl Locker {
    /// Counts a renewal.
    pub(crate) fn renewal_ended(&self, outcome: Result<(), ErrorKind>) {
        self.recorded().renewed(outcome.map_or_else(Outcome::Failed, |()| Outcome::Granted));
    }
}
