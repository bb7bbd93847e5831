//! The example, run as a program.

use locker_harness::PostgresServer;
use std::process::Command;

/// The program that `cargo test` has built beside this one.
fn example() -> Command {
    let mut folder = std::env::current_exe().expect("a test runs from a file");
    folder.pop();
    if folder.ends_with("deps") {
        folder.pop();
    }
    let program = folder.join("examples/fenced_transfer");
    assert!(program.exists(), "{} is missing: `cargo build --examples` makes it", program.display());
    Command::new(program)
}

#[test]
fn fenced_transfer_refuses_late_holders() {
    let Some(server) = PostgresServer::start() else { return };
    let output = example().args(["--store", &server.url()]).output().unwrap();
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
    let output = example().arg("--help").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("--store <postgres://"), "{text}");
    assert!(!text.contains("stop-before-commit"), "{text}");
}
