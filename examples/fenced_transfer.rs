//! Transfers in PostgreSQL that a late holder cannot spoil: the fence of the lock is checked in the transaction.
//!
//! `cargo run -p locker-examples-postgres --example fenced_transfer -- --store postgres://USER:PASSWORD@HOST/DATABASE`
//!
//! A holder that stalls may wake up after its lease and write as if nothing had happened. No lock service outside the
//! database can prevent that. Two statements of the guard do, in the transaction that writes: `fence_sql` as the first,
//! `held_sql` as the last.

use clap::Parser;
use locker::{Guard, Locker, postgres::Fencing};
use std::{
    env,
    error::Error,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tokio::time::sleep;
use tokio_postgres::{Client, NoTls};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Shows in one PostgreSQL database what becomes of holders that stall or die in a transfer between two accounts.
///
/// Creates the tables of the store, unless they are there, and the table `fenced_transfer_accounts`, which it drops at
/// the end. Exits with 1 if a transfer was made that should have been refused.
#[derive(Clone, Parser)]
struct Options {
    /// The database of the accounts and of the locks, without parameters.
    #[arg(long, value_name = "postgres://USER:PASSWORD@HOST/DATABASE")]
    store: String,
    /// Used by this program itself: transfers, and waits before the commit to be killed.
    #[arg(long, hide = true)]
    stop_before_commit: bool,
}

/// The lease of the holders that stall. It is not renewed: a holder that is suspended cannot renew either.
const SHORT: Duration = Duration::from_secs(2);
/// The lease of the others.
const LONG: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let (locker, mut database) = (Locker::connect(&options.store).await?, connect(&options.store).await?);
    if options.stop_before_commit {
        return stop_before_commit(&locker, &mut database).await;
    }
    database
        .batch_execute(
            "DROP TABLE IF EXISTS fenced_transfer_accounts;
             CREATE TABLE fenced_transfer_accounts (id text PRIMARY KEY, balance bigint NOT NULL);
             INSERT INTO fenced_transfer_accounts VALUES ('alice', 1000), ('bob', 0)",
        )
        .await?;

    println!("1. A holder stalls beyond its lease, and transfers after another holder.");
    late_transfer_is_refused(&locker, &mut database).await?;
    println!("2. A holder is killed between its last check and the commit.");
    killed_transfer_leaves_nothing(&locker, &mut database, &options).await?;
    println!("3. A holder stalls beyond its lease, between its last check and the commit.");
    next_holder_waits_for_the_commit(&locker, &mut database, &options).await?;

    database.batch_execute("DROP TABLE fenced_transfer_accounts").await?;
    println!("all three are right");
    Ok(())
}

async fn late_transfer_is_refused(locker: &Locker, database: &mut Client) -> Result<()> {
    let first = lock(locker, SHORT).await?;
    println!("   first:  holds with fence {}, and stalls", first.fence());
    first.lost().await;

    let second = lock(locker, LONG).await?;
    transfer(database, &second, 100).await?;
    println!("   second: holds with fence {}, and transfers 100", second.fence());
    second.release().await?;

    // `first.check()` would report the loss. The database stops a program that does not call it, or stalls after it.
    let Err(refused) = transfer(database, &first, 500).await else {
        return Err("a transfer with a stale fence was made".into());
    };
    let code = refused.code().map_or("no SQLSTATE", |code| code.code());
    println!("   first:  wakes up and transfers 500: refused with {code}");
    expect_balances(database, 900, 100).await
}

async fn killed_transfer_leaves_nothing(
    locker: &Locker,
    database: &mut Client,
    options: &Options,
) -> Result<()> {
    let mut process = Command::new(env::current_exe()?)
        .args(["--store", &options.store, "--stop-before-commit"])
        .stdout(Stdio::piped())
        .spawn()?;
    let told = wait_for_line(&mut process);
    process.kill()?;
    process.wait()?;
    println!("   killed: {}", told?);
    expect_balances(database, 900, 100).await?;

    let next = lock(locker, LONG).await?;
    transfer(database, &next, 100).await?;
    println!("   next:   holds with fence {} once the lease is over, and transfers 100", next.fence());
    next.release().await?;
    expect_balances(database, 800, 200).await
}

