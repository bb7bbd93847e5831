//! `locker run` with `--json`, `--permits` and `--read`, and `locker ls --json`.

use crate::{
    run_shared::{Killed, output, saying},
    stores::{Store, on_each_store},
    support::{GENEROUS, binary, ended, free_port},
};
use futures_util::future::join_all;
use locker::{Guard, Locker};
use locker_harness::{RedisServer, Signal, eventually};
use rustix::process::{Pid, kill_process};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    ffi::OsStr,
    io::Read,
    net::TcpListener,
    os::unix::ffi::OsStrExt,
    process::{Child, Output, Stdio},
    time::{Duration, Instant},
};

on_each_store!(
    blocking:
    report_says_how_a_run_ended,
    report_names_the_key_of_the_lock,
    lost_lock_is_reported_as_lost,
    permits_let_as_many_commands_run,
    readers_run_beside_readers_only,
    list_is_one_document,
);

const KEYS: [&str; 7] = ["exit", "fence", "held_ms", "key", "name", "outcome", "waited_ms"];

/// The last line of a log, which must be the report.
fn report(log: &str) -> Value {
    assert!(log.ends_with('\n'), "{log:?}");
    let line = log.lines().last().unwrap();
    let report: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {log}"));
    let keys: BTreeSet<&str> = report.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, BTreeSet::from(KEYS), "{line}");
    report
}

fn reported(output: &Output) -> Value {
    let report = report(std::str::from_utf8(&output.stderr).unwrap());
    assert_eq!(output.status.code().map(Value::from), Some(report["exit"].clone()));
    report
}

/// Runs to its end. A try gives up on a store after a second, which a server on a busy machine may take to reply.
fn run(store: &Store, arguments: &[&str]) -> Value {
    eventually("a reply of the store", || {
        let report = reported(&output(store.program(&[&["run", "--json"], arguments].concat())));
        (report["outcome"] != "unavailable").then_some(report)
    })
}

/// A process that holds something and has printed `held`. It ends with its standard input.
fn holder(store: &Store, arguments: &[&str]) -> Child {
    let script = "echo held; while read -r line; do :; done; exit 7";
    let line = [&["run", "--json"], arguments, &["--", "sh", "-c", script]].concat();
    let mut command = store.program(&line);
    command.stderr(Stdio::piped());
    saying(command, "held").0
}

/// Waits for the end of a process, and returns its report.
fn report_of(mut child: Child) -> Value {
    drop(child.stdin.take());
    let code = ended(&mut child).code();
    let mut log = String::new();
    child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    let report = report(&log);
    assert_eq!(code.map(Value::from), Some(report["exit"].clone()));
    report
}

