//! The removal of values that are over.

use super::{
    errors,
    session::{Parameter, Session, Use},
    shared::Shared,
    sql::SWEEP_SECONDS,
};
use locker_core::{background, diagnostics, error::Result};
use std::{sync::Arc, time::Duration};

/// The time between two attempts.
pub(super) const INTERVAL: Duration = Duration::from_secs(SWEEP_SECONDS);
/// The maximum of values that one statement removes.
const MAX_REMOVED: i64 = 1_000;
/// The maximum of statements in a row.
const MAX_STATEMENTS: usize = 60;
/// How long all of them may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Removes values that are over in the background, unless another process has done so within the last minute. Returns
/// whether the connection is still good.
pub(super) async fn try_now(shared: &Arc<Shared>, session: &Session) -> bool {
    match session.query(&shared.statements.turn, &[]).await {
        Ok(rows) if rows.is_empty() => return true,
        Ok(_) => {}
        Err(error) => return !errors::of_statement(&error).is_broken,
    }
    let shared = Arc::clone(shared);
    background::spawn(async move {
        tokio::select! {
            removed = remove(&shared) => if let Err(error) = removed {
                diagnostics::warn_aloud(&format!("values that are over were not removed from PostgreSQL: {error}"));
            },
            () = background::sleep(LIMIT) => {}
        }
    });
    true
}

/// Uses a connection of its own: to look through all values takes time.
pub(super) async fn remove(shared: &Shared) -> Result<()> {
    let Shared { target, named, statements, .. } = shared;
    let session = Session::open(target, &target.config, named, Use::Own(None)).await?;
    for _ in 0..MAX_STATEMENTS {
        let limit: Parameter<'_> = &MAX_REMOVED;
        let rows = session.query(&statements.sweep, &[limit]).await;
        let rows = rows.map_err(|error| errors::of_statement(&error).error)?;
        if rows.first().is_none_or(|row| row.get::<_, i64>(0) < MAX_REMOVED) {
            break;
        }
    }
    Ok(())
}
