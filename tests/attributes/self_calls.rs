//! Calls inside a body that would wait for the hold of that body.

use crate::support::{Done, Failure, LOCKER, start, take};
use async_trait::async_trait;
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use locker::{ErrorKind, LockRequest, Locker, limit_concurrency, lock_on_argument, stores::Memory};
use std::{
    future::{Future, poll_fn, ready},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::{Arc, mpsc},
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::oneshot,
    task::{JoinHandle, LocalSet},
};

const NAME: &str = "self_calls";

#[lock_on_argument(expr = "1h", name = "self_calls", args(id), locker = LOCKER)]
fn plain(id: u32, body: impl FnOnce() -> Done) -> Done {
    body()
}

#[lock_on_argument(expr = "1h", name = "self_calls", args(id), locker = LOCKER)]
async fn asynchronous(id: u32, body: impl Future<Output = Done>) -> Done {
    body.await
}

fn by_hand(id: u32) -> LockRequest {
    LOCKER.lock_on(NAME, &[&id])
}

/// The call fails at once, and the body around it still holds the lock.
#[expect(clippy::unnecessary_wraps, reason = "the result of a body")]
fn assert_told(id: u32, call: Done) -> Done {
    let Err(Failure::Locker(error)) = call else { panic!("{call:?}") };
    assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Misused, true), "{error}");
    assert!(error.message().contains("would wait for itself"), "{error}");
    let same_key = Locker::memory().lock_on(NAME, &[&id]).acquire_blocking().unwrap();
    assert_eq!(error.key(), Some(same_key.key()));
    assert!(take(NAME, &[&id]).is_none(), "the body holds it");
    Ok(())
}

/// Nothing is left in the store.
fn assert_free(id: u32) {
    assert!(take(NAME, &[&id]).is_some());
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

#[test]
fn plain_call_inside_a_plain_body_is_told() {
    plain(1, || assert_told(1, plain(1, || unreachable!()))).unwrap();
    assert_free(1);
}

#[tokio::test]
async fn async_call_inside_an_async_body_is_told() {
    let inner = || async { assert_told(2, asynchronous(2, async { unreachable!() }).await) };
    asynchronous(2, inner()).await.unwrap();
    tokio::spawn(asynchronous(2, inner())).await.unwrap().unwrap();
    assert_free(2);
}

/// Without any runtime of tokio.
#[test]
fn async_call_is_told_under_any_executor() {
    let inner = async { assert_told(3, asynchronous(3, async { unreachable!() }).await) };
    let mut call = pin!(asynchronous(3, inner));
    let Poll::Ready(done) = start(call.as_mut()) else { panic!("it waits") };
    done.unwrap();
    assert_free(3);
}

#[tokio::test]
async fn plain_call_inside_an_async_body_is_told() {
    asynchronous(4, async { assert_told(4, plain(4, || unreachable!())) }).await.unwrap();
    assert_free(4);
}

#[test]
fn async_call_inside_a_plain_body_is_told() {
    let inner = || asynchronous(5, async { unreachable!() });
    plain(5, || assert_told(5, current_thread().block_on(inner()))).unwrap();
    plain(5, || assert_told(5, Builder::new_multi_thread().build().unwrap().block_on(inner()))).unwrap();
    plain(5, || assert_told(5, inner().now_or_never().expect("it waits"))).unwrap();
    assert_free(5);
}

/// Through a function on another key, whose own lock is released.
#[lock_on_argument(expr = "1h", name = "self_calls.between", args(id), locker = LOCKER)]
async fn between(id: u32) -> Done {
    asynchronous(id, async { unreachable!() }).await
}

#[tokio::test]
async fn recursion_through_another_function_is_told() {
    asynchronous(7, async { assert_told(7, between(7).await) }).await.unwrap();
    assert_free(7);
    assert!(take("self_calls.between", &[&7]).is_some());
}

#[tokio::test]
async fn lock_by_hand_inside_a_body_is_told() {
    let ask = || by_hand(8).acquire().map(|taken| Ok(taken.map(drop)?));
    asynchronous(8, async { assert_told(8, ask().await) }).await.unwrap();
    plain(8, || assert_told(8, by_hand(8).acquire_blocking().map(drop).map_err(Failure::from))).unwrap();
    assert_free(8);
}

/// A call that does not wait cannot wait for itself.
#[tokio::test]
async fn call_that_does_not_wait_is_not_told() {
    let body = async {
        assert!(by_hand(9).try_acquire().await?.is_none());
        let error = by_hand(9).timeout(Duration::ZERO).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let error = by_hand(9).max_retry(1).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RetriesExhausted);
        Ok(())
    };
    asynchronous(9, body).await.unwrap();
}

