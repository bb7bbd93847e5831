//! The examples on a Redis server, two programs at once.

use crate::example;
use locker_harness::RedisServer;
use std::process::Stdio;

#[test]
fn withdraw_runs_twice_at_once() {
    let Some(server) = RedisServer::start() else { return };
    let start = || {
        let mut command = example("withdraw");
        command.args(["--store", &server.url()]).stdout(Stdio::piped()).spawn().unwrap()
    };
    let programs = [start(), start()];
    for program in programs {
        let output = program.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.matches(": right").count() == 3, "{text}");
    }
}

#[test]
fn fenced_resource_refuses_a_late_holder() {
    let Some(server) = RedisServer::start() else { return };
    for store in ["memory://".to_owned(), server.url()] {
        let output = example("fenced_resource").args(["--store", &store]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        assert!(text.contains("check says Err(Lost)") && text.contains("Err(TooLate)"), "{text}");
    }
}