fn ls(store: &Store, options: &[&str]) -> Vec<Value> {
    let output = output(store.program(&[&["ls", "--json"], options].concat()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn report_says_how_a_run_ended(store: &Store) {
    let started = Instant::now();
    let first = holder(store, &["a"]);
    let busy = run(store, &["a", "--timeout", "100ms", "--", "true"]);
    assert_eq!((&busy["outcome"], &busy["exit"], &busy["fence"]), (&json!("busy"), &json!(75), &Value::Null));
    assert!(busy["waited_ms"].as_u64().unwrap() >= 100 && busy["held_ms"] == 0, "{busy}");
    let code = ["--timeout", "0s", "--conflict-exit-code", "0", "--", "true"];
    let at_once = run(store, &[&["a"], &code[..]].concat());
    assert_eq!((&at_once["outcome"], &at_once["exit"]), (&json!("busy"), &json!(0)));
    let held = report_of(first);
    assert_eq!((&held["name"], &held["outcome"], &held["exit"]), (&json!("a"), &json!("held"), &json!(7)));
    let time = |name: &str| Duration::from_millis(held[name].as_u64().unwrap());
    assert!(time("held_ms") >= Duration::from_millis(busy["waited_ms"].as_u64().unwrap()), "{held} {busy}");
    assert!(time("waited_ms") + time("held_ms") <= started.elapsed(), "{held}");
    for (command, exit) in [("/nowhere/at/all", 127), ("/", 126)] {
        let failed = run(store, &["a", "--", command]);
        assert_eq!((&failed["outcome"], &failed["exit"]), (&json!("held"), &json!(exit)));
    }
}

/// Also of names that a key cannot spell, and of commands whose arguments are not UTF-8.
fn report_names_the_key_of_the_lock(store: &Store) {
    let long = "n".repeat(300);
    for name in ["it's", "say \"a\"", "back\\slash", "e\u{301}", "{braces}", "a:b|c", &long] {
        let script = "printf '%s %s %s' \"$LOCKER_FENCE\" \"$1\" \"$LOCKER_KEY\"; echo '{}' >&2";
        let mut command = store.program(&["run", "--json", name, "--", "sh", "-c", script, "sh"]);
        command.arg(OsStr::from_bytes(b"\xff"));
        let output = output(command);
        let report = reported(&output);
        assert_eq!((&report["name"], &report["outcome"]), (&json!(name), &json!("held")));
        let (fence, key) = (report["fence"].to_string(), report["key"].as_str().unwrap());
        let said = [fence.as_bytes(), b" \xff ", key.as_bytes()].concat();
        assert_eq!(output.stdout, said, "{report}");
        assert!(report["key"].as_str().unwrap().starts_with(&format!("{}lock:", store.prefix())), "{report}");
    }
}

fn lost_lock_is_reported_as_lost(store: &Store) {
    let child = holder(store, &["a", "--lease", "6s", "--kill-after", "0s"]);
    assert!(output(store.program(&["unlock", "a"])).status.success());
    let mut child = Killed(child);
    assert_eq!(ended(&mut child.0).code(), Some(75));
    let mut log = String::new();
    child.0.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    let lost = report(&log);
    assert_eq!((&lost["outcome"], &lost["exit"]), (&json!("lost"), &json!(75)));
    assert!(lost["fence"].is_u64(), "{lost}");
}

#[test]
fn runs_without_a_lock_are_reported() {
    let store = format!("redis://127.0.0.1:{}", free_port());
    let options = ["run", "a", "--json", "--timeout", "100ms", "--prefix", "shop:"];
    let started = |store: &[&str]| {
        let mut command = binary();
        command.args(options).args(store).args(["--", "true"]);
        output(command)
    };
    let away = started(&["--store", &store]);
    let (expected, report) = ((json!("unavailable"), json!("shop:lock:a")), reported(&away));
    assert_eq!((report["outcome"].clone(), report["key"].clone()), expected, "{report}");
    assert_eq!(
        (&report["exit"], &report["fence"], &report["held_ms"]),
        (&json!(69), &Value::Null, &json!(0))
    );
    let report = reported(&started(&[]));
    assert_eq!((&report["outcome"], &report["exit"]), (&json!("unavailable"), &json!(64)));
    // A command line that is not understood has no report.
    for name in [OsStr::from_bytes(b"\xff"), OsStr::new(""), OsStr::new("a\nb")] {
        let mut command = binary();
        command.args(["run", "--json"]).arg(name).args(["--store", &store, "--", "true"]);
        let wrong = output(command);
        let log = String::from_utf8(wrong.stderr).unwrap();
        assert!(wrong.status.code() == Some(64) && !log.contains("outcome"), "{log}");
    }
}

/// `LOCKER_JSON` is for all commands that have the option.
#[test]
fn report_of_an_ended_wait_is_busy() {
    let store = Store::files().unwrap();
    let _first = Killed(holder(&store, &["a"]));
    let mut command = store.program(&["run", "a", "--timeout", "60s", "--", "true"]);
    let second =
        command.env("LOCKER_JSON", "true").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("another process waits", || {
        ls(&store, &[]).iter().any(|key| key["waiting"] == 1).then_some(())
    });
    kill_process(Pid::from_child(&second), Signal::TERM).unwrap();
    let report = report_of(second);
    assert_eq!((&report["outcome"], &report["exit"]), (&json!("busy"), &json!(128 + 15)));
}

/// Such as a store behind a firewall.
#[test]
fn signal_before_the_store_answers_is_reported() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let store = format!("redis://{}", silent.local_addr().unwrap());
    let mut command = binary();
    command.args(["run", "a", "--json", "--store", &store, "--", "true"]);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    let _connection = silent.accept().unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let report = report_of(child);
    assert_eq!((&report["outcome"], &report["exit"]), (&json!("unavailable"), &json!(128 + 15)));
}

fn permits_let_as_many_commands_run(store: &Store) {
    let permits = ["s", "--permits", "2"];
    let held = [holder(store, &permits), holder(store, &permits)];
    let third = run(store, &["s", "--permits", "2", "--timeout", "0s", "--", "true"]);
    assert_eq!(
        (&third["outcome"], &third["key"]),
        (&json!("busy"), &json!(format!("{}semaphore:s", store.prefix())))
    );
    let lock = run(store, &["s", "--timeout", "0s", "--", "true"]);
    assert_eq!(lock["outcome"], "held", "the lock of this name is another one");
    let listed = ls(store, &[]);
    let [semaphore] = &listed[..] else { panic!("{listed:?}") };
    let permits: Vec<_> =
        semaphore["holders"].as_array().unwrap().iter().map(|held| &held["permits"]).collect();
    assert_eq!((&semaphore["kind"], permits), (&json!("semaphore"), vec![&json!(1), &json!(1)]));
    for child in held {
        assert_eq!(report_of(child)["outcome"], "held");
    }
    assert_eq!(run(store, &["s", "--permits", "2", "--timeout", "0s", "--", "true"])["outcome"], "held");
}

fn readers_run_beside_readers_only(store: &Store) {
    // Its threads serve the store while this one waits for processes.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let locker = runtime.block_on(store.builder().command_timeout(GENEROUS).build()).unwrap();
    let readers = [holder(store, &["a", "--read"]), holder(store, &["a", "--read"])];
    assert!(runtime.block_on(locker.write_lock("a").try_acquire()).unwrap().is_none());
    for child in readers {
        let report = report_of(child);
        assert_eq!(report["key"], format!("{}rwlock:a", store.prefix()), "{report}");
    }
    let writer = runtime.block_on(locker.write_lock("a").lease(GENEROUS * 4).acquire()).unwrap();
    let reader = run(store, &["a", "--read", "--timeout", "0s", "--", "true"]);
    assert_eq!((&reader["outcome"], &reader["exit"]), (&json!("busy"), &json!(75)));
    runtime.block_on(writer.release()).unwrap();
}

fn list_is_one_document(store: &Store) {
    let empty = output(store.program(&["ls", "--json"]));
    assert_eq!((empty.status.code(), &empty.stdout[..]), (Some(0), &b"[]\n"[..]));
    let child = holder(store, &["it's \"a\"", "--lease", "60s"]);
    let listed = ls(store, &[]);
    let left = listed[0]["holders"][0]["left_ms"].as_u64().unwrap();
    let note = listed[0]["holders"][0]["note"].clone();
    let report = report_of(child);
    let expected = json!([{
        "kind": "lock",
        "name": "it's \"a\"",
        "key": report["key"],
        "function": null,
        "file": null,
        "line": null,
        "holders": [{ "fence": report["fence"], "note": note, "left_ms": left, "permits": 1 }],
        "waiting": 0,
    }]);
    assert_eq!(Value::from(listed), expected);
    // The clock of a store may be behind by a tick.
    assert!((1..=120_000).contains(&left), "{left}");
}

/// More than are looked at before the first are printed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_of_thousands_is_one_document() {
    let Some(redis) = RedisServer::start() else { return };
    let store = Store::unprefixed(&redis);
    let locker = store.builder().note("till \"7\" \\").build().await.unwrap();
    let names: Vec<String> = (0..12_000).map(|number| format!("a{number:05}")).collect();
    let mut guards = Vec::new();
    for names in names.chunks(1_000) {
        guards.extend(join_all(names.iter().map(|name| held(&locker, name))).await);
    }
    let seen = |listed: &[Value]| -> Vec<String> {
        listed.iter().map(|key| key["name"].as_str().unwrap().to_owned()).collect()
    };
    let all = ls(&store, &[]);
    assert!(seen(&all) == names && all.iter().all(|key| key["holders"][0]["note"] == "till \"7\" \\"));
    assert_eq!(seen(&ls(&store, &["--limit", "10500"])), names[..10_500]);
    assert_eq!(seen(&ls(&store, &["--name-prefix", "a1199"])), names[11_990..]);
    assert_eq!(ls(&store, &["--kind", "counter"]), [Value::Null; 0]);
    // The server ends with the test, and releases that fail are repeated for ten minutes.
    let released = join_all(guards.into_iter().map(Guard::release)).await;
    assert!(released.iter().all(Result::is_ok));
}

async fn held(locker: &Locker, name: &str) -> Guard {
    locker.lock(name).lease(Duration::from_mins(10)).acquire().await.unwrap()
}

/// Any program of the store may write them.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_texts_stay_texts_in_json() {
    let Some(redis) = RedisServer::start() else { return };
    let store = Store::unprefixed(&redis);
    let (digest, arguments) = ("e7d1e70120eddf339445617f6b481243", "3733c69536a04d53d3607351a4d1c8c1");
    let key = format!("{digest}:lock|{arguments}");
    let foreign = "lock:a\n\"],\u{1b}[2J";
    for key in [&*key, foreign] {
        assert_eq!(redis.ask::<String>("SET", &[key, "other", "PX", "60000"]), "OK");
    }
    let function = format!("{{locker}}:function:{digest}");
    assert_eq!(redis.ask::<String>("SET", &[&function, "na\u{1b}\"me\nfi\\le\n7"]), "OK");
    let output = output(store.program(&["ls", "--json"]));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    let listed: Vec<Value> = serde_json::from_str(&text).unwrap();
    let of = |wanted: &str| listed.iter().find(|one| one["key"] == wanted).unwrap();
    assert_eq!(of(foreign)["name"], foreign.trim_start_matches("lock:"));
    let names = ["name", "function", "file", "line"].map(|name| of(&key)[name].clone());
    assert_eq!(names, [Value::Null, json!("na\u{1b}\"me"), json!("fi\\le"), json!(7)]);
}

/// A pipe that nobody reads any more.
#[test]
fn list_that_cannot_be_written_fails() {
    let store = Store::files().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = store.program(&["ls", "--json"]);
    assert_eq!(
        output({
            command.stdout(writer);
            command
        })
        .status
        .code(),
        Some(1)
    );
}
