use super::*;
use redis::Value;

fn rechecked(held_for: i64, foreign: i64) -> ScriptReply {
    let word = |text: &str| Value::BulkString(text.into());
    let reply = vec![word("looked"), word(""), Value::Int(held_for), Value::Int(foreign)];
    ScriptReply::read(Value::Array(reply)).unwrap()
}

fn after(reply: &ScriptReply) -> Duration {
    let now = Timestamp::now();
    next(reply, Duration::from_secs(10)).since(now)
}

#[test]
fn recheck_comes_when_the_holder_may_be_gone() {
    let slack = Duration::from_millis(100);
    let at_the_end = after(&rechecked(300, 0));
    assert!(at_the_end > Duration::from_millis(300) && at_the_end < Duration::from_millis(301) + slack);
    let long = Duration::from_secs(10);
    for held_for in [60_000, -1] {
        let next = after(&rechecked(held_for, 0));
        assert!(next >= long && next < long + slack, "{next:?}");
    }
    let foreign = after(&rechecked(60_000, 1));
    assert!(foreign >= Duration::from_millis(50) && foreign < Duration::from_millis(101) + slack);
}

#[test]
fn earliest_time_of_a_key_counts() {
    let (rechecks, key) = (Rechecks::default(), Key::new("lock:a"));
    let at = |seconds| Timestamp::now() + Duration::from_secs(seconds);
    assert!(rechecks.add(&key, Id::from(1), at(5)), "nothing runs yet");
    assert!(!rechecks.add(&key, Id::from(2), at(1)));
    assert!(!rechecks.add(&key, Id::from(3), at(9)));
    let mut schedule = lock(&rechecks.schedule);
    assert_eq!(schedule.due.len(), 1);
    assert!(schedule.take(Timestamp::now()).is_empty());
    assert_eq!(schedule.take(at(2)), std::slice::from_ref(&key));
    assert!(schedule.due.is_empty(), "it has no time during its recheck");
    drop(schedule);
    rechecks.add(&key, Id::from(4), at(1));
    assert!(lock(&rechecks.schedule).due.is_empty());
    rechecks.schedule(&key, at(3));
    assert_eq!(lock(&rechecks.schedule).due.len(), 1);
}

#[test]
fn samples_take_all_waiters_in_turns() {
    let (rechecks, key) = (Rechecks::default(), Key::new("lock:a"));
    for id in 0..SAMPLE as u128 * 3 {
        rechecks.add(&key, Id::from(id + 1), Timestamp::NEVER);
    }
    let mut seen: Vec<_> = (0..3).flat_map(|_| rechecks.sample(&key, |_| true).unwrap()).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), SAMPLE * 3);
    rechecks.put_back(&key, seen);
    assert_eq!(rechecks.sample(&key, |id| id == Id::from(7)), Some(vec![Id::from(7)]));
    assert_eq!(rechecks.sample(&key, |_| true), None, "it is in a sample");
    assert!(!rechecks.knows(&key));
}

#[test]
fn interval_grows_with_the_number_of_keys() {
    let rechecks = Rechecks::default();
    assert_eq!(rechecks.interval(), GRANT_WINDOW);
    for name in 0..1_000 {
        rechecks.add(&Key::new(&format!("lock:{name}")), Id::from(1), Timestamp::NEVER);
    }
    assert_eq!(rechecks.interval(), WAITER_TTL / 3);
}

#[test]
fn waiters_together_ask_ten_times_a_second() {
    assert_eq!(own_interval(1), Duration::from_secs(60));
    assert_eq!(own_interval(100_000), Duration::from_secs(10_000));
}

/// A waiter that is not polled cannot take another place, so that further rechecks would be useless.
#[test]
fn waiter_without_a_place_is_sampled_once() {
    let (rechecks, key, ids) = (Rechecks::default(), Key::new("lock:a"), [Id::from(1), Id::from(2)]);
    for id in ids {
        rechecks.add(&key, id, Timestamp::NEVER);
    }
    assert_eq!(rechecks.sample(&key, |_| true).map(|sample| sample.len()), Some(2));
    rechecks.put_back(&key, vec![ids[0]]);
    assert_eq!(rechecks.sample(&key, |_| true), Some(vec![ids[0]]));
    rechecks.add(&key, ids[1], Timestamp::NEVER);
    assert_eq!(rechecks.sample(&key, |_| true), Some(vec![ids[1]]), "it has another place");
}

/// Waiters that have lost their places may be few among many.
#[test]
fn a_lost_place_has_all_waiters_checked_soon() {
    let (rechecks, key) = (Rechecks::default(), Key::new("lock:a"));
    for id in 1..=SAMPLE as u128 * 4 {
        rechecks.add(&key, Id::from(id), Timestamp::NEVER);
    }
    let check = |has_lost: &dyn Fn(Id) -> bool| {
        let sample = rechecks.sample(&key, |_| true).unwrap();
        let missing: Vec<_> = sample.iter().copied().filter(|id| has_lost(*id)).collect();
        rechecks.checked(&key, &sample, &missing)
    };
    assert!(!check(&|_| false));
    let lost = rechecks.sample(&key, |_| true).unwrap();
    rechecks.put_back(&key, lost.clone());
    let found = (0..5).find(|_| check(&|id| id == lost[0]));
    assert!(found.is_some(), "one of them has lost its place");
    let soon = (0..10).take_while(|_| check(&|_| false)).count();
    assert_eq!(soon, 3, "four samples are all others");
}
