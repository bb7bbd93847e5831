//! `locker run --once-per` between processes that share a store, and records over HTTP.

use crate::{
    run_shared::{output, saying, signal, without_terminal},
    stores::{Store, on_each_store},
    support::ended,
};
use humantime::format_rfc3339;
use locker_harness::{Fault, Signal, eventually};
use serde_json::Value;
use std::{
    process::{Child, Command, Output, Stdio},
    time::{Duration, SystemTime},
};

on_each_store!(
    blocking:
    one_command_runs_in_a_slot,
    failed_command_is_followed_by_the_next_call,
    waiting_call_is_skipped_after_a_success,
    command_of_a_killed_process_runs_again,
    refused_slot_starts_no_command,
    command_knows_its_slot,
);

/// No test lasts until the end of such a slot, but for one minute a year.
const SLOT: &str = "366d";

fn once(store: &Store, options: &[&str], script: &str) -> Command {
    store.program(&[&["run", "a", "--once-per", SLOT], options, &["--", "sh", "-c", script]].concat())
}

/// Returns the exit code and what the command has printed.
fn said(output: &Output) -> (Option<i32>, &str) {
    (output.status.code(), std::str::from_utf8(&output.stdout).unwrap())
}

/// A command that runs until its standard input ends, and then ends with this code.
fn running(store: &Store, options: &[&str], code: u8) -> Child {
    let script = format!("echo runs; while read -r line; do :; done; exit {code}");
    saying(once(store, options, &script), "runs").0
}

fn until_waiting(store: &Store) {
    eventually("another call waits", || {
        let listed = output(store.program(&["ls", "--kind", "once", "--json"])).stdout;
        let listed: Value = serde_json::from_slice(&listed).unwrap();
        (listed[0]["waiting"] == 1).then_some(())
    });
}

/// What the report of this call says.
fn reported(output: &Output) -> Value {
    let log = std::str::from_utf8(&output.stderr).unwrap();
    serde_json::from_str(log.lines().last().expect("a report")).unwrap()
}

fn one_command_runs_in_a_slot(store: &Store) {
    let first = output(once(store, &["--json"], "echo $LOCKER_KEY"));
    let key = format!("{}once:a", store.prefix());
    assert_eq!(said(&first), (Some(0), &*format!("{key}\n")));
    assert_eq!(reported(&first)["outcome"], "held");
    let second = output(once(store, &[], "echo runs"));
    assert_eq!((said(&second), second.stderr.len()), ((Some(0), ""), 0), "cron would mail it");
    let third = output(once(store, &["--skip-exit-code", "9", "--json"], "echo runs"));
    assert_eq!(said(&third), (Some(9), ""));
    let report = reported(&third);
    assert_eq!(
        (&report["outcome"], &report["key"], &report["fence"]),
        (&"skipped".into(), &key.into(), &Value::Null)
    );
}

fn failed_command_is_followed_by_the_next_call(store: &Store) {
    let mut first = running(store, &[], 7);
    let second = once(store, &[], "echo runs").stdout(Stdio::piped()).spawn().unwrap();
    until_waiting(store);
    drop(first.stdin.take());
    assert_eq!(ended(&mut first).code(), Some(7));
    assert_eq!(said(&second.wait_with_output().unwrap()), (Some(0), "runs\n"));
    assert_eq!(said(&output(once(store, &[], "echo runs"))), (Some(0), ""));
}

fn waiting_call_is_skipped_after_a_success(store: &Store) {
    let mut first = running(store, &[], 0);
    let busy = output(once(store, &["--timeout", "0s", "--json"], "echo runs"));
    assert_eq!((said(&busy), &reported(&busy)["outcome"]), ((Some(75), ""), &"busy".into()));
    let second = once(store, &["--skip-exit-code", "3"], "echo runs").stdout(Stdio::piped()).spawn().unwrap();
    until_waiting(store);
    drop(first.stdin.take());
    assert_eq!(ended(&mut first).code(), Some(0));
    assert_eq!(said(&second.wait_with_output().unwrap()), (Some(3), ""));
}

