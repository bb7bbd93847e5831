//! The programs of `docs/tutorial/first-lock.md` print what the page says.

#[cfg(feature = "files")]
use crate::Running;
use crate::example;

const PAGE: &str = include_str!("../../docs/tutorial/first-lock.md");

/// Returns the output that the page shows behind the program of this source, which it shows without its first line.
fn shown_output(source: &str) -> &str {
    let (_, program) = source.split_once("\n\n").unwrap();
    let (_, after) = PAGE.split_once(&format!("```rust\n{program}```")).expect("the page shows the program");
    block(after)
}

fn block(page: &str) -> &str {
    page.split_once("```text\n").unwrap().1.split("```").next().unwrap()
}

#[test]
fn programs_print_what_the_tutorial_says() {
    for (name, source) in [
        ("first_lock", include_str!("../programs/first_lock.rs")),
        ("two_callers", include_str!("../programs/two_callers.rs")),
        ("lost_lease", include_str!("../programs/lost_lease.rs")),
    ] {
        let output = example(name).env("LOCKER_URL", "memory://").output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), shown_output(source), "{name}");
    }
}

#[cfg(feature = "files")]
#[test]
fn stopped_process_of_the_tutorial_loses() {
    use locker_harness::Signal;
    use rustix::process::{Pid, kill_process};
    use std::io::{BufRead, BufReader};
    let folder = tempfile::tempdir().unwrap();
    let program = || {
        let mut program = example("two_callers");
        program.env("LOCKER_URL", format!("file://{}", folder.path().display()));
        program
    };
    let mut stopped = Running::start(program());
    let mut lines = BufReader::new(stopped.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("30: reads the balance"));
    let signal = |signal| kill_process(Pid::from_child(&stopped.0), signal).unwrap();
    signal(Signal::STOP);
    let other = program().output().unwrap();
    let all = shown_output(include_str!("../programs/two_callers.rs"));
    assert_eq!(String::from_utf8(other.stdout).unwrap(), all);
    signal(Signal::CONT);
    let rest: String = lines.map(|line| line + "\n").collect();
    let (_, step) = PAGE.split_once("## 5. Two processes").unwrap();
    assert_eq!(rest, block(step));
    assert!(stopped.0.wait().unwrap().success());
}
