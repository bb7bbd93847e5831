//! Tests that run in a process of their own.

use std::{ffi::OsStr, process::Command};

/// Runs the test `case` in a process of its own.
fn in_process(case: &str, url: Option<&OsStr>) -> std::process::Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", case, "--nocapture", "--include-ignored"]);
    command.env("LOCKER_TEST_CASE", case).env_remove("LOCKER_URL");
    if let Some(url) = url {
        command.env("LOCKER_URL", url);
    }
    command.output().unwrap()
}

/// What a case wrote.
pub(crate) struct Said {
    pub(crate) out: String,
    pub(crate) errors: String,
}

/// Returns the output of `case`, which passes in a process of its own. Returns `None` in that process.
pub(crate) fn said(case: &str, url: Option<&OsStr>) -> Option<Said> {
    if std::env::var("LOCKER_TEST_CASE").is_ok_and(|running| running == case) {
        return None;
    }
    let output = in_process(case, url);
    let [out, errors] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{out}\n{errors}");
    assert!(out.contains("1 passed"), "the case ran");
    Some(Said { out, errors })
}

/// Returns `true` in the process of `case`. In any other process, starts that one and checks that the case passes.
pub(crate) fn am_i(case: &str, url: Option<&OsStr>) -> bool {
    said(case, url).is_none()
}
