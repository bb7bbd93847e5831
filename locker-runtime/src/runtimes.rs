//! The runtimes that calls are made in, and what each of them has of its own: a connection that is driven where its
//! answers are waited for saves two changes of thread per call.
//!
//! Nothing may depend on it. A runtime can end, or stand still, at any time; the background thread goes on.

use crate::{
    background,
    blocking::Driver,
    sync::{Mutex, lock},
};
use once_cell::sync::OnceCell;
use std::{
    fmt,
    future::poll_fn,
    mem::replace,
    ptr,
    sync::{Arc, Weak},
    task::{Poll, RawWakerVTable},
    thread,
    time::Duration,
};
use tokio::runtime::{Handle, Id, RuntimeFlavor};

/// How many runtimes have something of their own, those of blocking callers included.
const MOST: usize = 16;

/// After something has ended, or could not be opened, its runtime goes without for so long.
const PAUSE: Duration = Duration::from_secs(1);

/// One `T` for each runtime that asks for it, opened at its first wish. A `T` ends with its runtime, or with this.
pub(crate) struct PerRuntime<T>(Arc<Slots<T>>);

type Slots<T> = Mutex<Vec<Slot<T>>>;

struct Slot<T> {
    runtime: Id,
    /// `None` while it is being opened, and for a while after it has ended.
    item: Option<Arc<T>>,
}

impl<T: Send + Sync + 'static> PerRuntime<T> {
    /// What the caller's runtime has. `None`: the caller is in none that could drive it, or it is not there yet. Then
    /// `open` is called on that runtime. Beside the `T` it returns a future that ends when the `T` is of no use any more.
    pub(crate) async fn get<O, E>(&self, open: impl FnOnce() -> O) -> Option<Arc<T>>
    where
        O: Future<Output = Option<(Arc<T>, E)>> + Send + 'static,
        E: Future<Output = ()> + Send + 'static,
    {
        let runtime = here().await?;
        {
            let mut slots = lock(&self.0);
            if let Some(slot) = slots.iter().find(|slot| slot.runtime == runtime.id()) {
                return slot.item.clone();
            }
            if slots.len() >= MOST {
                return None;
            }
            slots.push(Slot { runtime: runtime.id(), item: None });
        }
        let place = Place { slots: Arc::downgrade(&self.0), runtime: runtime.id() };
        let opening = open();
        runtime.spawn(async move {
            poll_fn(|context| Poll::Ready(TASK.get_or_init(|| context.waker().vtable()))).await;
            if let Some((item, end)) = opening.await {
                place.put(Some(item));
                end.await;
                place.put(None);
            }
            background::sleep(PAUSE).await;
        });
        None
    }
}

/// How the wakers of tokio's tasks are known.
static TASK: OnceCell<&'static RawWakerVTable> = OnceCell::new();

/// The runtime that drives the caller and can drive a connection beside it.
///
/// One of a single thread that is not ours is none: code that blocks it holds up answers that are there already, and
/// outside its `block_on` nobody drives it, though callers may be in its context.
async fn here() -> Option<Handle> {
    let mut has_asked = false;
    poll_fn(|context| match Driver::of_this_thread() {
        // Once: an executor that polls in its wakers may have come here within the first poll of another's call.
        Driver::Nobody | Driver::Asked if !replace(&mut has_asked, true) => {
            Driver::ask_for_one();
            context.waker().wake_by_ref();
            Poll::Pending
        }
        Driver::Nobody | Driver::Asked | Driver::Blocked => Poll::Ready(None),
        Driver::Lent => Poll::Ready(Handle::try_current().ok()),
        // A task that is polled by another executor inside of it keeps its worker, and what that has in line.
        Driver::Executor
            if tokio::task::try_id().is_some()
                && TASK.get().is_some_and(|task| !ptr::eq(*task, context.waker().vtable())) =>
        {
            Poll::Ready(None)
        }
        Driver::Executor => {
            let is_shared = |handle: &Handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread;
            Poll::Ready(Handle::try_current().ok().filter(is_shared))
        }
    })
    .await
}

/// The slot of one runtime, free again when the task that has this ends, as with its runtime.
struct Place<T> {
    slots: Weak<Slots<T>>,
    runtime: Id,
}

impl<T> Place<T> {
    fn put(&self, item: Option<Arc<T>>) {
        let Some(slots) = self.slots.upgrade() else { return };
        let mut slots = lock(&slots);
        let slot = slots.iter_mut().find(|slot| slot.runtime == self.runtime);
        let before = slot.and_then(|slot| replace(&mut slot.item, item));
        drop(slots);
        drop(before);
    }
}

impl<T> Drop for Place<T> {
    fn drop(&mut self) {
        // As where the runtime has no I/O: then it is not tried again.
        if thread::panicking() {
            return self.put(None);
        }
        let Some(slots) = self.slots.upgrade() else { return };
        let mut slots = lock(&slots);
        let at = slots.iter().position(|slot| slot.runtime == self.runtime);
        let ended = at.map(|at| slots.swap_remove(at));
        drop(slots);
        drop(ended);
    }
}

impl<T> Default for PerRuntime<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> fmt::Debug for PerRuntime<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerRuntime").field("runtimes", &lock(&self.0).len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use locker_harness::eventually;
    use std::future::pending;
    use tokio::runtime::{Builder, Runtime};

    fn get(runtime: &Runtime, own: &PerRuntime<Id>) -> Option<Arc<Id>> {
        let open = || async { Some((Arc::new(Handle::current().id()), pending())) };
        runtime.block_on(own.get(open))
    }

    #[test]
    fn most_runtimes_leave_none_for_another() {
        let runtime = |_| Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (own, late) = (PerRuntime::default(), runtime(0));
        let mut early: Vec<_> = (0..MOST).map(runtime).collect();
        for runtime in &early {
            let item = eventually("what is its own", || get(runtime, &own));
            assert_eq!(*item, runtime.handle().id());
        }
        assert_eq!(get(&late, &own), None);
        assert_eq!(lock(&own.0).len(), MOST);
        drop(early.pop());
        eventually("the place of one that has ended", || get(&late, &own));
    }

    #[test]
    fn single_threaded_runtime_has_nothing() {
        let (own, runtime) = (PerRuntime::default(), Builder::new_current_thread().build().unwrap());
        assert_eq!(get(&runtime, &own), None);
        assert_eq!(lock(&own.0).len(), 0);
    }
}
