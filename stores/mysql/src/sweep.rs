//! The removal of values that are over, and of messages that nobody has heard.

use super::{
    errors,
    session::{Session, Use},
    shared::Shared,
    sql::{NOW, SWEEP_SECONDS},
};
use locker_core::{background, diagnostics, error::Result};
use std::{sync::Arc, time::Duration};

/// The time between two attempts.
pub(super) const INTERVAL: Duration = Duration::from_secs(SWEEP_SECONDS);
/// The maximum of values that one transaction removes.
const MAX_REMOVED: usize = 500;
/// The maximum of transactions in a row.
const MAX_STATEMENTS: usize = 120;
/// How long all of them may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Removes what is over in the background, unless another process has done so within the last minute.
pub(super) fn try_now(driver: &Arc<Shared>) {
    let driver = Arc::clone(driver);
    background::spawn(async move {
        tokio::select! {
            removed = remove_in_turn(&driver) => if let Err(error) = removed {
                diagnostics::warn_aloud(&format!("values that are over were not removed from MySQL: {error}"));
            },
            () = background::sleep(LIMIT) => {}
        }
    });
}

async fn remove_in_turn(driver: &Shared) -> Result<()> {
    let session = open(driver).await?;
    let turn = format!("UPDATE locker_meta SET swept={NOW} WHERE swept<={NOW}-{SWEEP_SECONDS}000000");
    match session.one(turn).await {
        Ok(answer) if answer.affected == 0 => Ok(()),
        // Another process has its turn, or changes the row.
        Err(error) if errors::of_statement(&error).is_lost => Ok(()),
        Err(error) => Err(errors::of_statement(&error).error),
        Ok(_) => remove_with(&session).await,
    }
}

async fn open(driver: &Shared) -> Result<Session> {
    // A connection of its own: to look through all values takes time.
    Session::open(&driver.target, Use::Sweep, driver.losses.subscribe()).await
}

/// Removes what is over.
#[cfg(test)]
pub(super) async fn remove(driver: &Shared) -> Result<()> {
    remove_with(&open(driver).await?).await
}

async fn remove_with(session: &Session) -> Result<()> {
    for _ in 0..MAX_STATEMENTS {
        let removed = remove_some(session).await;
        if removed.map_err(|error| errors::of_statement(&error).error)? < MAX_REMOVED {
            break;
        }
    }
    for _ in 0..MAX_STATEMENTS {
        let removed = remove_unheard(session).await;
        if removed.map_err(|error| errors::of_statement(&error).error)? < MAX_REMOVED {
            break;
        }
    }
    Ok(())
}

/// Removes some messages that nobody has heard, and passes over those whose transaction goes on.
async fn remove_unheard(session: &Session) -> Result<usize, mysql_async::Error> {
    let unheard = format!(
        "DELETE m FROM locker_mail m JOIN (SELECT inbox,id FROM locker_mail WHERE at<{NOW}-{SWEEP_SECONDS}000000 \
         LIMIT {MAX_REMOVED} FOR UPDATE SKIP LOCKED) x ON x.inbox=m.inbox AND x.id=m.id"
    );
    session.one(unheard).await.map(|answer| usize::try_from(answer.affected).unwrap_or(usize::MAX))
}

/// Removes some values. The fences and the removals change in the same commit in which the rows go. All is one packet:
/// a process that is stopped meanwhile keeps no row.
async fn remove_some(session: &Session) -> Result<usize, mysql_async::Error> {
    let statements = [
        "BEGIN".into(),
        // What is over at that time stays over.
        format!("SET @locker_now={NOW}"),
        "SET @locker_fence=(SELECT MAX(fence) FROM locker_keys WHERE over_at<@locker_now)".into(),
        format!(
            "DELETE k FROM locker_keys k JOIN (SELECT `key` FROM locker_keys WHERE over_at<@locker_now \
             LIMIT {MAX_REMOVED} FOR UPDATE SKIP LOCKED) x ON x.`key`=k.`key`"
        ),
        format!(
            "UPDATE locker_meta SET removals=GREATEST(removals+1,{NOW}),\
             fence=GREATEST(fence,{NOW},COALESCE(@locker_fence,0)) WHERE ROW_COUNT()>0"
        ),
        "COMMIT".into(),
    ];
    let answers = session.run(&statements).await;
    let removed = answers.done.get(3).map_or(0, |answer| answer.affected);
    answers.last()?;
    Ok(usize::try_from(removed).unwrap_or(usize::MAX))
}