#[lock_on_argument(expr = "1h", name = "self_calls", args(id), locker = locker)]
fn elsewhere(locker: &Locker, id: u32) -> Done {
    Ok(())
}

#[test]
fn other_keys_and_stores_are_not_told() {
    let prefixed = Locker::builder().store(Memory::new()).prefix("other.").build_blocking().unwrap();
    let others = || {
        plain(11, || Ok(()))?;
        elsewhere(&Locker::memory(), 10)?;
        elsewhere(&prefixed, 10)
    };
    plain(10, others).unwrap();
}

/// A guard is not a body: it may be on its way to another task.
#[tokio::test]
async fn guard_by_hand_is_not_told() {
    let guard = by_hand(12).acquire().await.unwrap();
    let mut call = pin!(asynchronous(12, ready(Ok(()))));
    assert!(start(call.as_mut()).is_pending(), "it waits");
    let (release, released) = oneshot::channel::<()>();
    let other = tokio::spawn(async move {
        released.await.unwrap();
        guard.release().await
    });
    assert!(start(call.as_mut()).is_pending(), "it waits");
    release.send(()).unwrap();
    call.await.unwrap();
    other.await.unwrap().unwrap();
}

#[tokio::test]
async fn calls_side_by_side_are_not_told() {
    let call = || asynchronous(13, tokio::task::yield_now().map(Ok));
    let (one, other) = tokio::join!(call(), call());
    one.and(other).unwrap();
}

#[tokio::test]
async fn joined_calls_inside_a_body_are_told() {
    let inner = || async { assert_told(14, asynchronous(14, async { unreachable!() }).await) };
    let body = async {
        let (one, other) = tokio::join!(inner(), inner());
        one.and(other)
    };
    asynchronous(14, body).await.unwrap();
    // In a task of tokio also with wakers of their own.
    let body = async move {
        let mut all = FuturesUnordered::from_iter([inner(), inner()]);
        while let Some(done) = all.next().await {
            done?;
        }
        Ok(())
    };
    tokio::spawn(asynchronous(14, body)).await.unwrap().unwrap();
}

/// Polls `call` as a task of another executor, which has a waker of its own.
async fn as_a_task_of_another_executor<F: Future>(mut call: Pin<&mut F>) -> bool {
    struct Other;
    impl Wake for Other {
        fn wake(self: Arc<Self>) {}
    }
    let waker = Waker::from(Arc::new(Other));
    poll_fn(|_| Poll::Ready(call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending())).await
}

#[test]
fn other_executors_task_in_an_async_body_waits() {
    let mut other = Box::pin(asynchronous(15, ready(Ok(()))));
    let body = async {
        assert!(as_a_task_of_another_executor(other.as_mut()).await, "it waits");
        Ok(())
    };
    assert!(matches!(start(pin!(asynchronous(15, body))), Poll::Ready(Ok(()))));
    assert!(matches!(start(other.as_mut()), Poll::Ready(Ok(()))));
}

type Spawned = JoinHandle<Done>;

/// Starts a call from the body and lets it begin to wait.
async fn spawn_inside(id: u32, spawn: impl AsyncFn() -> Spawned) -> Spawned {
    let mut spawned = None;
    let body = async {
        let mut call = spawn().await;
        for _ in 0..20 {
            tokio::task::yield_now().await;
            assert!((&mut call).now_or_never().is_none(), "it waits");
        }
        spawned = Some(call);
        Ok(())
    };
    asynchronous(id, body).await.unwrap();
    spawned.unwrap()
}

