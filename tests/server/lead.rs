//! `locker lead` between processes that share a store.

use crate::{
    run_shared::{Killed, line, output, saying, signal, spawned, until_silent, without_terminal},
    stores::{Store, on_each_store},
    support::{Server, binary, ended, until},
};
use locker_harness::{Fault, Signal, eventually};
use serde_json::{Value, json};
use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

on_each_store!(
    blocking:
    next_candidate_leads_when_the_first_ends,
    signalled_command_ends_before_the_term,
    killed_leader_is_replaced_after_its_lease,
    ended_term_starts_the_command_anew,
    signal_ends_a_candidate,
    note_of_a_leader_is_listed,
);

/// Says when it starts and when it is asked to end, and then ends.
const OBEDIENT: &str =
    "trap 'echo ending; exit 0' TERM; echo led $LOCKER_FENCE; while :; do sleep 0.02; done";

/// Candidates for the election `a`.
fn lead(store: &Store, options: &[&str], script: &str) -> Command {
    store.program(&[&["lead", "a"], options, &["--", "sh", "-c", script]].concat())
}

/// A leader that has printed `led`. It ends with its standard input.
fn leader(store: &Store, options: &[&str]) -> Child {
    saying(lead(store, options, "echo led; while read -r line; do :; done; exit 7"), "led").0
}

fn elections(store: &Store) -> Vec<Value> {
    let output = output(store.program(&["ls", "--kind", "leader", "--json"]));
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// Waits until so many candidates wait.
fn until_waiting(store: &Store, number: u64) {
    eventually("candidates wait", || {
        let elections = elections(store);
        elections.iter().any(|one| one["name"] == "a" && one["waiting"] == number).then_some(())
    });
}

/// The fence in the line `led FENCE`.
fn fence(line: &str) -> u64 {
    let fence = line.strip_prefix("led ").unwrap_or_else(|| panic!("{line:?}"));
    fence.parse().unwrap()
}

fn unlock(store: &Store) {
    let key = format!("{}leader:a", store.prefix());
    assert!(output(store.program(&["unlock", "--key", &key])).status.success());
}

fn next_candidate_leads_when_the_first_ends(store: &Store) {
    let mut first = leader(store, &[]);
    let mut second = lead(store, &[], "echo $LOCKER_KEY $LOCKER_FENCE");
    let second = second.stdout(Stdio::piped()).spawn().unwrap();
    until_waiting(store, 1);
    let held = elections(store)[0]["holders"][0]["fence"].as_u64().unwrap();
    drop(first.stdin.take());
    assert_eq!(ended(&mut first).code(), Some(7));
    let second = second.wait_with_output().unwrap();
    assert_eq!(second.status.code(), Some(0));
    let said = String::from_utf8(second.stdout).unwrap();
    let (key, fence) = said.trim_end().split_once(' ').unwrap();
    assert_eq!(key, format!("{}leader:a", store.prefix()));
    assert!(fence.parse::<u64>().unwrap() > held, "{said} after {held}");
    assert_eq!(elections(store), [Value::Null; 0]);
}

/// Also a command that a shell has started, and that works on after the shell was ended by the signal.
fn signalled_command_ends_before_the_term(store: &Store) {
    let program = binary().get_program().to_str().unwrap().to_owned();
    let slow = |file: &Path, code: u8| {
        format!(
            "trap '\"{program}\" ls --kind leader --json >\"{file}\"; echo \"\\n$LOCKER_FENCE\" >>\"{file}\"; exit {code}' TERM; \
             echo led; while :; do sleep 0.02; done",
            file = file.display()
        )
    };
    for is_wrapped in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let (file, inner) = (directory.path().join("seen"), directory.path().join("inner"));
        std::fs::write(&inner, slow(&file, 3)).unwrap();
        let script = if is_wrapped {
            format!("sh '{}'; echo unreachable", inner.display())
        } else {
            format!("exec sh '{}'", inner.display())
        };
        let (mut first, _output) =
            saying(without_terminal(&lead(store, &["--kill-after", "1h"], &script)), "led");
        let next = format!("test -s '{}' && exit 4", file.display());
        let mut second = lead(store, &[], &next).spawn().unwrap();
        until_waiting(store, 1);
        signal(&first, Signal::TERM);
        assert_eq!(ended(&mut first).code(), Some(if is_wrapped { 128 + 15 } else { 3 }));
        assert_eq!(ended(&mut second).code(), Some(4), "it led before the command had ended");
        let seen = std::fs::read_to_string(file).unwrap();
        let (seen, fence) = seen.trim_end().rsplit_once('\n').unwrap();
        let seen: Value = serde_json::from_str(seen).unwrap();
        assert_eq!(seen[0]["holders"][0]["fence"].to_string(), fence, "held while the command ended");
    }
}

