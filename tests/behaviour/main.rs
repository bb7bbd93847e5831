//! The laws every store keeps: each is written once and run on every store.

mod by_name;
mod event;
mod lock;
mod rate_limiter;
mod rwlock;
mod semaphore;
mod support;
mod together;
mod watchdog;

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
        a_last_try_takes_what_is_free,
        a_lease_that_is_not_renewed_hands_over,
        a_renewed_lease_outlives_its_length,
        max_hold_ends_a_hold,
        no_more_is_said_to_be_left_than_max_hold_leaves,
        release_after_loss_says_so,
        unfair_callers_all_get_through,
        who_does_not_come_when_it_is_woken_is_passed_over,
        blocking_calls_work_everywhere,
        one_task_may_make_many_blocking_calls;
    by_name:
        a_holder_that_asks_again_keeps_its_hold_and_expiry,
        two_waits_of_one_holder_do_not_disturb_each_other,
        a_wait_for_a_hold_without_expiry_leaves_nothing_behind,
        a_hold_that_another_wait_was_told_of_outlives_the_wait_that_got_it,
        who_is_served_leaves_the_size_as_others_have_set_it,
        two_waits_of_one_holder_leave_the_size_as_others_have_set_it,
        a_hold_without_expiry_lasts,
        a_hold_with_an_expiry_ends_by_itself,
        deleting_a_name_tells_those_who_wait,
        evicting_the_holder_of_a_lock_serves_the_next_in_line,
        evicting_the_holders_of_a_semaphore_serves_those_who_fit,
        where_nobody_holds_there_is_nobody_to_evict,
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
        permits_freed_in_a_row_reach_as_many_who_may_be_overtaken,
        who_overtakes_and_raises_the_size_leaves_the_rest_to_those_who_wait,
        who_wants_more_than_a_lowered_size_is_told_and_stands_in_nobodys_way,
        what_can_never_be_had_is_refused_at_once,
        who_does_not_come_when_it_is_woken_is_passed_over,
        blocking_calls_work;
    event:
        a_send_reaches_everybody_who_waits_and_everybody_later,
        a_second_send_is_a_conflict_until_the_reset,
        a_wait_ends_at_its_timeout,
        no_wait_misses_a_send,
        who_waits_at_a_send_has_its_message_whatever_comes_after,
        who_waits_at_a_send_has_its_message_though_the_name_is_deleted,
        a_sent_event_is_kept_as_long_as_it_was_told,
        blocking_calls_work;
    watchdog:
        expires_when_it_is_not_kicked_and_never_early,
        stays_expired_until_the_next_kick,
        a_kick_postpones_it_for_all_who_wait,
        a_shorter_kick_reaches_those_who_wait,
        one_that_was_never_kicked_starts_with_the_first_wait,
        a_wait_ends_at_its_timeout;
    rate_limiter:
        lets_its_size_through_at_once_and_then_says_when,
        several_tokens_are_taken_all_or_nothing,
        callers_wait_for_their_turn,
        who_waited_is_told_what_is_left_at_its_turn,
        turns_come_in_the_order_of_asking,
        size_zero_parks_until_it_is_raised,
        changed_settings_apply_at_once_and_keep_what_was_used,
        a_pause_gives_nothing_back,
        growing_wakes_those_whose_turn_comes_earlier,
        who_is_put_off_beyond_its_timeout_is_told_its_turn,
        who_holds_out_waits_for_a_turn_that_lies_beyond_the_timeout,
        who_gives_up_gives_the_turn_to_the_next,
        what_lies_beyond_the_timeout_is_refused_at_once_and_takes_nothing,
        a_refusal_ends_when_it_said,
        who_looks_gives_nothing_back,
        bad_settings_are_refused_by_name,
        the_largest_settings_work,
        blocking_calls_work;
    rwlock:
        readers_share_and_a_writer_is_alone,
        a_run_of_readers_is_granted_together,
        a_waiting_writer_is_not_passed_by_readers,
        readers_who_may_be_overtaken_are_let_in_together_with_those_behind_them,
        who_asks_for_a_plain_lock_at_its_key_keeps_nobody_from_its_turn,
        is_free_after_a_plain_lock_at_its_key,
        is_a_conflict_while_a_free_lock_at_its_key_is_kept_for_the_next_in_line;
    together:
        a_barrier_opens_when_everybody_is_there_round_after_round,
        who_leaves_a_barrier_does_not_count,
        who_is_told_that_a_barrier_timed_out_has_not_counted,
        a_latch_opens_for_good_when_it_was_counted_down,
        a_latch_that_has_opened_lets_through_who_waited_for_more,
        who_has_been_let_through_goes_on_though_the_name_is_deleted,
        who_was_let_through_and_has_left_keeps_no_deleted_name_in_use,
        a_counter_loses_no_change,
        what_no_counter_can_add_is_refused_by_name,
        parties_and_counts_beyond_the_exact_numbers_are_refused_by_name,
        several_locks_are_had_together_or_not_at_all,
        locks_wanted_in_different_orders_never_dead_lock,
        losing_one_of_several_locks_is_told,
        the_patience_for_several_locks_is_told_whole;
}
