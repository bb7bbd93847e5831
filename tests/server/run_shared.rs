//! `locker run`, `ls` and `unlock` between processes, on a real Redis.

use crate::support::{binary, ended};
use locker_harness::{Fault, Proxy, RedisServer, Signal, eventually, free_port};
use rustix::process::{Pid, kill_process};
use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

fn locker(redis: &RedisServer, arguments: &[&str]) -> Command {
    let mut command = binary();
    command.env("LOCKER_URL", redis.url()).args(arguments);
    command
}

/// Holds the lock `a` and has said so; ends with its standard input.
fn holder(redis: &RedisServer, options: &[&str]) -> Child {
    running(redis, options, "echo held; while read -r line; do :; done")
}

/// Runs a script that says `held`.
fn running(redis: &RedisServer, options: &[&str], script: &str) -> Child {
    let line = [&["run", "a"], options, &["--", "sh", "-c", script]].concat();
    said_held(locker(redis, &line))
}

fn said_held(mut command: Command) -> Child {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    child
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn output(mut command: Command) -> Output {
    command.output().unwrap()
}

fn until_one_waits(redis: &RedisServer) {
    eventually("a second process waits", || {
        let lines = String::from_utf8(output(locker(redis, &["ls"])).stdout).unwrap();
        lines.lines().any(|line| line.split_whitespace().rev().take(2).eq(["a", "1"])).then_some(())
    });
}

#[test]
fn one_process_at_a_time() {
    let Some(redis) = RedisServer::start() else { return };
    let mut first = holder(&redis, &[]);
    let second = output(locker(&redis, &["run", "a", "--timeout", "0s", "--", "echo", "entered"]));
    assert_eq!((second.status.code(), second.stdout.len()), (Some(75), 0));
    assert!(String::from_utf8(second.stderr).unwrap().contains("lock:a"));
    let other = output(locker(&redis, &["run", "b", "--", "echo", "entered"]));
    assert_eq!((other.status.code(), &other.stdout[..]), (Some(0), &b"entered\n"[..]));
    drop(first.stdin.take());
    assert_eq!(ended(&mut first).code(), Some(0));
    assert_eq!(output(locker(&redis, &["run", "a", "--timeout", "0s", "--", "true"])).status.code(), Some(0));
}

#[test]
fn the_next_process_starts_when_the_first_ends() {
    let Some(redis) = RedisServer::start() else { return };
    let mut first = holder(&redis, &[]);
    let mut second = locker(&redis, &["run", "a", "--timeout", "60s", "--", "true"]).spawn().unwrap();
    until_one_waits(&redis);
    drop(first.stdin.take());
    assert_eq!(ended(&mut first).code(), Some(0));
    assert_eq!(ended(&mut second).code(), Some(0));
}

#[test]
fn signals_are_passed_on() {
    let Some(redis) = RedisServer::start() else { return };
    let script = "trap 'kill $!; exit 42' USR1; sleep 600 & echo held; wait";
    let mut child = running(&redis, &[], script);
    signal(&child, Signal::USR1);
    assert_eq!(ended(&mut child).code(), Some(42));
}

#[test]
fn what_is_ignored_stays_ignored() {
    let Some(redis) = RedisServer::start() else { return };
    let (script, program) =
        ("echo held; read -r line; kill -HUP $$; exit 7", binary().get_program().to_owned());
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(program);
    command.args(["run", "a", "--", "sh", "-c", script]).env("LOCKER_URL", redis.url());
    let mut child = said_held(command);
    signal(&child, Signal::HUP);
    drop(child.stdin.take());
    assert_eq!(ended(&mut child).code(), Some(7));
}

#[test]
fn who_waits_can_be_interrupted() {
    let Some(redis) = RedisServer::start() else { return };
    let _first = Killed(holder(&redis, &[]));
    let mut second = locker(&redis, &["run", "a", "--timeout", "60s", "--", "true"]).spawn().unwrap();
    until_one_waits(&redis);
    signal(&second, Signal::INT);
    assert_eq!(ended(&mut second).code(), Some(128 + 2));
}

/// Its answers come late, so that it has ended before it was heard unless it waits for that.
#[test]
fn who_gives_up_has_left_the_queue_before_it_ends() {
    let Some(redis) = RedisServer::start() else { return };
    let far = Proxy::to(redis.port());
    let _first = Killed(holder(&redis, &[]));
    for (timeout, signalled, code) in [("60s", true, 128 + 15), ("2s", false, 75)] {
        let mut second = locker(&redis, &["run", "a", "--timeout", timeout, "--", "true"]);
        let mut second = second.env("LOCKER_URL", far.url()).spawn().unwrap();
        until_one_waits(&redis);
        far.set(Fault::Delay(Duration::from_millis(200)));
        if signalled {
            signal(&second, Signal::TERM);
        }
        assert_eq!(ended(&mut second).code(), Some(code));
        far.set(Fault::None);
        let lines = String::from_utf8(output(locker(&redis, &["ls"])).stdout).unwrap();
        assert!(lines.lines().any(|line| line.split_whitespace().rev().take(2).eq(["a", "0"])), "{lines}");
    }
}

#[test]
fn a_lock_ended_by_force_ends_the_command() {
    let Some(redis) = RedisServer::start() else { return };
    let mut child = holder(&redis, &["--lease", "1s", "--kill-after", "100ms"]);
    let unlocked = output(locker(&redis, &["unlock", "a"]));
    assert_eq!(unlocked.status.code(), Some(0));
    assert!(String::from_utf8(unlocked.stderr).unwrap().contains("unlocked by force"));
    assert_eq!(ended(&mut child).code(), Some(75));
    assert_eq!(output(locker(&redis, &["unlock", "a"])).status.code(), Some(1));
}

#[test]
fn a_lock_ended_by_force_passes_to_the_next_in_line() {
    let Some(redis) = RedisServer::start() else { return };
    let mut first = holder(&redis, &["--lease", "3s", "--kill-after", "100ms"]);
    let waiting = ["run", "a", "--timeout", "60s", "--", "sh", "-c", "echo \"$LOCKER_FENCE\""];
    let second = locker(&redis, &waiting).stdout(Stdio::piped()).spawn().unwrap();
    until_one_waits(&redis);
    let fence = |lines: &[u8]| {
        let first =
            String::from_utf8_lossy(lines).split_whitespace().find_map(|word| word.parse::<u64>().ok());
        first.unwrap()
    };
    let evicted = fence(&output(locker(&redis, &["ls"])).stdout);
    assert_eq!(output(locker(&redis, &["unlock", "a"])).status.code(), Some(0));
    let second = second.wait_with_output().unwrap();
    assert_eq!(second.status.code(), Some(0));
    assert!(fence(&second.stdout) > evicted);
    assert_eq!(ended(&mut first).code(), Some(75));
}

#[test]
fn a_killed_process_leaves_its_lock_to_the_lease() {
    let Some(redis) = RedisServer::start() else { return };
    let mut child = holder(&redis, &["--lease", "1s"]);
    signal(&child, Signal::KILL);
    ended(&mut child);
    let next = output(locker(&redis, &["run", "a", "--timeout", "60s", "--", "echo", "entered"]));
    assert_eq!(next.stdout, b"entered\n");
}

#[test]
fn a_store_that_is_not_there_is_no_conflict() {
    let mut command = binary();
    command.args([
        "run",
        "a",
        "--timeout",
        "200ms",
        "--store",
        &format!("redis://127.0.0.1:{}", free_port()),
        "--",
        "true",
    ]);
    let refused = output(command);
    assert_eq!(refused.status.code(), Some(69), "{}", String::from_utf8_lossy(&refused.stderr));
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
