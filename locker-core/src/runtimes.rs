//! One item for each runtime of callers, for example a connection. A connection on the runtime of its callers saves two
//! changes of thread per call.
//!
//! No code may depend on these items, because a runtime can end or pause at any time. The background thread continues.

use crate::{
    background,
    blocking::Driver,
    sync::{Mutex, lock},
};
use once_cell::race::OnceRef;
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

/// The maximum number of runtimes with an item, including those of blocking callers.
const MAX_RUNTIMES: usize = 16;

/// The pause before a runtime gets a new item after the end of the last one or a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// One `T` for each runtime of callers, opened by the first call. A `T` ends with its runtime, or with this.
pub struct PerRuntime<T>(Arc<Slots<T>>);

type Slots<T> = Mutex<Vec<Slot<T>>>;

struct Slot<T> {
    runtime: Id,
    /// `None` while the item is opening, and for a while after it has ended.
    item: Option<Arc<T>>,
}

impl<T: Send + Sync + 'static> PerRuntime<T> {
    /// Returns the item of the caller's runtime. Returns `None` if the caller is not in a suitable runtime, or if there
    /// is no item yet: then `open` is called on that runtime. It returns the `T`, and a future that ends when the `T`
    /// becomes useless.
    pub async fn get<O, E>(&self, open: impl FnOnce() -> O) -> Option<Arc<T>>
    where
        O: Future<Output = Option<(Arc<T>, E)>> + Send + 'static,
        E: Future<Output = ()> + Send + 'static,
    {
        let runtime = suitable_runtime().await?;
        {
            let mut slots = lock(&self.0);
            if let Some(slot) = slots.iter().find(|slot| slot.runtime == runtime.id()) {
                return slot.item.clone();
            }
            if slots.len() >= MAX_RUNTIMES {
                return None;
            }
            slots.push(Slot { runtime: runtime.id(), item: None });
        }
        let guard = SlotGuard { slots: Arc::downgrade(&self.0), runtime: runtime.id() };
        let opening = open();
        runtime.spawn(async move {
            poll_fn(|context| Poll::Ready(TASK.get_or_init(|| context.waker().vtable()))).await;
            if let Some((item, end)) = opening.await {
                guard.put(Some(item));
                end.await;
                guard.put(None);
            }
            background::sleep(PAUSE).await;
        });
        None
    }
}

/// The table of the wakers of tokio's tasks.
///
/// Tokio tells in which task a thread is, but not whether that task or an executor inside it polls: only the waker
/// differs. If tokio gave its tasks several tables, calls of some tasks would get no item, which costs them speed
/// (`every_task_of_a_runtime_gets_its_item`). If it wrapped the wakers of other executors, those would get an item that
/// they keep from being driven (`executor_inside_a_task_gets_no_item`).
static TASK: OnceRef<'static, RawWakerVTable> = OnceRef::new();

