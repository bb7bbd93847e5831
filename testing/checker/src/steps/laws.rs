//! The laws of all steps with one name.

use super::{COUNT, Calm, Ended, Left, PARTIES, Part, Step, done, lasts};
use crate::holds::{Hold, broken};

/// Returns the violations of the laws.
pub fn problems(parts: &[Part], left: Left, calm: Calm) -> Vec<String> {
    match left {
        Left::Sum(sum) => counted(parts, sum),
        Left::Message(message) => sent(parts, message, calm),
        Left::Open(open) => opened(parts, open),
        Left::Expired(over) => expired(parts, over, calm),
        Left::Nothing => passed(parts),
    }
}

/// Returns how often a step was tried before `at`, without those that provably were not taken.
fn tried(parts: &[Part], step: Step, at: u64) -> u64 {
    parts.iter().filter(|part| part.step == step && part.asked <= at && !part.is_not_taken()).count() as u64
}

/// Each sum is returned to one caller, whatever fault there was, and later calls return later sums. No addition is lost
/// or made twice.
fn counted(parts: &[Part], sum: u64) -> Vec<String> {
    let hold = |part: &Part| {
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
    let mut problems = broken(&parts.iter().filter_map(hold).collect::<Vec<_>>(), 1);
    let returned = done(parts, Step::Add).into_iter().map(|(_, sum)| sum).max().unwrap_or(0);
    let most = tried(parts, Step::Add, u64::MAX);
    if !(returned..=most).contains(&sum) {
        problems.push(format!("the sum is {sum}: {returned} was returned, {most} were added"));
    }
    problems
}

/// All waiters get the one message of one sender, and it stays after the sender got its reply. Without faults no waiter
/// misses it.
fn sent(parts: &[Part], message: Option<u64>, calm: Calm) -> Vec<String> {
    let mut problems = Vec::new();
    let senders = || parts.iter().filter(|part| part.step == Step::Send);
    let mut seen = [done(parts, Step::Send), done(parts, Step::Await)].concat();
    seen.extend(message.map(|message| (u64::MAX, message)));
    for &(at, id) in &seen {
        if !senders().any(|part| part.id == id && part.asked <= at) {
            problems.push(format!("no sender sent the message {id}"));
        }
    }
    if seen.iter().any(|(_, id)| Some(*id) != message) {
        problems.push(format!("callers got {seen:?}, and {message:?} is left"));
    }
    let refused = senders().filter_map(|part| part.ended.filter(|ended| ended.value.is_none()));
    for Ended { at, .. } in refused {
        if tried(parts, Step::Send, at) == 0 {
            problems.push("a sender got a conflict without another sender".into());
        }
    }
    let Some(&(sent_at, _)) = done(parts, Step::Send).first() else { return problems };
    let missed = parts.iter().filter(|part| part.step == Step::Await).filter_map(|part| part.ended);
    for Ended { at, .. } in missed.filter(|ended| ended.value.is_none() && ended.at < calm.until) {
        if at > sent_at + calm.clearly {
            problems.push(format!("sent at {sent_at} and still missed at {at}"));
        }
    }
    problems
}

/// No waiter returns while each kick that may be the last one still lasts. Without faults, every waiter returns that
/// still waits clearly later: later than the kick lasts since it asked, if the store has no clock. In the end the
/// watchdog has expired.
fn expired(parts: &[Part], over: bool, calm: Calm) -> Vec<String> {
    let mut problems = Vec::new();
    let kicks = || parts.iter().filter(|part| part.step == Step::Kick && !part.is_not_taken());
    // All kicks that may be the last one taken before `from`, and those that may come until `till`.
    let last = |from: u64, till: u64| {
        let is_replaced =
            move |kick: &Part| kicks().any(|next| kick.over() < next.asked && next.over() <= from);
        kicks().filter(move |kick| kick.asked <= till && !is_replaced(kick))
    };
    let was_kicked = |at: u64| kicks().any(|kick| kick.is_done() && kick.over() <= at);
    for part in parts.iter().filter(|part| part.step == Step::Expire) {
        let Some(Ended { at, value }) = part.ended else { continue };
        let early = |kick: &Part| at + A_LITTLE < kick.asked + lasts(kick.id);
        let late = |kick: &Part| kick.over().saturating_add(lasts(kick.id) + calm.clearly) < at;
        if value.is_some() && last(part.asked, at).all(early) {
            problems.push(format!("expired too early at {at}: {part:?}"));
        }
        if value.is_none() && at < calm.until && was_kicked(part.asked) && last(part.asked, at).all(late) {
            problems.push(format!("expired and still missed at {at}: {part:?}"));
        }
    }
    if was_kicked(u64::MAX) && !over {
        problems.push("no kick lasts, and it has not expired".into());
    }
    problems
}

/// The most that the clocks of the server and of the callers may differ by.
const A_LITTLE: u64 = 10_000_000;

/// The rest that a call returns was true at some time of that call. No waiter passes before the latch was counted down
/// often enough, and then it stays open.
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
    let (counted, most) =
        (done(parts, Step::CountDown).len() as u64, tried(parts, Step::CountDown, u64::MAX));
    if (counted >= COUNT && !open) || (most < COUNT && open) {
        problems.push(format!("open is {open}: {counted} to {most} of {COUNT} were counted"));
    }
    problems
}

