use super::Locker;
use crate::stores::failing::FailingStore;
use locker_core::{
    error::{Error, ErrorKind},
    id::Id,
};

/// A fork would copy a counter.
#[test]
fn ids_of_a_shared_store_are_random() {
    let shared = Locker::with_defaults(FailingStore::new(Error::new(ErrorKind::Misused, "never asked")));
    let low = |id: Id| u64::from_str_radix(&id.to_string()[16..], 16).unwrap();
    let is_counted = |locker: &Locker| {
        let (one, next) = (low(locker.new_id()), low(locker.new_id()));
        // Other tests of this process may draw between.
        (0..1_000_u64).any(|steps| one.wrapping_add(steps.wrapping_mul(0x9e37_79b9_7f4a_7c15)) == next)
    };
    assert!(!(0..100).any(|_| is_counted(&shared)), "counted on");
    assert!(is_counted(&Locker::memory()));
}
