//! The inbox of this process at the server.
//!
//! Its number is in the ids of waiters, and everybody can see it in `pg_locks`: the process has an exclusive lock on
//! it, so that no other process draws it, and others notice when the process has ended. The name of its channel has a
//! secret of the tables as well, so that only a role that may read these can listen to a process or send to it.

use super::{errors, session::Session, shared::Shared, sql};
use locker_core::{
    background,
    backoff::Backoff,
    error::{Error, Result},
    sync::lock,
};
use std::time::Duration;

/// The first and the longest pause between two attempts to claim the inbox on a new connection.
const PAUSES: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(250)];

/// Listens to the channel of the inbox.
pub(super) async fn listen(shared: &Shared, session: &Session) -> Result<()> {
    let inbox = shared.server.inbox();
    let rows = session
        .query(&shared.statements.channel, &[&i64::from(inbox)])
        .await
        .map_err(|error| failed(&error))?;
    let Some(row) = rows.first() else { return Err(errors::lost("the table locker_meta is empty")) };
    // If there is another secret in a moment, the next sample shows it.
    *lock(&shared.channel) = row.get(0);
    session.run(&sql::listen(&shared.target.schema, inbox)).await.map_err(|error| failed(&error))
}

/// Claims the inbox for a connection. Returns `false` if another one has it.
pub(super) async fn claim(shared: &Shared, session: &Session) -> Result<bool> {
    let rows =
        session.query_once(&sql::claim(shared.server.inbox()), &[]).await.map_err(|error| failed(&error))?;
    Ok(rows.first().is_some_and(|row| row.get(0)))
}

/// Claims the inbox, or another one if another process has it.
pub(super) async fn claim_any(shared: &Shared, session: &Session) -> Result<()> {
    while !claim(shared, session).await? {
        shared.draw_inbox();
        session.run("UNLISTEN *").await.map_err(|error| failed(&error))?;
        listen(shared, session).await?;
    }
    Ok(())
}

/// Claims the inbox as soon as the former connection of this process is gone, and nobody looks for that.
pub(super) async fn claim_again(shared: &Shared, session: &Session) -> Result<()> {
    let mut backoff = Backoff::between(PAUSES[0], PAUSES[1]);
    while !claim(shared, session).await? {
        background::sleep(backoff.next_delay()).await;
    }
    Ok(())
}

fn failed(error: &tokio_postgres::Error) -> Error {
    errors::of_statement(error).error
}