#[tokio::test]
async fn task_spawned_inside_a_body_waits() {
    let call = spawn_inside(16, async || tokio::spawn(asynchronous(16, ready(Ok(()))))).await;
    call.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_spawned_on_another_thread_waits() {
    let spawn = || spawn_inside(17, async || tokio::spawn(asynchronous(17, ready(Ok(())))));
    spawn().await.await.unwrap().unwrap();
    tokio::spawn(async move { spawn().await.await.unwrap() }).await.unwrap().unwrap();
}

#[tokio::test]
async fn local_task_spawned_inside_a_body_waits() {
    let local = LocalSet::new();
    let spawn = async || tokio::task::spawn_local(asynchronous(18, ready(Ok(()))));
    local.run_until(async { spawn_inside(18, spawn).await.await.unwrap().unwrap() }).await;
}

#[tokio::test]
async fn spawned_blocking_call_inside_a_body_waits() {
    let spawn = async || tokio::task::spawn_blocking(|| plain(19, || Ok(())));
    spawn_inside(19, spawn).await.await.unwrap().unwrap();
}

#[test]
fn thread_started_inside_a_body_waits() {
    let (mut started, mut called) = (None, None);
    let body = || {
        let (sender, receiver) = mpsc::channel();
        started = Some(thread::spawn(move || sender.send(plain(20, || Ok(()))).unwrap()));
        assert!(receiver.recv_timeout(Duration::from_millis(20)).is_err(), "it waits");
        called = Some(receiver);
        Ok(())
    };
    plain(20, body).unwrap();
    called.unwrap().recv().unwrap().unwrap();
    started.unwrap().join().unwrap();
}

/// The body drives its own runtime, which polls the spawned task on the same thread.
#[test]
fn task_of_a_runtime_inside_a_plain_body_waits() {
    let runtime = current_thread();
    let mut spawned = None;
    let body = || {
        runtime.block_on(async {
            let mut call = tokio::spawn(asynchronous(21, ready(Ok(()))));
            for _ in 0..20 {
                tokio::task::yield_now().await;
                assert!((&mut call).now_or_never().is_none(), "it waits");
            }
            spawned = Some(call);
        });
        Ok(())
    };
    plain(21, body).unwrap();
    runtime.block_on(spawned.unwrap()).unwrap().unwrap();
}

/// A plain call blocks the thread that the body needs, whichever task makes it.
#[test]
fn plain_call_of_a_task_above_a_plain_body_is_told() {
    let runtime = current_thread();
    let body = || {
        let call = async { tokio::spawn(async { plain(22, || unreachable!()) }).await.unwrap() };
        assert_told(22, runtime.block_on(call))
    };
    plain(22, body).unwrap();
}

#[lock_on_argument(
    expr = "20ms",
    renew = false,
    on_lost = "continue",
    name = "self_calls",
    args(id),
    guard = lease,
    locker = LOCKER
)]
fn outlived(id: u32, body: impl FnOnce() -> Done) -> Done {
    while lease.is_held() {
        thread::yield_now();
    }
    body()
}

#[lock_on_argument(
    expr = "20ms",
    renew = false,
    on_lost = "continue",
    name = "self_calls",
    args(id),
    guard = lease,
    locker = LOCKER
)]
async fn outlived_by_async(id: u32, body: impl Future<Output = Done>) -> Done {
    lease.lost().await;
    body.await
}

#[tokio::test]
async fn call_after_the_loss_is_not_told() {
    outlived(23, || plain(23, || Ok(()))).unwrap();
    outlived_by_async(23, asynchronous(23, ready(Ok(())))).await.unwrap();
}

#[tokio::test]
async fn call_after_the_body_is_not_told() {
    plain(24, || Ok(())).and_then(|()| plain(24, || Ok(()))).unwrap();
    asynchronous(24, ready(Ok(()))).await.unwrap();
    catch_unwind(|| plain(24, || panic!("of the test"))).unwrap_err();
    let panicking = asynchronous(24, async { panic!("of the test") });
    AssertUnwindSafe(panicking).catch_unwind().await.unwrap_err();
    // Dropped between two polls.
    assert!(start(pin!(asynchronous(24, std::future::pending()))).is_pending());
    plain(24, || Ok(())).unwrap();
    asynchronous(24, ready(Ok(()))).await.unwrap();
}

/// A panic that the outer body catches ends only the inner one.
#[test]
fn caught_panic_keeps_the_outer_body() {
    let body = || {
        catch_unwind(|| plain(26, || panic!("of the test"))).unwrap_err();
        assert_told(25, plain(25, || unreachable!()))
    };
    plain(25, body).unwrap();
    assert_free(25);
    assert_free(26);
}

#[lock_on_argument(expr = "1h", name = "self_calls.shared", args(id), mode = "read", locker = LOCKER)]
fn reads(id: u32, body: impl FnOnce() -> Done) -> Done {
    body()
}

#[lock_on_argument(expr = "1h", name = "self_calls.shared", args(id), mode = "write", locker = LOCKER)]
fn writes(id: u32, body: impl FnOnce() -> Done) -> Done {
    body()
}

#[test]
fn only_readers_share_with_themselves() {
    let kind = |call: Done| call.unwrap_err().kind();
    reads(27, || reads(27, || Ok(()))).unwrap();
    assert_eq!(kind(reads(27, || writes(27, || unreachable!()))), Some(ErrorKind::Misused));
    assert_eq!(kind(writes(27, || reads(27, || unreachable!()))), Some(ErrorKind::Misused));
    assert_eq!(kind(writes(27, || writes(27, || unreachable!()))), Some(ErrorKind::Misused));
    writes(27, || Ok(())).unwrap();
}