/// No waiter passes before a whole round has arrived, and none counts in two rounds.
fn passed(parts: &[Part]) -> Vec<String> {
    let too_few = |(at, gone): (u64, u64)| {
        let (tried, needed) = (tried(parts, Step::Arrive, at), gone.div_ceil(PARTIES) * PARTIES);
        (tried < needed).then(|| format!("{gone} had passed at {at} when {tried} of {needed} had arrived"))
    };
    let went = done(parts, Step::Arrive).into_iter();
    went.zip(1..).filter_map(|((at, _), gone)| too_few((at, gone))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::{COUNT, parts};

    const CALM: Calm = Calm { until: 1_000_000_000, clearly: 200_000_000 };

    fn found(left: Left, lines: &[&str]) -> usize {
        problems(&parts(lines), left, CALM).len()
    }

    #[test]
    fn sums_are_unique_ordered_and_complete() {
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
    fn event_keeps_its_only_message() {
        let seen = ["trying x Send 7 5 .", "trying x Await 1 5 .", "done x 7 7 8 .", "done x 1 7 9 ."];
        assert_eq!(found(Left::Message(Some(7)), &seen), 0);
        assert_eq!(found(Left::Message(None), &seen), 1, "forgotten");
        assert_eq!(
            found(Left::Message(Some(8)), &seen),
            2,
            "without a sender, and not the message that was returned"
        );
        let conflict = ["trying x Send 7 5 .", "not x 7 8 ."];
        assert_eq!(found(Left::Message(None), &conflict), 1, "a conflict without another sender");
        let unknown = [&conflict[..], &["trying x Send 8 5 ."]].concat();
        assert_eq!([None, Some(8)].map(|left| found(Left::Message(left), &unknown)), [0, 0]);
        let early = ["trying x Await 1 1 .", "done x 1 7 3 .", "trying x Send 7 5 .", "done x 7 7 8 ."];
        assert_eq!(found(Left::Message(Some(7)), &early), 1, "before it was sent");
    }

    #[test]
    fn missed_send_is_a_problem_without_faults() {
        let waited = |until: u64| {
            let not = format!("not x 1 {until} .");
            let lines = ["trying x Send 7 5 .", "done x 7 7 8 .", "trying x Await 1 9 .", not.as_str()];
            found(Left::Message(Some(7)), &lines)
        };
        assert_eq!([100_000_000, 300_000_000, 2_000_000_000].map(waited), [0, 1, 0]);
    }

    #[test]
    fn latch_opens_only_when_counted_down() {
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
            let lines =
                ["trying x CountDown 1 1 .", "done x 1 3 3 .", "trying x CountDown 2 4 .", done.as_str()];
            found(Left::Open(false), &lines)
        };
        assert_eq!([3, 2, 1, 0].map(after), [1, 0, 1, 1], "what is left");
    }

    #[test]
    fn watchdog_expires_only_after_its_last_kick() {
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
        assert_eq!(found(true, &wait(came, 3, 80)), 1, "no kick was sent");
        assert_eq!([290, 310].map(|at| with([first(), wait(missed, 3, at)])), [0, 1]);
        assert_eq!([true, false].map(|over| found(over, &first())), [0, 1], "left behind");

        let second = |word: &str, at: u64| [first(), kick(299_000_000, 50), wait(word, 60, at)].concat();
        assert_eq!([101, 350].map(|at| found(true, &second(came, at))), [1, 0], "the first was replaced");
        assert_eq!([310, 560].map(|at| found(true, &second(missed, at))), [0, 1]);
        let unknown = [&first()[..], &kick(19_000_000, 50)[..1], &wait(came, 60, 75)].concat();
        assert_eq!(found(true, &unknown), 0, "it may have been kicked for less");
        let not_taken = [
            first(),
            [kick(19_000_000, 50)[0].clone(), "not x 19000000 51000000 .".into()],
            wait(came, 60, 75),
        ];
        assert_eq!(found(true, &not_taken.concat()), 1, "it provably was not");
    }

    #[test]
    fn barrier_passes_only_whole_rounds() {
        let come = ["trying x Arrive 1 1 .", "trying x Arrive 2 1 .", "trying x Arrive 3 4 ."];
        let with = |more: &[&str]| found(Left::Nothing, &[&come[..], more].concat());
        assert_eq!(with(&["done x 1 0 5 .", "done x 2 0 5 .", "done x 3 0 5 ."]), 0);
        assert_eq!(with(&["done x 1 0 3 ."]), 1, "before the third had arrived");
        assert_eq!(with(&["done x 1 0 5 .", "not x 2 6 ."]), 1, "with one that had given up");
        let fourth =
            ["trying x Arrive 4 4 .", "done x 1 0 5 .", "done x 2 0 5 .", "done x 3 0 5 .", "done x 4 0 6 ."];
        assert_eq!(with(&fourth), 1, "with two that had passed already");
    }
}
