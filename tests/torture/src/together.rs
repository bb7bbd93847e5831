//! Counters, events, latches, barriers and watchdogs: what a caller does with them, and what must be true of it.
//!
//! Each step is told of before it is taken and when it has ended. One that was never heard of again, because its worker
//! was killed or told that the outcome is unknown, may have been taken at any later time, or never.

use crate::{
    checks::{Hold, broken},
    kinds::Kind,
    worker::{now, say},
};
use fastrand::Rng;
use locker_runtime::{ErrorKind, Locker, Result};
use std::{collections::BTreeMap, time::Duration};

/// How often a latch has to be counted down.
const COUNT: u64 = 4;
/// How many a barrier lets go on together.
const PARTIES: u64 = 3;
/// How long all callers use the same event, latch, barrier and watchdog, before they turn to the next.
const ROUND: u64 = 400_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Add,
    Send,
    Await,
    CountDown,
    Pass,
    Arrive,
    Kick,
    Expire,
}

const STEPS: [Step; 8] =
    [Step::Add, Step::Send, Step::Await, Step::CountDown, Step::Pass, Step::Arrive, Step::Kick, Step::Expire];

/// Times closer than this are not told apart.
const CLEARLY: u64 = 200_000_000;

/// What is known of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    step: Step,
    /// Of the step; what a sender sends, and for how long a watchdog is kicked.
    id: u64,
    asked: u64,
    ended: Option<Ended>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ended {
    at: u64,
    /// What it returned; `None`: it surely was not taken.
    value: Option<u64>,
}

impl Part {
    /// Whether it surely was taken.
    pub(crate) fn is_done(&self) -> bool {
        self.ended.is_some_and(|ended| ended.value.is_some())
    }

    /// Whether it was surely not taken.
    fn is_vain(&self) -> bool {
        self.ended.is_some_and(|ended| ended.value.is_none())
    }

    /// When it has ended at the latest.
    fn over(&self) -> u64 {
        self.ended.map_or(u64::MAX, |ended| ended.at)
    }
}

/// The steps by the name of what they were taken with.
pub(crate) type Parts = BTreeMap<String, Vec<Part>>;

/// What is there when all have gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Sum(u64),
    Message(Option<u64>),
    Open(bool),
    Expired(bool),
    Nothing,
}

/// Takes one step with `name`, and says so before and after.
pub(crate) fn take_part(kind: Kind, locker: &Locker, name: &str, rng: &mut Rng) -> Option<()> {
    let name = if kind == Kind::Counter { name.to_owned() } else { format!("{name}:{}", now() / ROUND) };
    let (patience, id) = (Duration::from_millis(rng.u64(..600)), rng.u64(..));
    let step = match kind {
        Kind::Counter => Step::Add,
        Kind::Event if rng.u8(..4) == 0 => Step::Send,
        Kind::Event => Step::Await,
        Kind::Latch if rng.bool() => Step::CountDown,
        Kind::Latch => Step::Pass,
        Kind::Watchdog if rng.bool() => Step::Kick,
        Kind::Watchdog => Step::Expire,
        _ => Step::Arrive,
    };
    say(&format!("trying {name} {step:?} {id} {} .", now()))?;
    match take(step, locker, &name, id, patience) {
        Ok(value) => say(&format!("done {name} {id} {value} {} .", now())),
        Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::TimedOut) => {
            say(&format!("not {name} {id} {} .", now()))
        }
        Err(_) => Some(()),
    }
}

fn take(step: Step, locker: &Locker, name: &str, id: u64, patience: Duration) -> Result<u64> {
    // Whatever else is told came from nobody.
    let sender = |text: String| text.parse().unwrap_or(u64::MAX);
    match step {
        Step::Add => locker.counter(name).add_blocking(1).map(i64::unsigned_abs),
        Step::Send => locker.event(name).send_blocking(&id.to_string()).map(|()| id),
        Step::Await => locker.event(name).wait_blocking(patience).map(sender),
        Step::CountDown => locker.latch(name, COUNT).count_down_blocking(),
        Step::Pass => locker.latch(name, COUNT).wait_blocking(patience).map(|()| 0),
        Step::Arrive => locker.barrier(name, PARTIES).wait_blocking(patience).map(|()| 0),
        Step::Kick => locker.watchdog(name).kick_blocking(Duration::from_nanos(lasts(id))).map(|()| 0),
        Step::Expire => locker.watchdog(name).wait_blocking(patience).map(|()| 0),
    }
}

