//! A model of the clock: processes with local clocks of any offset and slightly different rates, messages of any delay,
//! several promises at one key, renewals elsewhere, processes that come, end and stop, and clocks that are deleted.
//!
//! `small` takes every course of events up to a bound, `courses` long random ones, which also run the code of this
//! module beside the model; both check that no promise ends early. `late` measures how late promises end that nobody
//! keeps. Each rule is then broken, and a course shows what follows. `LOCKER_MODEL=full` takes many more courses, and
//! searches the broken rules anew: `LOCKER_MODEL=full cargo test --release -p locker-runtime --features etcd ticked`.

mod courses;
mod late;
mod small;

use courses::{Course, Tally};
use late::{SCENE, Scene, worst};
use locker_harness::explores_more;
use small::Size;

/// Microseconds.
const SECOND: i64 = 1_000_000;
const CAP: i64 = SECOND;

/// The rules of the clock.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is broken alone")]
struct Rules {
    /// A write that promises names the version of the clock.
    compares: bool,
    /// So does a renewal that writes nothing because the hold lasts long enough.
    compares_unchanged: bool,
    /// A write that has lost to a tick is repeated without that, and counts from before it was sent.
    repeats: bool,
    /// The repetition adds what has passed since.
    adds_passed: bool,
    /// The repetition names the life of the clock.
    names_life: bool,
    /// `now` stops at the cap.
    stops: bool,
    /// Ends are later by the cap.
    adds_cap: bool,
    /// A tick names the version that it replaces.
    tick_compares: bool,
    /// What has passed since an own tick counts from when it became known.
    own_from_receipt: bool,
    /// The same for ticks of others.
    others_from_receipt: bool,
    /// A process that comes adds no time since the last tick.
    adds_no_gap: bool,
    /// A clock that was deleted begins again at the latest stamp.
    begins_at_stamp: bool,
    /// If a process knew the last one, at its `now` if that is later. Otherwise, at its `now` in any case.
    begins_at_latest: bool,
    /// In another life `now` begins anew.
    begins_anew: bool,
    /// Whatever promises something is a write, after which the store keeps the value for as long in real time.
    keeps_anew: bool,
    /// A promise ends after the jump of its tick as well.
    counts_jump: bool,
    /// What measures a jump begins when the tick is known that names it first.
    measures_after: bool,
    /// What is not known to have begun is not over.
    knows_measure: bool,
    /// A jump is shown only right after a tick that names it.
    jumps_where_named: bool,
}

const RULES: Rules = Rules {
    compares: true,
    compares_unchanged: true,
    repeats: true,
    adds_passed: true,
    names_life: true,
    stops: true,
    adds_cap: true,
    tick_compares: true,
    own_from_receipt: true,
    others_from_receipt: true,
    adds_no_gap: true,
    begins_at_stamp: true,
    begins_at_latest: true,
    begins_anew: true,
    keeps_anew: true,
    counts_jump: true,
    measures_after: true,
    knows_measure: true,
    jumps_where_named: true,
};

/// What else happens in a course.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Also {
    /// The clock is deleted.
    deletes: bool,
    /// Processes that leave have the store measure a jump.
    jumps: bool,
}

const JUMPS: Also = Also { deletes: false, jumps: true };

/// A rule that is broken, with the number of a random course in which a promise then ends early.
struct Broken {
    what: &'static str,
    rules: Rules,
    course: u64,
    also: Also,
}

