//! A resource that rejects a holder that is too late: the fence closes a gap that no lock can.
//!
//! `cargo run --example fenced_resource -- --store redis://127.0.0.1:6379` (default: `memory://`)
//!
//! A holder that stalls (a long pause, a suspended machine) may wake up after its lease and continue as if nothing had
//! happened. No lock service can prevent that. The resource can, if every write carries the guard's fence.

use clap::Parser;
use locker::{Guard, Locker};
use std::{collections::HashMap, error::Error, time::Duration};

#[derive(Debug, Parser)]
struct Options {
    /// The store of the lock: memory://, redis://HOST:PORT, ...
    #[arg(long, default_value = "memory://")]
    store: String,
}

/// In place of a table: `CREATE TABLE account (id TEXT PRIMARY KEY, balance BIGINT, fence BIGINT)`.
#[derive(Default)]
struct Accounts(HashMap<String, Row>);

#[derive(Clone, Copy, Default)]
struct Row {
    balance: i64,
    fence: u64,
}

impl Accounts {
    /// `UPDATE account SET fence = $2 WHERE id = $1 AND fence <= $2 RETURNING balance`
    ///
    /// A read records the reader's fence, so that an older holder cannot overwrite a result that is based on it.
    fn read(&mut self, id: &str, fence: u64) -> Result<i64, TooLate> {
        let row = self.0.entry(id.to_owned()).or_default();
        if fence < row.fence {
            return Err(TooLate);
        }
        row.fence = fence;
        Ok(row.balance)
    }

    /// `UPDATE account SET balance = $3 WHERE id = $1 AND fence <= $2`
    ///
    /// If no row has changed, the writer is too late.
    fn write(&mut self, id: &str, fence: u64, balance: i64) -> Result<(), TooLate> {
        let row = self.0.entry(id.to_owned()).or_default();
        if fence < row.fence {
            return Err(TooLate);
        }
        *row = Row { balance, fence };
        Ok(())
    }
}

/// A holder with a higher fence was here.
#[derive(Debug)]
struct TooLate;

impl std::fmt::Display for TooLate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a later holder was here")
    }
}

impl Error for TooLate {}

async fn lock(locker: &Locker) -> locker::Result<Guard> {
    locker.lock("account 7").lease(Duration::from_millis(300)).renew(false).acquire().await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locker = Locker::connect(&Options::parse().store).await?;
    let mut accounts = Accounts::default();

    // The first holder reads the balance, then stalls until its lease is over.
    let first = lock(&locker).await?;
    let balance = accounts.read("7", first.fence())?;
    println!("first  (fence {}): reads {balance}, stalls", first.fence());
    first.lost().await;

    // The second holder takes the lock and writes.
    let second = lock(&locker).await?;
    let balance_now = accounts.read("7", second.fence())?;
    accounts.write("7", second.fence(), balance_now + 100)?;
    println!("second (fence {}): writes {}", second.fence(), balance_now + 100);
    second.release().await?;

    // The first holder wakes up. `check` reports the loss. The table stops a program that does not call it.
    println!("first: check says {:?}", first.check().map_err(|error| error.kind()));
    let late = accounts.write("7", first.fence(), balance + 50);
    println!("first: writes {}: {late:?}", balance + 50);
    assert!(late.is_err() && accounts.read("7", u64::MAX)? == 100);
    println!("the balance is 100: nothing was lost");
    Ok(())
}
