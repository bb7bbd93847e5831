//! Exclusion with the Python decorator: a function of the same name and arguments on either side.

use crate::support::{eternal_keys, in_time, until};
use locker::{KeyFormat, Locker, lock_on_argument};
use locker_harness::{GENEROUS, RedisServer, eventually, missing};
use std::{
    process::{Child, Command, Stdio},
    sync::{Arc, OnceLock},
};

const TURNS: usize = 52;

static ESCAPED: OnceLock<Locker> = OnceLock::new();
static PYTHON: OnceLock<Locker> = OnceLock::new();

/// The locked functions of both key formats do this.
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

/// More than 500 alternations over five cards, every one of them with the other side waiting.
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

/// Python cannot take what Rust holds, and the other way round; each sees the other's token.
#[tokio::test]
async fn the_layout_is_a_plain_string_with_a_time_to_live() {
    let Some(server) = RedisServer::start() else { return };
    let locker = Locker::connect(&server.url()).await.unwrap();
    let guard = locker.lock_on("bank.withdraw", &[&"6222", &100]).acquire().await.unwrap();
    // python3 -c "from hashlib import md5; h = lambda s: md5(s.encode()).hexdigest();
    //             print(h('bank:withdraw') + ':lock|' + h('6222:100'))"
    assert_eq!(guard.key(), "e7d1e70120eddf339445617f6b481243:lock|3733c69536a04d53d3607351a4d1c8c1");
    assert_eq!(server.ask::<Option<String>>("SET", &[guard.key(), "token", "EX", "10", "NX"]), None);
    assert_eq!(server.ask::<String>("GET", &[guard.key()]), guard.id());
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
    in_time("the waiter's turn", waiter).await.unwrap().release().await.unwrap();
}
