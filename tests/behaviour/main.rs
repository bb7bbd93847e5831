//! The laws every store keeps: each is written once and run on every store.

mod door;
mod lock;
mod semaphore;
mod support;

/// Runs every law on every store.
macro_rules! laws {
    ($($primitive:ident: $($law:ident),+ $(,)?;)+) => {
        laws!(@store memory as memory, $($primitive: $($law),+;)+);
        laws!(@store redis as redis, $($primitive: $($law),+;)+);
    };
    (@store $store:ident as $name:ident, $($primitive:ident: $($law:ident),+ $(,)?;)+) => {
        mod $name {
            $(mod $primitive {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $law() {
                    let Some(store) = crate::support::$store().await else { return };
                    crate::$primitive::$law(store.locker.clone()).await;
                })+
            })+
        }
    };
}

laws! {
    lock:
        two_never_hold_at_once,
        is_free_after_release,
        is_free_after_drop,
        fences_rise,
        waiters_are_served_in_order,
        a_dropped_waiter_leaves_no_trace,
        a_wait_beyond_the_timeout_ends_in_timed_out,
        a_timeout_of_zero_tries_once,
        attempts_are_counted,
        a_lease_that_is_not_renewed_hands_over,
        a_renewed_lease_outlives_its_length,
        max_hold_ends_a_hold,
        release_after_loss_says_so,
        unfair_callers_all_get_through,
        blocking_calls_work_everywhere;
}

// Until the scripts for Redis are there.
laws! {
    @store memory as embedded,
    door:
        a_holder_that_asks_again_keeps_its_hold_and_expiry,
        two_waits_of_one_holder_do_not_disturb_each_other,
        a_hold_without_expiry_lasts,
        a_hold_with_an_expiry_ends_by_itself,
        deleting_a_name_tells_those_who_wait,
        names_in_use_are_listed_and_idle_ones_are_not,
        the_store_answers;
    semaphore:
        never_more_than_its_size_hold,
        permits_are_free_after_release_and_after_drop,
        several_permits_are_taken_all_or_nothing,
        waiters_are_served_in_order_and_not_passed_by_smaller_ones,
        a_hold_that_is_not_renewed_frees_its_permit,
        a_renewed_hold_outlives_its_lease,
        growing_serves_those_who_wait,
        shrinking_evicts_nobody_and_lets_in_nobody_until_enough_have_left,
        size_zero_parks_everybody_until_it_is_raised,
        a_dropped_waiter_leaves_no_trace,
        what_can_never_be_had_is_refused_at_once,
        blocking_calls_work;
}