fn killed_leader_is_replaced_after_its_lease(store: &Store) {
    let mut first = leader(store, &["--lease", "1s"]);
    let mut second = lead(store, &[], "echo led $LOCKER_FENCE").stdout(Stdio::piped()).spawn().unwrap();
    until_waiting(store, 1);
    let held = elections(store)[0]["holders"][0]["fence"].as_u64().unwrap();
    signal(&first, Signal::KILL);
    ended(&mut first);
    assert_eq!(ended(&mut second).code(), Some(0));
    let said = std::io::read_to_string(second.stdout.take().unwrap()).unwrap();
    assert!(fence(said.trim_end()) > held, "{said}");
}

/// The command is told to end, and another process may lead meanwhile.
fn ended_term_starts_the_command_anew(store: &Store) {
    let (first, mut said) = spawned(lead(store, &["--lease", "6s"], OBEDIENT));
    let mut first = Killed(first);
    let mut before = fence(&line(&mut said));
    for has_next in [false, true] {
        let next = has_next.then(|| {
            let script = "echo led $LOCKER_FENCE; while read -r line; do :; done";
            let next = spawned(lead(store, &[], script));
            until_waiting(store, 1);
            next
        });
        unlock(store);
        assert_eq!(line(&mut said), "ending");
        if let Some((mut next, mut said)) = next {
            let fence = fence(&line(&mut said));
            assert!(fence > before, "{fence} after {before}");
            before = fence;
            until_waiting(store, 1);
            drop(next.stdin.take());
            assert_eq!(ended(&mut next).code(), Some(0));
        }
        let fence = fence(&line(&mut said));
        assert!(fence > before, "{fence} after {before}");
        before = fence;
    }
    signal(&first.0, Signal::TERM);
    assert_eq!(line(&mut said), "ending");
    assert_eq!(ended(&mut first.0).code(), Some(0));
    assert_eq!(elections(store), [Value::Null; 0]);
}

fn signal_ends_a_candidate(store: &Store) {
    let _first = Killed(leader(store, &[]));
    for (sent, code) in [(Signal::TERM, 128 + 15), (Signal::INT, 128 + 2)] {
        let mut second = lead(store, &[], "true").spawn().unwrap();
        until_waiting(store, 1);
        signal(&second, sent);
        assert_eq!(ended(&mut second).code(), Some(code));
        until_waiting(store, 0);
    }
}

/// Its own one and not that of its process.
fn note_of_a_leader_is_listed(store: &Store) {
    let note = "http://10.0.0.7:80/\"a\"";
    let first = Killed(leader(store, &["--note", note]));
    let (prefix, note) = (store.prefix(), &json!(note));
    let listed = eventually("the note", || {
        let elections = elections(store);
        (&elections.first()?["holders"][0]["note"] == note).then_some(elections)
    });
    let [listed] = &listed[..] else { panic!("{listed:?}") };
    let (kind, key) = (&listed["kind"], &listed["key"]);
    assert_eq!((kind, key), (&json!("leader"), &json!(format!("{prefix}leader:a"))));
    let explained = output(store.program(&["explain", "--json", "--key", key.as_str().unwrap()]));
    let explained: Value = serde_json::from_slice(&explained.stdout).unwrap();
    assert_eq!(&explained["holders"][0]["note"], note);
    drop(first);
}

/// Long before the command would be killed. The program does not take part again.
#[test]
fn signal_after_a_loss_ends_the_program() {
    let store = Store::files().unwrap();
    let script = "trap 'echo ending' TERM; trap 'exit 3' USR1; echo led; while :; do sleep 0.02; done";
    let (mut child, mut said) = saying(lead(&store, &["--lease", "6s", "--kill-after", "1h"], script), "led");
    unlock(&store);
    assert_eq!(line(&mut said), "ending");
    signal(&child, Signal::TERM);
    assert_eq!(line(&mut said), "ending");
    signal(&child, Signal::USR1);
    assert_eq!(ended(&mut child).code(), Some(3));
    until_silent(said);
}

