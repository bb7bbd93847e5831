//! The first seeds, on both processors.

use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str]) -> std::process::Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_locker-sim"));
    command.args(arguments).stdout(Stdio::piped()).spawn().expect("the simulation")
}

fn said(output: Output) -> String {
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn no_seed_fails() {
    let halves = [["--seed", "1", "--seeds", "100"], ["--seed", "101", "--seeds", "100"]];
    for half in halves.map(|half| run(&half)) {
        let output = half.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", said(output));
    }
}

/// The history of a seed is one that a separate program accepts, and the same in each process.
#[test]
fn seed_has_one_history() {
    let directory = std::env::temp_dir().join(format!("locker-sim-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let written = ["one", "other"].map(|name| {
        let file = directory.join(name);
        let output =
            run(&["--seed", "7", "--once", "--history", file.to_str().unwrap()]).wait_with_output().unwrap();
        assert!(output.status.success(), "{}", said(output));
        std::fs::read(file).unwrap()
    });
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(written[0] == written[1]);
    let verdict = locker_checker::judge(&written[0][..]).unwrap();
    assert!(verdict.problems.is_empty() && !verdict.grants.is_empty(), "{verdict:?}");
}
