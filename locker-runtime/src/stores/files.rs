//! The backend of `file:///DIR`: the processes of one host that share a directory, without a server.
//!
//! - Values are in logs that all processes append to (`files/shard.rs`): a write takes two system calls.
//! - Messages are datagrams between sockets in the directory (`files/inbox.rs`).
//! - The clock is that of the host, which advances during suspend (`files/folder.rs`).
//!
//! Processes may be stopped or killed at any point. A reboot of the host ends every hold: nothing is written to the
//! disk for good but a floor of the fences, which rise over reboots.
//!
//! All calls run in the caller's thread: they take some microseconds, less than handing them to another one.
//!
//! # The directory
//!
//! A missing directory is created for its user only (mode 0700). Several users share one whose group they are in, and
//! whose group may write: `chmod g+rwxs DIR`. Files have the permissions of the directory for its owner and its group,
//! never for others. It must be of a local file system, best of one in memory (`/dev/shm`, `/run`). A network file
//! system, FUSE included, is refused. Containers of one host may share a directory if their clocks have one offset
//! (time namespaces); a sandbox or a virtual machine with a kernel of its own has another boot id, and is refused while
//! processes of the other kernel use the directory, if their file locks meet.
//!
//! Removing the directory while processes use it ends their stores: each call reports `Unavailable`.

mod errors;
mod folder;
mod inbox;
mod log;
mod pieces;
mod record;
mod shard;
mod sweep;
#[cfg(test)]
mod tests;
mod url;

use crate::{
    background,
    error::{Error, ErrorKind, Result},
    stores::{
        cas::{Backend, Inbox, Message, Outcome, Received, Time, Write},
        opening::Opening,
    },
    sync::{Mutex, lock},
};
use folder::{Folder, Host};
use futures_util::future::BoxFuture;
use inbox::Socket;
use record::{MAX_KEY, MAX_VALUE};
use shard::{Exchanged, NewValue, Shard};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

/// The number of logs. It is part of the format of the directory.
const SHARDS: usize = 64;

/// A directory that processes of one host share.
#[derive(Debug)]
pub(crate) struct Files(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    folder: Arc<Folder>,
    shards: Box<[Mutex<Shard>]>,
    socket: Socket,
}

/// Checks a URL. Nothing is asked.
pub(crate) fn check_url(url: &str) -> Result<()> {
    url::read(url).map(drop)
}

impl Files {
    /// Opens the directory of a URL, after creating it if it is missing.
    ///
    /// # Errors
    /// `Misused` if the URL or the directory is not suitable, `Unavailable` if the system lacks resources.
    #[expect(clippy::unused_async, reason = "as the other backends")]
    pub(crate) async fn open(url: &str, _opening: &Opening) -> Result<Self> {
        background::ready()?;
        Self::open_at(url::read(url)?, &Host::this()?)
    }

    fn open_at(path: PathBuf, host: &Host) -> Result<Self> {
        let folder = Arc::new(Folder::open(path, host)?);
        let socket = Socket::bind(&folder)?;
        let shards = (0..SHARDS).map(|number| Mutex::new(Shard::new(number))).collect();
        let inner = Arc::new(Inner { folder, shards, socket });
        sweep::start(&inner);
        Ok(Self(inner))
    }
}

impl Inner {
    fn exchange(&self, write: &Write) -> Result<Outcome> {
        let key = write.key.as_str();
        if write.value.as_ref().is_some_and(|value| value.len() > MAX_VALUE) || key.len() > MAX_KEY {
            let message = "a value on file:// has at most 4 MiB, and a key 1 MiB";
            return Err(Error::new(ErrorKind::Misused, message).with_key(key));
        }
        let value = write.value.as_deref().map(|bytes| NewValue { bytes, lasts: write.lasts });
        let exchanged = lock(self.shard(key)).exchange(&self.folder, key, write.expected, value);
        Ok(match exchanged.map_err(|error| error.with_key(key))? {
            Exchanged::Matched(version) => {
                let gone = if value.is_some() { self.socket.send(&write.messages) } else { Vec::new() };
                Outcome::Matched { version, gone }
            }
            Exchanged::Differs(version, value) => Outcome::Differs { version, value },
        })
    }

    #[expect(clippy::cast_possible_truncation, reason = "the remainder is small")]
    fn shard(&self, key: &str) -> &Mutex<Shard> {
        &self.shards[(record::checksum(key.as_bytes()) % SHARDS as u64) as usize]
    }

    fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<(String, Vec<u8>)>> {
        let mut found: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for shard in &self.shards {
            let last = found.last_key_value().filter(|_| found.len() == limit);
            let before = last.map(|(key, _)| key.as_str());
            let more = lock(shard).list(&self.folder, prefix, after, before, limit)?;
            found.extend(more);
            while found.len() > limit {
                found.pop_last();
            }
        }
        Ok(found.into_iter().collect())
    }
}

impl Backend for Files {
    fn exchange(&self, write: Write) -> BoxFuture<'_, Result<Outcome>> {
        Box::pin(async move { self.0.exchange(&write) })
    }

    fn send(&self, messages: Vec<Message>) -> BoxFuture<'_, Result<Vec<Inbox>>> {
        Box::pin(async move { Ok(self.0.socket.send(&messages)) })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, Vec<u8>)>>> {
        Box::pin(async move { self.0.list(prefix, after, limit) })
    }

    fn time(&self) -> Time {
        Time::served(self.0.folder.now(), Duration::ZERO)
    }

    /// The clock, because fences begin at it and rise by one for each grant, and a grant takes longer than 1 us.
    fn fence_floor(&self) -> u64 {
        self.0.folder.now().as_micros()
    }

    fn inbox(&self) -> Inbox {
        self.0.socket.inbox
    }

    fn listen(&self, receiver: Box<dyn Fn(Received<'_>) + Send + Sync>) {
        self.0.socket.listen(receiver);
    }

    fn max_value_len(&self) -> usize {
        MAX_VALUE
    }
}
