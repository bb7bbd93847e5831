//! Withdrawals from bank cards: equal cards wait for each other, different cards run at once, no update is lost.
//!
//! `cargo run --example withdraw -- --help`
//!
//! Other stores than memory and Redis need a Cargo feature:
//! `cargo run --example withdraw --features files -- --store file:///tmp/locks`, or `postgres`, `mysql`, `etcd`,
//! `zookeeper`.

use clap::Parser;
use locker::{Locker, lock_on_argument};
use std::{
    collections::BTreeMap,
    fmt,
    process::ExitCode,
    sync::{Arc, Barrier, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// Eight tasks and four plain threads withdraw from three cards with the attribute, then eight tasks without it.
///
/// Exits with 1 if a balance is wrong although the functions were locked.
#[derive(Parser)]
struct Options {
    #[arg(long, value_name = "URL", default_value = "memory://", help = STORES)]
    store: String,
}

const STORES: &str = "The store of the locks: memory://, redis://HOST:PORT, and with the Cargo feature in parentheses \
                      file:///DIR (files), postgres://HOST:PORT/DATABASE (postgres), \
                      mysql://HOST:PORT/DATABASE (mysql), etcd://HOST:PORT,.. (etcd), zk://HOST:PORT,.. (zookeeper)";

const CARDS: [u64; 3] = [4001, 4002, 4003];
const START: u64 = 1_000;
const TASKS: u64 = 8;
const THREADS: u64 = 4;
/// How long the bank takes between reading a balance and writing the new one.
const BANK: Duration = Duration::from_millis(20);

/// A bank as careless as a program without transactions: read, think, write.
#[derive(Default)]
struct Bank {
    balances: Mutex<BTreeMap<u64, u64>>,
}

impl Bank {
    fn open() -> Arc<Self> {
        Arc::new(Self { balances: Mutex::new(CARDS.map(|card| (card, START)).into()) })
    }

    fn read(&self, card: u64) -> u64 {
        self.balances.lock().unwrap_or_else(PoisonError::into_inner)[&card]
    }

    fn write(&self, card: u64, balance: u64) {
        self.balances.lock().unwrap_or_else(PoisonError::into_inner).insert(card, balance);
    }
}

enum BankError {
    Busy(locker::Error),
    Empty,
}

impl fmt::Display for BankError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(error) => write!(f, "the card is busy: {error}"),
            Self::Empty => f.write_str("not enough on the card"),
        }
    }
}

impl From<locker::Error> for BankError {
    fn from(error: locker::Error) -> Self {
        Self::Busy(error)
    }
}

/// The start and the end of a withdrawal.
type Turn = (Instant, Instant);

#[lock_on_argument(expr = 10, args(card), name = "bank.withdraw", timeout = "1m")]
async fn withdraw(card: u64, amount: u64, bank: &Bank) -> Result<Turn, BankError> {
    unlocked(card, amount, bank).await
}

/// The same lock for callers that are not async: the name and the card make the key.
#[lock_on_argument(expr = 10, args(card), name = "bank.withdraw", timeout = "1m")]
fn withdraw_blocking(card: u64, amount: u64, bank: &Bank) -> Result<Turn, BankError> {
    let (began, balance) = (Instant::now(), bank.read(card));
    thread::sleep(BANK);
    bank.write(card, balance.checked_sub(amount).ok_or(BankError::Empty)?);
    Ok((began, Instant::now()))
}

async fn unlocked(card: u64, amount: u64, bank: &Bank) -> Result<Turn, BankError> {
    let (began, balance) = (Instant::now(), bank.read(card));
    tokio::time::sleep(BANK).await;
    bank.write(card, balance.checked_sub(amount).ok_or(BankError::Empty)?);
    Ok((began, Instant::now()))
}

