//! What survives a server and what does not.

use crate::support::{builder, connect, hold, holder, in_time, until, waiting};
use locker::{ErrorKind, Locker, lock_on_argument};
use locker_harness::{RedisServer, Signal};
use rustix::process::{Pid, kill_process};
use std::{
    future::pending,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

const PERSISTENT: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

#[tokio::test]
async fn persistent_restart_keeps_holds_and_waiters() {
    let Some(mut server) = RedisServer::with(&PERSISTENT) else { return };
    let locker = connect(&server.url()).await;
    let guard = hold(&locker, "a").await;
    let waiter = tokio::spawn({
        let locker = locker.clone();
        async move { hold(&locker, "a").await }
    });
    until("the waiter", async || waiting(&server, "lock:a") == 1).await;
    server.restart();
    assert_eq!(holder(&server, "lock:a").as_deref(), Some(guard.id()));
    until("a renewal after the restart", async || server.ask::<i64>("PTTL", &["lock:a"]) > 4_500).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    let next = in_time("the waiter", waiter).await.unwrap();
    next.release().await.unwrap();
}

#[tokio::test]
async fn holds_are_lost_with_an_empty_restart() {
    let Some(mut server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let guard = hold(&locker, "a").await;
    server.restart();
    in_time("the loss", guard.lost()).await;
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
    let next = hold(&locker, "a").await;
    assert!(next.fence() > guard.fence(), "fences rise over the loss of all data");
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(holder(&server, "lock:a").as_deref(), Some(next.id()));
    next.release().await.unwrap();
}

#[tokio::test]
async fn flushall_loses_holds_and_requeues_waiters() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let guard = hold(&locker, "a").await;
    let waiter = tokio::spawn({
        let locker = locker.clone();
        async move { hold(&locker, "a").await }
    });
    until("the waiter", async || waiting(&server, "lock:a") == 1).await;
    let _: String = server.ask("FLUSHALL", &[]);
    let next = in_time("the waiter", waiter).await.unwrap();
    in_time("the loss", guard.lost()).await;
    assert!(next.fence() > guard.fence());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    next.release().await.unwrap();
}

#[tokio::test]
async fn server_paused_beyond_the_lease_loses_holds() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let guard = locker.lock("a").lease(Duration::from_secs(1)).acquire().await.unwrap();
    server.signal(Signal::STOP);
    in_time("the loss", guard.lost()).await;
    assert!(!guard.is_held());
    server.signal(Signal::CONT);
    let next = hold(&locker, "a").await;
    assert!(next.fence() > guard.fence());
    next.release().await.unwrap();
}

static FLUSHED: OnceLock<Locker> = OnceLock::new();

struct Dropped<'a>(&'a AtomicBool);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[lock_on_argument(args(account), expr = "1s", locker = FLUSHED.get().unwrap())]
async fn work_for_ever(account: u32, dropped: &AtomicBool) -> Result<(), locker::Error> {
    let _dropped = Dropped(dropped);
    pending().await
}

#[tokio::test]
async fn async_body_is_cancelled_when_it_loses_lock() {
    let Some(server) = RedisServer::start() else { return };
    let locker = builder(&server.url()).build().await.unwrap();
    FLUSHED.set(locker).unwrap();
    let body = tokio::spawn(async {
        let dropped = AtomicBool::new(false);
        (work_for_ever(7, &dropped).await, dropped.load(SeqCst))
    });
    until("the body to be in", async || server.ask::<i64>("DBSIZE", &[]) > 0).await;
    let _: String = server.ask("FLUSHALL", &[]);
    let (result, dropped) = in_time("the cancellation", body).await.unwrap();
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Lost);
    assert!(dropped);
}

/// A holder that sleeps beyond its lease (a long pause, a suspended machine) is told so when it wakes up.
#[tokio::test]
async fn client_paused_beyond_its_lease_loses_holds() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "loss::paused_process", "--nocapture"])
        .env("LOCKER_TEST_SLEEPER", server.url())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.any(|line| line.ends_with("held: true")));
    kill_process(pid, Signal::STOP).unwrap();
    let next = hold(&locker, "a").await;
    kill_process(pid, Signal::CONT).unwrap();
    writeln!(child.stdin.take().unwrap(), "go on").unwrap();
    assert!(said.any(|line| line == "check: Lost, release: Lost"));
    assert!(child.wait().unwrap().success());
    assert!(next.is_held());
    next.release().await.unwrap();
}

/// A part of the test above, which runs it in a process of its own.
#[test]
fn paused_process() {
    let Ok(url) = std::env::var("LOCKER_TEST_SLEEPER") else { return };
    let locker = Locker::connect_blocking(&url).unwrap();
    let guard = locker.lock("a").lease(Duration::from_secs(1)).acquire_blocking().unwrap();
    println!("held: {}", guard.is_held());
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let check = guard.check().unwrap_err().kind();
    println!("check: {check:?}, release: {:?}", guard.release_blocking().unwrap_err().kind());
}
