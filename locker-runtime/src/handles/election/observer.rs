//! Observers of an election.

use super::Election;
use crate::{
    handles::request_with_retry,
    locker::{Locker, elected_subject},
};
use futures_util::FutureExt;
use locker_core::{
    background,
    error::Result,
    key::Key,
    primitives::{Reply, Request, inspection::Held},
    process::{OfProcess, Process},
};
use std::{
    fmt,
    future::pending,
    mem::forget,
    ops::RangeInclusive,
    panic::AssertUnwindSafe,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::sync::watch;

/// How often an observer looks: every third of the lease, within these limits.
const PERIOD: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(10);

/// The time until the next look at a leader whose note is not there yet.
const SOON: Duration = Duration::from_millis(100);

/// A leader as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// What it says about itself: [`Election::note`]. `None` if it has not said it yet, or cannot.
    pub note: Option<String>,
    /// The fencing token of its term, which is higher than those of all terms before.
    pub fence: u64,
    /// When its term began, by the clock of the store. `None` on etcd and ZooKeeper, and as long as this host's clock
    /// is behind it.
    pub since: Option<SystemTime>,
}

/// A view of an election from outside. [`Election::observe`] returns it.
///
/// It looks every third of the lease, from 1 to 10 s, in the background, until it is dropped. A leader whose lease is
/// over is gone at the next look. What it shows may be old: send the [fence](Leader::fence) with what must not be
/// carried out for a former leader.
///
/// ```no_run
/// # async fn example(locker: locker_runtime::Locker) -> locker_runtime::Result<()> {
/// let seen = locker.elect("reaper").observe().await?;
/// loop {
///     match seen.leader() {
///         Some(leader) => println!("{:?} leads with fence {}", leader.note, leader.fence),
///         None => println!("nobody leads"),
///     }
///     seen.changed().await;
/// }
/// # }
/// ```
pub struct Observer {
    /// `None` once it is dropped.
    changes: Option<watch::Receiver<Seen>>,
    /// The number of the change that was looked at last.
    looked_at: AtomicU64,
    process: &'static Process,
}

/// What was seen, and how often it has changed.
#[derive(Clone, Debug, Default)]
struct Seen {
    changes: u64,
    leader: Option<Leader>,
}

impl Election {
    /// Looks at the election, without taking part in it.
    ///
    /// # Errors
    /// `Unavailable` if the store cannot be reached. Later looks that fail change nothing.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn observe(self) -> Result<Observer> {
        let Self { locker, key, settings, .. } = self;
        let period = (settings.lease / 3).clamp(*PERIOD.start(), *PERIOD.end());
        let mut look = Look { locker, key, highest: 0 };
        let leader = look.leader(None).await?;
        background::ready()?;
        let (sender, changes) = watch::channel(Seen { changes: 0, leader });
        background::spawn(look.repeat(period, sender));
        Ok(Observer { changes: Some(changes), looked_at: AtomicU64::new(0), process: Process::this() })
    }
}

impl Observer {
    /// Returns the leader at the latest look, or `None` if there was none. Never returns one with a lower fence than
    /// before. In a forked child of the observer there is none.
    #[must_use]
    pub fn leader(&self) -> Option<Leader> {
        let seen = self.changes.as_ref().filter(|_| self.process.is_this())?.borrow();
        self.looked_at.store(seen.changes, Ordering::Relaxed);
        seen.leader.clone()
    }

    /// Waits until the leader, or what is known of it, is another one than at the last call of
    /// [`leader`](Self::leader) or of this method. Several changes at once count as one. In a forked child of the
    /// observer nothing changes.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn changed(&self) {
        let changes = self.changes.as_ref().filter(|_| self.process.is_this());
        let Some(mut seen) = changes.cloned() else { return pending().await };
        let looked_at = self.looked_at.load(Ordering::Relaxed);
        let next = async move {
            seen.wait_for(|seen| seen.changes != looked_at).await.map(|seen| seen.changes).ok()
        };
        match OfProcess::new(Box::pin(next)).await.flatten() {
            Some(changes) => self.looked_at.store(changes, Ordering::Relaxed),
            None => pending().await,
        }
    }
}

/// A forked child keeps its copy: a thread of the parent may hold what would wake the task there.
impl Drop for Observer {
    fn drop(&mut self) {
        if !self.process.is_this() {
            forget(self.changes.take());
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}

struct Look {
    locker: Locker,
    key: Key,
    /// The highest fence that was seen.
    highest: u64,
}

impl Look {
    /// Looks again and again until the observer is gone. Keeps `Seen` as it is if the store does not answer.
    async fn repeat(mut self, period: Duration, seen: watch::Sender<Seen>) {
        let mut soon = SOON;
        loop {
            let known = seen.borrow().leader.clone();
            let lacks_note = known.as_ref().is_some_and(|leader| leader.note.is_none());
            soon = if lacks_note { (2 * soon).min(period) } else { SOON };
            tokio::select! {
                biased;
                () = seen.closed() => return,
                () = background::sleep(if lacks_note { soon } else { period }) => {}
            }
            let looked = AssertUnwindSafe(self.leader(known.as_ref())).catch_unwind().await;
            let Ok(Ok(leader)) = looked else { continue };
            seen.send_if_modified(|seen| {
                let is_new = seen.leader != leader;
                if is_new {
                    *seen = Seen { changes: seen.changes + 1, leader };
                }
                is_new
            });
        }
    }

    /// Returns the leader. `known` was it at the last look.
    async fn leader(&mut self, known: Option<&Leader>) -> Result<Option<Leader>> {
        let reply = request_with_retry(&self.locker, &self.key, Request::Inspect).await?.reply;
        let Reply::Inspected(seen) = reply else { return Ok(None) };
        let Some(Held { fence, .. }) = seen.holders.first() else { return Ok(None) };
        // A replica that is behind tells of a former leader.
        if *fence < self.highest {
            return Ok(known.cloned());
        }
        self.highest = *fence;
        let known = known.filter(|known| known.fence == *fence);
        let mut note = known.and_then(|known| known.note.clone());
        if note.is_none() {
            let texts = self.locker.texts(vec![elected_subject(&self.key, *fence)]).await;
            note = texts.elected(&self.key, *fence).map(str::to_owned);
        }
        let since = known.and_then(|known| known.since).or_else(|| self.since(*fence));
        Ok(Some(Leader { note, fence: *fence, since }))
    }

    /// Returns when the term with this fence began, if the fences of the store are times.
    fn since(&self, fence: u64) -> Option<SystemTime> {
        self.locker.age(fence).map(|_| UNIX_EPOCH + Duration::from_micros(fence))
    }
}
