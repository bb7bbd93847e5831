//! Step 3 of `docs/tutorial/first-lock.md`.

use locker::lock_on_argument;
use std::time::Duration;

#[lock_on_argument(lease = "1s", timeout = "1m", args(card), name = "bank.withdraw")]
async fn withdraw(card: u64, amount: u64) -> locker::Result<()> {
    println!("{amount}: reads the balance");
    tokio::time::sleep(Duration::from_secs(2)).await;
    println!("{amount}: writes the balance");
    Ok(())
}

#[tokio::main]
async fn main() {
    let (first, second) = tokio::join!(withdraw(4001, 30), withdraw(4001, 50));
    println!("30: {:?}", first.map_err(|error| error.kind()));
    println!("50: {:?}", second.map_err(|error| error.kind()));
}
