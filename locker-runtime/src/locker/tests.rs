use super::Locker;
use crate::{
    error::{Error, ErrorKind},
    id::Id,
    stores::failing::FailingStore,
};

/// A fork would copy a counter.
#[test]
fn ids_of_a_shared_store_are_random() {
    let shared = Locker::with_defaults(FailingStore::new(Error::new(ErrorKind::Misused, "never asked")));
    let high = |id: Id| u64::from_str_radix(&id.to_string()[..16], 16).unwrap();
    let steps = |locker: &Locker| -> Vec<u64> {
        let drawn: Vec<Id> = (0..100).map(|_| locker.new_id()).collect();
        drawn.windows(2).map(|pair| high(pair[0]).abs_diff(high(pair[1]))).collect()
    };
    assert!(steps(&shared).iter().all(|step| *step > 1 << 32), "drawn one by one");
    assert!(steps(&Locker::memory()).iter().all(|step| *step < 1 << 32), "counted");
}