/// For how long a watchdog is kicked, in nanoseconds.
fn lasts(id: u64) -> u64 {
    1_000_000 + id % LONGEST
}

const LONGEST: u64 = 500_000_000;

/// Takes in what a worker says of a step; whatever else it says, or half a line of a killed one, is nothing.
pub(crate) fn read(parts: &mut Parts, words: &[&str]) -> Option<()> {
    let number = |text: &str| text.parse().ok();
    match *words {
        ["trying", name, step, id, asked, "."] => {
            let (id, asked) = (number(id)?, number(asked)?);
            let step = STEPS.into_iter().find(|known| format!("{known:?}") == step)?;
            parts.entry(name.to_owned()).or_default().push(Part { step, id, asked, ended: None });
        }
        ["done", name, id, value, at, "."] => {
            end(parts, name, number(id)?, Ended { at: number(at)?, value: Some(number(value)?) })?;
        }
        ["not", name, id, at, "."] => {
            end(parts, name, number(id)?, Ended { at: number(at)?, value: None })?;
        }
        _ => {}
    }
    Some(())
}

fn end(parts: &mut Parts, name: &str, id: u64, ended: Ended) -> Option<()> {
    parts.get_mut(name)?.iter_mut().rev().find(|part| part.id == id)?.ended = Some(ended);
    Some(())
}

/// Judges all steps, and what they have left in the store.
pub(crate) fn judge(parts: &Parts, locker: &Locker, calm_until: u64) -> Vec<String> {
    let judge = |(name, parts): (&String, &Vec<Part>)| {
        let problems = match left(locker, name, parts) {
            Ok(left) => problems(parts, left, calm_until),
            Err(error) => vec![format!("what is left cannot be seen: {error}")],
        };
        problems.into_iter().map(|problem| format!("on {name}, {problem}")).collect::<Vec<_>>()
    };
    parts.iter().flat_map(judge).collect()
}

fn left(locker: &Locker, name: &str, parts: &[Part]) -> Result<Left> {
    let no_wait = Duration::ZERO;
    let look = |there: Result<()>| match there {
        Err(error) if error.kind() == ErrorKind::TimedOut => Ok(false),
        there => there.map(|()| true),
    };
    match Kind::of(name) {
        Some(Kind::Counter) => locker.counter(name).get_blocking().map(|sum| Left::Sum(sum.unsigned_abs())),
        Some(Kind::Event) => {
            let mut message = None;
            let sent = locker
                .event(name)
                .wait_blocking(no_wait)
                .map(|text| message = Some(text.parse().unwrap_or(u64::MAX)));
            look(sent).map(|_| Left::Message(message))
        }
        Some(Kind::Latch) => look(locker.latch(name, COUNT).wait_blocking(no_wait)).map(Left::Open),
        Some(Kind::Watchdog) => {
            let was_kicked = !done(parts, Step::Kick).is_empty();
            let longest = if was_kicked { Duration::from_nanos(LONGEST + CLEARLY) } else { no_wait };
            look(locker.watchdog(name).wait_blocking(longest)).map(Left::Expired)
        }
        _ => Ok(Left::Nothing),
    }
}

fn problems(parts: &[Part], left: Left, calm_until: u64) -> Vec<String> {
    match left {
        Left::Sum(sum) => counted(parts, sum),
        Left::Message(message) => sent(parts, message, calm_until),
        Left::Open(open) => opened(parts, open),
        Left::Expired(over) => expired(parts, over, calm_until),
        Left::Nothing => passed(parts),
    }
}

/// How often a step was tried before `at`, and not surely in vain.
fn tried(parts: &[Part], step: Step, at: u64) -> u64 {
    parts.iter().filter(|part| part.step == step && part.asked <= at && !part.is_vain()).count() as u64
}

/// What these steps returned and when, in order of time.
fn done(parts: &[Part], step: Step) -> Vec<(u64, u64)> {
    let ended = parts.iter().filter(|part| part.step == step).filter_map(|part| part.ended);
    let mut done: Vec<(u64, u64)> = ended.filter_map(|ended| Some((ended.at, ended.value?))).collect();
    done.sort_unstable();
    done
}

