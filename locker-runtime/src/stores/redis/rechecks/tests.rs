use super::*;
use redis::Value;

fn looked(held_for: i64, foreign: i64) -> Answer {
    let word = |text: &str| Value::BulkString(text.into());
    let answer = vec![word("looked"), word(""), Value::Int(held_for), Value::Int(foreign)];
    Answer::read(Value::Array(answer)).unwrap()
}

fn after(answer: &Answer) -> Duration {
    let now = Timestamp::now();
    next(answer, Duration::from_secs(10)).since(now)
}

#[test]
fn a_lock_is_looked_at_when_its_holder_may_be_gone() {
    let slack = Duration::from_millis(100);
    let at_the_end = after(&looked(300, 0));
    assert!(at_the_end > Duration::from_millis(300) && at_the_end < Duration::from_millis(301) + slack);
    let long = Duration::from_secs(10);
    for held_for in [60_000, -1] {
        let next = after(&looked(held_for, 0));
        assert!(next >= long && next < long + slack, "{next:?}");
    }
    let foreign = after(&looked(60_000, 1));
    assert!(foreign >= Duration::from_millis(50) && foreign < Duration::from_millis(101) + slack);
}

#[test]
fn the_earliest_time_of_a_name_counts() {
    let (rechecks, key) = (Rechecks::default(), Key::new("lock:a"));
    let at = |seconds| Timestamp::now() + Duration::from_secs(seconds);
    assert!(rechecks.add(&key, Id::from(1), at(5)), "nothing runs yet");
    assert!(!rechecks.add(&key, Id::from(2), at(1)));
    assert!(!rechecks.add(&key, Id::from(3), at(9)));
    let mut names = guard(&rechecks.names);
    assert_eq!(names.due.len(), 1);
    assert!(names.take(Timestamp::now()).is_empty());
    assert_eq!(names.take(at(2)), std::slice::from_ref(&key));
    assert!(names.due.is_empty(), "it has no time while it is looked at");
    drop(names);
    rechecks.add(&key, Id::from(4), at(1));
    assert!(guard(&rechecks.names).due.is_empty());
    rechecks.again(&key, at(3));
    assert_eq!(guard(&rechecks.names).due.len(), 1);
}

#[test]
fn all_waiters_of_a_crowd_are_looked_for_in_turns() {
    let (rechecks, key) = (Rechecks::default(), Key::new("lock:a"));
    for id in 0..SAMPLE as u128 * 3 {
        rechecks.add(&key, Id::from(id + 1), Timestamp::NEVER);
    }
    let mut seen: Vec<_> = (0..3).flat_map(|_| rechecks.sample(&key, |_| true).unwrap()).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), SAMPLE * 3);
    rechecks.keep(&key, seen.into_iter());
    assert_eq!(rechecks.sample(&key, |id| id == Id::from(7)), Some(vec![Id::from(7)]));
    assert_eq!(rechecks.sample(&key, |_| true), None, "it is being looked for");
    assert!(!rechecks.knows(&key));
}

#[test]
fn many_names_are_looked_at_less_often() {
    let rechecks = Rechecks::default();
    assert_eq!(rechecks.interval(), GRANT_WINDOW);
    for name in 0..1_000 {
        rechecks.add(&Key::new(&format!("lock:{name}")), Id::from(1), Timestamp::NEVER);
    }
    assert_eq!(rechecks.interval(), Redis::WAITER_TTL / 3);
}

#[test]
fn a_hundred_thousand_waiters_ask_ten_times_a_second_together() {
    assert_eq!(own(1), Duration::from_secs(60));
    assert_eq!(own(100_000), Duration::from_secs(10_000));
}

/// One that is not polled cannot take another place: it is not asked for again and again.
#[test]
fn a_waiter_without_a_place_is_looked_for_once() {
    let (rechecks, key, ids) = (Rechecks::default(), Key::new("lock:a"), [Id::from(1), Id::from(2)]);
    for id in ids {
        rechecks.add(&key, id, Timestamp::NEVER);
    }
    assert_eq!(rechecks.sample(&key, |_| true).map(|sample| sample.len()), Some(2));
    rechecks.keep(&key, [ids[0]].into_iter());
    assert_eq!(rechecks.sample(&key, |_| true), Some(vec![ids[0]]));
    rechecks.add(&key, ids[1], Timestamp::NEVER);
    assert_eq!(rechecks.sample(&key, |_| true), Some(vec![ids[1]]), "it has another place");
}
