//! Elections: one leader at a time, and those that follow it.

mod observer;

use super::{LockRequest, Origin};
use crate::{
    lease::{AsyncBody, Guard, Held, Hold, log_release, while_held},
    locker::{LEADER, Locker, check_note},
    settings::{Settings, hold_setters},
};
use locker_core::{
    background,
    clock::Timestamp,
    error::{Error, Result},
    key::Key,
    primitives::HoldKind,
};
pub use observer::{Leader, Observer};
use std::{
    any::Any,
    pin::pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// The shortest time from one term of a candidate to its next.
const APART: Duration = Duration::from_millis(100);

/// The part of the lease that a leader stops before its end, unless it is set.
const DEFAULT_MARGIN: u32 = 5;

/// An election: candidates that ask for one name, of which one is the leader at a time. Created by [`Locker::elect`].
///
/// The leader of `reaper` holds the lock with the key `leader:reaper`; candidates wait in its queue. Settings that are
/// not set here are those of the [`Locker`].
///
/// ```
/// # use locker_runtime as locker;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> locker::Result<()> {
/// use locker::{Guard, Locker};
/// let locker = Locker::memory();
/// let fence = locker
///     .elect("reaper")
///     .note("http://10.0.0.7:80")
///     .run(async |term: &Guard| {
///         // This process leads until the closure returns, or the term is lost.
///         Ok::<_, locker::Error>(term.fence())
///     })
///     .await?;
/// assert!(fence > 0);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "an election does nothing until it is run or observed"]
pub struct Election {
    locker: Locker,
    key: Key,
    settings: Settings,
    /// `None`: a part of the lease.
    stop_before: Option<Duration>,
    /// `None`: that of the locker.
    note: Option<String>,
    origin: Origin,
    /// Holds that do not end before the candidate does, beside those of the bodies around it.
    around: Box<[Arc<Hold>]>,
    /// When the latest term of this candidate began, in microseconds.
    last_term: Arc<AtomicU64>,
}

impl Locker {
    /// Returns the election called `name`: to take part in it, or to observe it.
    #[track_caller]
    pub fn elect(&self, name: &str) -> Election {
        let settings = self.settings();
        Election {
            locker: self.clone(),
            key: Key::named(self.prefix(), LEADER, name),
            settings: settings.of_candidate(),
            stop_before: (!settings.stop_before.is_zero()).then_some(settings.stop_before),
            note: None,
            origin: Origin::caller(),
            around: Box::default(),
            last_term: Arc::default(),
        }
    }
}

impl Election {
    /// Sets how long the others wait for a new leader if this one dies. Default 10 s, 1 ms to 10 years. Observers look
    /// every third of it.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// Sets how long before the end of its lease a leader stops that cannot renew it. What it has sent then has this
    /// time to arrive before another one leads. Default: that of the locker, or a fifth of the lease; at most half of
    /// the lease.
    pub fn stop_before(mut self, margin: Duration) -> Self {
        self.stop_before = Some(margin);
        self
    }

    /// Sets how long a term lasts at least, also if the body returns before: until then nobody else leads. Default 0.
    /// See [`LockRequest::min_hold`].
    pub fn min_hold(mut self, min_hold: Duration) -> Self {
        self.settings.min_hold = min_hold;
        self
    }

    /// Sets what observers and operators see of this candidate while it leads, such as its address: a printable line of
    /// up to 120 bytes. Default: the note of the locker.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    hold_setters!();

    pub(crate) fn origin(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }

    pub(crate) fn holding_all<'a>(mut self, holds: impl IntoIterator<Item = &'a Arc<Hold>>) -> Self {
        self.around = holds.into_iter().cloned().collect();
        self
    }

    /// Checks all settings and the holds around the candidate, as the call itself does.
    pub(crate) fn check(&self) -> Result<()> {
        self.note.as_deref().map_or(Ok(()), check_note)?;
        let request = self.request();
        request.check()?;
        request.check_around(self.around.iter().map(Arc::as_ref))
    }

    /// Waits until this candidate is elected, runs `body`, and ends the term with it. A body whose term is lost is
    /// dropped, and `body` is called again for the next term, which is behind those of the other candidates.
    ///
    /// In a task that is spawned, write `async move |term: &Guard| ..`: the compiler does not find that a closure which
    /// borrows is `Send`.
    ///
    /// To step down, return from the body: the next candidate in the queue is elected at once. While the store cannot
    /// be reached, it is asked again after 0.1 to 10 s.
    ///
    /// Two leaders never have a term at the same time by the clock of the store. But a process that is stopped, or a
    /// body that blocks its thread, notices the end of its term late: send [`Guard::fence`] with what must not be
    /// carried out twice.
    ///
    /// # Errors
    /// Those of the body, after which the term is over. `Misused` if a setting is wrong, or the call is inside of a
    /// body that leads, and would wait for itself; `Conflict` if the name is deleted during the wait, or the key
    /// belongs to another kind of primitive; `Deadlock` as for [`LockRequest::acquire`].
    ///
    /// # Cancel safety
    /// Cancel safe: when the future is dropped, the body is dropped, and then the term is ended in the background. A
    /// candidate leaves the queue.
    pub async fn run<T, E: From<Error>>(
        self,
        mut body: impl AsyncFnMut(&Guard) -> Result<T, E>,
    ) -> Result<T, E> {
        loop {
            let term = self.term().await?;
            let ended = {
                let body = pin!(body(&term));
                let body = pin!(AsyncBody::new(body, Held::by([&term].into_iter())));
                while_held(body, pin!(term.lost()), || term.is_held()).await
            };
            if let Some(result) = ended {
                log_release(term.release_bounded().await);
                return result;
            }
        }
    }

    /// Waits until this candidate is elected, also while the store cannot be reached.
    pub(crate) async fn term(&self) -> Result<Guard> {
        self.note.as_deref().map_or(Ok(()), check_note)?;
        let last = Timestamp::from_micros(self.last_term.load(Ordering::Relaxed));
        let now = Timestamp::now();
        if now < last + APART {
            background::sleep_from(now, last + APART).await;
        }
        let term = self.request().acquire().await?;
        self.last_term.store(Timestamp::now().as_micros(), Ordering::Relaxed);
        self.introduce(&term);
        Ok(term)
    }

    pub(crate) fn request(&self) -> LockRequest {
        let Self { locker, key, mut settings, stop_before, origin, around, .. } = self.clone();
        settings.stop_before = stop_before.unwrap_or(settings.lease / DEFAULT_MARGIN);
        LockRequest::new(locker, HoldKind::Lock, key, settings).origin(origin).holding_all(&*around).alone()
    }

    /// Tells the note of this term.
    fn introduce(&self, term: &Guard) {
        let hold: Weak<Hold> = Arc::downgrade(&term.hold());
        let (elected, lease) = ((&self.key, term.fence()), self.settings.lease);
        self.locker.tell_elected(elected, self.note.as_deref(), lease, hold as Weak<dyn Any + Send + Sync>);
    }
}
