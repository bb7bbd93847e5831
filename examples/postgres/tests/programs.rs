//! The examples, run as programs.

use locker_harness::PostgresServer;
use std::process::Command;

/// The program that `cargo test` has built beside this one.
fn example(name: &str) -> Command {
    let mut folder = std::env::current_exe().expect("a test runs from a file");
    folder.pop();
    if folder.ends_with("deps") {
        folder.pop();
    }
    let program = folder.join("examples").join(name);
    assert!(program.exists(), "{} is missing: `cargo build --examples` makes it", program.display());
    Command::new(program)
}

#[test]
fn fenced_transfer_refuses_late_holders() {
    let Some(server) = PostgresServer::start() else { return };
    let output = example("fenced_transfer").args(["--store", &server.url()]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    for expected in
        ["refused with LK001", "killed: has transferred 300", "its lease is over: yes", "all three"]
    {
        assert!(text.contains(expected), "{text}");
    }
    assert_eq!(server.psql("SELECT to_regclass('fenced_transfer_accounts') IS NULL"), "t");
}

#[test]
fn fenced_transfer_explains_itself() {
    let output = example("fenced_transfer").arg("--help").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("--store <postgres://"), "{text}");
    assert!(!text.contains("stop-before-commit"), "{text}");
}

#[test]
fn payment_is_charged_once_although_its_process_is_killed() {
    let Some(server) = PostgresServer::start() else { return };
    let output = example("exactly_once").args(["--store", &server.url()]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    for expected in ["killed: has charged 30", "the row is there: nothing is charged", "both are right"] {
        assert!(text.contains(expected), "{text}");
    }
    assert_eq!(server.psql("SELECT to_regclass('exactly_once_payments') IS NULL"), "t");
}
