//! By the words `trying STEP ID ASKED .`, `done ID VALUE AT .` and `not ID AT .`

use super::*;
use crate::{
    format::{Operation, VERSION},
    history::At,
};

const COUNT: u64 = 4;
const PARTIES: u64 = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Final {
    Sum(u64),
    Message(Option<u64>),
    Open(bool),
    Expired(bool),
    Nothing,
}

fn trying(step: &str, id: &str, asked: &str) -> Operation {
    let (kind, call, size) = match step {
        "Add" => (Kind::Counter, Call::Add, 1),
        "Send" => (Kind::Event, Call::Send, 1),
        "Await" => (Kind::Event, Call::Wait, 1),
        "CountDown" => (Kind::Latch, Call::CountDown, COUNT),
        "Pass" => (Kind::Latch, Call::Wait, COUNT),
        "Arrive" => (Kind::Barrier, Call::Wait, PARTIES),
        "Kick" => (Kind::Watchdog, Call::Kick, 1),
        "Expire" => (Kind::Watchdog, Call::Wait, 1),
        _ => panic!("no step {step}"),
    };
    let (id, message) = (id.parse::<u64>().unwrap(), (call == Call::Send).then(|| id.to_owned()));
    let lasts = (call == Call::Kick).then_some(1_000_000 + id);
    Operation {
        id: Some(id),
        size,
        message,
        lasts,
        ..Operation::new(1, kind, "x", call, asked.parse().unwrap())
    }
}

fn calls(lines: &[&str]) -> Vec<Called> {
    let mut calls: Vec<Called> = Vec::new();
    for (line, text) in lines.iter().enumerate() {
        let words: Vec<&str> = text.split(' ').collect();
        if let ["trying", step, id, asked, "."] = words[..] {
            calls.push(At { line, it: trying(step, id, asked) });
            continue;
        }
        let id = words[1].parse().ok();
        let call = &mut calls.iter_mut().rev().find(|call| call.it.id == id).unwrap().it;
        (call.outcome, call.ended) = match words[..] {
            ["done", _, value, at, "."] => {
                match call.kind {
                    Kind::Event => call.message = Some(value.to_owned()),
                    _ => call.value = value.parse().ok(),
                }
                (Outcome::Done, at.parse().ok())
            }
            ["not", _, at, "."] => (Outcome::TimedOut, at.parse().ok()),
            _ => panic!("{text}"),
        };
    }
    calls
}

fn read(kind: Kind, value: Option<u64>) -> Called {
    let mut read = Operation::new(9, kind, "x", Call::Read, u64::MAX);
    if let Some(value) = value {
        (read.outcome, read.value, read.message) = (Outcome::Done, Some(value), Some(value.to_string()));
    } else {
        read.outcome = Outcome::TimedOut;
    }
    At { line: 99, it: read }
}

fn found(left: Final, lines: &[&str]) -> usize {
    let mut all = calls(lines);
    let kind = all[0].it.kind;
    all.extend(match left {
        Final::Sum(sum) => Some(read(kind, Some(sum))),
        Final::Message(message) => Some(read(kind, message)),
        Final::Open(is) | Final::Expired(is) => Some(read(kind, is.then_some(0))),
        Final::Nothing => None,
    });
    problems(kind, &all, calm()).len()
}