#[limit_concurrency(expr = "1h", name = "self_calls.one", args(id), size = 1, locker = LOCKER)]
fn one(id: u32, body: impl FnOnce() -> Done) -> Done {
    body()
}

#[limit_concurrency(expr = "1h", name = "self_calls.two", args(id), size = 2, locker = LOCKER)]
fn one_of_two(id: u32, body: impl FnOnce() -> Done) -> Done {
    body()
}

/// With two permits, the third call in a row is the first that no other holder can help.
#[test]
fn only_a_full_semaphore_is_told() {
    let kind = |call: Done| call.unwrap_err().kind();
    assert_eq!(kind(one(28, || one(28, || unreachable!()))), Some(ErrorKind::Misused));
    one_of_two(29, || one_of_two(29, || Ok(()))).unwrap();
    let third = || one_of_two(29, || one_of_two(29, || unreachable!()));
    assert_eq!(kind(one_of_two(29, third)), Some(ErrorKind::Misused));
    one_of_two(29, || one_of_two(29, || Ok(()))).unwrap();
}

#[lock_on_argument(expr = "1h", name = "self_calls", args(id), on_lost = "continue", locker = LOCKER)]
async fn continued(id: u32, body: impl Future<Output = Done>) -> Done {
    body.await
}

#[lock_on_argument(expr = "1h", name = "self_calls", args(id), on_lost = "error", locker = LOCKER)]
async fn checked(id: u32, body: impl Future<Output = Done>) -> Done {
    body.await
}

#[lock_on_argument(expr = "1h", name = "self_calls", args(id), on_lost = "error", locker = LOCKER)]
fn plain_checked(id: u32, body: impl FnOnce() -> Done) -> Done {
    body()
}

#[tokio::test]
async fn calls_are_told_with_every_on_lost() {
    let inner = || async {
        // Before and after the body was pending.
        assert_told(30, plain(30, || unreachable!()))?;
        tokio::task::yield_now().await;
        assert_told(30, checked(30, async { unreachable!() }).await)
    };
    continued(30, inner()).await.unwrap();
    checked(30, inner()).await.unwrap();
    plain_checked(30, || assert_told(30, plain_checked(30, || unreachable!()))).unwrap();
    assert_free(30);
}

#[lock_on_argument(expr = "1h", name = "self_calls", each(one, other), locker = LOCKER)]
async fn each(one: u32, other: u32, body: impl Future<Output = Done>) -> Done {
    body.await
}

#[lock_on_argument(expr = "1h", name = "self_calls", each(one, other), locker = LOCKER)]
fn plain_each(one: u32, other: u32, body: impl FnOnce() -> Done) -> Done {
    body()
}

/// One common lock is enough, and no other is kept.
#[tokio::test]
async fn calls_are_told_with_each() {
    for common in [32, 33] {
        plain_each(32, 33, || assert_told(common, plain(common, || unreachable!()))).unwrap();
        plain(common, || assert_told(common, plain_each(31, common, || unreachable!()))).unwrap();
        let inside = async { assert_told(common, each(common, 34, async { unreachable!() }).await) };
        each(32, 33, inside).await.unwrap();
        each(34, 35, each(32, 33, ready(Ok(())))).await.unwrap();
    }
    for id in 31..36 {
        assert_free(id);
    }
}

#[async_trait]
trait Account {
    async fn book(&self, deep: bool) -> Done;
}

#[async_trait]
impl Account for u32 {
    #[lock_on_argument(expr = "1h", name = "self_calls", args(*self), locker = LOCKER)]
    async fn book(&self, deep: bool) -> Done {
        tokio::task::yield_now().await;
        if deep { assert_told(*self, self.book(false).await) } else { Ok(()) }
    }
}

#[tokio::test]
async fn async_trait_methods_are_told() {
    tokio::spawn(async { 36.book(true).await }).await.unwrap().unwrap();
    36.book(false).await.unwrap();
}

#[lock_on_argument(expr = "1h", name = "self_calls.once", args(id), release = "on_expiry", locker = LOCKER)]
fn once(id: u32, body: impl FnOnce() -> Done) -> Done {
    body()
}

/// The end of the body does not end the hold: nobody waits for the body.
#[test]
fn second_submit_inside_the_first_times_out() {
    let second = || once(37, || unreachable!());
    assert_eq!(once(37, second).unwrap_err().kind(), Some(ErrorKind::TimedOut));
}
