//! Laws of the rate limiters.

use crate::support::{GENEROUS, MINUTE, after, fresh_name, in_time, pass, queued, span, until};
use locker::{Error, ErrorKind, Locker, Quota};
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(200);
const SECOND: Duration = Duration::from_secs(1);

fn all(size: u64, per: Duration) -> [Quota; 3] {
    [Quota::fixed_window(size, per), Quota::token_bucket(size, per), Quota::gcra(size, per)]
}

fn retry_after(error: &Error) -> Duration {
    assert_eq!(error.kind(), ErrorKind::Limited, "{error}");
    error.retry_after().unwrap_or_else(|| panic!("{error} does not say when to come back"))
}

pub(crate) async fn admits_its_size_then_reports_retry_after(locker: Locker) {
    for quota in all(3, MINUTE) {
        let limiter = locker.rate_limiter(&fresh_name(), quota);
        for left in [2, 1, 0] {
            let admission = limiter.acquire().await.unwrap();
            assert_eq!(admission.remaining, left, "{quota:?}");
            assert!(admission.reset_after <= MINUTE && admission.reset_after > Duration::ZERO);
        }
        assert_eq!(limiter.try_acquire().await.unwrap(), None);
        let after =
            retry_after(&limiter.clone().timeout(Duration::from_secs(1)).acquire().await.unwrap_err());
        let turn = if quota == Quota::gcra(3, MINUTE) { MINUTE / 3 } else { MINUTE };
        assert!(after <= turn && after > turn / 2, "{quota:?} says {after:?}");
    }
}

pub(crate) async fn several_tokens_are_taken_all_or_nothing(locker: Locker) {
    for quota in all(5, MINUTE) {
        let limiter = locker.rate_limiter(&fresh_name(), quota);
        assert_eq!(limiter.clone().tokens(3).acquire().await.unwrap().remaining, 2);
        assert_eq!(limiter.clone().tokens(3).try_acquire().await.unwrap(), None);
        assert_eq!(limiter.tokens(2).acquire().await.unwrap().remaining, 0, "the refusal took nothing");
    }
}

pub(crate) async fn callers_wait_for_their_reservation(locker: Locker) {
    for quota in all(1, span()) {
        let limiter = locker.rate_limiter(&fresh_name(), quota).timeout(span() * 10);
        let started = Instant::now();
        limiter.acquire().await.unwrap();
        for turn in 1..=2_u32 {
            let passed = pass(span() / 2) * (2 * turn);
            after(span() / 2, "a reservation", limiter.acquire()).await.unwrap();
            let since = started.elapsed() + passed + Duration::from_millis(10);
            assert!(since >= span() * turn, "{quota:?} is early");
        }
    }
}

/// An admission after a wait reports the tokens that remain at the time of its reservation.
pub(crate) async fn delayed_admission_reports_remaining_tokens(locker: Locker) {
    let interval = span() * 2;
    for quota in all(5, interval) {
        let limiter = locker.rate_limiter(&fresh_name(), quota).timeout(interval * 10);
        limiter.clone().tokens(5).acquire().await.unwrap();
        let waited = after(interval, "the admission", limiter.clone().tokens(2).acquire()).await.unwrap();
        let left = if quota == Quota::gcra(5, interval) { 0 } else { 3 };
        assert_eq!((waited.remaining, waited.reset_after), (left, interval), "{quota:?}");
    }
}