fn broken() -> Vec<Broken> {
    let broken = |what, rules, course| Broken { what, rules, course, also: Also::default() };
    let deletes = Also { deletes: true, ..Also::default() };
    vec![
        broken(
            "a write names no version",
            Rules { compares: false, compares_unchanged: false, ..RULES },
            1_061,
        ),
        broken("a renewal that writes nothing", Rules { compares_unchanged: false, ..RULES }, 1_061),
        broken("no cap", Rules { stops: false, ..RULES }, 0),
        broken("ends without the cap", Rules { adds_cap: false, ..RULES }, 140),
        broken("a tick names no version", Rules { tick_compares: false, ..RULES }, 22_435),
        broken("since an own tick was sent", Rules { own_from_receipt: false, ..RULES }, 690),
        broken("since another's tick was sent", Rules { others_from_receipt: false, ..RULES }, 260),
        broken("gaps are added", Rules { adds_no_gap: false, ..RULES }, 0),
        broken("a repetition counts from its answer", Rules { adds_passed: false, ..RULES }, 140),
        Broken {
            also: deletes,
            ..broken("a clock begins again at the wall clock", Rules { begins_at_stamp: false, ..RULES }, 0)
        },
        Broken {
            also: deletes,
            ..broken("a repetition names no life", Rules { names_life: false, ..RULES }, 153_286)
        },
        Broken {
            also: deletes,
            ..broken("`now` goes on in another life", Rules { begins_anew: false, ..RULES }, 35_735)
        },
        Broken {
            also: Also { deletes: true, jumps: true },
            ..broken(
                "a clock begins again at an earlier time than that of a value",
                Rules { begins_at_latest: false, ..RULES },
                1_202_638,
            )
        },
        Broken { also: JUMPS, ..broken("ends without the jump", Rules { counts_jump: false, ..RULES }, 93) },
        Broken {
            also: JUMPS,
            ..broken(
                "a jump is measured from before its tick",
                Rules { measures_after: false, ..RULES },
                218_763,
            )
        },
        Broken {
            also: JUMPS,
            ..broken("a measure that has not begun is over", Rules { knows_measure: false, ..RULES }, 2_583)
        },
        Broken {
            also: JUMPS,
            ..broken(
                "a jump on a tick that does not name it",
                Rules { jumps_where_named: false, ..RULES },
                183_467,
            )
        },
    ]
}

#[test]
fn no_promise_ends_early_in_any_small_course() {
    let most = if explores_more() { 12_000_000 } else { 40_000 };
    let size = Size { processes: 2, permits: 1, until: 3, visits: false, removes: false, most };
    let alone = Rules { repeats: false, ..RULES };
    for (what, rules, size) in [
        ("a lock", alone, Size { until: 6, ..size }),
        ("a lock, writes that are repeated", RULES, size),
        ("a lock, visits", alone, Size { until: 5, visits: true, ..size }),
        ("two permits", alone, Size { processes: 3, permits: 2, ..size }),
        ("a value that is removed", alone, Size { permits: 2, until: 5, removes: true, ..size }),
    ] {
        let explored = small::explore(&rules, &size);
        assert!(!explored.is_early, "{what}: {explored:?}");
        assert!(explored.is_whole || !explores_more(), "{what}: {explored:?}");
        println!("{what}: {explored:?}");
    }
}

/// Where broken rules are looked for.
const BROKEN: Size =
    Size { processes: 2, permits: 1, until: 6, visits: false, removes: false, most: 3_000_000 };

/// A tick without a version needs longer courses: the random ones find it.
#[test]
fn small_courses_find_broken_rules() {
    for Broken { what, rules, also, .. } in broken() {
        if also != Also::default() || !rules.tick_compares {
            continue;
        }
        let rules = Rules { repeats: !rules.adds_passed, ..rules };
        let explored = small::explore(&rules, &BROKEN);
        assert!(explored.is_early, "{what}: {explored:?}");
    }
    let rules = Rules { keeps_anew: false, repeats: false, ..RULES };
    let explored = small::explore(&rules, &Size { permits: 2, removes: true, ..BROKEN });
    assert!(
        explored.is_early,
        "a value is kept as long as its latest end, on a clock that stands still: {explored:?}"
    );
}

#[test]
fn no_promise_ends_early_in_random_courses() {
    let courses = if explores_more() { 1_000_000 } else { 1_500 };
    for (deletes, jumps) in [(false, false), (true, false), (false, true), (true, true)] {
        let (also, mut tally) = (Also { deletes, jumps }, Tally::default());
        for number in 0..courses {
            let course = Course::run(&RULES, number, also, &mut tally);
            assert_eq!(course, Ok(()), "course {number}, {also:?}");
        }
        println!("{tally:?}");
        assert!(!jumps || tally.jumps > courses / 20, "{tally:?}");
        assert!(tally.ends > courses / 4 && tally.repeated > courses && tally.ticks > courses, "{tally:?}");
        assert!(tally.gain <= CAP, "{tally:?}");
    }
}

