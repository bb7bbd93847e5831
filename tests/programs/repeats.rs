//! Calls a function that a program in another language has, too, and says what it gets: its result is kept for both.
//! `clients/python/tests/test_turns.py` starts it.
//!
//! `repeats URL REQUEST AMOUNT`

use locker::{Locker, idempotent};
use serde::{Deserialize, Serialize};
use std::{env::args, error::Error};

#[derive(Debug, Serialize, Deserialize)]
struct Receipt {
    by: String,
    amount: u64,
}

#[idempotent(keep = "1h", name = "repeats.pay", args(request), same(amount), locker = locker)]
fn pay(locker: &Locker, request: &str, amount: u64) -> locker::Result<Receipt> {
    Ok(Receipt { by: "rust: größe".into(), amount })
}

fn main() -> Result<(), Box<dyn Error>> {
    let [url, request, amount] = args().skip(1).collect::<Vec<_>>().try_into().expect("URL REQUEST AMOUNT");
    let locker = Locker::builder().url(&url).build_blocking()?;
    match pay(&locker, &request, amount.parse()?) {
        Ok(Receipt { by, amount }) => println!("{amount} by {by}"),
        Err(error) => println!("{:?}", error.kind()),
    }
    Ok(())
}