/// Returns the runtime that drives the caller and can also drive a connection.
///
/// A single-threaded runtime is not suitable, except those of this crate. Code that blocks it would delay replies that
/// have already arrived. Outside `block_on` it does not run at all, although callers may be in its context.
async fn suitable_runtime() -> Option<Handle> {
    let mut has_asked = false;
    poll_fn(|context| match Driver::of_this_thread() {
        // Only once: an executor that polls in its wakers may be here within the first poll of another call.
        Driver::Nobody | Driver::Asked if !replace(&mut has_asked, true) => {
            Driver::ask_for_one();
            context.waker().wake_by_ref();
            Poll::Pending
        }
        Driver::Nobody | Driver::Asked | Driver::Blocked => Poll::Ready(None),
        Driver::Lent => Poll::Ready(Handle::try_current().ok()),
        // Another executor inside of a task blocks the worker of that task, and the tasks in its queue.
        Driver::Executor
            if tokio::task::try_id().is_some()
                && TASK.get().is_some_and(|task| !ptr::eq(task, context.waker().vtable())) =>
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

/// The slot of one runtime. It becomes free when this is dropped, with its task or its runtime.
struct SlotGuard<T> {
    slots: Weak<Slots<T>>,
    runtime: Id,
}

impl<T> SlotGuard<T> {
    fn put(&self, item: Option<Arc<T>>) {
        let Some(slots) = self.slots.upgrade() else { return };
        let mut slots = lock(&slots);
        let slot = slots.iter_mut().find(|slot| slot.runtime == self.runtime);
        let before = slot.and_then(|slot| replace(&mut slot.item, item));
        drop(slots);
        drop(before);
    }
}

impl<T> Drop for SlotGuard<T> {
    fn drop(&mut self) {
        // For example because the runtime has no I/O. The slot stays, so that it is not tried again.
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
    use std::{
        future::pending,
        pin::pin,
        task::{Context, Wake, Waker},
    };
    use tokio::{
        runtime::{Builder, Runtime},
        task::{JoinSet, LocalSet, unconstrained, yield_now},
    };

    fn get(runtime: &Runtime, own: &PerRuntime<Id>) -> Option<Arc<Id>> {
        let open = || async { Some((Arc::new(Handle::current().id()), pending())) };
        runtime.block_on(own.get(open))
    }

    #[test]
    fn runtimes_beyond_the_maximum_get_no_item() {
        let runtime = |_| Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (own, late) = (PerRuntime::default(), runtime(0));
        let mut early: Vec<_> = (0..MAX_RUNTIMES).map(runtime).collect();
        for runtime in &early {
            let item = eventually("its item", || get(runtime, &own));
            assert_eq!(*item, runtime.handle().id());
        }
        assert_eq!(get(&late, &own), None);
        assert_eq!(lock(&own.0).len(), MAX_RUNTIMES);
        drop(early.pop());
        eventually("the slot of an ended runtime", || get(&late, &own));
    }

    #[test]
    fn single_threaded_runtime_gets_no_item() {
        let (own, runtime) = (PerRuntime::default(), Builder::new_current_thread().build().unwrap());
        assert_eq!(get(&runtime, &own), None);
        assert_eq!(lock(&own.0).len(), 0);
    }

    fn multi_thread() -> Runtime {
        Builder::new_multi_thread().worker_threads(2).build().unwrap()
    }

    async fn has_item(own: Arc<PerRuntime<Id>>) -> bool {
        own.get(|| async { Some((Arc::new(Handle::current().id()), pending())) }).await.is_some()
    }

    /// Returns an owner that has an item for this runtime.
    fn opened(runtime: &Runtime) -> Arc<PerRuntime<Id>> {
        let own = Arc::default();
        eventually("its item", || get(runtime, &own));
        assert!(TASK.get().is_some());
        own
    }

    /// Tasks of several types, sizes and schedulers.
    #[test]
    fn every_task_of_a_runtime_gets_its_item() {
        let runtime = multi_thread();
        let own = opened(&runtime);
        let (local, others) = (own.clone(), own.clone());
        runtime.block_on(async move {
            let mut tasks = JoinSet::new();
            tasks.spawn(has_item(others.clone()));
            tasks.spawn(Box::pin(has_item(others.clone())));
            tasks.spawn(unconstrained(has_item(others.clone())));
            let (large, asking) = ([0_u8; 10_000], others.clone());
            tasks.spawn(async move {
                yield_now().await;
                has_item(asking).await && large.len() == 10_000
            });
            tasks.spawn(async move {
                let parts = tokio::join!(has_item(others.clone()), has_item(others.clone()));
                tokio::spawn(has_item(others)).await.unwrap() && parts == (true, true)
            });
            assert_eq!(tasks.join_all().await, [true; 5]);
        });
        let tasks = LocalSet::new();
        let asked = tasks.block_on(&runtime, async { tokio::task::spawn_local(has_item(local)).await });
        assert!(asked.unwrap());
        drop(own);
    }

    /// A call on such an executor would block the worker thread that drives the connection of the call.
    #[test]
    fn executor_inside_a_task_gets_no_item() {
        struct Other;
        impl Wake for Other {
            fn wake(self: Arc<Self>) {}
        }
        let runtime = multi_thread();
        let own = opened(&runtime);
        let polled = runtime.spawn(async move {
            let waker = Waker::from(Arc::new(Other));
            pin!(has_item(own)).poll(&mut Context::from_waker(&waker))
        });
        assert_eq!(runtime.block_on(polled).unwrap(), Poll::Ready(false));
    }
}