/// Every sum is told to one caller, whatever broke on the way, and later ones to those who ask later; nothing is added
/// twice or lost.
fn counted(parts: &[Part], sum: u64) -> Vec<String> {
    let turn = |part: &Part| {
        let Ended { at, value: Some(sum) } = part.ended? else { return None };
        Some(Hold {
            worker: 0,
            fence: sum,
            share: 0,
            asked: part.asked,
            entered: at,
            seen: None,
            in_line: true,
        })
    };
    let mut problems = broken(&parts.iter().filter_map(turn).collect::<Vec<_>>(), 1);
    let told = done(parts, Step::Add).into_iter().map(|(_, sum)| sum).max().unwrap_or(0);
    let most = tried(parts, Step::Add, u64::MAX);
    if !(told..=most).contains(&sum) {
        problems.push(format!("the sum is {sum}: {told} was told, {most} were added"));
    }
    problems
}

/// One message for everybody, that somebody sent; once that was told to the sender it stays. While nothing breaks
/// nobody who waits misses it.
fn sent(parts: &[Part], message: Option<u64>, calm_until: u64) -> Vec<String> {
    let mut problems = Vec::new();
    let senders = || parts.iter().filter(|part| part.step == Step::Send);
    let mut told = [done(parts, Step::Send), done(parts, Step::Await)].concat();
    told.extend(message.map(|message| (u64::MAX, message)));
    for &(at, id) in &told {
        if !senders().any(|part| part.id == id && part.asked <= at) {
            problems.push(format!("the message {id} came from nobody"));
        }
    }
    if told.iter().any(|(_, id)| Some(*id) != message) {
        problems.push(format!("told are {told:?}, left is {message:?}"));
    }
    let refused = senders().filter_map(|part| part.ended.filter(|ended| ended.value.is_none()));
    for Ended { at, .. } in refused {
        if tried(parts, Step::Send, at) == 0 {
            problems.push("a sender met a conflict with nobody".into());
        }
    }
    let Some(&(sent_at, _)) = done(parts, Step::Send).first() else { return problems };
    let vain = parts.iter().filter(|part| part.step == Step::Await).filter_map(|part| part.ended);
    for Ended { at, .. } in vain.filter(|ended| ended.value.is_none() && ended.at < calm_until) {
        if at > sent_at + CLEARLY {
            problems.push(format!("sent at {sent_at} and still missed at {at}"));
        }
    }
    problems
}

/// Nobody is told that it has expired while every kick lasts that may have been the last one; while nothing breaks,
/// everybody is who still waits clearly later. At last it has expired.
fn expired(parts: &[Part], over: bool, calm_until: u64) -> Vec<String> {
    let mut problems = Vec::new();
    let kicks = || parts.iter().filter(|part| part.step == Step::Kick && !part.is_vain());
    // All that may be the last one that was taken before `from`, or come until `till`.
    let last = |from: u64, till: u64| {
        let is_replaced =
            move |kick: &Part| kicks().any(|next| kick.over() < next.asked && next.over() <= from);
        kicks().filter(move |kick| kick.asked <= till && !is_replaced(kick))
    };
    let was_kicked = |at: u64| kicks().any(|kick| kick.is_done() && kick.over() <= at);
    for part in parts.iter().filter(|part| part.step == Step::Expire) {
        let Some(Ended { at, value }) = part.ended else { continue };
        let early = |kick: &Part| at + A_LITTLE < kick.asked + lasts(kick.id);
        let late = |kick: &Part| kick.over().saturating_add(lasts(kick.id) + CLEARLY) < at;
        if value.is_some() && last(part.asked, at).all(early) {
            problems.push(format!("expired too early at {at}: {part:?}"));
        }
        if value.is_none() && at < calm_until && was_kicked(part.asked) && last(part.asked, at).all(late) {
            problems.push(format!("expired and still missed at {at}: {part:?}"));
        }
    }
    if was_kicked(u64::MAX) && !over {
        problems.push("kicked no more, it has not expired".into());
    }
    problems
}

/// What the clocks of the server and of the callers may differ by meanwhile.
const A_LITTLE: u64 = 10_000_000;

