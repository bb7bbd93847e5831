//! The interleavings of the embedded store as tests (`scripts/interleavings.sh`).
#![cfg(shuttle)]

macro_rules! tests {
    ($($name:ident)+) => {
        $(#[test]
        fn $name() {
            locker_core::store::memory::interleavings::$name();
        })+
    };
}

tests! {
    every_waiter_is_served
    unfair_callers_are_all_served
    no_permit_idles_while_unfair_callers_wait
    cancelled_waiter_blocks_no_caller
    mailbox_closed_before_cancel_loses_nothing
    expired_lease_serves_the_next_waiter
}