/// What a newcomer would have to wait shows the reservations of those in line before it.
pub(crate) async fn reservations_follow_the_order_of_calls(locker: Locker) {
    let hour = 60 * MINUTE;
    for quota in all(2, hour) {
        let name = fresh_name();
        let limiter = locker.rate_limiter(&name, quota).cache_refusals(false);
        limiter.clone().tokens(2).acquire().await.unwrap();
        let each_half_hour = quota == Quota::gcra(2, hour);
        let mut line = Vec::new();
        for place in 0..6 {
            let refused = limiter.clone().timeout(Duration::ZERO).acquire().await.unwrap_err();
            let due = if each_half_hour { hour / 2 * (place + 1) } else { hour * (place / 2 + 1) };
            let after = refused.retry_after().unwrap();
            assert!(
                after <= due + MINUTE && due <= after + MINUTE,
                "{quota:?}, {place}: {after:?}, not {due:?}"
            );
            let patient = limiter.clone().timeout(24 * hour);
            line.push(queued(&locker, "rate", &name, async move { patient.acquire().await }).await);
        }
    }
}

pub(crate) async fn size_zero_parks_until_it_is_raised(locker: Locker) {
    for (none, some) in all(0, MINUTE).into_iter().zip(all(3, MINUTE)) {
        let name = fresh_name();
        let parked = locker.rate_limiter(&name, none).timeout(GENEROUS);
        assert_eq!(parked.try_acquire().await.unwrap(), None);
        let error = in_time("the end", parked.clone().timeout(SHORT).acquire()).await.unwrap_err();
        assert_eq!((error.kind(), error.retry_after()), (ErrorKind::Limited, None));
        let waiting = queued(&locker, "rate", &name, parked.acquire()).await;
        let raised = locker.rate_limiter(&name, some).acquire().await.unwrap();
        assert_eq!(raised.remaining, 1, "{some:?}: the parked caller came first");
        in_time("the parked caller", waiting).await.unwrap();
    }
}

/// Changed settings apply at once, and the tokens that were used stay used.
pub(crate) async fn changed_settings_keep_used_tokens(locker: Locker) {
    for (small, large) in all(2, MINUTE).into_iter().zip(all(5, MINUTE)) {
        let name = fresh_name();
        let [small, large] = [small, large].map(|quota| locker.rate_limiter(&name, quota));
        small.acquire().await.unwrap();
        small.acquire().await.unwrap();
        assert_eq!(small.try_acquire().await.unwrap(), None);
        assert_eq!(large.try_acquire().await.unwrap().map(|admission| admission.remaining), Some(2));
        assert_eq!(small.try_acquire().await.unwrap(), None);
        assert_eq!(large.try_acquire().await.unwrap().map(|admission| admission.remaining), Some(1));
    }
}

pub(crate) async fn a_pause_gives_nothing_back(locker: Locker) {
    for running in all(3, MINUTE) {
        for paused in all(0, MINUTE) {
            let name = fresh_name();
            let [running, paused] = [running, paused].map(|quota| locker.rate_limiter(&name, quota));
            running.clone().tokens(3).acquire().await.unwrap();
            assert_eq!(paused.try_acquire().await.unwrap(), None);
            assert_eq!(running.try_acquire().await.unwrap(), None, "after {paused:?}");
        }
    }
}

pub(crate) async fn growing_brings_reservations_forward(locker: Locker) {
    for (small, large) in all(1, MINUTE).into_iter().zip(all(3, MINUTE)) {
        let name = fresh_name();
        let limiter = locker.rate_limiter(&name, small).timeout(MINUTE * 2);
        limiter.acquire().await.unwrap();
        let waiting = queued(&locker, "rate", &name, limiter.acquire()).await;
        locker.rate_limiter(&name, large).acquire().await.unwrap();
        in_time("the waiter", waiting).await.unwrap();
    }
}

/// A waiter whose reservation moves beyond its timeout is refused, with its new wait as `retry_after`.
pub(crate) async fn postponed_waiter_gets_its_retry_after(locker: Locker) {
    for (fast, slow) in all(1, MINUTE).into_iter().zip(all(1, MINUTE * 60)) {
        let name = fresh_name();
        let limiter = locker.rate_limiter(&name, fast).timeout(MINUTE * 2);
        limiter.acquire().await.unwrap();
        let waiting = queued(&locker, "rate", &name, limiter.acquire()).await;
        assert_eq!(locker.rate_limiter(&name, slow).try_acquire().await.unwrap(), None);
        let after = retry_after(&in_time("the refusal", waiting).await.unwrap_err());
        assert!(after > MINUTE * 50 && after <= MINUTE * 60, "{slow:?} says {after:?}");
    }
}

