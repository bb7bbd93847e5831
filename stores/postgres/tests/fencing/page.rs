use locker::{Locker, postgres::Fencing};
use tokio_postgres::Client;

/// Fails with SQLSTATE LK001 or LK002 if this holder was too late: nothing was written then.
pub async fn transfer(
    locker: &Locker,
    database: &mut Client,
    amount: i64,
) -> Result<(), Box<dyn std::error::Error>> {
    let guard = locker.lock("accounts").acquire().await?;
    let transaction = database.transaction().await?;

    let (statement, key, fence) = guard.fence_sql();
    transaction.execute(statement, &[&key, &fence]).await?;

    transaction.execute("UPDATE accounts SET balance = balance - $1 WHERE id = 'alice'", &[&amount]).await?;
    transaction.execute("UPDATE accounts SET balance = balance + $1 WHERE id = 'bob'", &[&amount]).await?;

    // Only if the store of the lock is this database.
    let (statement, key, fence) = guard.held_sql();
    transaction.execute(statement, &[&key, &fence]).await?;

    transaction.commit().await?;
    guard.release().await?;
    Ok(())
}