fn command_of_a_killed_process_runs_again(store: &Store) {
    let mut first = running(store, &["--lease", "1s"], 0);
    signal(&first, Signal::KILL);
    ended(&mut first);
    assert_eq!(said(&output(once(store, &[], "echo runs"))), (Some(0), "runs\n"));
}

/// Also to the call that begins a minute later.
fn refused_slot_starts_no_command(store: &Store) {
    let refuse = ["--after-crash", "refuse"];
    let mut first = running(store, &[&refuse[..], &["--lease", "1s"]].concat(), 0);
    signal(&first, Signal::KILL);
    ended(&mut first);
    for _ in 0..2 {
        let next = output(once(store, &[&refuse[..], &["--json"]].concat(), "echo runs"));
        assert_eq!((said(&next), &reported(&next)["outcome"]), ((Some(75), ""), &"lost".into()));
        let log = String::from_utf8(next.stderr).unwrap();
        assert!(log.contains("nobody knows whether the run before has succeeded"), "{log}");
    }
    // Nor after a signal that the command alone got, or that asked it to end.
    let kill = [&["run", "c", "--once-per", SLOT, "--lease", "1s"], &refuse[..]].concat();
    let killed = |script| output(store.program(&[&kill[..], &["--", "sh", "-c", script]].concat()));
    assert_eq!(said(&killed("echo runs; kill -9 $$")), (Some(137), "runs\n"));
    assert_eq!(said(&killed("echo runs")), (Some(75), ""));
    // A failure that was reported refuses nothing.
    let run = |script| {
        let line = [&["run", "b", "--once-per", SLOT], &refuse[..], &["--", "sh", "-c", script]].concat();
        output(store.program(&line)).status.code()
    };
    assert_eq!(
        (run("exit 4"), run("exit 5"), run("exit 0"), run("exit 6")),
        (Some(4), Some(5), Some(0), Some(0))
    );
}

/// Slots of two hours, so that the test is in one or two of them.
fn command_knows_its_slot(store: &Store) {
    let slot = 2 * 60 * 60;
    let now = || SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let begins = |time: Duration| {
        let from = 90 * 60;
        let since = time.as_secs() + 30 - from;
        format_rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(from + since - since % slot)).to_string()
    };
    let line = [
        "run",
        "a",
        "--once-per",
        "2h",
        "--from",
        "90m",
        "--",
        "sh",
        "-c",
        "echo $LOCKER_SLOT $LOCKER_MISSED",
    ];
    let before = begins(now());
    let ran = output(store.program(&line));
    let (code, said) = said(&ran);
    let possible = [before, begins(now())].map(|slot| format!("{slot} 0\n"));
    assert!(code == Some(0) && possible.contains(&said.to_owned()), "{code:?} {said} {possible:?}");
}

