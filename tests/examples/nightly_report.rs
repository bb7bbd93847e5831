//! The report that three hosts start.

use crate::{Running, example};
use locker_harness::eventually;
use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::Command,
};

/// A host. No test lasts from one day to the next but for one second a day.
fn host(name: &str, folder: &Path, takes: &str) -> Command {
    let (mut command, locks) = (example("nightly_report"), folder.join("locks"));
    command.args(["--store", &format!("file://{}", locks.display()), "--host", name, "--takes-ms", takes]);
    command.arg(folder.join("reports"));
    command
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("reports")).unwrap();
    folder
}

/// The text of each report.
fn reports(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder.join("reports")).unwrap().map(|file| file.unwrap().path());
    files.map(|file| fs::read_to_string(file).unwrap()).collect()
}

fn first_line(running: &mut Running) -> String {
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line
}

#[test]
fn one_of_three_hosts_writes_the_report() {
    let folder = folder();
    let hosts = ["alpha", "beta", "gamma"].map(|name| Running::start(host(name, folder.path(), "200")));
    let lines: Vec<_> = hosts
        .into_iter()
        .map(|mut host| {
            assert!(host.0.wait().unwrap().success());
            first_line(&mut host)
        })
        .collect();
    let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    assert_eq!((count("writes the report"), count("finds the report written")), (1, 2), "{lines:?}");
    let reports = reports(folder.path());
    assert!(reports.len() == 1 && reports[0].ends_with(", after 0 days without a report\n"), "{reports:?}");
}

#[test]
fn host_that_dies_is_followed_by_another_one() {
    let folder = folder();
    let mut dying = Running::start(host("alpha", folder.path(), "600000"));
    assert!(first_line(&mut dying).starts_with("alpha writes"));
    let mut waiting = Running::start(host("beta", folder.path(), "0"));
    drop(dying);
    eventually("the report", || reports(folder.path()).pop().filter(|report| report.contains(", by beta,")));
    assert!(waiting.0.wait().unwrap().success());
}

#[test]
fn report_that_cannot_be_written_is_left_to_the_next_host() {
    let folder = folder();
    fs::remove_dir(folder.path().join("reports")).unwrap();
    let failed = host("alpha", folder.path(), "0").output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
    assert!(String::from_utf8(failed.stderr).unwrap().starts_with("alpha: the report is not written: "));
    fs::create_dir(folder.path().join("reports")).unwrap();
    assert!(host("beta", folder.path(), "0").output().unwrap().status.success());
    assert_eq!(reports(folder.path()).len(), 1);
}
