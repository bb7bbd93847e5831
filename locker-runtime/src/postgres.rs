//! Statements for transactions in PostgreSQL that a late holder must not commit. [Fence a write][page] has programs.
//!
//! [page]: https://github.com/locker-rs/locker/blob/main/docs/how-to/fence-a-write.md

use crate::lease::Guard;
#[doc(hidden)]
pub use locker_postgres::{grants_sql, schema_sql};

/// The statements of a hold for the caller's own transaction.
///
/// ```no_run
/// # use locker_runtime as locker;
/// use locker::postgres::Fencing;
/// # async fn transfer() -> locker::Result<()> {
/// # let locker = locker::Locker::connect("postgres://shop@127.0.0.1/shop").await?;
/// let guard = locker.lock("account 7").acquire().await?;
/// let (statement, key, fence) = guard.fence_sql();
/// // With tokio-postgres: transaction.execute(statement, &[&key, &fence]).await?;
/// assert_eq!((statement, key), ("SELECT locker_fence($1, $2)", guard.key()));
/// assert_eq!(u64::try_from(fence), Ok(guard.fence()));
/// // The writes. Then, if the lock is in this database:
/// let (statement, key, fence) = guard.held_sql();
/// # assert_eq!((statement, key, fence), ("SELECT locker_held($1, $2)", guard.key(), guard.fence() as i64));
/// # guard.release().await
/// # }
/// ```
pub trait Fencing {
    /// Returns a statement for a transaction in PostgreSQL, and its two parameters: the key and the fence.
    ///
    /// `locker_fence` records the fence in the database of the transaction. It fails if a holder with a higher fence
    /// has recorded its own there, so that transactions under this lock take effect in the order of their fences. Run
    /// it first: a transaction under the same lock that has recorded a lower fence is then waited for, and all later
    /// reads see its writes.
    ///
    /// The lock may be in any store. The function has to be in the database of the transaction: the first
    /// `Locker::connect("postgres://..")` creates it there. It is meant for locks and for the writers of read/write
    /// locks: of several holders at a time, only the latest one passes. See [`held_sql`](Self::held_sql) for a check
    /// that also keeps the next holder out until the commit.
    ///
    /// # Errors
    /// The statement fails with SQLSTATE `LK001` if a holder with a higher fence was here. The transaction must be
    /// rolled back, and a retry needs a new hold.
    ///
    /// # Panics
    /// If the fence is above [`i64::MAX`]. No store of this crate grants such a fence for centuries: fences are
    /// microseconds since 1970, or little more; on etcd and ZooKeeper they rise by 65,536 with each write of the
    /// cluster, on ZooKeeper by 2^48 with each election of a leader.
    #[must_use]
    fn fence_sql(&self) -> (&'static str, &str, i64);

    /// Returns a statement for a transaction in the database that keeps this lock, and its two parameters: the key and
    /// the fence.
    ///
    /// `locker_held` fails unless this hold is in force by the clock of the database. It also keeps the row of the lock
    /// shared until the transaction ends: no other holder is granted the lock before that, even if the lease ends
    /// meanwhile. Run it last, right before the commit, because it delays renewals and the release as well.
    ///
    /// The store of the lock must be this very database, `postgres://`. Only locks have such a row: the statement fails
    /// for permits of a semaphore and for both sides of a read/write lock. Use [`fence_sql`](Self::fence_sql) for them.
    ///
    /// # Errors
    /// The statement fails with SQLSTATE `LK002` if the lease is over, if the hold was released or ended by force, or
    /// if its lock is in another store. In an isolation level above `READ COMMITTED`, it fails with `40001` if the hold
    /// was renewed since the transaction began. The transaction must be rolled back.
    ///
    /// # Panics
    /// As [`fence_sql`](Self::fence_sql).
    #[must_use]
    fn held_sql(&self) -> (&'static str, &str, i64);
}

impl Fencing for Guard {
    fn fence_sql(&self) -> (&'static str, &str, i64) {
        ("SELECT locker_fence($1, $2)", self.key(), self.fence_in_sql())
    }

    fn held_sql(&self) -> (&'static str, &str, i64) {
        ("SELECT locker_held($1, $2)", self.key(), self.fence_in_sql())
    }
}