#[test]
fn random_courses_find_broken_rules() {
    for Broken { what, rules, course, also } in broken() {
        let finds = |number: &u64| Course::run(&rules, *number, also, &mut Tally::default()).is_err();
        if explores_more() {
            let found = (0..5_000_000).find(finds);
            println!("{what}: {found:?}");
            assert!(found.is_some(), "{what}");
        } else {
            assert!(finds(&course), "{what}");
        }
    }
}

/// How long a visitor is here and away.
const EACH_MINUTE: (i64, i64) = (50_000, 60 * SECOND - 50_000);
const OF_A_SECOND: (i64, i64) = (1_200_000, 4_800_000);

/// How late a dead holder's promise ends at most: the lease, twice the cap, and two delays.
#[test]
fn promises_of_the_dead_end_in_time() {
    let runs = if explores_more() { 1_000 } else { 10 };
    let bound = 2 * CAP + SECOND / 10;
    let (crowd, far) = (Scene { others: 8, ..SCENE }, 3 * SECOND / 2);
    let half = Scene { lease: 30 * SECOND, ..SCENE };
    let long = Scene { visits: Some(OF_A_SECOND), measures: 40 * SECOND, ..half };
    for (what, scene, bound) in [
        ("one waiter", SCENE, bound),
        ("beside eight others", crowd, bound),
        ("delays up to 50 ms", Scene { delay: 50_000, ..crowd }, bound + far),
        ("the process that ticks is killed every 3 s", Scene { kills: 3 * SECOND, ..crowd }, bound),
        ("one message of five is lost", Scene { others: 3, loss: 5, ..SCENE }, bound),
        ("the waiter hears no ticks", Scene { others: 3, is_deaf: true, ..SCENE }, bound + 2 * SECOND),
        ("nobody for a minute", Scene { gap: 60 * SECOND, ..SCENE }, bound),
        ("a waiter that comes after 5 s", Scene { others: 3, gap: 5 * SECOND, ..SCENE }, bound),
        ("visits of 50 ms", Scene { lease: 2 * SECOND, visits: Some((50_000, 450_000)), ..SCENE }, bound),
        (
            "a visit each minute",
            Scene { visits: Some(EACH_MINUTE), measures: 40 * SECOND, ..half },
            31 * SECOND,
        ),
        (
            "visits all the time that measure as well",
            Scene { visits: Some((50_000, 450_000)), measures: 40 * SECOND, ..half },
            12 * SECOND,
        ),
        ("visits of a second that measure as well", long, 20 * SECOND),
        (
            "the same beside a process that stays",
            Scene { others: 1, visits: Some((50_000, 450_000)), ..SCENE },
            bound,
        ),
    ] {
        assert_eq!(worst(&scene, runs, bound), Ok(()), "{what}");
    }
}

#[test]
fn time_stands_still_without_the_rules_for_it() {
    let bound = 2 * CAP + SECOND / 10;
    let visits = Scene { lease: 2 * SECOND, visits: Some((50_000, 450_000)), leaves: false, ..SCENE };
    assert!(worst(&visits, 5, bound).is_err(), "visits that leave nothing behind");
    let rare = Scene { lease: 30 * SECOND, visits: Some(EACH_MINUTE), ..SCENE };
    assert!(worst(&rare, 5, 31 * SECOND).is_err(), "visits after which nothing is measured");
    let long = Scene {
        visits: Some(OF_A_SECOND),
        measures: 40 * SECOND,
        stays_after: 0,
        lease: 30 * SECOND,
        ..SCENE
    };
    assert!(worst(&long, 5, 20 * SECOND).is_err(), "visits whose ticks end what measures the jump");
    assert!(worst(&Scene { waiters_tick: false, ..SCENE }, 5, bound).is_err(), "waiters that do not tick");
    let beside = Scene { others: 1, visits: Some((50_000, 450_000)), minds_lag: false, ..SCENE };
    assert!(worst(&beside, 5, bound).is_err(), "each visit postpones the ticks of the process that stays");
}