/// How often is told that it has still to be counted was so at some time of the call; nobody passes before it was
/// counted down often enough, and then it stays open.
fn opened(parts: &[Part], open: bool) -> Vec<String> {
    let mut problems = Vec::new();
    for part in parts.iter().filter(|part| part.step == Step::CountDown) {
        let Some(Ended { at, value: Some(left) }) = part.ended else { continue };
        let before = done(parts, Step::CountDown).iter().filter(|(at, _)| *at < part.asked).count() as u64;
        let (least, most) = ((before + 1).min(COUNT), tried(parts, Step::CountDown, at));
        if !(least..=most).contains(&(COUNT - left.min(COUNT))) {
            problems.push(format!("{left} of {COUNT} were left when {least} to {most} were counted"));
        }
    }
    for (at, _) in done(parts, Step::Pass) {
        let tried = tried(parts, Step::CountDown, at);
        if tried < COUNT {
            problems.push(format!("passed at {at} when {tried} of {COUNT} were counted"));
        }
    }
    let (told, most) = (done(parts, Step::CountDown).len() as u64, tried(parts, Step::CountDown, u64::MAX));
    if (told >= COUNT && !open) || (most < COUNT && open) {
        problems.push(format!("open is {open}: {told} to {most} of {COUNT} were counted"));
    }
    problems
}

