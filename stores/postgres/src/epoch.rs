//! The row of `locker_boot`, which marks an epoch: it is gone after anything that may have lost writes.

use super::{errors, session::Session, sql::NOW, url::Target};
use locker_cas::served::SLACK;
use locker_core::{error::Result, id::Id};

#[cfg(test)]
mod model;

/// Makes the row unless it is there. If writes may have been lost, a quiet time begins: until the longest hold that was
/// ever granted is over. Several processes may try at once.
pub(super) async fn ensure(session: &Session, target: &Target) -> Result<()> {
    let made = session.run(&epoch_sql(&target.schema, Id::random().low_half() >> 1)).await;
    made.map_err(|error| errors::of_statement(&error).error)?;
    if !target.durable {
        let flag = format!(
            "BEGIN; SET LOCAL synchronous_commit TO local; SET LOCAL lock_timeout TO '5s'; \
             UPDATE \"{}\".locker_meta SET quick = true WHERE NOT quick; COMMIT",
            target.schema
        );
        session.transact(&flag).await.map_err(|error| errors::of_statement(&error).error)?;
    }
    Ok(())
}

/// Neither commit waits for a standby, which may be missing right after a failover: a standby that lacks them has
/// another timeline when it is promoted, and a quiet time.
///
/// A crash keeps durable writes, and the timeline. A promoted standby has another timeline. The quiet time is kept with
/// the timeline: a crash within it does not end it.
///
/// The lock is a row of the tables: an advisory lock would let any role that may connect stop all writes after a crash.
///
/// The row of another timeline was copied with the tables, or came with those of a publisher.
fn epoch_sql(schema: &str, id: u64) -> String {
    let marked = format!("EXISTS (SELECT FROM \"{schema}\".locker_boot)");
    let is_begun = format!(
        "{marked} AND NOT EXISTS (SELECT FROM \"{schema}\".locker_meta
                 WHERE timeline <> \"{schema}\".locker_timeline())"
    );
    format!(
        "DO $$ BEGIN
             IF {is_begun} THEN RETURN; END IF;
             PERFORM pg_catalog.set_config('synchronous_commit', 'local', true),
                 pg_catalog.set_config('lock_timeout', '5s', true);
             PERFORM FROM \"{schema}\".locker_meta FOR UPDATE;
             IF {is_begun} THEN RETURN; END IF;
             IF {marked} THEN DELETE FROM \"{schema}\".locker_boot; END IF;
             UPDATE \"{schema}\".locker_meta SET timeline = \"{schema}\".locker_timeline(), quiet_until =
                 least({NOW} + longest + {SLACK}::bigint,
                 CASE WHEN timeline = \"{schema}\".locker_timeline() AND NOT quick THEN quiet_until END);
             IF FOUND THEN
                 INSERT INTO \"{schema}\".locker_boot (id) VALUES ({id}) ON CONFLICT DO NOTHING;
             END IF;
         END $$"
    )
}