/// A reload is no wish to end.
#[test]
fn command_that_survives_sighup_leads_again() {
    let store = Store::files().unwrap();
    let script = format!("trap 'echo read again' HUP; {OBEDIENT}");
    let (child, mut said) = spawned(lead(&store, &["--lease", "6s"], &script));
    let mut child = Killed(child);
    let first = fence(&line(&mut said));
    signal(&child.0, Signal::HUP);
    assert_eq!(line(&mut said), "read again");
    unlock(&store);
    assert_eq!(line(&mut said), "ending");
    assert!(fence(&line(&mut said)) > first);
    signal(&child.0, Signal::TERM);
    assert_eq!(ended(&mut child.0).code(), Some(0));
}

/// Including processes that continue after SIGTERM, and after the command itself.
#[test]
fn end_of_a_term_ends_the_children_of_the_command() {
    let store = Store::files().unwrap();
    let script = "(trap '' TERM HUP; echo led; exec sleep 600) & wait";
    for is_lost in [false, true] {
        let command = lead(&store, &["--lease", "6s", "--kill-after", "300ms"], script);
        let (mut child, mut said) = saying(without_terminal(&command), "led");
        if is_lost {
            unlock(&store);
            assert_eq!(line(&mut said), "led", "only then it leads again");
        }
        let sent = if is_lost { (Signal::TERM, 128 + 15) } else { (Signal::HUP, 128 + 1) };
        signal(&child, sent.0);
        assert_eq!(ended(&mut child).code(), Some(sent.1));
        until_silent(said);
    }
}

/// It would keep the term for ever.
#[test]
fn command_that_ignores_sigterm_is_killed() {
    let store = Store::files().unwrap();
    let script = "trap '' TERM; echo led; while :; do sleep 0.02; done";
    let (mut first, _said) =
        saying(without_terminal(&lead(&store, &["--kill-after", "300ms"], script)), "led");
    let mut second = lead(&store, &[], "true").spawn().unwrap();
    until_waiting(&store, 1);
    signal(&first, Signal::TERM);
    assert_eq!(ended(&mut first).code(), Some(128 + 9));
    assert_eq!(ended(&mut second).code(), Some(0));
}

/// The program ends at once, and its term does not.
#[test]
fn min_hold_keeps_others_from_leading() {
    let store = Store::files().unwrap();
    let asked = Instant::now();
    let led = output(store.program(&["lead", "a", "--lease", "500ms", "--min-hold", "2s", "--", "true"]));
    assert_eq!(led.status.code(), Some(0));
    let next = output(store.program(&["lead", "a", "--", "true"]));
    assert_eq!(next.status.code(), Some(0));
    assert!(asked.elapsed() >= Duration::from_secs(2));
}

#[test]
fn max_hold_ends_a_term() {
    let store = Store::files().unwrap();
    let options = ["--lease", "200ms", "--max-hold", "600ms"];
    let (child, mut said) = spawned(lead(&store, &options, OBEDIENT));
    let mut child = Killed(child);
    let first = fence(&line(&mut said));
    assert_eq!(line(&mut said), "ending");
    assert!(fence(&line(&mut said)) > first);
    signal(&child.0, Signal::TERM);
    assert_eq!(ended(&mut child.0).code(), Some(0));
}

/// Without its store a leader ends its command in time, and leads again when the store is back.
#[test]
fn outage_ends_a_term_and_not_the_program() {
    let Some(store) = Store::redis() else { return };
    let (network, far) = store.far();
    let (child, mut said) = spawned(lead(&far, &["--lease", "1s"], OBEDIENT));
    let mut child = Killed(child);
    let first = fence(&line(&mut said));
    network.set(Fault::Reset);
    assert_eq!(line(&mut said), "ending");
    eventually("the end of the lease", || {
        elections(&store).iter().all(|one| one["holders"] == json!([])).then_some(())
    });
    network.set(Fault::None);
    assert!(fence(&line(&mut said)) > first);
    signal(&child.0, Signal::TERM);
    assert_eq!(ended(&mut child.0).code(), Some(0));
}

