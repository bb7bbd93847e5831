//! MySQL and MariaDB: values in a table, which are compared and set by single statements, and messages in another.
//!
//! A store has a few connections, never one per lock: some for statements, and one that waits for messages, which a
//! sender wakes by `KILL QUERY`. They are driven by the background thread.

// The floors, from the top: a module uses only those below its own floor (tests/floors.rs).
#[cfg(test)]
mod tests;

mod listener;

mod inbox;
mod sweep;

mod driver;

mod batch;
mod epoch;
mod schema;

mod shared;

mod sql;

mod facts;

mod session;

mod answers;
mod url;

mod errors;

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
type Mysql = Served<Shared>;

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
/// `Misused` for a wrong URL or option, or a server on which the store cannot keep its promises; `Unavailable`.
pub async fn open(url: &str, opening: &Opening) -> Result<impl Backend + use<>> {
    open_with(Box::new(random_inbox), ANSWER_LIMIT, url, opening).await
}

async fn open_with(draw: Draw, answer_limit: Duration, url: &str, opening: &Opening) -> Result<Mysql> {
    let target = url::read(url, opening)?;
    let driver = Arc::new(Shared::new(target, answer_limit, draw));
    let heard = Arc::clone(&driver);
    Served::open(driver, opening, |lanes| Listener::new(heard, lanes)).await
}
