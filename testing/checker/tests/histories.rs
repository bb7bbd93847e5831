//! The program finds the faults of histories that were written by hand, and nothing else.
//!
//! A history in `histories/broken` has a note `problem: TEXT` for each problem, and those in `histories/sound` are near
//! misses.

use serde_json::Value;
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// Runs the program on a text.
fn judged(history: &str) -> Output {
    let mut checker = Command::new(env!("CARGO_BIN_EXE_locker-checker"))
        .args(["--quiet", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    checker.stdin.take().unwrap().write_all(history.as_bytes()).unwrap();
    checker.wait_with_output().unwrap()
}

fn text(output: &[u8]) -> String {
    String::from_utf8(output.to_owned()).unwrap()
}

fn histories(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("histories").join(folder);
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The problems that the notes of a history name, one a line.
fn expected(history: &str) -> String {
    let lines = history.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let notes = lines.filter(|line| line["type"] == "note");
    notes
        .filter_map(|note| Some(note["text"].as_str()?.strip_prefix("problem: ")?.to_owned() + "\n"))
        .collect()
}

#[test]
fn faults_written_by_hand_are_found() {
    let files = histories("broken");
    assert!(files.len() >= 30, "{files:?}");
    for file in files {
        let history = fs::read_to_string(&file).unwrap();
        let output = judged(&history);
        assert_eq!(text(&output.stdout), expected(&history), "{}", file.display());
        assert_ne!(expected(&history), "", "{}", file.display());
        assert_eq!(output.status.code(), Some(1), "{}", file.display());
    }
}

#[test]
fn near_misses_are_sound() {
    let files = histories("sound");
    assert!(files.len() >= 15, "{files:?}");
    for file in files {
        let output = judged(&fs::read_to_string(&file).unwrap());
        assert_eq!(text(&output.stdout), "", "{}", file.display());
        assert_eq!(output.status.code(), Some(0), "{}", file.display());
    }
}

const HEADER: &str = r#"{"type":"header","version":1,"store":"none","made_by":"hand","lease":1000}"#;

#[test]
fn unreadable_histories_say_where_and_why() {
    let lock = |rest: &str| {
        let call =
            r#"{"type":"operation","process":1,"id":1,"kind":"lock","name":"a","call":"acquire","asked":10"#;
        format!("{HEADER}\n{call}{rest}}}\n")
    };
    let held = r#","entered":20,"fence":1,"outcome":"granted""#;
    let again = lock("") + &lock("").replace(r#""name":"a""#, r#""name":"b""#)[HEADER.len() + 1..];
    let semaphore = |size| lock(size).replace(r#""kind":"lock""#, r#""kind":"semaphore""#);
    let sizes = semaphore("") + &semaphore(r#","size":2"#).replace(r#""id":1,"#, "")[HEADER.len() + 1..];
    for (history, error) in [
        (String::new(), "line 1 cannot be read: the header is missing"),
        (HEADER.replace(":1,", ":2,"), "line 1 cannot be read: version 2, but this program reads 1"),
        (lock("")[HEADER.len() + 1..].to_owned(), "line 1 cannot be read: the first line is no header"),
        (format!("{HEADER}\n{HEADER}"), "line 2 cannot be read: the header comes once"),
        (format!("{HEADER}\n{{\"type\""), "line 2 cannot be read: EOF while parsing"),
        (lock(r#","fense":1"#), "line 2 cannot be read: unknown field `fense`"),
        (
            lock(r#","entered":9,"fence":1,"outcome":"granted""#),
            "line 2 cannot be read: times are not in the order",
        ),
        (lock(r#","outcome":"granted""#), "line 2 cannot be read: outcome and `entered` disagree"),
        (lock(&held.replace(r#","fence":1"#, "")), "line 2 cannot be read: outcome and `fence` disagree"),
        (lock(r#","outcome":"timed-out""#), "line 2 cannot be read: outcome and `ended` disagree"),
        (lock(r#","size":2"#), "line 2 cannot be read: this kind has no size"),
        (lock(r#","permits":0"#), "line 2 cannot be read: this kind has no permits"),
        (semaphore(r#","permits":0"#), "line 2 cannot be read: 0 permits or tokens"),
        (lock(held).replace("acquire", "admit"), "line 2 cannot be read: this kind has no such call"),
        (lock(r#","ended":11,"outcome":"refused""#), "line 2 cannot be read: this call has no such outcome"),
        (semaphore(r#","around":[0]"#), "line 2 cannot be read: `around` belongs to lock"),
        (again, "line 3 cannot be read: another call has this process and id"),
        (sizes, "line 3 cannot be read: size or quota differs from line 2"),
    ] {
        let output = judged(&history);
        let found = text(&output.stderr);
        assert!(found.starts_with(error), "{history}\n{found}\n{error}");
        assert_eq!(output.status.code(), Some(2), "{history}");
    }
}

#[test]
fn file_that_does_not_exist_is_unreadable() {
    let checker = Command::new(env!("CARGO_BIN_EXE_locker-checker")).arg("no such file").output().unwrap();
    assert!(text(&checker.stderr).starts_with("no such file cannot be opened: "));
    assert_eq!(checker.status.code(), Some(2));
}
