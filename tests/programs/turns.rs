//! Takes turns on one key with programs in other languages, which `clients/python/tests/test_turns.py` starts.
//!
//! `turns URL NAME TOTAL`: as often as it can, until the list `turns:NAME` of that Redis has TOTAL entries. After each
//! turn it waits for one of another party.

use locker::{KeyFormat, Locker, lock_on_argument};
use redis::{Commands, Connection};
use std::{env::args, error::Error, thread::sleep, time::Duration};

struct Turns {
    connection: Connection,
    list: String,
    inside: String,
    total: usize,
}

impl Turns {
    fn is_over(&mut self) -> redis::RedisResult<bool> {
        Ok(self.connection.llen::<_, usize>(&self.list)? >= self.total)
    }

    fn wait_for_others(&mut self) -> redis::RedisResult<()> {
        while !self.is_over()?
            && self.connection.lindex::<_, Option<String>>(&self.list, -1)?.as_deref() == Some("rust")
        {
            // The interval of the questions.
            sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Fails if anybody else is inside.
    fn body(&mut self) -> Result<(), Box<dyn Error>> {
        if !self.connection.set_nx::<_, _, bool>(&self.inside, "rust")? {
            return Err("another party is inside".into());
        }
        self.connection.rpush::<_, _, ()>(&self.list, "rust")?;
        Ok(self.connection.del(&self.inside)?)
    }
}

#[lock_on_argument(name = "turns.withdraw", args(card, amount), expr = 30, timeout = "1m", locker = locker)]
fn withdraw(locker: &Locker, card: &str, amount: u64, turns: &mut Turns) -> Result<(), Box<dyn Error>> {
    turns.body()
}

fn main() -> Result<(), Box<dyn Error>> {
    let [url, name, total] = args().skip(1).collect::<Vec<_>>().try_into().expect("URL NAME TOTAL");
    let locker = Locker::builder().url(&url).key_format(KeyFormat::Python).build_blocking()?;
    let (list, inside) = (format!("turns:{name}"), format!("inside:{name}"));
    let mut turns = Turns {
        connection: redis::Client::open(url)?.get_connection()?,
        list,
        inside,
        total: total.parse()?,
    };
    while !turns.is_over()? {
        withdraw(&locker, &name, 30, &mut turns)?;
        turns.wait_for_others()?;
    }
    Ok(())
}
