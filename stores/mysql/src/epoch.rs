//! The row of `locker_boot`, which marks an epoch: it is gone after a start of the server, and names another one after
//! a failover.

use super::{
    errors::{self, code},
    facts::Facts,
    session::Session,
};
use locker_core::{
    error::{Error, ErrorKind, Result},
    id::Id,
};

/// Makes the row unless it is there, and says in the tables if a crash of the server may lose what it answers. Several
/// processes may try at once.
pub(super) async fn ensure(session: &Session, facts: &Facts) -> Result<()> {
    let failed = |error: &mysql_async::Error| match errors::code_of(error) {
        Some(code::BEFORE_GROUP) => in_a_group(),
        _ => errors::of_statement(error).error,
    };
    let found = session.one(facts.epoch()).await.map_err(|error| failed(&error))?;
    let mut statements = Vec::new();
    if found.rows.is_empty() {
        statements.extend(facts.begin_epoch(Id::random().low_half() >> 1));
    }
    if facts.is_lossy {
        statements.push("UPDATE locker_meta SET quick=1 WHERE quick=0".into());
    }
    if statements.is_empty() {
        return Ok(());
    }
    session.run(&statements).await.last().map(drop).map_err(|error| failed(&error))
}

fn in_a_group() -> Error {
    let why = "the servers replicate as a group, which takes no table in memory: whether a failover has lost a grant \
               cannot be seen there";
    Error::new(ErrorKind::Misused, why)
}
