//! Other clients of the same keys: the Python decorator, and clients that write or delete keys.

use crate::support::{
    GENEROUS, LAST_FENCE, clock, connect, eternal_keys, hold, holder, in_time, scripts_run,
    server_behind_proxy, until, waiting,
};
use futures_util::future::join_all;
use locker::{ErrorKind, KeyFormat, Locker, lock_on_argument};
use locker_harness::{RedisServer, eventually, missing};
use std::{
    process::{Child, Command, Stdio},
    sync::{Arc, OnceLock},
    time::Duration,
};

const TURNS: usize = 52;

static ESCAPED: OnceLock<Locker> = OnceLock::new();
static PYTHON: OnceLock<Locker> = OnceLock::new();

/// The body of the locked functions of both key formats.
fn inside(server: &RedisServer, card: &str, last: bool) {
    let mut connection = server.connection();
    let mut ask = |command: &str, arguments: &[&str]| {
        redis::cmd(command).arg(arguments).query::<redis::Value>(&mut connection).unwrap()
    };
    let (inside, turns) = (format!("inside:{card}"), format!("turns:{card}"));
    assert_ne!(ask("SET", &[&inside, "rust", "NX"]), redis::Value::Nil, "python is inside with {card}");
    ask("RPUSH", &[&turns, "rust"]);
    ask("DEL", &[&format!("trying:rust:{card}")]);
    let trying = format!("trying:python:{card}");
    if !last {
        eventually("python trying", || (ask("EXISTS", &[&trying]) == redis::Value::Int(1)).then_some(()));
    }
    ask("DEL", &[&inside]);
}

#[lock_on_argument(name = "bank.withdraw", args(card, amount), timeout = "1m", locker = ESCAPED.get().unwrap())]
fn withdraw(card: &str, amount: u32, server: &RedisServer, last: bool) -> locker::Result<()> {
    inside(server, card, last);
    Ok(())
}

#[lock_on_argument(name = "bank.withdraw", args(card, amount), timeout = "1m", locker = PYTHON.get().unwrap())]
fn withdraw_with_colons(card: &str, amount: u32, server: &RedisServer, last: bool) -> locker::Result<()> {
    inside(server, card, last);
    Ok(())
}

fn take_turns(server: &RedisServer, card: &str) {
    let mut connection = server.connection();
    for turn in 1..=TURNS {
        let last = turn == TURNS;
        redis::cmd("SET").arg(format!("trying:rust:{card}")).arg(1).exec(&mut connection).unwrap();
        let withdraw = if card.contains(':') { withdraw_with_colons } else { withdraw };
        withdraw(card, 100, server, last).unwrap();
        let python_was_here = || {
            let latest: String =
                redis::cmd("LINDEX").arg(format!("turns:{card}")).arg(-1).query(&mut connection).unwrap();
            (latest == "python").then_some(())
        };
        if !last {
            locker_harness::eventually("python's turn", python_was_here);
        }
    }
}

fn python(arguments: &[&str]) -> Option<Child> {
    let Ok(python) = std::env::var("LOCKER_TEST_PYTHON") else {
        return missing("LOCKER_TEST_PYTHON is not set: `eval \"$(scripts/setup-python.sh)\"` sets it");
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../testing/python/bank.py");
    Some(Command::new(python).arg(script).args(arguments).stdout(Stdio::piped()).spawn().expect("a python"))
}

/// More than 500 alternations over five cards. The other side waits at each of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rust_and_the_python_decorator_take_turns() {
    let Some(server) = RedisServer::start() else { return };
    let open = async |format| Locker::builder().url(server.url()).key_format(format).build().await.unwrap();
    ESCAPED.set(open(KeyFormat::Escaped).await).unwrap();
    PYTHON.set(open(KeyFormat::Python).await).unwrap();
    let cards = ["6222", "visa 1", "amex", "a:b", "6222:0"];
    let (port, turns) = (server.port().to_string(), TURNS.to_string());
    let Some(child) = python(&[&[port.as_str(), turns.as_str()], &cards[..]].concat()) else { return };
    let server = Arc::new(server);
    let rust = cards.map(|card| {
        let server = Arc::clone(&server);
        tokio::task::spawn_blocking(move || take_turns(&server, card))
    });
    for card in rust {
        tokio::time::timeout(GENEROUS * 4, card).await.expect("all turns").unwrap();
    }
    let output = in_time("python's end", tokio::task::spawn_blocking(|| child.wait_with_output()))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n");
    let mut alternations = 0;
    for card in cards {
        let turns: Vec<String> = server.ask("LRANGE", &[&format!("turns:{card}"), "0", "-1"]);
        assert_eq!(turns.len(), TURNS * 2);
        alternations += turns.windows(2).filter(|pair| pair[0] != pair[1]).count();
    }
    assert!(alternations >= 500, "{alternations}");
    until("the end of all locks", async || eternal_keys(&server).iter().all(|key| key.starts_with("turns:")))
        .await;
}

