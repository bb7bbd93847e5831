//! The connections that the runtimes of callers drive: used, and never relied on.

use crate::support::{GENEROUS, LEASE, builder, holder, nobody_is_left, until};
use locker::{Guard, Locker};
use locker_harness::{Fault, Proxy, RedisServer, eventually};
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};
use tokio::runtime::{Builder, Runtime};

/// Longer than a busy machine delays a renewal.
const SHORT: Duration = Duration::from_secs(3);

fn runtime(workers: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(workers).enable_all().build().unwrap()
}

fn connect(url: &str) -> Locker {
    builder(url).build_blocking().unwrap()
}

/// Returns the number of connections that carry calls and no notifications.
fn own(server: &RedisServer) -> usize {
    let clients: String = server.ask("CLIENT", &["LIST"]);
    let is_own = |client: &&str| {
        let is = |word| client.split(' ').any(|each| each == word);
        is("sub=0") && (is("cmd=evalsha") || is("cmd=eval"))
    };
    clients.lines().filter(is_own).count()
}

/// Makes calls in `runtime` until exactly one connection of its own carries them.
fn open_own(runtime: &Runtime, server: &RedisServer, locker: &Locker) {
    eventually("a connection of the runtime", || {
        call(runtime, locker);
        let own = own(server);
        assert!(own < 2, "{own}");
        (own == 1).then_some(())
    });
}

fn call(runtime: &Runtime, locker: &Locker) {
    runtime.block_on(async { locker.lock("call").acquire().await.unwrap().release().await.unwrap() });
}

fn hold(runtime: &Runtime, locker: &Locker, name: &str, lease: Duration) -> Guard {
    runtime.block_on(locker.lock(name).lease(lease).acquire()).unwrap()
}

#[test]
fn runtime_has_one_connection_of_its_own() {
    let Some(server) = RedisServer::start() else { return };
    let (locker, runtime) = (connect(&server.url()), runtime(2));
    open_own(&runtime, &server, &locker);
    runtime.block_on(async {
        let calls = (0..100).map(|number| {
            let request = locker.lock(&number.to_string());
            tokio::spawn(async move { request.acquire().await.unwrap().release().await.unwrap() })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.unwrap();
        }
    });
    assert_eq!(own(&server), 1);
    drop(locker);
    eventually("its end with the store", || (own(&server) == 0).then_some(()));
}

#[test]
fn other_runtime_goes_on_with_locker_and_holds() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url());
    let first = runtime(2);
    open_own(&first, &server, &locker);
    let guard = hold(&first, &locker, "a", SHORT);
    drop(first);
    eventually("the end of its connection", || (own(&server) == 0).then_some(()));

    let second = runtime(2);
    open_own(&second, &server, &locker);
    // Under test: the guard is held longer than its lease, so it must have been renewed.
    thread::sleep(SHORT * 2);
    assert!(guard.is_held());
    second.block_on(guard.release()).unwrap();
    assert_eq!(holder(&server, "lock:a"), None);
}

#[test]
fn blocked_runtime_keeps_its_leases() {
    let Some(server) = RedisServer::start() else { return };
    let (locker, runtime) = (connect(&server.url()), runtime(2));
    open_own(&runtime, &server, &locker);
    let guard = hold(&runtime, &locker, "a", SHORT);
    // Under test: tasks that block all threads of the runtime.
    let blocked: Vec<_> = (0..2).map(|_| runtime.spawn(async { thread::sleep(SHORT * 3) })).collect();
    for task in blocked {
        runtime.block_on(task).unwrap();
    }
    assert!(guard.is_held());
    runtime.block_on(guard.release()).unwrap();
}

/// The request is carried out, and the caller ends with its runtime before the reply arrives.
#[test]
fn acquire_of_an_ending_runtime_is_taken_back() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let locker = builder(&proxy.url()).command_timeout(GENEROUS).build_blocking().unwrap();
    let runtime = runtime(2);
    open_own(&runtime, &server, &locker);
    proxy.set_for(1..2, Fault::DropReplies);
    let request = locker.lock("a").lease(LEASE * 100);
    runtime.spawn(async move { request.acquire().await.map(drop) });
    eventually("the acquire to be carried out", || holder(&server, "lock:a"));
    drop(runtime);
    eventually("it being taken back", || holder(&server, "lock:a").is_none().then_some(()));
    nobody_is_left(&server);
}

/// Only the worker that waits could drive the connection of its runtime.
#[test]
fn blocking_call_inside_a_worker_does_not_wait() {
    let Some(server) = RedisServer::start() else { return };
    let locker = builder(&server.url()).command_timeout(GENEROUS * 2).build_blocking().unwrap();
    let runtime = runtime(1);
    open_own(&runtime, &server, &locker);
    let (done, all) = mpsc::channel();
    runtime.spawn(async move {
        for _ in 0..10 {
            locker.lock("a").acquire_blocking().unwrap().release_blocking().unwrap();
        }
        done.send(()).unwrap();
    });
    assert_eq!(all.recv_timeout(GENEROUS), Ok(()));
}

