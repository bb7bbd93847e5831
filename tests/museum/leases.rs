//! Leases that end too early or too late.

use crate::support::{
    GENEROUS, MINUTE, Opened, SHORT, fresh_name, in_time, outlives_its_lease, queued, until, waiting_at,
};
use locker::LockRequest;
use std::time::Duration;
use tokio::task::JoinSet;

exhibits! {
    {
        contenders_delay_no_renewal,
        expired_hold_is_not_extended,
        writer_turned_reader_passes_no_writer,
        lease_begins_with_the_grant
    } on memory redis postgres etcd files
}

/// redisson#5697: a lock was sometimes not renewed while others tried to get it, and two held it.
async fn contenders_delay_no_renewal(store: &Opened) {
    let (locker, name) = (&store.locker, fresh_name());
    let hold = outlives_its_lease(locker, "lock", &name, locker.lock(&name));
    let contend = async {
        let (admin, key) = (locker.admin(), locker.admin().key("lock", &name));
        until("the hold", async || admin.inspect(&key).await.unwrap().is_some()).await;
        let mut contenders = JoinSet::new();
        for number in 0..16 {
            let timeout = if number % 4 == 0 { Duration::ZERO } else { SHORT };
            contenders.spawn(try_for_ever(locker.lock(&name).timeout(timeout)));
        }
        contenders.join_next().await
    };
    tokio::select! {
        () = hold => {}
        failed = contend => panic!("a contender has ended: {failed:?}"),
    }
}

async fn try_for_ever(request: LockRequest) {
    loop {
        match request.clone().acquire().await {
            Ok(guard) => guard.release().await.unwrap(),
            Err(error) => assert!(error.is_temporary(), "{error}"),
        }
        tokio::task::yield_now().await;
    }
}

/// redlock-rb#36: a lock that had expired, and that another had held meanwhile, could be extended.
async fn expired_hold_is_not_extended(store: &Opened) {
    let (locker, name) = (&store.locker, fresh_name());
    let (lock, admin) = (locker.keyed_lock(&name), locker.admin());
    let holders = async || {
        let state = admin.inspect(&admin.key("lock", &name)).await.unwrap();
        state.map(|state| state.holders).unwrap_or_default()
    };
    lock.clone().acquire("first", SHORT, Duration::ZERO).await.unwrap();
    let second = in_time("the next holder", lock.clone().acquire("second", MINUTE, GENEROUS)).await.unwrap();
    let before = holders().await[0].time_left;
    assert!(!lock.renew("first", 10 * MINUTE).await.unwrap());
    let of_second = &holders().await[0];
    assert_eq!(of_second.fence, second.fence);
    assert!(of_second.time_left <= before, "the hold of another is not extended");
    assert!(lock.release("second").await.unwrap());
    assert!(!lock.renew("first", MINUTE).await.unwrap());
    assert!(holders().await.is_empty(), "a free lock is not taken");
}

/// curator#796: a writer took the read lock and released the write lock, and a waiting writer entered beside it.
async fn writer_turned_reader_passes_no_writer(store: &Opened) {
    let (locker, name) = (&store.locker, fresh_name());
    let (admin, key) = (locker.admin(), locker.admin().key("rwlock", &name));
    let first = locker.write_lock(&name).acquire().await.unwrap();
    let ask = || locker.write_lock(&name).timeout(GENEROUS).acquire();
    let second = queued(locker, "rwlock", &name, ask()).await;
    assert!(locker.read_lock(&name).try_acquire().await.unwrap().is_none(), "no downgrade");
    let ask = || locker.read_lock(&name).timeout(GENEROUS).acquire();
    let reader = queued(locker, "rwlock", &name, ask()).await;
    first.release().await.unwrap();
    let second = in_time("the second writer", second).await.unwrap();
    let state = admin.inspect(&key).await.unwrap().unwrap();
    assert_eq!((state.holders.len(), state.waiting), (1, 1), "the writer is alone");
    assert_eq!(state.holders[0].fence, second.fence());
    second.release().await.unwrap();
    in_time("the reader", reader).await.unwrap().release().await.unwrap();
    waiting_at(locker, "rwlock", &name, 0).await;
}

/// Jepsen, etcd 3.4.3: the lease of a waiter ended while it waited, and it was told that it holds the lock.
async fn lease_begins_with_the_grant(store: &Opened) {
    let (locker, name) = (&store.locker, fresh_name());
    let (admin, key) = (locker.admin(), locker.admin().key("lock", &name));
    let held = locker.lock(&name).lease(MINUTE).acquire().await.unwrap();
    let request = locker.lock(&name).lease(Duration::from_secs(9)).timeout(MINUTE);
    let waiter = tokio::spawn(request.acquire());
    waiting_at(locker, "lock", &name, 1).await;
    // The waiter waits for longer than its lease.
    for _ in 0..10 {
        let impatient = locker.lock(&name).timeout(Duration::from_secs(1)).acquire().await;
        assert!(impatient.unwrap_err().is_temporary());
    }
    held.release().await.unwrap();
    let guard = in_time("the waiter", waiter).await.unwrap().unwrap();
    let state = admin.inspect(&key).await.unwrap().expect("a hold");
    assert_eq!(state.holders.iter().map(|holder| holder.fence).collect::<Vec<_>>(), [guard.fence()]);
    assert!(locker.lock(&name).try_acquire().await.unwrap().is_none());
    assert!(guard.is_held());
    guard.release().await.unwrap();
}
