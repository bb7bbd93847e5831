//! PostgreSQL: values in a table, which are compared and set by single statements, and messages by `NOTIFY`.
//!
//! A store has a few connections, never one per lock: some for writes that wait for the disk, one for all others, and
//! one that hears messages and reads the server's clock. They are driven by the background thread.

// The floors, from the top: a module uses only those below its own floor (tests/floors.rs).
#[cfg(test)]
mod tests;

mod listener;

mod sweep;

mod driver;

mod batch;
mod epoch;
mod inbox;
mod schema;

mod session;
mod shared;

mod sql;
mod url;

mod errors;
#[cfg(feature = "tls")]
mod tls;

use listener::Listener;
use locker_cas::{
    Backend, Draw, random_inbox,
    served::{ANSWER_LIMIT, Served},
};
use locker_core::{error::Result, store::opening::Opening};
pub use schema::{grants_sql, schema_sql};
use shared::Shared;
use std::{sync::Arc, time::Duration};

/// The backend on one database.
type Postgres = Served<Shared>;

/// Checks a URL. Nothing is asked.
///
/// # Errors
/// `Misused`, with the part of the URL that is wrong.
pub fn check_url(url: &str, opening: &Opening) -> Result<()> {
    url::read(url, opening).map(drop)
}

/// Opens a store, and waits for its connection unless the options say otherwise.
///
/// # Errors
/// `Misused` for a wrong URL or option, or a store that is set up wrongly; `Unavailable`.
pub async fn open(url: &str, opening: &Opening) -> Result<impl Backend + use<>> {
    open_with(Box::new(random_inbox), ANSWER_LIMIT, url, opening).await
}

async fn open_with(draw: Draw, answer_limit: Duration, url: &str, opening: &Opening) -> Result<Postgres> {
    let target = url::read(url, opening)?;
    // A store that is opened lazily finds out later whether it hears messages, and must poll if it does not.
    let may_poll = opening.lazy && target.listen.is_none();
    let shared = Arc::new(Shared::new(target, answer_limit, may_poll, draw));
    let listened = Arc::clone(&shared);
    Served::open(shared, opening, |lanes| Listener::new(listened, lanes, !opening.lazy)).await
}