#[test]
fn fifty_threads_block_at_once() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url());
    let inside = AtomicUsize::new(0);
    let block = |thread: usize| {
        for _ in 0..10 {
            let alone = locker.lock(&thread.to_string()).acquire_blocking().unwrap();
            let shared = locker.lock("shared").acquire_blocking().unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
            inside.fetch_sub(1, Ordering::SeqCst);
            shared.release_blocking().unwrap();
            alone.release_blocking().unwrap();
        }
    };
    let most = thread::scope(|scope| {
        let block = &block;
        let threads: Vec<_> = (0..50).map(|thread| scope.spawn(move || block(thread))).collect();
        let mut most = 0;
        while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
            most = most.max(own(&server));
        }
        most
    });
    assert!((1..=8).contains(&most), "{most} connections of blocked threads");
    eventually("idle connections being closed", || (own(&server) == 0).then_some(()));
    locker.lock("shared").acquire_blocking().unwrap().release_blocking().unwrap();
}

/// Each connection is killed between two calls of the same thread.
#[test]
fn blocking_calls_survive_killed_connections() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url());
    for _ in 0..3 {
        eventually("a connection of the thread's own", || {
            locker.lock("a").acquire_blocking().unwrap().release_blocking().unwrap();
            (own(&server) == 1).then_some(())
        });
        let _: i64 = server.ask("CLIENT", &["KILL", "TYPE", "normal", "SKIPME", "yes"]);
    }
}

#[test]
fn killed_connection_costs_no_hold_and_no_error() {
    let Some(server) = RedisServer::start() else { return };
    let (locker, runtime) = (connect(&server.url()), runtime(2));
    open_own(&runtime, &server, &locker);
    let guard = hold(&runtime, &locker, "held", SHORT);
    let (calls, kills) = (Arc::new(AtomicUsize::new(0)), 5);
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let (locker, calls) = (locker.clone(), Arc::clone(&calls));
            runtime.spawn(async move {
                let name = task.to_string();
                while calls.load(Ordering::SeqCst) < usize::MAX / 2 {
                    locker.lock(&name).acquire().await.unwrap().release().await.unwrap();
                    calls.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for _ in 0..kills {
        eventually("calls over their own connection", || (own(&server) == 1).then_some(()));
        let before = calls.load(Ordering::SeqCst);
        let _: i64 = server.ask("CLIENT", &["KILL", "TYPE", "normal", "SKIPME", "yes"]);
        eventually("more calls", || (calls.load(Ordering::SeqCst) > before + 100).then_some(()));
    }
    calls.store(usize::MAX / 2, Ordering::SeqCst);
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    assert!(guard.is_held());
    runtime.block_on(guard.release()).unwrap();
    nobody_is_left(&server);
}

/// Two faults: the open connection stops taking requests, and then those that follow it do.
#[test]
fn dead_connection_costs_one_time_out() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let locker = builder(&proxy.url()).command_timeout(SHORT).build_blocking().unwrap();
    let runtime = runtime(2);
    open_own(&runtime, &server, &locker);
    let guard = hold(&runtime, &locker, "held", SHORT * 3);
    proxy.set_for(1..usize::MAX, Fault::DropRequests);
    call(&runtime, &locker);
    eventually("another try", || {
        let asked = Instant::now();
        call(&runtime, &locker);
        assert!(asked.elapsed() < SHORT, "it waited for a connection that is known to be dead");
        (proxy.accepted() > 2).then_some(())
    });
    assert!(guard.is_held());
    proxy.set(Fault::None);
    runtime.block_on(guard.release()).unwrap();
    open_own(&runtime, &server, &locker);
}

#[test]
fn runtime_without_io_uses_the_other_connection() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url());
    let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
    for _ in 0..10 {
        call(&runtime, &locker);
    }
    assert_eq!(own(&server), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handed_over_lock_is_held_whatever_comes_first() {
    const TASKS: usize = 8;
    let Some(server) = RedisServer::start() else { return };
    let lockers =
        [crate::support::connect(&server.url()).await, Locker::connect(&server.url()).await.unwrap()];
    let counter = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (locker, counter) = (lockers[task % 2].clone(), Arc::clone(&counter));
            tokio::spawn(async move {
                for _ in 0..50 {
                    let guard = locker.semaphore("a", 1).timeout(GENEROUS).acquire().await.unwrap();
                    let before = counter.load(Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    counter.store(before + 1, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(counter.load(Ordering::SeqCst), TASKS * 50);
    until("an unused name", async || server.ask::<Vec<String>>("KEYS", &["semaphore:a"]).is_empty()).await;
}

/// Runs a future on another executor, one that parks the thread.
fn parked<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

/// A worker that another executor blocks does not drive its next task, and the other workers cannot take that one.
#[test]
fn other_executor_inside_a_worker_does_not_wait() {
    let Some(server) = RedisServer::start() else { return };
    let locker = builder(&server.url()).command_timeout(GENEROUS * 2).build_blocking().unwrap();
    let runtime = runtime(4);
    open_own(&runtime, &server, &locker);
    let (done, all) = mpsc::channel();
    runtime.spawn(async move {
        for _ in 0..10 {
            parked(async { locker.lock("a").acquire().await.unwrap().release().await.unwrap() });
        }
        done.send(()).unwrap();
    });
    assert_eq!(all.recv_timeout(GENEROUS), Ok(()));
}

/// The connection of a runtime that is lent to threads is driven only while it is lent.
#[test]
fn connection_that_ends_while_idle_fails_no_call() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url());
    let call = || locker.lock("a").lease(LEASE).try_acquire_blocking();
    eventually("a connection of this thread", || {
        call().unwrap().unwrap().release_blocking().unwrap();
        (own(&server) == 1).then_some(())
    });
    let _: i64 = server.ask("CLIENT", &["KILL", "TYPE", "NORMAL"]);
    eventually("its end", || (own(&server) == 0).then_some(()));
    let guard = call();
    assert!(matches!(guard, Ok(Some(_))), "{guard:?}");
}