#[test]
fn command_that_cannot_run_ends_the_term() {
    let store = Store::files().unwrap();
    for (command, code) in [("/nowhere/at/all", 127), ("/", 126)] {
        assert_eq!(output(store.program(&["lead", "a", "--", command])).status.code(), Some(code));
        assert_eq!(elections(&store), [Value::Null; 0]);
    }
}

#[test]
fn terms_are_logged() {
    let store = Store::files().unwrap();
    let mut command = lead(&store, &["--lease", "6s"], OBEDIENT);
    let (child, mut said) = spawned({
        command.stderr(Stdio::piped());
        command
    });
    let mut child = Killed(child);
    let first = fence(&line(&mut said));
    unlock(&store);
    assert_eq!(line(&mut said), "ending");
    let second = fence(&line(&mut said));
    signal(&child.0, Signal::TERM);
    assert_eq!(ended(&mut child.0).code(), Some(0));
    let log = std::io::read_to_string(child.0.stderr.take().unwrap()).unwrap();
    let at = |text: String| log.find(&text).unwrap_or_else(|| panic!("no {text} in {log}"));
    let terms = [
        at(format!("elected with fence {first}")),
        at("the term is lost".to_owned()),
        at(format!("elected with fence {second}")),
    ];
    assert!(terms.is_sorted(), "{log}");
}

/// Nothing is opened: there is no store at that port.
#[test]
fn wrong_notes_are_refused_by_name() {
    for note in ["ä".repeat(61), "a\nb".to_owned(), "\u{7f}".to_owned()] {
        for as_variable in [false, true] {
            let mut command = binary();
            command.args(["lead", "a", "--store", "redis://127.0.0.1:1"]);
            if as_variable {
                command.env("LOCKER_NOTE", &note);
            } else {
                command.args(["--note", &note]);
            }
            let refused = output({
                command.args(["--", "true"]);
                command
            });
            let reason = String::from_utf8(refused.stderr).unwrap();
            assert_eq!(refused.status.code(), Some(64), "{reason}");
            assert!(reason.contains("--note") && reason.contains("give"), "{reason}");
        }
    }
}

#[test]
fn wrong_terms_are_refused() {
    let store = Store::files().unwrap();
    for (options, named) in [
        (&["--lease", "10s", "--stop-before", "5001ms"][..], "stop_before"),
        (&["--max-hold", "14s"], "max_hold"),
        (&["--min-hold", "2m", "--max-hold", "1m"], "min_hold"),
        (&["--timeout", "1s"], "--timeout"),
        (&["--lease", "0s"], "--lease"),
        (&["--kill-after", "-1s"], "--kill-after"),
    ] {
        let refused = output(lead(&store, options, "exit 9"));
        let reason = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(64), "{options:?}: {reason}");
        assert!(reason.contains(named), "{options:?}: {reason}");
    }
    let none = binary().args(["lead", "a", "--", "true"]).output().unwrap();
    assert_eq!(none.status.code(), Some(64));
    assert!(String::from_utf8(none.stderr).unwrap().contains("LOCKER_URL"));
}

/// Over HTTP a client waits for a process, and a process for a client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_and_processes_share_an_election() {
    let Some(store) = Store::redis() else { return };
    let server: Server = store.server(&[]);
    let mut first = Killed(leader(&store, &["--note", "the process"]));
    until("the note", async || {
        let state: Value = serde_json::from_str(&server.get("/v1/leader/a").await.body).unwrap();
        state["holders"][0]["note"] == "the process"
    })
    .await;
    assert!(server.get("/v1?kind=leader").await.body.contains(r#""kind":"leader","name":"a""#));
    let client = server.queue("/v1/leader/a/acquire?key=k", "leader/a", 0).await;
    drop(first.0.stdin.take());
    let client = client.await.unwrap();
    assert_eq!((client.status, &*client.body), (200, "k"));
    let mut second = lead(&store, &[], "exit 5").spawn().unwrap();
    server.until_waiting("leader/a", 1).await;
    assert_eq!(server.post("/v1/leader/a/release?key=k").await.status, 204);
    assert_eq!(ended(&mut second).code(), Some(5));
}
