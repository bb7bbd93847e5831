//! The example of the README.

use crate::example;

#[test]
fn books_every_withdrawal() {
    let output = example("withdraw").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert_eq!(text.matches(": right").count(), 3, "{text}");
    assert!(text.contains("at once on one card: 0 pairs"), "{text}");
    assert!(
        !text.contains("at once on different cards: 0 pairs"),
        "different cards do not wait for each other: {text}"
    );
    let (_, without) = text.split_once("without the attribute").unwrap();
    assert!(
        without.lines().filter(|line| line.starts_with("card")).any(|line| !line.contains(": 0 ")),
        "{without}"
    );
}

#[test]
fn prints_help_and_refuses_unknown_stores() {
    let output = example("withdraw").arg("--help").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && text.contains("--store <URL>") && text.contains("memory://"),
        "{text}"
    );

    let output = example("withdraw").args(["--store", "nonsense://"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains("accepted are memory://"), "{text}");
}