/// Nobody goes on before a whole round has come, and nobody counts in two rounds.
fn passed(parts: &[Part]) -> Vec<String> {
    let too_few = |(at, gone): (u64, u64)| {
        let (tried, needed) = (tried(parts, Step::Arrive, at), gone.div_ceil(PARTIES) * PARTIES);
        (tried < needed).then(|| format!("{gone} had gone on at {at} when {tried} of {needed} had come"))
    };
    let went = done(parts, Step::Arrive).into_iter();
    went.zip(1..).filter_map(|((at, _), gone)| too_few((at, gone))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(lines: &[&str]) -> Vec<Part> {
        let mut parts = Parts::new();
        for line in lines {
            read(&mut parts, &line.split(' ').collect::<Vec<_>>());
        }
        parts.remove("x").unwrap()
    }

    fn found(left: Left, lines: &[&str]) -> usize {
        problems(&parts(lines), left, 1_000_000_000).len()
    }

    #[test]
    fn half_a_line_is_no_line() {
        let told = parts(&["trying x Add 1 5 .", "done x 1 1 9", "trying x Add 2 6", "done x 3 1 9 ."]);
        assert_eq!(told, [Part { step: Step::Add, id: 1, asked: 5, ended: None }]);
    }

    #[test]
    fn sums_are_told_once_and_in_order_and_nothing_is_lost() {
        let two = ["trying x Add 1 5 .", "trying x Add 2 6 .", "done x 1 1 8 .", "done x 2 2 9 ."];
        assert_eq!(found(Left::Sum(2), &two), 0);
        assert_eq!(found(Left::Sum(1), &two), 1, "one is lost");
        assert_eq!(found(Left::Sum(3), &two), 1, "one was added twice");
        let unknown = [&two[..], &["trying x Add 3 7 ."]].concat();
        assert_eq!([2, 3, 4].map(|sum| found(Left::Sum(sum), &unknown)), [0, 0, 1]);
        let twice = ["trying x Add 1 5 .", "trying x Add 2 6 .", "done x 1 1 8 .", "done x 2 1 9 ."];
        assert_eq!(found(Left::Sum(2), &twice), 1);
        let back = ["trying x Add 1 5 .", "done x 1 2 6 .", "trying x Add 2 7 .", "done x 2 1 9 ."];
        assert_eq!(found(Left::Sum(2), &back), 1);
    }

    #[test]
    fn a_message_is_one_and_stays() {
        let told = ["trying x Send 7 5 .", "trying x Await 1 5 .", "done x 7 7 8 .", "done x 1 7 9 ."];
        assert_eq!(found(Left::Message(Some(7)), &told), 0);
        assert_eq!(found(Left::Message(None), &told), 1, "forgotten");
        assert_eq!(found(Left::Message(Some(8)), &told), 2, "from nobody, and not what was told");
        let conflict = ["trying x Send 7 5 .", "not x 7 8 ."];
        assert_eq!(found(Left::Message(None), &conflict), 1, "a conflict with nobody");
        let unknown = [&conflict[..], &["trying x Send 8 5 ."]].concat();
        assert_eq!([None, Some(8)].map(|left| found(Left::Message(left), &unknown)), [0, 0]);
        let early = ["trying x Await 1 1 .", "done x 1 7 3 .", "trying x Send 7 5 .", "done x 7 7 8 ."];
        assert_eq!(found(Left::Message(Some(7)), &early), 1, "before it was sent");
    }

    #[test]
    fn a_send_that_is_missed_is_a_problem_while_nothing_breaks() {
        let waited = |until: u64| {
            let not = format!("not x 1 {until} .");
            let told = ["trying x Send 7 5 .", "done x 7 7 8 .", "trying x Await 1 9 .", not.as_str()];
            found(Left::Message(Some(7)), &told)
        };
        assert_eq!([100_000_000, 300_000_000, 2_000_000_000].map(waited), [0, 1, 0]);
    }

    #[test]
    fn a_latch_opens_when_it_was_counted_down_and_not_before() {
        let lines: Vec<String> = (0..COUNT)
            .flat_map(|at| [format!("trying x CountDown {at} {at} ."), format!("done x {at} {} 9 .", 3 - at)])
            .collect();
        let mut lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert_eq!([true, false].map(|open| found(Left::Open(open), &lines)), [0, 1]);
        lines.extend(["trying x Pass 9 1 .", "done x 9 0 9 ."]);
        assert_eq!(found(Left::Open(true), &lines), 0);
        lines.extend(["trying x Pass 8 1 .", "done x 8 0 2 ."]);
        assert_eq!(found(Left::Open(true), &lines), 1, "three had counted");
        assert_eq!([true, false].map(|open| found(Left::Open(open), &lines[..6])), [1, 0]);
        let after = |left: u64| {
            let done = format!("done x 2 {left} 9 .");
            let told =
                ["trying x CountDown 1 1 .", "done x 1 3 3 .", "trying x CountDown 2 4 .", done.as_str()];
            found(Left::Open(false), &told)
        };
        assert_eq!([3, 2, 1, 0].map(after), [1, 0, 1, 1], "what is left");
    }

    #[test]
    fn a_watchdog_expires_when_the_last_kick_is_over_and_not_before() {
        let found = |over: bool, lines: &[String]| {
            found(Left::Expired(over), &lines.iter().map(String::as_str).collect::<Vec<_>>())
        };
        // For 100 ms: expired from 101 to 102 ms on.
        let kick = |id: u64, ms: u64| {
            [format!("trying x Kick {id} {ms}000000 ."), format!("done x {id} 0 {}000000 .", ms + 1)]
        };
        let wait = |word: &str, asked: u64, at: u64| {
            [format!("trying x Expire 7 {asked}000000 ."), format!("{word} {at}000000 .")]
        };
        let (came, missed) = ("done x 7 0", "not x 7");
        let with = |lines: [[String; 2]; 2]| found(true, &lines.concat());
        let first = || kick(99_000_000, 1);
        assert_eq!([80, 101].map(|at| with([first(), wait(came, 3, at)])), [1, 0]);
        assert_eq!(found(true, &wait(came, 3, 80)), 1, "nobody has kicked it");
        assert_eq!([290, 310].map(|at| with([first(), wait(missed, 3, at)])), [0, 1]);
        assert_eq!([true, false].map(|over| found(over, &first())), [0, 1], "left behind");

        let second = |word: &str, at: u64| [first(), kick(299_000_000, 50), wait(word, 60, at)].concat();
        assert_eq!([101, 350].map(|at| found(true, &second(came, at))), [1, 0], "the first was replaced");
        assert_eq!([310, 560].map(|at| found(true, &second(missed, at))), [0, 1]);
        let unknown = [&first()[..], &kick(19_000_000, 50)[..1], &wait(came, 60, 75)].concat();
        assert_eq!(found(true, &unknown), 0, "it may have been kicked for less");
        let vain = [
            first(),
            [kick(19_000_000, 50)[0].clone(), "not x 19000000 51000000 .".into()],
            wait(came, 60, 75),
        ];
        assert_eq!(found(true, &vain.concat()), 1, "it surely was not");
    }

    #[test]
    fn nobody_goes_on_alone_or_counts_twice() {
        let come = ["trying x Arrive 1 1 .", "trying x Arrive 2 1 .", "trying x Arrive 3 4 ."];
        let with = |more: &[&str]| found(Left::Nothing, &[&come[..], more].concat());
        assert_eq!(with(&["done x 1 0 5 .", "done x 2 0 5 .", "done x 3 0 5 ."]), 0);
        assert_eq!(with(&["done x 1 0 3 ."]), 1, "before the third had come");
        assert_eq!(with(&["done x 1 0 5 .", "not x 2 6 ."]), 1, "with one that had given up");
        let fourth =
            ["trying x Arrive 4 4 .", "done x 1 0 5 .", "done x 2 0 5 .", "done x 3 0 5 .", "done x 4 0 6 ."];
        assert_eq!(with(&fourth), 1, "two that had gone on already");
    }
}
