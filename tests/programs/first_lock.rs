//! Step 2 of `docs/tutorial/first-lock.md`.

use locker::{Locker, lock_on_argument};

// Withdrawals from one card run one after the other. Other cards do not wait. `expr` is the lease in seconds.
#[lock_on_argument(expr = 10, args(card), name = "bank.withdraw")]
async fn withdraw(card: u64, amount: u64) -> locker::Result<String> {
    // Read the balance, check it, write the new one.
    Ok(format!("{amount} from card {card}"))
}

#[tokio::main]
async fn main() -> locker::Result<()> {
    // `memory://` locks within this process, `redis://10.0.0.7` across hosts. With their Cargo features also
    // `file:///srv/shop`, `postgres://10.0.0.7/shop`, `mysql://10.0.0.7/shop`,
    // `etcd://10.0.0.1,10.0.0.2,10.0.0.3` and `zk://10.0.0.1,10.0.0.2,10.0.0.3`.
    let locker = Locker::connect("memory://").await?;
    locker::set_global(locker).expect("the global locker is set once");

    println!("{}", withdraw(4001, 30).await?);
    Ok(())
}
