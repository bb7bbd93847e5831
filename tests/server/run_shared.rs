//! `locker run`, `ls` and `unlock` between processes that share a store.

use crate::{
    stores::{Store, on_each_store},
    support::{GENEROUS, binary, ended, python},
};
use locker_harness::{Fault, RedisServer, Signal, eventually, free_port};
use rustix::process::{Pid, kill_process, test_kill_process};
use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, ChildStdout, Command, Output, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

on_each_store!(
    blocking:
    one_process_at_a_time,
    the_next_process_starts_when_the_first_ends,
    processes_run_in_the_order_of_their_arrival,
    a_lock_ended_by_force_ends_the_command,
    unlocked_lock_passes_to_the_next_waiter,
    odd_names_are_listed_as_they_are_unlocked,
    killed_process_holds_until_its_lease_ends,
    signals_end_the_wait,
);

/// A process that holds the lock `a` and has printed `held`. It ends with its standard input.
fn holder(store: &Store, options: &[&str]) -> Child {
    running(store, options, "echo held; while read -r line; do :; done")
}

/// Runs a script that prints `held`.
fn running(store: &Store, options: &[&str], script: &str) -> Child {
    let line = [&["run", "a"], options, &["--", "sh", "-c", script]].concat();
    said_held(store.program(&line))
}

fn said_held(command: Command) -> Child {
    saying(command, "held").0
}

/// Waits for this first line of the process.
pub(crate) fn saying(command: Command, first: &str) -> (Child, BufReader<ChildStdout>) {
    let (child, mut output) = spawned(command);
    assert_eq!(line(&mut output), first);
    (child, output)
}

pub(crate) fn spawned(mut command: Command) -> (Child, BufReader<ChildStdout>) {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    (child, output)
}

pub(crate) fn line(output: &mut impl BufRead) -> String {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// The same without a terminal, regardless of where the tests run.
pub(crate) fn without_terminal(command: &Command) -> Command {
    launched("without_terminal", command)
}

fn launched(place: &str, command: &Command) -> Command {
    let mut there = python("launch.py");
    there.arg(place).arg(command.get_program()).args(command.get_args());
    there.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    there
}

/// Waits until no process is left that could write.
pub(crate) fn until_silent(mut output: impl Read + Send + 'static) {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(output.read_to_end(&mut Vec::new())));
    receiver.recv_timeout(GENEROUS).expect("somebody goes on").unwrap();
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

pub(crate) fn output(mut command: Command) -> Output {
    command.output().unwrap()
}

/// Waits until so many processes wait for the lock `a`.
fn until_waiting(store: &Store, number: usize) {
    eventually("another process waits", || {
        let lines = String::from_utf8(output(store.program(&["ls"])).stdout).unwrap();
        let wanted = ["a".to_owned(), number.to_string()];
        lines.lines().any(|line| line.split_whitespace().rev().take(2).eq(&wanted)).then_some(())
    });
}

fn one_process_at_a_time(store: &Store) {
    let mut first = holder(store, &[]);
    let second = output(store.program(&["run", "a", "--timeout", "0s", "--", "echo", "entered"]));
    assert_eq!((second.status.code(), second.stdout.len()), (Some(75), 0));
    assert_eq!(String::from_utf8(second.stderr).unwrap(), "", "cron would mail it");
    let other = output(store.program(&["run", "b", "--", "echo", "entered"]));
    assert_eq!((other.status.code(), &other.stdout[..]), (Some(0), &b"entered\n"[..]));
    drop(first.stdin.take());
    assert_eq!(ended(&mut first).code(), Some(0));
    assert_eq!(output(store.program(&["run", "a", "--timeout", "0s", "--", "true"])).status.code(), Some(0));
}

fn the_next_process_starts_when_the_first_ends(store: &Store) {
    let mut first = holder(store, &[]);
    let mut second = store.program(&["run", "a", "--timeout", "60s", "--", "true"]).spawn().unwrap();
    until_waiting(store, 1);
    drop(first.stdin.take());
    assert_eq!(ended(&mut first).code(), Some(0));
    assert_eq!(ended(&mut second).code(), Some(0));
}

/// With rising fences, and `ls` counts those who wait.
fn processes_run_in_the_order_of_their_arrival(store: &Store) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("order");
    let mut first = holder(store, &[]);
    let mut waiting: Vec<_> = (1..=4)
        .map(|number| {
            let script = format!("echo {number} $LOCKER_FENCE >>'{}'", file.display());
            let run = ["run", "a", "--timeout", "60s", "--", "sh", "-c", &script];
            let waiting = store.program(&run).spawn().unwrap();
            until_waiting(store, number);
            waiting
        })
        .collect();
    drop(first.stdin.take());
    assert_eq!(ended(&mut first).code(), Some(0));
    assert!(waiting.iter_mut().all(|process| ended(process).success()));
    let order = std::fs::read_to_string(file).unwrap();
    let (numbers, fences): (Vec<u64>, Vec<u64>) = order
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(number, fence)| (number.parse::<u64>().unwrap(), fence.parse::<u64>().unwrap()))
        .unzip();
    assert_eq!(numbers, [1, 2, 3, 4]);
    assert!(fences.is_sorted_by(|one, next| one < next), "{order}");
}

