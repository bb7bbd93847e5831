//! What is known of a line, and what follows from it, without a server.

use super::*;

const LEASE: Duration = Duration::from_secs(10);

struct Case {
    lines: Lines,
    key: Key,
}

fn id(number: u128) -> Id {
    Id::from(number)
}

impl Case {
    /// 1 holds with fence 100, and those up to `last` come after it.
    fn line(last: u128) -> Self {
        let case = Self { lines: Lines::default(), key: Key::new("k") };
        case.told(1, 100, 2..=last);
        case.held(1, Timestamp::now());
        case
    }

    fn told(&self, holder: u128, fence: u64, following: impl Iterator<Item = u128>) {
        let following: Vec<_> = following.map(|number| format!(" {} 10000", id(number))).collect();
        let text = format!("{} {fence}{}", id(holder), following.concat());
        self.lines.told(&self.key, &text, |_| true);
    }

    fn held(&self, number: u128, sent: Timestamp) {
        self.lines.held(&self.key, id(number), 100, (sent, LEASE), |_| true);
    }

    fn queued(&self, number: u128, before: u128) {
        self.lines.queued(&self.key, id(number), id(before), LEASE);
    }

    fn release(&self, number: u128) -> Release {
        self.lines.release(&self.key, id(number), 7, |_| true)
    }

    /// The heir of `number`, released for the first time, and its fence.
    fn heir(&self, number: u128) -> (Id, u64) {
        match self.release(number) {
            Release::New(bequest, _) => (bequest.heir, bequest.fence),
            other => panic!("{number} has no heir: {other:?}"),
        }
    }

    fn has_no_heir(&self, number: u128) -> bool {
        matches!(self.release(number), Release::Plain { .. })
    }

    fn may_have_lost(&self, number: u128, connection: u64) -> bool {
        self.lines.may_have_lost(&self.key, id(number), connection)
    }

    /// Whose release is the first without an answer that led to `number` holding.
    fn unanswered(&self, number: u128) -> Option<Id> {
        self.lines.first_unanswered(&self.key, id(number)).map(|bequest| bequest.from)
    }

    fn carried_out(&self, number: u128) {
        self.lines.carried_out(&self.key, id(number), Timestamp::now());
    }

    fn not_answered(&self, number: u128, doubtful: bool) {
        self.lines.not_answered(&self.key, id(number), doubtful);
    }

    /// Time passes until the present hold is over.
    fn wait(&self) {
        lock(&self.lines.0).get_mut(&self.key).unwrap().until = Timestamp::now();
    }

    fn is_empty(&self) -> bool {
        lock(&self.lines.0).is_empty()
    }
}

#[test]
fn each_hands_on_to_the_next_with_a_higher_fence_and_the_last_to_nobody() {
    let case = Case::line(3);
    assert_eq!(case.heir(1), (id(2), 101));
    assert_eq!(case.heir(2), (id(3), 102));
    assert!(case.has_no_heir(3));
    case.carried_out(1);
    case.carried_out(2);
    assert!(case.is_empty());
}

#[test]
fn a_release_sent_again_names_the_same_heir() {
    let case = Case::line(4);
    case.heir(1);
    case.heir(2);
    for (from, heir) in [(1, 2), (2, 3)] {
        let Release::Again(bequest) = case.release(from) else { panic!("another release of {from}") };
        assert_eq!(bequest.heir, id(heir));
    }
    case.lines.lost(&case.key);
    assert!(matches!(case.release(1), Release::Again(bequest) if bequest.heir == id(2)));
}

#[test]
fn what_got_no_answer_or_went_out_elsewhere_is_told_again_before_its_heir_speaks() {
    let case = Case::line(4);
    case.heir(1);
    case.heir(2);
    assert_eq!((case.may_have_lost(3, 7), case.may_have_lost(3, 8)), (false, true));
    case.not_answered(2, true);
    let lost = |number| case.may_have_lost(number, 7);
    assert_eq!((lost(4), lost(3), lost(2), lost(1)), (false, true, false, false));
    let unanswered = |number| case.unanswered(number);
    assert_eq!((unanswered(3), unanswered(2), unanswered(1)), (Some(id(1)), Some(id(1)), None));
    case.carried_out(2);
    assert_eq!((unanswered(3), unanswered(2)), (None, None), "what came before it was carried out too");
    assert!(!case.may_have_lost(3, 8));
}

/// What the release of 1 turns out to have been.
fn fate(case: &Case) -> Bequest {
    let Release::New(bequest, _) = case.release(1) else { panic!("no heir") };
    bequest
}

#[test]
fn who_was_refused_has_lost_unless_an_earlier_copy_may_have_ended_the_hold() {
    for (doubtful, lost) in [(None, true), (Some(false), true), (Some(true), false)] {
        let case = Case::line(3);
        let bequest = fate(&case);
        if let Some(doubtful) = doubtful {
            case.not_answered(1, doubtful);
        }
        assert_eq!(case.lines.refused(&case.key, id(1)), lost);
        assert_eq!(bequest.was_carried_out(), !lost);
        assert_eq!(case.unanswered(2), None);
    }
}

#[test]
fn a_second_copy_that_is_refused_after_the_first_was_carried_out_changes_nothing() {
    let case = Case::line(4);
    let bequest = fate(&case);
    case.heir(2);
    case.carried_out(1);
    assert!(!case.lines.refused(&case.key, id(1)), "it has had its answer");
    assert!(bequest.was_carried_out());
    assert_eq!(case.unanswered(3), Some(id(2)));
}

