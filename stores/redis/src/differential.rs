//! The Lua and the Rust of each primitive are the same step. A real server and [`State::step`] get the same random
//! requests at the same times, and must return the same replies and notifications.

mod batches;
mod bugs;
mod comparison;
mod records;
mod requests;
mod silence;
mod strict;
mod waiters;

use comparison::{Comparison, KEYS, seed};
use locker_harness::RedisServer;
use requests::Draw;

fn assert_agreement(draw: Draw, rounds: usize) {
    assert_agreement_while_set_back(draw, &[0], rounds);
}

fn assert_agreement_while_set_back(draw: Draw, back: &'static [u64], rounds: usize) {
    let Some(server) = RedisServer::start() else { return };
    let (seed, rounds) = (seed(), rounds * times());
    let compared = Comparison::start(&server, None, seed).set_back(back).run(draw, rounds);
    let compared = compared.unwrap_or_else(|difference| panic!("LOCKER_TEST_SEED={seed}: {difference}"));
    assert_eq!(compared, rounds * KEYS);
}

/// How many times the usual number of requests is compared.
fn times() -> usize {
    std::env::var("LOCKER_TEST_TIMES").map_or(1, |times| times.parse().expect("a number"))
}

#[test]
fn rate_limiters_agree_after_a_clock_step_back() {
    assert_agreement_while_set_back(
        requests::rate_limiter_once_each,
        &[0, 0, 0, 0, 1, 40, 900, 30_000, 90_000],
        200,
    );
}

/// Former waiters, and dead ones of a barrier, are removed in parts. Those that are left count nowhere.
#[test]
fn waiters_that_are_left_change_no_reply() {
    let Some(server) = RedisServer::start() else { return };
    for draw in [requests::event, requests::latch, requests::barrier, requests::record] {
        let _: String = server.ask("FLUSHALL", &[]);
        let seed = seed();
        let compared = Comparison::start(&server, None, seed).in_parts().run(draw, 75 * times());
        assert!(compared.is_ok(), "LOCKER_TEST_SEED={seed}: {compared:?}");
    }
}

macro_rules! comparisons {
    ($($primitive:ident: $rounds:literal;)+) => {
        mod lua_and_step_agree {
            $(#[test]
            fn $primitive() {
                super::assert_agreement(super::requests::$primitive, $rounds);
            })+
        }
    };
}

comparisons! {
    lock: 600;
    named_lock: 600;
    semaphore: 600;
    rate_limiter: 600;
    rate_limiter_with_a_long_queue: 200;
    rate_limiter_with_large_numbers: 200;
    event: 150;
    watchdog: 150;
    barrier: 150;
    latch: 150;
    counter: 150;
    record: 600;
    record_with_large_results: 60;
}