/// Python cannot take a lock that Rust holds, or the other way round. Each sees the other's token.
#[tokio::test]
async fn lock_is_a_plain_string_with_an_expiry() {
    let Some(server) = RedisServer::start() else { return };
    let locker = Locker::connect(&server.url()).await.unwrap();
    let guard = locker.lock_on("bank.withdraw", &[&"6222", &100]).acquire().await.unwrap();
    // python3 -c "from hashlib import md5; h = lambda s: md5(s.encode()).hexdigest();
    //             print(h('bank:withdraw') + ':lock|' + h('6222:100'))"
    assert_eq!(guard.key(), "e7d1e70120eddf339445617f6b481243:lock|3733c69536a04d53d3607351a4d1c8c1");
    assert_eq!(server.ask::<Option<String>>("SET", &[guard.key(), "token", "EX", "10", "NX"]), None);
    let held = format!("{} {}", guard.id(), guard.fence());
    assert_eq!(server.ask::<String>("GET", &[guard.key()]), held);
    let left: i64 = server.ask("PTTL", &[guard.key()]);
    assert!(left > 5_000 && left <= 10_000);
    let key = guard.key().to_owned();
    guard.release().await.unwrap();
    assert_eq!(server.ask::<String>("SET", &[&key, "token", "EX", "10", "NX"]), "OK");
    assert!(locker.lock_on("bank.withdraw", &[&"6222", &100]).try_acquire().await.unwrap().is_none());
    let waiter = tokio::spawn({
        let locker = locker.clone();
        async move { locker.lock_on("bank.withdraw", &[&"6222", &100]).acquire().await.unwrap() }
    });
    until("the waiter", async || crate::support::waiting(&server, &key) == 1).await;
    assert_eq!(server.ask::<String>("GET", &[&key]), "token");
    assert_eq!(server.ask::<i64>("EXPIRE", &[&key, "0"]), 1);
    in_time("the waiter", waiter).await.unwrap().release().await.unwrap();
}

/// At its first try.
#[tokio::test]
async fn release_of_a_missing_hold_returns_lost() {
    let (server, _proxy, locker) = server_behind_proxy!();
    let guard = hold(&locker, "a").await;
    let _: i64 = server.ask("DEL", &["lock:a"]);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

/// Lua counts exactly up to 2^53. No fence rose above such a record, and one of 20 digits was no fence at all.
#[tokio::test]
async fn foreign_fence_above_2_to_53_is_ignored() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    for record in ["9007199254740993 x", "9999999999999999", "99999999999999999999 x"] {
        let names: Vec<_> = (0..8).map(|number| format!("{record} {number}")).collect();
        let set = || server.ask::<String>("SET", &[LAST_FENCE, record]);
        set();
        let before = u64::try_from(clock(&server).as_micros()).unwrap();
        // Some of them in one command.
        for guard in join_all(names.iter().map(|name| hold(&locker, name))).await {
            assert!(
                (before..before + 60_000_000).contains(&guard.fence()),
                "{} after {record}",
                guard.fence()
            );
            let waiter = tokio::spawn({
                let (locker, name) = (locker.clone(), guard.key()["lock:".len()..].to_owned());
                async move { hold(&locker, &name).await }
            });
            until("the waiter", async || waiting(&server, guard.key()) == 1).await;
            let fence = guard.fence();
            set();
            guard.release().await.unwrap();
            let next = in_time("the waiter", waiter).await.unwrap();
            assert!(
                (fence + 1..fence + 60_000_000).contains(&next.fence()),
                "{} after {fence}",
                next.fence()
            );
        }
        set();
        let permit = locker.semaphore("a", 2).try_acquire().await.unwrap().expect("a permit");
        assert!((before..before + 60_000_000).contains(&permit.fence()), "{} after {record}", permit.fence());
        permit.release().await.unwrap();
    }
}