fn calm() -> Calm {
    let header = format!(r#"{{"version":{VERSION},"store":"none","made_by":"hand","lease":1}}"#);
    Calm::new(1_000_000_000, &serde_json::from_str(&header).unwrap())
}

#[test]
fn sums_are_unique_ordered_and_complete() {
    let two = ["trying Add 1 5 .", "trying Add 2 6 .", "done 1 1 8 .", "done 2 2 9 ."];
    assert_eq!(found(Final::Sum(2), &two), 0);
    assert_eq!(found(Final::Sum(1), &two), 1, "one is lost");
    assert_eq!(found(Final::Sum(3), &two), 1, "one was added twice");
    let unknown = [&two[..], &["trying Add 3 7 ."]].concat();
    assert_eq!([2, 3, 4].map(|sum| found(Final::Sum(sum), &unknown)), [0, 0, 1]);
    let twice = ["trying Add 1 5 .", "trying Add 2 6 .", "done 1 1 8 .", "done 2 1 9 ."];
    assert_eq!(found(Final::Sum(2), &twice), 1);
    let back = ["trying Add 1 5 .", "done 1 2 6 .", "trying Add 2 7 .", "done 2 1 9 ."];
    assert_eq!(found(Final::Sum(2), &back), 2, "nobody else had added, and it fell");
}

#[test]
fn event_keeps_its_only_message() {
    let seen = ["trying Send 7 5 .", "trying Await 1 5 .", "done 7 7 8 .", "done 1 7 9 ."];
    assert_eq!(found(Final::Message(Some(7)), &seen), 0);
    assert_eq!(found(Final::Message(None), &seen), 1, "forgotten");
    assert_eq!(
        found(Final::Message(Some(8)), &seen),
        2,
        "without a sender, and not the message that was returned"
    );
    let conflict = ["trying Send 7 5 .", "not 7 8 ."];
    assert_eq!(found(Final::Message(None), &conflict), 1, "a conflict without another sender");
    let unknown = [&conflict[..], &["trying Send 8 5 ."]].concat();
    assert_eq!([None, Some(8)].map(|left| found(Final::Message(left), &unknown)), [0, 0]);
    let early = ["trying Await 1 1 .", "done 1 7 3 .", "trying Send 7 5 .", "done 7 7 8 ."];
    assert_eq!(found(Final::Message(Some(7)), &early), 1, "before it was sent");
}

#[test]
fn missed_send_is_a_problem_without_faults() {
    let waited = |until: u64| {
        let not = format!("not 1 {until} .");
        let lines = ["trying Send 7 5 .", "done 7 7 8 .", "trying Await 1 9 .", not.as_str()];
        found(Final::Message(Some(7)), &lines)
    };
    assert_eq!([100_000_000, 300_000_000, 2_000_000_000].map(waited), [0, 1, 0]);
}

#[test]
fn latch_opens_only_when_counted_down() {
    let lines: Vec<String> = (0..COUNT)
        .flat_map(|at| [format!("trying CountDown {at} {at} ."), format!("done {at} {} 9 .", 3 - at)])
        .collect();
    let mut lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!([true, false].map(|open| found(Final::Open(open), &lines)), [0, 1]);
    lines.extend(["trying Pass 9 1 .", "done 9 0 9 ."]);
    assert_eq!(found(Final::Open(true), &lines), 0);
    lines.extend(["trying Pass 8 1 .", "done 8 0 2 ."]);
    assert_eq!(found(Final::Open(true), &lines), 1, "three had counted");
    assert_eq!([true, false].map(|open| found(Final::Open(open), &lines[..6])), [1, 0]);
    let after = |left: u64| {
        let done = format!("done 2 {left} 9 .");
        let lines = ["trying CountDown 1 1 .", "done 1 3 3 .", "trying CountDown 2 4 .", done.as_str()];
        found(Final::Open(false), &lines)
    };
    assert_eq!([3, 2, 1, 0].map(after), [1, 0, 1, 1], "what is left");
}

#[test]
fn watchdog_expires_only_after_its_last_kick() {
    let found = |over: bool, lines: &[String]| {
        found(Final::Expired(over), &lines.iter().map(String::as_str).collect::<Vec<_>>())
    };
    // For 100 ms: expired from 101 to 102 ms on.
    let kick = |id: u64, ms: u64| {
        [format!("trying Kick {id} {ms}000000 ."), format!("done {id} 0 {}000000 .", ms + 1)]
    };
    let wait = |word: &str, asked: u64, at: u64| {
        [format!("trying Expire 7 {asked}000000 ."), format!("{word} {at}000000 .")]
    };
    let (came, missed) = ("done 7 0", "not 7");
    let with = |lines: [[String; 2]; 2]| found(true, &lines.concat());
    let first = || kick(99_000_000, 1);
    assert_eq!([80, 101].map(|at| with([first(), wait(came, 3, at)])), [1, 0]);
    assert_eq!(found(true, &wait(came, 3, 80)), 1, "no kick was sent");
    assert_eq!([290, 310].map(|at| with([first(), wait(missed, 3, at)])), [0, 1]);
    assert_eq!([true, false].map(|over| found(over, &first())), [0, 1], "left behind");

    let second = |word: &str, at: u64| [first(), kick(299_000_000, 50), wait(word, 60, at)].concat();
    assert_eq!([101, 350].map(|at| found(true, &second(came, at))), [1, 0], "the first was replaced");
    assert_eq!([310, 560].map(|at| found(true, &second(missed, at))), [0, 1]);
    let unknown = [&first()[..], &kick(19_000_000, 50)[..1], &wait(came, 60, 75)].concat();
    assert_eq!(found(true, &unknown), 0, "it may have been kicked for less");
    let not_taken =
        [first(), [kick(19_000_000, 50)[0].clone(), "not 19000000 51000000 .".into()], wait(came, 60, 75)];
    assert_eq!(found(true, &not_taken.concat()), 1, "it provably was not");
}

#[test]
fn barrier_passes_only_whole_rounds() {
    let come = ["trying Arrive 1 1 .", "trying Arrive 2 1 .", "trying Arrive 3 4 ."];
    let with = |more: &[&str]| found(Final::Nothing, &[&come[..], more].concat());
    assert_eq!(with(&["done 1 0 5 .", "done 2 0 5 .", "done 3 0 5 ."]), 0);
    assert_eq!(with(&["done 1 0 3 ."]), 1, "before the third had arrived");
    assert_eq!(with(&["done 1 0 5 .", "not 2 6 ."]), 1, "with one that had given up");
    let fourth = ["trying Arrive 4 4 .", "done 1 0 5 .", "done 2 0 5 .", "done 3 0 5 .", "done 4 0 6 ."];
    assert_eq!(with(&fourth), 1, "with two that had passed already");
}