#[test]
fn records_are_shown_and_deleted_over_http() {
    let store = Store::files().unwrap();
    let server = store.server(&[]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let ask = |path| -> Value {
        let answer = runtime.block_on(server.get(path));
        serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
    };
    let mut first = running(&store, &[], 0);
    let seen = ask("/v1/once/a");
    assert_eq!((&seen["kind"], &seen["done"]), (&"once".into(), &false.into()));
    assert!(seen["holders"][0]["fence"].as_u64() > Some(0), "{seen}");
    drop(first.stdin.take());
    assert_eq!(ended(&mut first).code(), Some(0));
    let seen = ask("/v1/once/a");
    assert_eq!((&seen["done"], &seen["holders"]), (&true.into(), &Value::Array(Vec::new())));
    assert!(seen["time_left"].as_u64() > Some(0), "{seen}");
    let listed = ask("/v1?kind=once");
    assert_eq!((&listed[0]["kind"], &listed[0]["name"]), (&"once".into(), &"a".into()));
    assert_eq!(said(&output(once(&store, &[], "echo runs"))), (Some(0), ""));
    assert_eq!(runtime.block_on(server.delete("/v1/once/a")).status, 204);
    assert_eq!(said(&output(once(&store, &[], "echo runs"))), (Some(0), "runs\n"));
}

/// It may have left some of its work.
#[test]
fn command_that_a_signal_has_ended_runs_again() {
    let store = Store::files().unwrap();
    let script = "trap 'exit 0' TERM; echo runs; while :; do sleep 0.02; done";
    let (mut first, _said) = saying(without_terminal(&once(&store, &[], script)), "runs");
    signal(&first, Signal::TERM);
    assert_eq!(ended(&mut first).code(), Some(0));
    assert_eq!(said(&output(once(&store, &[], "echo runs"))), (Some(0), "runs\n"));
}

#[test]
fn command_that_was_asked_to_end_is_refused() {
    let store = Store::files().unwrap();
    let refuse = ["--after-crash", "refuse", "--lease", "1s"];
    let script = "trap 'exit 0' TERM; echo runs; while :; do sleep 0.02; done";
    let (mut first, _said) = saying(without_terminal(&once(&store, &refuse, script)), "runs");
    signal(&first, Signal::TERM);
    assert_eq!(ended(&mut first).code(), Some(0));
    assert_eq!(said(&output(once(&store, &refuse, "echo runs"))), (Some(75), ""));
}

/// Such as at the top of a crontab, for other lines.
#[test]
fn variables_of_runs_do_not_matter_to_locks() {
    let store = Store::files().unwrap();
    let mut locked = store.program(&["run", "a", "--", "sh", "-c", "echo \"$LOCKER_SLOT\""]);
    locked.envs([("LOCKER_FROM", "3h"), ("LOCKER_AFTER_CRASH", "refuse"), ("LOCKER_SLOT", "of another one")]);
    assert_eq!(said(&output(locked)), (Some(0), "\n"));
}

/// A success that is not recorded would run again.
#[test]
fn success_is_recorded_after_an_outage() {
    let Some(store) = Store::redis() else { return };
    let (network, far) = store.far();
    let mut first = running(&far, &["--lease", "60s"], 0);
    network.set(Fault::Reset);
    drop(first.stdin.take());
    // Longer than the release of a lock is waited for.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(first.try_wait().unwrap(), None);
    network.set(Fault::None);
    assert_eq!(ended(&mut first).code(), Some(0));
    assert_eq!(said(&output(once(&store, &[], "echo runs"))), (Some(0), ""));
}

#[test]
fn max_hold_ends_a_command_and_its_outcome_is_unknown() {
    let store = Store::files().unwrap();
    let options = ["--lease", "200ms", "--max-hold", "600ms", "--after-crash", "refuse"];
    let run = output(once(&store, &options, "exec sleep 600"));
    assert_eq!(run.status.code(), Some(75));
    let next = output(once(&store, &options, "echo runs"));
    assert_eq!(said(&next), (Some(75), ""));
}

#[test]
fn wrong_options_are_refused() {
    let store = Store::files().unwrap();
    for (options, reason) in [
        (&["--once-per", "500ms"][..], "every 500ms is out of range: give 1s to 366d"),
        (&["--once-per", "367d"], "is out of range: give 1s to 366d"),
        (&["--once-per", "1h", "--early", "40m"], "early 40m is more than half of every 1h"),
        (&["--from", "3h"], "--from needs --once-per"),
        (&["--early", "3s"], "--early needs --once-per"),
        (&["--after-crash", "refuse"], "--after-crash needs --once-per"),
        (&["--skip-exit-code", "3"], "--skip-exit-code needs --once-per"),
        (&["--once-per", "1h", "--after-crash", "refuse", "--min-hold", "1m"], "min_hold keeps a failed run"),
        (&["--once-per", "1h", "--read"], "--once-per beside --read or --permits"),
        (&["--once-per", "1h", "--permits", "2"], "--once-per beside --read or --permits"),
        (&["--once-per", "1h", "--after-crash", "maybe"], "repeat, refuse"),
    ] {
        let run = output(store.program(&[&["run", "a"], options, &["--", "true"]].concat()));
        let log = String::from_utf8(run.stderr).unwrap();
        assert!(run.status.code() == Some(64) && log.contains(reason), "{options:?}: {log}");
    }
}
