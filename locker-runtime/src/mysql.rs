//! Statements for transactions in MySQL and MariaDB that a late holder must not commit. [Fence a write][page] explains
//! them, with programs for PostgreSQL.
//!
//! [page]: https://github.com/locker-rs/locker/blob/main/docs/how-to/fence-a-write.md

use crate::lease::Guard;
#[doc(hidden)]
pub use locker_mysql::{grants_sql, schema_sql};

/// The statements of a hold for the caller's own transaction.
///
/// ```no_run
/// # use locker_runtime as locker;
/// use locker::mysql::Fencing;
/// # async fn transfer() -> locker::Result<()> {
/// # let locker = locker::Locker::connect("mysql://shop@127.0.0.1/shop").await?;
/// let guard = locker.lock("account 7").acquire().await?;
/// let (statement, key, fence) = guard.fence_sql();
/// // With sqlx: query(statement).bind(key).bind(fence).execute(&mut *transaction).await?;
/// assert_eq!((statement, key), ("CALL locker_fence(?, ?)", guard.key()));
/// assert_eq!(u64::try_from(fence), Ok(guard.fence()));
/// // The writes. Then, if the lock is in this database:
/// let (statement, key, fence) = guard.held_sql();
/// # assert_eq!((statement, key, fence), ("CALL locker_held(?, ?)", guard.key(), guard.fence() as i64));
/// # guard.release().await
/// # }
/// ```
pub trait Fencing {
    /// Returns a statement for a transaction in MySQL or MariaDB, and its two parameters: the key and the fence.
    ///
    /// `locker_fence` records the fence in the database of the transaction. It fails if a holder with a higher fence
    /// has recorded its own there, so that transactions under this lock take effect in the order of their fences. Run
    /// it first, right after `BEGIN`: a transaction under the same lock that has recorded a lower fence is then waited
    /// for, and an error leaves nothing behind that a careless `COMMIT` would keep.
    ///
    /// The lock may be in any store. The procedure has to be in the database of the transaction: the first
    /// `Locker::connect("mysql://..")` creates it there, if its user may, else `locker store sql --kind mysql` prints
    /// it. It is meant for locks and for the writers of read/write locks: of several holders at a time, only the latest
    /// one passes.
    ///
    /// # Errors
    /// The statement fails with the error 31001, whose text begins with `LK001`, if a holder with a higher fence was
    /// here. The transaction goes on: it must be rolled back, and a retry needs a new hold.
    ///
    /// # Panics
    /// If the fence is above [`i64::MAX`]. No store of this crate grants such a fence for centuries.
    #[must_use]
    fn fence_sql(&self) -> (&'static str, &str, i64);

    /// Returns a statement for a transaction in the database that keeps this lock, and its two parameters: the key and
    /// the fence.
    ///
    /// `locker_held` fails unless this hold is in force by the clock of the database. It also keeps the row of the lock
    /// shared until the transaction ends: no other holder is granted the lock before that, even if the lease ends
    /// meanwhile. Run it last, right before the commit, because it delays renewals and the release as well.
    ///
    /// The store of the lock must be this very database. Only locks have such a row: the statement fails for permits of
    /// a semaphore and for both sides of a read/write lock. Use [`fence_sql`](Self::fence_sql) for them.
    ///
    /// # Errors
    /// The statement fails with the error 31002, whose text begins with `LK002`, if the lease is over, if the hold was
    /// released or ended by force, or if its lock is in another store. The transaction must be rolled back.
    ///
    /// # Panics
    /// As [`fence_sql`](Self::fence_sql).
    #[must_use]
    fn held_sql(&self) -> (&'static str, &str, i64);
}

impl Fencing for Guard {
    fn fence_sql(&self) -> (&'static str, &str, i64) {
        ("CALL locker_fence(?, ?)", self.key(), self.fence_in_sql())
    }

    fn held_sql(&self) -> (&'static str, &str, i64) {
        ("CALL locker_held(?, ?)", self.key(), self.fence_in_sql())
    }
}