#[tokio::test]
async fn stolen_hold_is_lost_and_not_taken_back() {
    let (server, _proxy, locker) = server_behind_proxy!();
    let guard = hold(&locker, "a").await;
    let _: String = server.ask("SET", &["lock:a", "another-client", "PX", "60000"]);
    in_time("the loss", guard.lost()).await;
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(holder(&server, "lock:a").as_deref(), Some("another-client"));
}

/// Another client deletes the key.
#[tokio::test]
async fn deleted_semaphore_serves_its_waiters() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let lost = locker.semaphore("a", 2).permits(2).acquire().await.unwrap();
    let mut waiters = Vec::new();
    for count in 1..=2 {
        let request = locker.semaphore("a", 2).timeout(Duration::from_secs(20)).retry_delay(GENEROUS);
        waiters.push(tokio::spawn(request.acquire()));
        until("the waiter", async || waiting(&server, "semaphore:a") == count).await;
    }
    let _: i64 = server.ask("DEL", &["semaphore:a"]);
    assert!(locker.semaphore("a", 2).try_acquire().await.unwrap().is_none(), "it is kept for the waiters");
    for waiter in waiters {
        in_time("a waiter", waiter).await.unwrap().unwrap().release().await.unwrap();
    }
    assert_eq!(lost.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn waiter_creates_a_deleted_semaphore_again() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let lost = locker.semaphore("a", 1).acquire().await.unwrap();
    let request = locker.semaphore("a", 1).timeout(GENEROUS).retry_delay(Duration::from_millis(200));
    let waiter = tokio::spawn(request.acquire());
    until("the waiter", async || waiting(&server, "semaphore:a") == 1).await;
    let _: i64 = server.ask("DEL", &["semaphore:a"]);
    let next = in_time("the waiter", waiter).await.unwrap().unwrap();
    assert!(next.fence() > lost.fence());
    let _ = lost.release().await;
    next.release().await.unwrap();
}

/// Another client deletes the key.
#[tokio::test]
async fn deleted_latch_stays_shut_for_its_waiters() {
    let Some(server) = RedisServer::start() else { return };
    let latch = connect(&server.url()).await.latch("a", 1);
    let waiter = tokio::spawn({
        let latch = latch.clone();
        async move { latch.wait(GENEROUS).await }
    });
    until("the waiter", async || waiting(&server, "latch:a") == 1).await;
    let channel = server.ask::<Vec<String>>("ZRANGE", &["{latch:a}:w", "0", "0"]).remove(0);
    let _: i64 = server.ask("DEL", &["latch:a"]);
    let before = scripts_run(&server);
    let _: i64 = server.ask("PUBLISH", &[&channel, "latch wake - 0 latch:a"]);
    until("its asking again", async || scripts_run(&server) > before).await;
    assert_eq!(waiting(&server, "latch:a"), 1, "no caller has counted down");
    assert_eq!(latch.count_down().await.unwrap(), 0);
    in_time("the waiter", waiter).await.unwrap().unwrap();
}

#[tokio::test]
async fn binary_key_does_not_break_the_name_list() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let guard = hold(&locker, "a").await;
    let _: () = redis::cmd("SET").arg(&[0xff_u8, 0xfe][..]).arg(1).query(&mut server.connection()).unwrap();
    assert_eq!(locker.admin().names().await.unwrap(), [("lock".to_owned(), "a".to_owned())]);
    guard.release().await.unwrap();
}
