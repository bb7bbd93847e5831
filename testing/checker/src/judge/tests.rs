use super::*;

const HEADER: &str = r#"{"type":"header","version":1,"store":"none","made_by":"hand","lease":1000}"#;

/// By the words `PROCESS/ID KIND NAME FENCE ENTERED SEEN OUTCOME`. All ask at 10.
fn verdict(lines: &[&str]) -> Verdict {
    let mut history = vec![HEADER.to_owned()];
    history.extend(lines.iter().map(|line| {
        let [id, kind, name, fence, entered, seen, outcome] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let (process, id) = id.split_once('/').unwrap();
        let (kind, more) = kind.split_once(',').unwrap_or((kind, ""));
        let seen = if seen == "-" { String::new() } else { format!(r#","seen":{seen}"#) };
        let ended = if outcome == "granted" { "" } else { r#","ended":90"# };
        format!(
            r#"{{"type":"operation","process":{process},"id":{id},"kind":"{kind}","name":"{name}","call":"acquire","asked":10,"entered":{entered},"fence":{fence}{seen}{ended},"outcome":"{outcome}"{more}}}"#
        )
    }));
    judge(history.join("\n").as_bytes()).unwrap()
}

#[test]
fn repeated_reports_count_as_one_hold() {
    let verdict = verdict(&[
        "1/1 lock a 1 11 11 granted",
        "1/1 lock a 1 11 15 granted",
        "1/1 lock a 1 11 20 released",
        "2/1 lock a 2 21 30 released",
        "3/1 lock a 3 89 - lost",
    ]);
    assert_eq!((verdict.grants["lock"], verdict.too_late, verdict.lost), (3, 1, 1));
    assert_eq!(verdict.problems, []);
}

#[test]
fn last_report_of_a_hold_is_judged() {
    let second = "2/1 lock a 2 19 25 granted";
    assert_eq!(verdict(&["1/1 lock a 1 10 15 granted", second]).problems, []);
    let problems = verdict(&["1/1 lock a 1 10 15 granted", second, "1/1 lock a 1 10 20 granted"]).problems;
    assert_eq!(problems.iter().map(|problem| &problem.lines[..]).collect::<Vec<_>>(), [[3, 4]]);
}

#[test]
fn each_kind_is_judged_by_its_own_measure() {
    let two = |kind: &str| {
        let line = |fence: u64| format!("{fence}/1 {kind} x {fence} 10 20 released");
        verdict(&[&line(1), &line(2)]).problems.len()
    };
    let kinds = [
        "lock",
        r#"semaphore,,"size":2"#,
        r#"semaphore,,"size":3,"permits":2"#,
        r#"read-write,,"mode":"read""#,
        r#"read-write,,"mode":"write""#,
    ];
    assert_eq!(kinds.map(two), [1, 0, 1, 0, 1]);
}

#[test]
fn names_and_kinds_are_judged_apart() {
    let found = verdict(&[
        "1/1 lock a 2 10 20 released",
        "2/1 lock b 1 10 20 released",
        r#"3/1 semaphore,,"size":2 a 1 10 20 released"#,
    ]);
    assert_eq!(found.problems, []);
}