#[test]
fn only_the_first_without_an_answer_can_be_refused() {
    let case = Case::line(4);
    case.heir(1);
    case.heir(2);
    assert!(!case.lines.refused(&case.key, id(2)));
    assert_eq!(case.unanswered(3), Some(id(1)));
}

#[test]
fn who_does_not_hold_names_no_heir() {
    let case = Case::line(3);
    assert!(case.has_no_heir(2));
    case.lines.over(&case.key, id(2));
    assert_eq!(case.heir(1), (id(2), 101));
    case.lines.over(&case.key, id(2));
    assert!(case.has_no_heir(2));
}

#[test]
fn those_who_queue_right_behind_the_line_are_its_end() {
    let case = Case { lines: Lines::default(), key: Key::new("k") };
    case.queued(7, 1);
    assert!(case.is_empty(), "nobody here holds");
    case.held(1, Timestamp::now());
    case.queued(2, 1);
    case.queued(4, 3);
    case.queued(5, 2);
    assert_eq!(case.heir(1), (id(2), 101));
    assert_eq!(case.heir(2), (id(5), 102));
    case.queued(6, 5);
    assert_eq!(case.heir(5), (id(6), 103));
    case.queued(8, 6);
    assert_eq!(case.heir(6), (id(8), 104));
}

#[test]
fn who_queues_behind_a_holder_that_is_not_known_here_is_no_heir() {
    let case = Case { lines: Lines::default(), key: Key::new("k") };
    case.held(1, Timestamp::now());
    case.queued(2, 9);
    assert!(case.has_no_heir(1));
}

#[test]
fn a_late_renewal_of_who_has_released_is_no_news() {
    let case = Case { lines: Lines::default(), key: Key::new("k") };
    case.lines.held(&case.key, id(1), 100, (Timestamp::now(), LEASE), |_| false);
    assert!(case.is_empty());
}

#[test]
fn who_holds_no_more_by_the_word_of_the_server_names_no_heir() {
    let case = Case::line(3);
    case.lines.granted(&case.key, id(1));
    assert_eq!(case.heir(1), (id(2), 101));
    case.lines.granted(&case.key, id(9));
    assert!(case.has_no_heir(2));
    assert!(matches!(case.release(1), Release::Again(_)), "what was begun is ended");
}

#[test]
fn nothing_is_handed_on_before_the_end_of_the_hold_is_known_nor_near_it() {
    let case = Case { lines: Lines::default(), key: Key::new("k") };
    case.told(1, 100, 2..=3);
    assert!(case.has_no_heir(1));
    case.told(1, 100, 2..=3);
    case.held(1, Timestamp::now() - LEASE / 2);
    assert!(case.has_no_heir(1));
}

#[test]
fn an_answer_lengthens_what_may_be_handed_on_only_if_the_release_was_carried_out() {
    for carried_out in [true, false] {
        let case = Case::line(3);
        case.heir(1);
        case.wait();
        if carried_out {
            case.carried_out(1);
        } else {
            case.lines.refused(&case.key, id(1));
        }
        assert_eq!(case.has_no_heir(2), !carried_out);
    }
}

#[test]
fn those_who_have_gone_are_passed_over() {
    let case = Case::line(4);
    let release = case.lines.release(&case.key, id(1), 7, |waiter| waiter != id(2));
    assert!(matches!(release, Release::New(bequest, _) if bequest.heir == id(3)));
}

#[test]
fn news_are_put_behind_the_present_holder_and_old_news_do_no_harm() {
    let case = Case::line(3);
    case.heir(1);
    case.heir(2);
    case.told(2, 101, 3..=5);
    assert_eq!(case.heir(3), (id(4), 103));
    case.told(2, 101, 3..=3);
    assert_eq!(case.heir(4), (id(5), 104));
    case.told(9, 90, 10..=11);
    assert!(case.has_no_heir(5));
}

#[test]
fn news_of_a_holder_that_has_released_already_are_no_line() {
    let case = Case { lines: Lines::default(), key: Key::new("k") };
    let text = format!("{} 100 {} 10000", id(1), id(2));
    case.lines.told(&case.key, &text, |waiter| waiter != id(1));
    assert!(case.is_empty());
}

#[test]
fn behind_those_of_another_process_nobody_is_next() {
    let case = Case::line(1);
    let text = format!("{} 100 {} 10000 {} 10000", id(1), id(8), id(9));
    case.lines.told(&case.key, &text, |_| false);
    case.queued(2, 9);
    assert!(case.has_no_heir(1));
}

/// It was not taken in time, and others may have come in between.
#[test]
fn news_about_an_earlier_grant_of_the_holder_are_no_line() {
    let case = Case { lines: Lines::default(), key: Key::new("k") };
    case.told(1, 90, 2..=3);
    case.held(1, Timestamp::now());
    assert!(case.has_no_heir(1));
}

#[test]
fn so_many_and_no_more_are_handed_on_without_an_answer() {
    let case = Case::line(40);
    for number in 1..=UNANSWERED as u128 {
        case.heir(number);
    }
    assert!(case.has_no_heir(UNANSWERED as u128 + 1));
}