/// With `wait_past_timeout` a caller waits until its timeout, though its reservation lies beyond: it may be brought
/// forward.
pub(crate) async fn wait_past_timeout_waits_for_a_late_token(locker: Locker) {
    for (small, large) in all(1, MINUTE).into_iter().zip(all(3, MINUTE)) {
        let name = fresh_name();
        let limiter = locker.rate_limiter(&name, small).wait_past_timeout(true);
        limiter.acquire().await.unwrap();
        let started = Instant::now();
        let late = in_time("the end", limiter.clone().timeout(SHORT).acquire()).await.unwrap_err();
        assert!(started.elapsed() >= SHORT);
        let after = retry_after(&late);
        assert!(after > MINUTE / 2 && after < MINUTE, "{small:?} says {after:?}");

        let limiter = limiter.timeout(GENEROUS);
        let waiting = queued(&locker, "rate", &name, limiter.acquire()).await;
        locker.rate_limiter(&name, large).acquire().await.unwrap();
        in_time("the reservation that was brought forward", waiting).await.unwrap();
    }
}

pub(crate) async fn dropped_waiter_passes_its_reservation_on(locker: Locker) {
    for quota in all(1, MINUTE) {
        let name = fresh_name();
        let limiter = locker.rate_limiter(&name, quota).timeout(MINUTE * 4);
        limiter.acquire().await.unwrap();
        let gone = queued(&locker, "rate", &name, limiter.acquire()).await;
        let behind = queued(&locker, "rate", &name, limiter.acquire()).await;
        drop(gone);
        let impatient = limiter.clone().timeout(MINUTE / 2);
        let turns = async || retry_after(&impatient.acquire().await.unwrap_err());
        in_time("the next one moving up", async {
            while turns().await > MINUTE * 2 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        drop(behind);
    }
}

/// A reservation beyond the timeout is refused at once and takes no tokens.
pub(crate) async fn late_reservations_are_refused_at_once(locker: Locker) {
    for quota in all(1, MINUTE) {
        let limiter = locker.rate_limiter(&fresh_name(), quota);
        limiter.acquire().await.unwrap();
        let first = retry_after(&limiter.acquire().await.unwrap_err());
        let second = retry_after(&limiter.acquire().await.unwrap_err());
        assert!(second <= first, "{quota:?}: a refusal moves no reservation");
    }
}

/// Also if the process answers from its cache of refusals.
pub(crate) async fn refusal_ends_at_its_retry_after(locker: Locker) {
    // Clocks count whole microseconds, and the clock of the embedded store may be late by two.
    const APART: Duration = Duration::from_micros(5);
    for quota in all(1, SHORT / 8) {
        let is_refused = async || {
            let limiter = locker.rate_limiter(&fresh_name(), quota).timeout(Duration::ZERO);
            limiter.acquire().await.unwrap();
            let mut ends = Vec::new();
            loop {
                let begun = Instant::now();
                match limiter.acquire().await {
                    Ok(_) => return !ends.is_empty(),
                    Err(error) => {
                        let late = ends.iter().find(|end| **end <= begun);
                        assert_eq!(late, None, "{quota:?}: refused later than it was said before");
                        ends.push(Instant::now() + retry_after(&error) + APART);
                    }
                }
            }
        };
        // On a busy machine a call may take longer than the interval.
        until("a refusal before the interval is over", is_refused).await;
    }
}

pub(crate) async fn inspecting_gives_nothing_back(locker: Locker) {
    let admin = locker.admin();
    for quota in [Quota::fixed_window(2, SECOND), Quota::token_bucket(2, SECOND)] {
        in_time("a look before the second interval is over", async {
            loop {
                let (name, started) = (fresh_name(), Instant::now());
                let limiter = locker.rate_limiter(&name, quota).tokens(2).timeout(GENEROUS);
                limiter.acquire().await.unwrap();
                limiter.acquire().await.unwrap();
                let seen = admin.inspect(&admin.key("rate", &name)).await.unwrap();
                let again = limiter.try_acquire().await.unwrap();
                if started.elapsed() < SECOND * 2 {
                    assert_eq!(again, None, "{quota:?}");
                    let seen = seen.map(|seen| (seen.used, seen.waiting));
                    // The clock of a store that ticks may be behind now: the second call is not due by it.
                    if seen != Some((Some(2), 1)) {
                        return assert_eq!(seen, Some((Some(2), 0)), "{quota:?}");
                    }
                }
            }
        })
        .await;
    }
}

pub(crate) async fn bad_settings_are_refused_by_name(locker: Locker) {
    let name = fresh_name();
    let five = Quota::gcra(5, MINUTE);
    for (quota, tokens, says) in [
        (Quota::fixed_window(1, Duration::from_nanos(1)), 1, "interval is too short: give at least 1µs"),
        (Quota::token_bucket(1, Duration::MAX), 1, "interval"),
        (Quota::token_bucket(1 << 60, MINUTE), 1, "size 1152921504606846976 is too large"),
        (Quota::fixed_window(1, MINUTE).burst(2), 1, "burst belongs to gcra"),
        (five.burst(0), 1, "burst 0 is out of range: give 1 to"),
        (five.burst(u64::MAX), 1, "burst is too large: give at most 9007199254740991"),
        (five, 0, "tokens 0: give at least 1"),
        (five, 6, "tokens 6 can never be had at once: at most 5"),
        (five.burst(2), 3, "tokens 3 can never be had at once: at most 2"),
        (Quota::fixed_window(5, MINUTE), 6, "at most 5"),
    ] {
        let limiter = locker.rate_limiter(&name, quota).tokens(tokens).timeout(Duration::MAX);
        let error = in_time("the refusal", limiter.acquire()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misused);
        assert!(error.to_string().contains(says), "{error} does not say: {says}");
    }
    let limiter = locker.rate_limiter(&name, five).timeout(Duration::from_secs(1 << 40));
    assert!(limiter.acquire().await.unwrap_err().to_string().contains("timeout"));
}

pub(crate) async fn the_largest_settings_work(locker: Locker) {
    const DAY: Duration = Duration::from_secs(86_400);
    let most = (1 << 53) - 1;
    for (quota, tokens) in [
        (Quota::gcra(1, DAY).burst(most), 1 << 40),
        (Quota::gcra(1, DAY * 3_650).burst(1_000_000), 1_000_000),
        (Quota::gcra(most, DAY * 3_650), most),
        (Quota::fixed_window(most, DAY * 3_650), most),
        (Quota::token_bucket(most, DAY * 3_650), most),
    ] {
        let limiter = locker.rate_limiter(&fresh_name(), quota).tokens(tokens);
        let admission = limiter.acquire().await.unwrap();
        // The last of sixteen digits may be lost.
        assert!(admission.remaining.abs_diff(quota.size() - tokens) <= 1, "{quota:?}: {admission:?}");
        let rest = limiter.tokens(quota.size()).try_acquire().await.unwrap();
        assert_eq!(rest, None, "{quota:?}");
    }
}

pub(crate) async fn blocking_calls_work(locker: Locker) {
    let name = fresh_name();
    let limiter = locker.rate_limiter(&name, Quota::fixed_window(1, MINUTE));
    assert_eq!(limiter.key(), format!("rate:{name}"));
    limiter.acquire_blocking().unwrap();
    assert_eq!(limiter.try_acquire_blocking().unwrap(), None);
}
