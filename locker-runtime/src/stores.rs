//! The list of stores, and which URL opens which.

pub mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;
pub(crate) mod refusing;

use crate::{Error, ErrorKind, Result, store::Store};
pub use memory::Memory;
use std::{sync::Arc, time::Duration};

/// What a store needs to know to be opened.
#[derive(Clone, Debug, Default)]
#[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "for stores across a network"))]
pub(crate) struct Opening {
    /// How long opening may take.
    pub(crate) timeout: Duration,
    /// What stands before every key.
    pub(crate) prefix: String,
    /// Do not wait for the store to answer: calls will say what is wrong.
    pub(crate) lazy: bool,
    #[cfg(feature = "redis")]
    pub(crate) redis: redis::Options,
}

/// Opens the store that `url` names.
#[cfg_attr(
    not(feature = "redis"),
    expect(clippy::unused_async, reason = "stores across a network are awaited")
)]
pub(crate) async fn open(url: &str, opening: &Opening) -> Result<Arc<dyn Store>> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(misused(format!("`{url}` is not a URL; {ACCEPTED}")));
    };
    match scheme {
        "memory" if rest.is_empty() => Ok(Arc::new(Memory::of_process())),
        "memory" => Err(misused(format!("memory:// takes nothing behind it, but the URL is `{url}`"))),
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "unix" | "redis+unix" => Ok(redis::Redis::open(url, opening).await?),
        #[cfg(not(feature = "redis"))]
        "redis" | "rediss" | "unix" | "redis+unix" => {
            let _ = opening;
            Err(misused(format!("this build knows no {scheme}://: switch the Cargo feature `redis` on")))
        }
        other => Err(misused(format!("no store is called `{other}://`; {ACCEPTED}"))),
    }
}

const ACCEPTED: &str = "accepted are memory:// (this process only), redis://HOST:PORT, rediss://HOST:PORT and \
                        unix:///PATH";

fn misused(message: String) -> Error {
    Error::new(ErrorKind::Misused, message)
}
