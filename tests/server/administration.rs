//! Lists and forced releases of locks that other programs hold: `locker ls`, `locker unlock` and `GET /v1`.

use crate::{
    stores::{Store, on_each_store},
    support::{Server, until},
};
use futures_util::future::join_all;
use locker::{Guard, Key, KeyFormat, Locker, Quota, lock_on_argument};
use locker_harness::RedisServer;
use locker_runtime::private::bindings::term;
use std::{process::Output, time::Duration};
use tokio::sync::{mpsc, oneshot};

on_each_store!(
    attribute_locks_are_listed_and_ended,
    list_has_the_kinds_that_are_asked_for,
    server_lists_pages,
    server_lists_all_names_but_its_own,
    server_lists_attribute_locks_with_their_function,
    holders_are_explained,
    waits_of_holders_are_explained,
    whole_key_is_not_taken_for_a_name,
);

fn run(store: &Store, arguments: &[&str]) -> Output {
    store.program(arguments).output().unwrap()
}

fn ls(store: &Store, options: &[&str]) -> String {
    let output = run(store, &[&["ls"], options].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the exit code and the log.
fn unlock(store: &Store, arguments: &[&str]) -> (Option<i32>, String) {
    let output = run(store, &[&["unlock"], arguments].concat());
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

async fn connect(store: &Store, format: KeyFormat) -> Locker {
    store.builder().key_format(format).note("till 7").build().await.unwrap()
}

/// The line of the function below.
const WITHDRAW: u32 = line!() + 3;

#[lock_on_argument(expr = "6s", name = "bank.withdraw", args(card, amount), locker = locker, guard = guard)]
async fn withdraw(
    locker: &Locker,
    card: &str,
    amount: u64,
    held: mpsc::Sender<(Key, u64)>,
    done: oneshot::Receiver<()>,
) -> locker::Result<()> {
    let key = locker.admin().key_on("bank.withdraw", &[&card, &amount]);
    held.send((key, guard.fence())).await.unwrap();
    drop(done.await);
    Ok(())
}

/// Holds the lock of the function on these arguments until the sender is used.
async fn holder(
    locker: &Locker,
    card: &'static str,
) -> (Key, u64, oneshot::Sender<()>, tokio::task::JoinHandle<locker::Result<()>>) {
    let (locker, (held, mut is_held), (done, until_done)) =
        (locker.clone(), mpsc::channel(1), oneshot::channel());
    let call = tokio::spawn(async move { withdraw(&locker, card, 100, held, until_done).await });
    let (key, fence) = is_held.recv().await.unwrap();
    (key, fence, done, call)
}

async fn attribute_locks_are_listed_and_ended(store: &Store) {
    let place = format!("bank.withdraw ({}:{WITHDRAW})", file!());
    for (format, python) in [(KeyFormat::Escaped, &[][..]), (KeyFormat::Python, &["--python-keys"])] {
        let locker = connect(store, format).await;
        let (key, fence, _done, call) = holder(&locker, "40:01").await;
        until("the name and the note", async || {
            let lines = ls(store, &[]);
            let named =
                lines.lines().find(|line| line.contains(key.as_str()) && line.contains(&fence.to_string()));
            named.is_some_and(|line| line.contains("till 7") && line.contains(&place))
        })
        .await;
        assert!(!ls(store, &["--prefix", "shop:"]).contains(key.as_str()), "it is below another prefix");
        let mut by_name = vec!["--name", "bank.withdraw", "--arg", "40:01", "--arg", "100"];
        by_name.extend(python);
        let older = (fence - 1).to_string();
        let (code, log) = unlock(store, &[&by_name[..], &["--fence", &older]].concat());
        assert!(code == Some(1) && log.contains("later fence") && log.contains(&fence.to_string()), "{log}");
        assert!(!call.is_finished());
        let (code, log) = unlock(store, &by_name);
        assert_eq!(code, Some(0), "{log}");
        assert!(log.contains(&fence.to_string()) && log.contains("till 7"), "{log}");
        assert_eq!(call.await.unwrap().unwrap_err().kind(), locker::ErrorKind::Lost);
        let (code, log) = unlock(store, &by_name);
        assert!(code == Some(1) && log.contains("not held"), "{log}");

        let (key, fence, _done, call) = holder(&locker, "40:01").await;
        let whole = ["--key", key.as_str(), "--fence", &fence.to_string()];
        assert_eq!(unlock(store, &whole).0, Some(0));
        assert_eq!(call.await.unwrap().unwrap_err().kind(), locker::ErrorKind::Lost);
    }
}

/// Returns the exit code and the output.
fn explain(store: &Store, arguments: &[&str]) -> (Option<i32>, String) {
    let output = run(store, &[&["explain"], arguments].concat());
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

async fn holders_are_explained(store: &Store) {
    let (locker, server) = (connect(store, KeyFormat::Escaped).await, store.server(&[]));
    let (key, fence, done, call) = holder(&locker, "4001").await;
    let by_name = ["--name", "bank.withdraw", "--arg", "4001", "--arg", "100"];
    let place = format!("bank.withdraw ({}:{WITHDRAW})", file!());
    until("the name and the note", async || {
        let (code, text) = explain(store, &by_name);
        code == Some(0)
            && text.contains(&format!("held by till 7 in {place}"))
            && text.contains(&fence.to_string())
    })
    .await;
    let document = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let (code, text) = explain(store, &[&by_name[..], &["--json"]].concat());
    let mut by_command = document(&text);
    let left = by_command["holders"][0]["left_ms"].take();
    assert!(code == Some(0) && left.as_u64().is_some(), "{text}");
    let expected = serde_json::json!({
        "kind": "lock",
        "name": null,
        "key": key.as_str(),
        "function": "bank.withdraw",
        "file": file!(),
        "line": WITHDRAW,
        "holders": [{ "fence": fence, "note": "till 7", "left_ms": null, "permits": 1 }],
        "waiting": 0,
        "waiting_for": [],
    });
    assert_eq!(by_command, expected);
    let path = format!("/v1/explain?key={}", key.as_str().replace('|', "%7C"));
    let mut by_server = document(&server.get(&path).await.body);
    by_server["holders"][0]["left_ms"].take();
    assert_eq!(by_server, expected);
    done.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(30), call).await.unwrap().unwrap().unwrap();

    let (code, text) = explain(store, &[&["--key"], &[key.as_str()][..]].concat());
    assert!(code == Some(1) && text.ends_with("not held\n"), "{text}");
    let free = server.get(&path).await;
    assert_eq!((free.status, &document(&free.body)["holders"]), (200, &serde_json::json!([])));
    for (path, status) in [("/v1/explain?key=session%3A7", 404), ("/v1/explain", 400)] {
        assert_eq!(server.get(path).await.status, status, "{path}");
    }
    assert_eq!(server.post("/v1/explain?key=lock%3Aa").await.status, 405);
}

/// A caller holds one lock and waits for another.
async fn waits_of_holders_are_explained(store: &Store) {
    let (locker, server) = (connect(store, KeyFormat::Escaped).await, store.server(&[]));
    let [outer, inner] = ["outer", "inner"].map(|name| locker.lock(name));
    let (outer, inner) = (outer.acquire().await.unwrap(), inner.acquire().await.unwrap());
    let wait = tokio::spawn(locker.lock("inner").timeout(Duration::MAX).holding(&outer).acquire());
    let [outer_key, inner_key] = ["outer", "inner"].map(|name| locker.admin().key("lock", name));
    let waited = format!("  waits for {inner_key}\n  held by till 7");
    until("what the holder waits for", async || explain(store, &["outer"]).1.contains(&waited)).await;
    let by_command = explain(store, &["outer", "--json"]).1;
    for text in [by_command, server.get(&format!("/v1/explain?key={outer_key}")).await.body] {
        let document = serde_json::from_str::<serde_json::Value>(&text).unwrap();
        let [nested] = &document["waiting_for"].as_array().unwrap()[..] else { panic!("{text}") };
        assert_eq!((&nested["name"], &nested["waiting"]), (&"inner".into(), &1.into()), "{text}");
        assert_eq!(nested["holders"][0]["fence"], inner.fence());
        assert_eq!(nested["waiting_for"], serde_json::json!([]));
    }
    drop(inner);
    drop(tokio::time::timeout(Duration::from_secs(30), wait).await.unwrap().unwrap().unwrap());
}

async fn whole_key_is_not_taken_for_a_name(store: &Store) {
    let locker = connect(store, KeyFormat::Escaped).await;
    let (key, _, _done, call) = holder(&locker, "4001").await;
    for command in ["unlock", "explain"] {
        let output = run(store, &[command, key.as_str()]);
        let log = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && log.contains("--key"), "{command}: {log}");
    }
    assert!(!call.is_finished());
    let output = run(store, &["unlock", "not a key"]);
    assert!(!String::from_utf8(output.stderr).unwrap().contains("--key"));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_keys_and_filters_are_refused() {
    let Some(store) = Store::redis() else { return };
    for (arguments, named) in [
        (&["unlock", "--key", "session:7"][..], "not a key"),
        (&["unlock", "--key", "lock:a", "--prefix", "shop:"], "prefix"),
        (&["unlock", "a", "--key", "lock:a"], "--key"),
        (&["unlock", "a", "--arg", "1"], "--arg"),
        (&["unlock"], "required"),
        (&["explain"], "required"),
        (&["explain", "--key", "session:7"], "not a key"),
        (&["ls", "--kind", "look"], "leader"),
        (&["ls", "--limit", "0"], "--limit"),
    ] {
        let output = run(&store, arguments);
        let log = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(64) && log.contains(named), "{arguments:?}: {log}");
    }
}

async fn list_has_the_kinds_that_are_asked_for(store: &Store) {
    let locker = store.locker().await;
    let _led = term(&locker.elect("a 4")).await.unwrap();
    let _held: (Guard, Guard, Guard) = (
        locker.lock("a 1").acquire().await.unwrap(),
        locker.semaphore("a 2", 3).acquire().await.unwrap(),
        locker.write_lock("b").acquire().await.unwrap(),
    );
    locker.counter("a 3").add(1).await.unwrap();
    let names = |options: &[&str]| -> Vec<String> {
        let lines = ls(store, options);
        let column = lines.find("NAME").unwrap();
        lines
            .lines()
            .skip(1)
            .map(|line| format!("{} {}", line.split(' ').next().unwrap(), &line[column..]))
            .collect()
    };
    assert_eq!(names(&[]), ["leader a 4", "lock a 1", "rwlock b", "semaphore a 2"]);
    assert_eq!(names(&["--name-prefix", "a"]), ["leader a 4", "lock a 1", "semaphore a 2"]);
    assert_eq!(names(&["--limit", "1"]), ["leader a 4"]);
    assert_eq!(names(&["--kind", "leader"]), ["leader a 4"]);
    assert_eq!(names(&["--kind", "counter", "--kind", "rwlock"]), ["counter a 3", "rwlock b"]);
}

/// Any program of the store may write them.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_texts_do_no_harm_to_lists() {
    let Some(redis) = RedisServer::start() else { return };
    let store = Store::unprefixed(&redis);
    let (digest, arguments) = ("e7d1e70120eddf339445617f6b481243", "3733c69536a04d53d3607351a4d1c8c1");
    let key = format!("{digest}:lock|{arguments}");
    for key in [&*key, "lock:a\n\u{1b}[2J"] {
        assert_eq!(redis.ask::<String>("SET", &[key, "other", "PX", "60000"]), "OK");
    }
    let function = format!("{{locker}}:function:{digest}");
    let text = "na\u{1b}[31m\u{202e}me\nfi\rle\n7";
    assert_eq!(redis.ask::<String>("SET", &[&function, text]), "OK");
    let lines = ls(&store, &[]);
    assert_eq!(lines.lines().count(), 3, "{lines:?}");
    assert!(lines.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{lines:?}");
    assert!(lines.contains("na\\u{1b}[31m\\u{202e}me (fi\\rle:7)"), "{lines}");
    let not_utf8 = "return redis.call('SET', KEYS[1], '\\255\\nfile\\n7')";
    assert_eq!(redis.ask::<String>("EVAL", &[not_utf8, "1", &function]), "OK");
    assert!(ls(&store, &[]).contains(&key), "without the name of its function");
    let server = store.server(&[]);
    let listed = server.get("/v1?kind=lock").await;
    assert!(listed.status == 200 && listed.body.contains(&key), "{listed:?}");
}

/// A client reads page after page until the answer names no next one.
async fn listed(server: &Server, first: &str) -> Vec<serde_json::Value> {
    let (mut next, mut all) = (Some(first.to_owned()), Vec::new());
    while let Some(path) = next {
        let answer = server.get(&path).await;
        let page: Vec<serde_json::Value> = serde_json::from_str(&answer.body).unwrap();
        assert!(page.len() <= 1_000);
        all.extend(page);
        let link = answer.header("link").map(|link| link.trim_start_matches('<').split_once('>').unwrap().0);
        next = link.map(str::to_owned);
    }
    all
}

async fn server_lists_pages(store: &Store) {
    pages_are_listed(&store.server(&[]), store.prefix()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_in_memory_lists_pages() {
    pages_are_listed(&Server::start(&[]), "").await;
}

async fn pages_are_listed(server: &Server, prefix: &str) {
    let names: Vec<String> = (0..1_100).map(|number| format!("a{number:04}")).collect();
    for names in names.chunks(25) {
        join_all(names.iter().map(async |name| {
            assert_eq!(server.post(&format!("/v1/event/{name}/send")).await.status, 204);
        }))
        .await;
    }
    assert_eq!(server.post("/v1/semaphore/b/acquire").await.status, 200);
    let listed_names = |all: &[serde_json::Value]| -> Vec<String> {
        all.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(listed_names(&listed(server, "/v1?limit=1000&prefix=a").await), names);
    assert_eq!(listed_names(&listed(server, "/v1?kind=semaphore&limit=1").await), ["b"]);
    let all: Vec<serde_json::Value> = serde_json::from_str(&server.get("/v1").await.body).unwrap();
    assert_eq!(all.len(), 1_101);
    let after = server.get(&format!("/v1?after={prefix}event%3Aa1098&limit=2")).await.body;
    assert_eq!(
        after,
        format!(
            r#"[{{"kind":"event","name":"a1099","key":"{prefix}event:a1099"}},{{"kind":"semaphore","name":"b","key":"{prefix}semaphore:b"}}]"#
        )
    );
    for (query, named) in
        [("limit=0", "limit"), ("limit=1001", "limit"), ("kind=look", "kind"), ("size=1", "size")]
    {
        let refused = server.get(&format!("/v1?{query}")).await;
        assert!(refused.status == 400 && refused.body.contains(named), "{}", refused.body);
    }
}

/// A client without headers stops at `[]`, so a page is empty only at the end.
async fn server_lists_all_names_but_its_own(store: &Store) {
    let server = store.server(&[]);
    let locker = connect(store, KeyFormat::Escaped).await;
    let guard = locker.lock("a/b").acquire().await.unwrap();
    let per_hour = Quota::token_bucket(9, Duration::from_hours(1));
    for name in ["zeromq/time-slots", "zz"] {
        locker.rate_limiter(name, per_hour).acquire().await.unwrap();
    }
    let names = |body: &str| -> Vec<String> {
        let all: Vec<serde_json::Value> = serde_json::from_str(body).unwrap();
        all.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&server.get("/v1").await.body), ["a/b", "zz"]);
    assert_eq!(
        names(&server.get(&format!("/v1?limit=1&after={}lock:a/b", store.prefix())).await.body),
        ["zz"]
    );
    guard.release().await.unwrap();
}

async fn server_lists_attribute_locks_with_their_function(store: &Store) {
    let server = store.server(&[]);
    let locker = connect(store, KeyFormat::Escaped).await;
    let (key, _, done, call) = holder(&locker, "4001").await;
    let expected = serde_json::json!([{
        "kind": "lock",
        "function": { "name": "bank.withdraw", "file": file!(), "line": WITHDRAW },
        "key": key.as_str(),
    }]);
    until("the name of the function", async || {
        serde_json::from_str::<serde_json::Value>(&server.get("/v1?prefix=bank").await.body).unwrap()
            == expected
    })
    .await;
    done.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(30), call).await.unwrap().unwrap().unwrap();
    until("the end of the list", async || server.get("/v1").await.body == "[]").await;
}
