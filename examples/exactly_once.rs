//! Payments that charge exactly once: a row with the request's id, under a unique index, in the transaction that
//! charges.
//!
//! `cargo run -p locker-examples-postgres --example exactly_once -- --store postgres://USER:PASSWORD@HOST/DATABASE`
//!
//! `#[idempotent]` gives the result of a call to its repetitions. A process may die between its commit and that: its
//! effect is there, its result is not, and the next call runs. Its row is then refused, and it reads the former one.

use clap::Parser;
use locker::{Locker, idempotent};
use serde::{Deserialize, Serialize};
use std::{
    env,
    error::Error,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Duration,
};
use tokio_postgres::{Client, NoTls};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Shows in one PostgreSQL database that a payment charges once, although it is repeated and its process is killed.
///
/// Creates the tables of the store, unless they are there, and the tables `exactly_once_payments` and
/// `exactly_once_account`, which it drops at the end. Exits with 1 if an amount was charged twice.
#[derive(Clone, Parser)]
struct Options {
    /// The database of the payments and of the results, without parameters.
    #[arg(long, value_name = "postgres://USER:PASSWORD@HOST/DATABASE")]
    store: String,
    /// Used by this program itself: pays, and waits after the commit to be killed.
    #[arg(long, hide = true)]
    stop_after_commit: bool,
}

struct Shop {
    locker: Locker,
    options: Options,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    request: String,
    amount: i64,
}

/// The lease is short, so that the example need not wait long for the next call after the killed one.
#[idempotent(
    keep = "24h",
    args(request),
    same(amount),
    name = "example.pay",
    lease = "2s",
    timeout = "20s",
    locker = shop.locker
)]
async fn pay(shop: &Shop, request: &str, amount: i64) -> Result<Receipt> {
    let mut database = connect(&shop.options.store).await?;
    let transaction = database.transaction().await?;
    let row = "INSERT INTO exactly_once_payments VALUES ($1, $2) ON CONFLICT DO NOTHING";
    if transaction.execute(row, &[&request, &amount]).await? == 1 {
        let charge = "UPDATE exactly_once_account SET balance = balance - $1";
        transaction.execute(charge, &[&amount]).await?;
    } else {
        let row = "SELECT amount FROM exactly_once_payments WHERE request = $1";
        let charged: i64 = transaction.query_one(row, &[&request]).await?.get(0);
        if charged != amount {
            return Err(format!("{request} has charged {charged}, not {amount}").into());
        }
        println!("   the row is there: nothing is charged");
    }
    transaction.commit().await?;
    if shop.options.stop_after_commit {
        println!("has charged {amount}, and returns nothing");
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    Ok(Receipt { request: request.to_owned(), amount })
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let shop = Shop { locker: Locker::connect(&options.store).await?, options };
    if shop.options.stop_after_commit {
        pay(&shop, "a81b", 30).await?;
        return Err("was not killed".into());
    }
    let database = connect(&shop.options.store).await?;
    database
        .batch_execute(
            "DROP TABLE IF EXISTS exactly_once_payments, exactly_once_account;
             CREATE TABLE exactly_once_payments (request text PRIMARY KEY, amount bigint NOT NULL);
             CREATE TABLE exactly_once_account (balance bigint NOT NULL);
             INSERT INTO exactly_once_account VALUES (1000)",
        )
        .await?;

    println!("1. A request comes twice.");
    let first = pay(&shop, "9f3c", 100).await?;
    let again = pay(&shop, "9f3c", 100).await?;
    println!("   both get {first:?}: {}", if first == again { "yes" } else { "no" });
    expect_balance(&database, 900).await?;

    println!("2. A process is killed between its commit and its result.");
    println!("   killed: {}", killed_after_commit(&shop.options)?);
    expect_balance(&database, 870).await?;
    println!("   next:   {:?}", pay(&shop, "a81b", 30).await?);
    expect_balance(&database, 870).await?;

    database.batch_execute("DROP TABLE exactly_once_payments, exactly_once_account").await?;
    println!("both are right");
    Ok(())
}

/// Returns what the process has said before it was killed.
fn killed_after_commit(options: &Options) -> Result<String> {
    let mut process = Command::new(env::current_exe()?)
        .args(["--store", &options.store, "--stop-after-commit"])
        .stdout(Stdio::piped())
        .spawn()?;
    let output = process.stdout.take().ok_or("no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    process.kill()?;
    process.wait()?;
    if line.is_empty() { Err("the process ended early".into()) } else { Ok(line.trim_end().to_owned()) }
}

async fn expect_balance(database: &Client, expected: i64) -> Result<()> {
    let balance: i64 = database.query_one("SELECT balance FROM exactly_once_account", &[]).await?.get(0);
    println!("   balance: {balance}");
    if balance == expected { Ok(()) } else { Err(format!("the balance is not {expected}").into()) }
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