#[test]
fn signals_are_passed_on() {
    let Some(store) = Store::redis() else { return };
    let script = "trap 'kill $!; exit 42' USR1; sleep 600 & echo held; wait";
    let mut child = running(&store, &[], script);
    signal(&child, Signal::USR1);
    assert_eq!(ended(&mut child).code(), Some(42));
}

#[test]
fn ignored_signals_stay_ignored() {
    let Some(store) = Store::redis() else { return };
    let (script, program) =
        ("echo held; read -r line; kill -HUP $$; exit 7", binary().get_program().to_owned());
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(program);
    command.args(["run", "a", "--", "sh", "-c", script]).env("LOCKER_URL", store.url());
    let mut child = said_held(command);
    signal(&child, Signal::HUP);
    drop(child.stdin.take());
    assert_eq!(ended(&mut child).code(), Some(7));
}

fn signals_end_the_wait(store: &Store) {
    let _first = Killed(holder(store, &[]));
    let mut second = store.program(&["run", "a", "--timeout", "60s", "--", "true"]).spawn().unwrap();
    until_waiting(store, 1);
    signal(&second, Signal::INT);
    assert_eq!(ended(&mut second).code(), Some(128 + 2));
}

/// Replies arrive late: the process has to wait for them before it ends.
#[test]
fn waiter_leaves_the_queue_before_it_ends() {
    let Some(store) = Store::redis() else { return };
    let (network, far) = store.far();
    let _first = Killed(holder(&store, &[]));
    for (timeout, signalled, code) in [("60s", true, 128 + 15), ("5s", false, 75)] {
        let run = ["run", "a", "--timeout", timeout, "--", "true"];
        let mut second = far.program(&run).spawn().unwrap();
        until_waiting(&store, 1);
        network.set(Fault::Delay(Duration::from_millis(200)));
        if signalled {
            signal(&second, Signal::TERM);
        }
        assert_eq!(ended(&mut second).code(), Some(code));
        network.set(Fault::None);
        let lines = String::from_utf8(output(store.program(&["ls"])).stdout).unwrap();
        assert!(lines.lines().any(|line| line.split_whitespace().rev().take(2).eq(["a", "0"])), "{lines}");
    }
}

fn a_lock_ended_by_force_ends_the_command(store: &Store) {
    let mut child = holder(store, &["--lease", "6s", "--kill-after", "100ms"]);
    let unlocked = output(store.program(&["unlock", "a"]));
    assert_eq!(unlocked.status.code(), Some(0));
    assert!(String::from_utf8(unlocked.stderr).unwrap().contains("unlocked by force"));
    assert_eq!(ended(&mut child).code(), Some(75));
    assert_eq!(output(store.program(&["unlock", "a"])).status.code(), Some(1));
}

/// Including processes that continue after SIGTERM, and after the command itself.
#[test]
fn lost_lock_ends_the_children_of_the_command() {
    let Some(store) = Store::redis() else { return };
    for script in [
        "sleep 600 & echo held; wait",
        "(trap '' TERM; echo held; exec sleep 600) & wait",
        "trap '' TERM; sleep 600 & echo held; wait",
    ] {
        let run = ["run", "a", "--lease", "6s", "--kill-after", "300ms", "--", "sh", "-c", script];
        let (mut child, output) = saying(without_terminal(&store.program(&run)), "held");
        assert!(self::output(store.program(&["unlock", "a"])).status.success());
        assert_eq!(ended(&mut child).code(), Some(75), "{script}");
        until_silent(output);
    }
}

