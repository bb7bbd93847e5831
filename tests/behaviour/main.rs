//! The laws that every store keeps. Each is written once and runs on every store. On memory, time passes on command.

/// Tests of one module's laws on every store. The laws get the `store`, or three `lockers`, of which two are as in
/// other processes. Half of the stores wait for `scripts/ci.sh --weekly`, as below.
macro_rules! laws_of {
    ($module:ident, $given:ident: $($law:ident),+ $(,)?) => {
        laws_of!(@stores [] $module $given [$($law),+] memory redis postgres etcd mysql zookeeper files served_clock);
        mod weekly {
            laws_of!(
                @stores [#[ignore = "for scripts/ci.sh --weekly"]] $module $given [$($law),+]
                sentinel cluster pgbouncer ticked_clock
            );
        }
    };
    (@stores $when:tt $module:ident $given:ident $laws:tt $($store:ident)+) => {
        $(mod $store {
            laws_of!(@laws $store $when $module $given $laws);
        })+
    };
    (@laws $store:ident $when:tt $module:ident $given:ident [$($law:ident),+]) => {
        $(laws_of!(@law $store $when $module $given $law);)+
    };
    (@law $store:ident [$($when:tt)*] $module:ident $given:ident $law:ident) => {
        $($when)*
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $law() {
            let Some(store) = crate::support::$store().await else { return };
            laws_of!(@call $given store crate::$module::$law);
        }
    };
    (@call lockers $store:ident $law:path) => {
        let lockers = $store.in_processes().await;
        $store.keeps($law(lockers)).await;
    };
    (@call store $store:ident $law:path) => {
        $law(&$store).await;
    };
}

mod administration;
mod blocked;
mod by_name;
mod deadlock;
mod event;
mod gauges;
#[cfg(feature = "idempotent")]
mod idempotent;
mod keyed_lock;
mod leader;
mod lock;
mod margins;
mod once;
mod rate_limiter;
mod rwlock;
mod semaphore;
mod silence;
mod support;
mod together;
mod watchdog;

/// Tests of the laws of the first block on every store, and of the second on one store of each kind. On the others, the
/// second block waits for `scripts/ci.sh --weekly`: they share its code with a store that runs all.
macro_rules! laws {
    (everywhere { $($every:tt)+ } once { $($once:tt)+ }) => {
        laws!(@stores [] [memory redis postgres etcd mysql zookeeper files served_clock] $($every)+ $($once)+);
        laws!(@stores [] [sentinel cluster pgbouncer ticked_clock] $($every)+);
        mod weekly {
            laws!(@stores [#[ignore = "for scripts/ci.sh --weekly"]] [sentinel cluster pgbouncer ticked_clock] $($once)+);
        }
    };
    (@stores $when:tt [] $($laws:tt)+) => {};
    (@stores $when:tt [$store:ident $($stores:ident)*] $($laws:tt)+) => {
        laws!(@store $when $store $($laws)+);
        laws!(@stores $when [$($stores)*] $($laws)+);
    };
    (@store $when:tt $store:ident $($primitive:ident: $($law:ident),+ $(,)?;)+) => {
        mod $store {
            $(mod $primitive {
                $(laws!(@law $when $store $primitive $law);)+
            })+
        }
    };
    (@law [$($when:tt)*] $store:ident $primitive:ident $law:ident) => {
        $($when)*
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $law() {
            let Some(store) = crate::support::$store().await else { return };
            store.keeps(crate::$primitive::$law(store.locker.clone())).await;
        }
    };
}

laws! {
    everywhere {
        administration:
            pages_miss_no_key_that_stays,
            page_has_what_its_filter_chooses,
            functions_are_listed_by_name_and_line,
            holds_have_the_note_of_their_locker,
            evict_up_to_spares_later_holds;
        blocked:
            timeouts_name_the_holder,
            timeouts_count_the_waiters_ahead,
            exhausted_retries_name_the_holder,
            timeouts_name_the_function,
            waiters_are_listed_in_order,
            key_that_nobody_holds_is_explained;
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
            a_last_try_takes_what_is_free,
            a_lease_that_is_not_renewed_hands_over,
            a_renewed_lease_outlives_its_length,
            max_hold_ends_a_hold,
            remaining_never_exceeds_max_hold,
            release_after_loss_returns_lost,
            unfair_callers_all_get_through,
            silent_waiter_is_passed_over,
            blocking_calls_work_everywhere,
            one_task_may_make_many_blocking_calls;
        margins:
            hold_lost_to_its_margin_lasts_for_its_lease,
            waiters_with_a_margin_are_served,
            short_hold_lasts_for_min_hold,
            waiters_wait_for_min_hold,
            min_hold_that_is_over_keeps_nothing;
        semaphore:
            never_more_than_its_size_hold,
            permits_are_free_after_release_and_after_drop,
            several_permits_are_taken_all_or_nothing,
            small_requests_do_not_pass_large_ones,
            a_hold_that_is_not_renewed_frees_its_permit,
            a_renewed_hold_outlives_its_lease,
            growing_serves_waiters,
            shrinking_evicts_no_holder,
            size_zero_parks_callers_until_it_is_raised,
            a_dropped_waiter_leaves_no_trace,
            permits_freed_in_a_row_wake_unfair_waiters,
            overtaker_that_grows_the_size_wakes_waiters,
            request_above_a_lowered_size_is_refused,
            impossible_requests_are_refused_at_once,
            silent_waiter_is_passed_over,
            blocking_calls_work;
    }
    once {
        by_name:
            repeated_acquire_keeps_hold_and_expiry,
            waits_of_one_holder_are_independent,
            ended_wait_without_expiry_leaves_nothing,
            reported_hold_outlives_a_dropped_wait,
            granted_waiter_keeps_the_current_size,
            waits_of_one_holder_keep_the_current_size,
            a_hold_without_expiry_lasts,
            hold_with_expiry_ends_automatically,
            deleting_a_name_fails_its_waiters,
            evicting_a_lock_serves_the_next_waiter,
            evicting_a_semaphore_serves_its_waiters,
            evict_without_a_holder_returns_false,
            names_in_use_are_listed_and_idle_ones_are_not,
            the_store_answers;
        keyed_lock:
            repeated_acquire_keeps_hold_and_expiry,
            names_and_guards_take_turns,
            waits_of_one_holder_are_independent,
            waits_behind_others_share_the_hold,
            a_dropped_wait_leaves_no_trace,
            a_wait_dropped_at_its_turn_passes_on,
            reported_hold_outlives_a_dropped_wait,
            a_hold_lasts_as_long_as_it_was_told,
            the_lock_of_an_attribute_has_a_key,
            two_never_hold_at_once,
            named_readers_share_and_a_writer_is_alone;
        event:
            send_reaches_present_and_later_waiters,
            a_second_send_is_a_conflict_until_the_reset,
            a_wait_ends_at_its_timeout,
            no_wait_misses_a_send,
            waiter_gets_its_message_despite_later_sends,
            waiter_gets_its_message_despite_deletion,
            sent_event_is_kept_for_its_keep_time,
            blocking_calls_work;
        watchdog:
            expires_when_it_is_not_kicked_and_never_early,
            stays_expired_until_the_next_kick,
            kick_postpones_expiry_for_all_waiters,
            shorter_kick_reaches_waiters,
            watchdog_starts_at_the_first_wait,
            a_wait_ends_at_its_timeout;
        rate_limiter:
            admits_its_size_then_reports_retry_after,
            several_tokens_are_taken_all_or_nothing,
            callers_wait_for_their_reservation,
            delayed_admission_reports_remaining_tokens,
            reservations_follow_the_order_of_calls,
            size_zero_parks_until_it_is_raised,
            changed_settings_keep_used_tokens,
            a_pause_gives_nothing_back,
            growing_brings_reservations_forward,
            postponed_waiter_gets_its_retry_after,
            wait_past_timeout_waits_for_a_late_token,
            dropped_waiter_passes_its_reservation_on,
            late_reservations_are_refused_at_once,
            refusal_ends_at_its_retry_after,
            inspecting_gives_nothing_back,
            bad_settings_are_refused_by_name,
            the_largest_settings_work,
            blocking_calls_work;
        rwlock:
            readers_share_and_a_writer_is_alone,
            a_run_of_readers_is_granted_together,
            a_waiting_writer_is_not_passed_by_readers,
            unfair_readers_enter_with_fair_ones,
            refused_plain_lock_does_not_block_readers,
            is_free_after_a_plain_lock_at_its_key,
            conflicts_with_a_lock_kept_for_a_waiter;
        together:
            barrier_opens_when_all_parties_arrive,
            a_barrier_may_open_only_once,
            departed_barrier_waiter_does_not_count,
            timed_out_barrier_waiter_does_not_count,
            counted_down_latch_stays_open,
            opened_latch_releases_larger_waits,
            released_waiter_survives_deletion,
            dropped_waiter_leaves_no_deleted_name,
            a_counter_loses_no_change,
            counter_refuses_additions_out_of_range,
            parties_and_counts_from_2_53_are_refused,
            several_locks_are_taken_all_or_nothing,
            several_locks_in_any_order_never_deadlock,
            loss_of_one_of_several_locks_is_reported,
            several_locks_report_their_whole_timeout;
    }
}
