//! The store of `run`, `lead`, `ls`, `explain`, `unlock` and `store check`.

use crate::{cli::StoreOptions, exit_code, store};
use locker_runtime::{Error, ErrorKind, KeyFormat, Locker};

/// The URLs of stores that processes share.
const SHARED: &str = "file:///DIR (this host), redis://HOST, postgres://HOST/DATABASE, \
                      mysql://HOST/DATABASE, etcd://HOST,.. or zk://HOST,..";

/// Opens the store. Stores that cannot hold a lock between processes are refused.
pub(super) async fn open(options: &StoreOptions) -> Result<Locker, Error> {
    open_with(options, KeyFormat::default()).await
}

/// Does what [`open`] does, with another way to write arguments into keys.
pub(super) async fn open_with(options: &StoreOptions, format: KeyFormat) -> Result<Locker, Error> {
    let misused = |reason: String| Err(Error::new(ErrorKind::Misused, reason));
    match options.store.as_deref() {
        None => misused(format!("no store: set LOCKER_URL, or give --store with {SHARED}")),
        Some(url) if url.starts_with("memory:") => misused(format!(
            "memory:// is the memory of one process and excludes no other process: give --store with {SHARED}"
        )),
        Some(url) if url.starts_with("http:") || url.starts_with("https:") => misused(format!(
            "the URL of a server is not a store yet: give the URL that the server has as --store, such as {SHARED}"
        )),
        Some(url) => store::open(store::builder(url, options.eviction, &options.prefix, format)).await,
    }
}

/// Logs an error and returns its exit code.
pub(super) fn fail(error: &Error) -> u8 {
    tracing::error!("{error}");
    exit_code::of(error.kind())
}
