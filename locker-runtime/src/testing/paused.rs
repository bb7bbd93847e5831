//! Locks on tokio's clock.

use crate::locker::Locker;
use locker_core::{
    clock::Timestamp,
    process::world::{Entered, Inhabitant, Task, World},
};
use std::{sync::Arc, time::Duration};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    time::Instant,
};

/// Returns a locker on an embedded store of its own whose time is tokio's, so that leases, renewals, timeouts and
/// limits move with `tokio::time::advance` and with a paused clock.
///
/// While the second value lives, everything of this crate runs on tokio's clock in this thread, and in this thread
/// only: statics such as the [global locker](crate::global) are new ones, lockers that were made before return
/// `Misused`, and this locker returns `Misused` afterwards. Calls that would block the thread return `Misused`: no
/// time would pass.
///
/// Use it in `#[tokio::test(start_paused = true)]`. There tokio moves its clock on by itself whenever all tasks wait,
/// so that a wait for a lease of an hour takes no time.
///
/// # Panics
/// Outside of a runtime of tokio, and in one of several threads.
///
/// ```
/// # use locker_runtime as locker;
/// use std::time::Duration;
/// #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> locker::Result<()> {
/// # /*
/// #[tokio::test(start_paused = true)]
/// async fn report_is_free_after_an_hour() -> locker::Result<()> {
/// # */
///     let (locker, _paused) = locker::testing::paused();
///     let hour = Duration::from_secs(3600);
///     let abandoned = locker.lock("report").lease(hour).renew(false).acquire().await?;
///     let next = locker.lock("report").timeout(2 * hour).acquire().await?; // takes no time
///     assert!(!abandoned.is_held() && next.is_held());
///     Ok(())
/// }
/// ```
pub fn paused() -> (Locker, Paused) {
    let runtime = Handle::current();
    assert!(
        runtime.runtime_flavor() == RuntimeFlavor::CurrentThread,
        "`testing::paused` needs a runtime of one thread, such as that of `#[tokio::test(start_paused = true)]`",
    );
    let start = (Timestamp::now().as_micros(), Instant::now());
    let entered = Inhabitant::new(Arc::new(OfTokio { runtime, start })).enter();
    (Locker::memory(), Paused { _entered: entered })
}

/// Makes this crate run on tokio's clock in its thread, until it is dropped.
#[derive(Debug)]
#[must_use = "time is tokio's until this is dropped"]
pub struct Paused {
    _entered: Entered,
}

/// The longest sleep: a century.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

struct OfTokio {
    runtime: Handle,
    /// The same time on the clock of this crate, in microseconds, and on tokio's.
    start: (u64, Instant),
}

impl World for OfTokio {
    fn now(&self) -> u64 {
        let passed = self.start.1.elapsed().as_micros();
        self.start.0.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    fn spawn(&self, task: Task) {
        drop(self.runtime.spawn(task));
    }

    fn sleep(&self, until: u64) -> Task {
        let _entered = self.runtime.enter();
        let passed = Duration::from_micros(until.saturating_sub(self.start.0));
        Box::pin(tokio::time::sleep_until(self.start.1 + passed.min(LONGEST)))
    }
}
