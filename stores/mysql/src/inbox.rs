//! The inbox of this process at the server.
//!
//! The listening connection holds the lock of its number, so that no other process draws it, others notice when the
//! process has ended, and whom a sender has to wake.

use super::{answers::value, errors, session::Session, shared::Shared, sql};
use locker_core::{
    background,
    backoff::Backoff,
    error::{Error, ErrorKind, Result},
};
use std::time::Duration;

/// The first and the longest pause between two attempts to claim the inbox on a new connection.
const PAUSES: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(250)];
/// How often that is tried.
const ATTEMPTS: usize = 12;

/// Claims an inbox that no other process has. Waiters of this process have its number from then on.
pub(super) async fn claim_any(driver: &Shared, session: &Session) -> Result<()> {
    while !claim(driver, session).await? {
        driver.server.change_inbox(|_| driver.server.draw());
    }
    Ok(())
}

/// Claims the inbox again, which a former connection of this process may still have at the server.
pub(super) async fn claim_again(driver: &Shared, session: &Session, former: u64) -> Result<()> {
    let mut backoff = Backoff::between(PAUSES[0], PAUSES[1]);
    for _ in 0..ATTEMPTS {
        if claim(driver, session).await? {
            return Ok(());
        }
        let owner = session.one(sql::owners(&[driver.server.inbox()])).await;
        let owner = owner.map_err(|error| errors::of_statement(&error).error)?;
        if owner.rows.first().and_then(|row| value::<u64>(row, 0)) == Some(former) {
            // It may have ended meanwhile.
            drop(session.one(format!("KILL {former}")).await);
        }
        background::sleep(backoff.next_delay()).await;
    }
    Err(Error::new(ErrorKind::Unavailable, "another process has the inbox of this one at the server"))
}

async fn claim(driver: &Shared, session: &Session) -> Result<bool> {
    let claimed = session.one(sql::claim(driver.server.inbox())).await;
    let claimed = claimed.map_err(|error| errors::of_statement(&error).error)?;
    Ok(claimed.rows.first().and_then(|row| value::<i64>(row, 0)) == Some(1))
}