/// Long before the command would be killed.
#[test]
fn signals_are_forwarded_while_the_command_ends() {
    let Some(store) = Store::redis() else { return };
    let script = "trap 'echo ending' TERM; trap 'exit 3' USR1; echo held; while :; do sleep 0.02; done";
    let run = ["run", "a", "--lease", "6s", "--kill-after", "1h", "--", "sh", "-c", script];
    let (mut child, mut output) = saying(store.program(&run), "held");
    assert!(self::output(store.program(&["unlock", "a"])).status.success());
    assert_eq!(line(&mut output), "ending");
    signal(&child, Signal::USR1);
    assert_eq!(ended(&mut child).code(), Some(75));
}

#[test]
fn lost_lock_ends_the_command_without_a_log() {
    let Some(store) = Store::redis() else { return };
    let (log, writer) = std::io::pipe().unwrap();
    let script = "echo held; exec 2>&-; exec sleep 600";
    let mut run = store.program(&["run", "a", "--lease", "6s", "--", "sh", "-c", script]);
    run.stderr(writer);
    let (mut child, output) = saying(run, "held");
    drop(log);
    assert!(self::output(store.program(&["unlock", "a"])).status.success());
    assert_eq!(ended(&mut child).code(), Some(75));
    until_silent(output);
}

/// A shell that is ended does not end the process it waits for.
#[test]
fn ended_command_ends_with_its_children() {
    let Some(store) = Store::redis() else { return };
    for (passed, code) in [(Signal::TERM, 128 + 15), (Signal::INT, 128 + 2), (Signal::HUP, 128 + 1)] {
        let run = ["run", "a", "--", "sh", "-c", "cat; echo still there"];
        let (mut child, mut output) = spawned(without_terminal(&store.program(&run)));
        // Printed by a child of the shell; until then an interrupt could arrive between the two.
        writeln!(child.stdin.as_ref().unwrap(), "held").unwrap();
        assert_eq!(line(&mut output), "held");
        let _input = child.stdin.take();
        signal(&child, passed);
        assert_eq!(ended(&mut child).code(), Some(code));
        until_silent(output);
    }
}

/// At a terminal the command reads, and gets each Ctrl-C once, even after it has left the foreground group.
#[test]
fn an_interrupt_from_the_keyboard_comes_once() {
    let Some(store) = Store::redis() else { return };
    let count = "n=0; trap 'n=$((n + 1)); echo INT $n.' INT; trap 'echo $n in all; exit 42' USR1; ";
    let wait = "while :; do sleep 0.02; done";
    let reading = format!("{count} echo ready; read -r line; echo read \"$line\"; {wait}");
    let apart = format!("{count} echo ready; echo read typed; {wait}");
    let (without, mut elsewhere) = (python("launch.py"), vec!["run", "a", "--"]);
    elsewhere.extend([&without].into_iter().flat_map(|python| {
        let parts = std::iter::once(python.get_program()).chain(python.get_args());
        parts.map(|part| part.to_str().unwrap())
    }));
    elsewhere.extend(["without_terminal", "sh", "-c", &apart]);
    for line in [&["run", "a", "--", "sh", "-c", &reading][..], &elsewhere] {
        let output = output(launched("at_a_keyboard", &store.program(line)));
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains("\n5 in all"), "{said}");
        assert_eq!(output.status.code(), Some(42), "{said}");
    }
}

/// With SIGCHLD ignored, the exit status of a child would be lost.
#[test]
fn command_is_reaped_if_sigchld_is_ignored() {
    let Some(store) = Store::redis() else { return };
    let run = store.program(&["run", "a", "--", "sh", "-c", "exit 7"]);
    let command = launched("ignoring_children", &run);
    assert_eq!(output(command).status.code(), Some(7));
}

#[test]
fn frozen_store_does_not_delay_the_end() {
    let Some(redis) = RedisServer::start() else { return };
    let store = Store::of(&redis);
    for (name, hurried) in [("a", false), ("b", true)] {
        let script = "echo held; read -r line; echo $$; exit 7";
        let run = ["run", name, "--lease", "60s", "--", "sh", "-c", script];
        let (mut child, mut output) = saying(store.program(&run), "held");
        redis.signal(Signal::STOP);
        drop(child.stdin.take());
        let pid = Pid::from_raw(line(&mut output).parse().unwrap()).unwrap();
        eventually("the end of the command", || test_kill_process(pid).is_err().then_some(()));
        let since = Instant::now();
        if hurried {
            signal(&child, Signal::TERM);
        }
        assert_eq!(ended(&mut child).code(), Some(7));
        assert!(since.elapsed() < Duration::from_secs(if hurried { 2 } else { 10 }), "{hurried}");
        redis.signal(Signal::CONT);
    }
}