/// Transfers up to the last check, and waits to be killed.
async fn stop_before_commit(locker: &Locker, database: &mut Client) -> Result<()> {
    let guard = lock(locker, SHORT).await?;
    let transaction = database.transaction().await?;
    move_money(&transaction, &guard, 300).await?;
    println!("has transferred 300 with fence {}, without a commit", guard.fence());
    sleep(Duration::from_secs(60)).await;
    Err("was not killed".into())
}

async fn next_holder_waits_for_the_commit(
    locker: &Locker,
    database: &mut Client,
    options: &Options,
) -> Result<()> {
    let guard = lock(locker, SHORT).await?;
    let transaction = database.transaction().await?;
    move_money(&transaction, &guard, 100).await?;
    let checked = Instant::now();

    let (next_locker, mut next_database) = (locker.clone(), connect(&options.store).await?);
    let next = tokio::spawn(async move {
        let next = lock(&next_locker, LONG).await?;
        let granted = Instant::now();
        expect_balances(&next_database, 700, 300).await?;
        transfer(&mut next_database, &next, 100).await?;
        next.release().await?;
        Ok::<_, Box<dyn Error + Send + Sync>>(granted)
    });

    sleep(SHORT * 2).await;
    println!("   holder: its lease is over: {}", if guard.is_held() { "no" } else { "yes" });
    let committing = Instant::now();
    transaction.commit().await?;
    println!("   holder: commits {} ms after its last check", (committing - checked).as_millis());
    drop(guard);

    let granted = next.await??;
    if granted < committing {
        return Err("the lock was granted before the commit".into());
    }
    println!(
        "   next:   is granted the lock {} ms later, and sees the transfer",
        (granted - committing).as_millis()
    );
    expect_balances(database, 600, 400).await
}

async fn lock(locker: &Locker, lease: Duration) -> locker::Result<Guard> {
    let request = locker.lock("accounts alice and bob").lease(lease).renew(false);
    request.timeout(Duration::from_secs(20)).acquire().await
}

/// Transfers in a transaction of its own.
async fn transfer(
    database: &mut Client,
    guard: &Guard,
    amount: i64,
) -> std::result::Result<(), tokio_postgres::Error> {
    let transaction = database.transaction().await?;
    move_money(&transaction, guard, amount).await?;
    transaction.commit().await
}

async fn move_money(
    transaction: &tokio_postgres::Transaction<'_>,
    guard: &Guard,
    amount: i64,
) -> std::result::Result<(), tokio_postgres::Error> {
    // First: a later holder that was here refuses all that follows.
    let (statement, key, fence) = guard.fence_sql();
    transaction.execute(statement, &[&key, &fence]).await?;

    let update = "UPDATE fenced_transfer_accounts SET balance = balance + $2 WHERE id = $1";
    transaction.execute(update, &[&"alice", &-amount]).await?;
    transaction.execute(update, &[&"bob", &amount]).await?;

    // Last: the lock is held now, and nobody else is granted it before the commit.
    let (statement, key, fence) = guard.held_sql();
    transaction.execute(statement, &[&key, &fence]).await?;
    Ok(())
}

async fn expect_balances(database: &Client, alice: i64, bob: i64) -> Result<()> {
    let rows = database.query("SELECT balance FROM fenced_transfer_accounts ORDER BY id", &[]).await?;
    let balances: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    if balances != [alice, bob] {
        return Err(format!("the balances are {balances:?}, not {:?}", [alice, bob]).into());
    }
    println!("   balances: alice {alice}, bob {bob}");
    Ok(())
}

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            eprintln!("the connection ended: {error}");
        }
    });
    Ok(client)
}

fn wait_for_line(process: &mut Child) -> Result<String> {
    let output = process.stdout.take().ok_or("no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    if line.is_empty() { Err("the process ended early".into()) } else { Ok(line.trim_end().to_owned()) }
}
