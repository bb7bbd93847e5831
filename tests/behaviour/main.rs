//! The laws every store keeps: each is written once and run on every store.

mod lock;
mod support;

/// Runs every law on every store.
macro_rules! laws {
    ($($primitive:ident: $($law:ident),+ $(,)?;)+) => {
        laws!(@store memory, $($primitive: $($law),+;)+);
        laws!(@store redis, $($primitive: $($law),+;)+);
    };
    (@store $store:ident, $($primitive:ident: $($law:ident),+;)+) => {
        mod $store {
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