/// One line of the timeline.
struct Line {
    worker: String,
    card: u64,
    asked: Instant,
    turn: Turn,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("withdraw: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    let locker = Locker::connect(&options.store).await?;
    locker::set_global(locker).map_err(|_| "a locker is set already")?;

    println!("With #[lock_on_argument(args(card))] on {}:\n", options.store);
    let bank = Bank::open();
    let lines = all_workers(&bank).await?;
    draw(&lines);
    let right = check(&bank);

    println!("\nThe same without the attribute:\n");
    let bank = Bank::open();
    let tasks: Vec<_> = (0..TASKS)
        .map(|number| {
            let bank = Arc::clone(&bank);
            tokio::spawn(async move { unlocked(card_of(number), amount_of(number), &bank).await })
        })
        .collect();
    for task in tasks {
        task.await?.map_err(|error| error.to_string())?;
    }
    for (card, lost) in CARDS.map(|card| (card, bank.read(card) - expected(card, TASKS))) {
        println!("card {card}: {lost} withdrawn and never booked");
    }
    Ok(right)
}

/// Runs all workers at once, each with one withdrawal.
async fn all_workers(bank: &Arc<Bank>) -> Result<Vec<Line>, Box<dyn std::error::Error>> {
    let tasks: Vec<_> = (0..TASKS)
        .map(|number| {
            let bank = Arc::clone(bank);
            tokio::spawn(async move {
                let (asked, card) = (Instant::now(), card_of(number));
                let turn = withdraw(card, amount_of(number), &bank).await?;
                Ok(Line { worker: format!("task {number}"), card, asked, turn })
            })
        })
        .collect();
    let start = Arc::new(Barrier::new(usize::try_from(THREADS)?));
    let threads: Vec<_> = (TASKS..TASKS + THREADS)
        .map(|number| {
            let (bank, start) = (Arc::clone(bank), Arc::clone(&start));
            thread::spawn(move || {
                start.wait();
                let (asked, card) = (Instant::now(), card_of(number));
                let turn = withdraw_blocking(card, amount_of(number), &bank)?;
                Ok(Line { worker: format!("thread {number}"), card, asked, turn })
            })
        })
        .collect();
    let mut lines = Vec::new();
    for task in tasks {
        lines.push(task.await?);
    }
    for thread in threads {
        lines.push(tokio::task::spawn_blocking(|| thread.join()).await?.map_err(|_| "a thread panicked")?);
    }
    lines.into_iter().collect::<Result<_, BankError>>().map_err(|error| error.to_string().into())
}

fn card_of(worker: u64) -> u64 {
    CARDS[usize::try_from(worker).unwrap_or_default() % CARDS.len()]
}

fn amount_of(worker: u64) -> u64 {
    10 + worker
}

/// The balance of a card after the first `workers` have withdrawn from their cards.
fn expected(card: u64, workers: u64) -> u64 {
    START - (0..workers).filter(|worker| card_of(*worker) == card).map(amount_of).sum::<u64>()
}

/// Draws a row per withdrawal: dots while it waits, hashes while it runs.
fn draw(lines: &[Line]) {
    let Some(zero) = lines.iter().map(|line| line.asked).min() else { return };
    let column = |time: Instant| (time - zero).as_millis() as usize / 4;
    let mut rows: Vec<_> = lines.iter().collect();
    rows.sort_by_key(|line| (line.card, line.turn.0));
    println!("{:<10} {:<6} one column is 4 ms; . waits, # withdraws", "worker", "card");
    for line in rows {
        let (asked, began, ended) = (column(line.asked), column(line.turn.0), column(line.turn.1));
        let bar = format!(
            "{}{}{}",
            " ".repeat(asked),
            ".".repeat(began - asked),
            "#".repeat((ended - began).max(1))
        );
        println!("{:<10} {:<6} |{bar}", line.worker, line.card);
    }
    let together = |one: &Line, other: &Line| one.turn.0 < other.turn.1 && other.turn.0 < one.turn.1;
    let pairs =
        lines.iter().enumerate().flat_map(|(at, one)| lines[..at].iter().map(move |other| (one, other)));
    let (equal, different): (Vec<_>, Vec<_>) =
        pairs.filter(|(one, other)| together(one, other)).partition(|(one, other)| one.card == other.card);
    println!(
        "\nat once on one card: {} pairs; at once on different cards: {} pairs",
        equal.len(),
        different.len()
    );
}

fn check(bank: &Bank) -> bool {
    CARDS
        .map(|card| {
            let (balance, expected) = (bank.read(card), expected(card, TASKS + THREADS));
            let verdict = if balance == expected { "right" } else { "WRONG" };
            println!("card {card}: balance {balance}, expected {expected}: {verdict}");
            balance == expected
        })
        .iter()
        .all(|right| *right)
}