fn unlocked_lock_passes_to_the_next_waiter(store: &Store) {
    let mut first = holder(store, &["--lease", "6s", "--kill-after", "100ms"]);
    let waiting = ["run", "a", "--timeout", "60s", "--", "sh", "-c", "echo \"$LOCKER_FENCE\""];
    let second = store.program(&waiting).stdout(Stdio::piped()).spawn().unwrap();
    until_waiting(store, 1);
    let fence = |lines: &[u8]| {
        let first =
            String::from_utf8_lossy(lines).split_whitespace().find_map(|word| word.parse::<u64>().ok());
        first.unwrap()
    };
    let evicted = fence(&output(store.program(&["ls"])).stdout);
    assert_eq!(output(store.program(&["unlock", "a"])).status.code(), Some(0));
    let second = second.wait_with_output().unwrap();
    assert_eq!(second.status.code(), Some(0));
    assert!(fence(&second.stdout) > evicted);
    assert_eq!(ended(&mut first).code(), Some(75));
}

/// `unlock` accepts each name that `ls` prints.
fn odd_names_are_listed_as_they_are_unlocked(store: &Store) {
    for name in ["it's", "say \"a\"", "back\\slash", "e\u{301}", "{braces}"] {
        let run = ["run", name, "--", "sh", "-c", "echo held; cat"];
        let _child = Killed(said_held(store.program(&run)));
        let lines = String::from_utf8(output(store.program(&["ls"])).stdout).unwrap();
        // The column starts where its heading starts.
        let column = lines.find("NAME").unwrap();
        let listed = &lines.lines().nth(1).unwrap()[column..];
        assert_eq!(output(store.program(&["unlock", listed])).status.code(), Some(0), "{lines}");
    }
}

fn killed_process_holds_until_its_lease_ends(store: &Store) {
    let mut child = holder(store, &["--lease", "1s"]);
    signal(&child, Signal::KILL);
    ended(&mut child);
    let next = output(store.program(&["run", "a", "--timeout", "60s", "--", "echo", "entered"]));
    assert_eq!(next.stdout, b"entered\n");
}

/// Cron mails each line that a command prints.
#[test]
fn loser_of_a_race_prints_nothing() {
    let Some(store) = Store::redis() else { return };
    let mut holder = holder(&store, &[]);
    let race = |log: Option<&str>, timeout: &str| {
        let mut command = store.program(&["run", "a", "--timeout", timeout, "--", "echo", "entered"]);
        command.envs(log.map(|level| ("LOCKER_LOG", level)));
        let lost = output(command);
        assert_eq!((lost.status.code(), &lost.stdout[..]), (Some(75), &b""[..]));
        String::from_utf8(lost.stderr).unwrap()
    };
    assert_eq!(race(None, "0s"), "");
    let said = race(Some("info"), "0s");
    assert!(said.contains("INFO") && said.contains("a: the lock is held"), "{said}");
    assert!(race(None, "100ms").contains("ERROR"), "whoever waits wants to know");
    drop(holder.stdin.take());
    ended(&mut holder);
}

/// It looked as if the store was away.
#[test]
fn foreign_key_is_a_conflict() {
    let Some(redis) = RedisServer::start() else { return };
    let store = Store::of(&redis);
    let _: u64 = redis.ask("RPUSH", &[&format!("{}lock:a", store.prefix()), "foreign"]);
    let refused = output(store.program(&["run", "a", "--", "true"]));
    assert_eq!(refused.status.code(), Some(65), "{}", String::from_utf8_lossy(&refused.stderr));
}

#[test]
fn missing_store_is_no_conflict() {
    let store = format!("redis://127.0.0.1:{}", free_port());
    let mut command = binary();
    command.args(["run", "a", "--timeout", "200ms", "--store", &store, "--", "true"]);
    let refused = output(command);
    assert_eq!(refused.status.code(), Some(69), "{}", String::from_utf8_lossy(&refused.stderr));
}

pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
