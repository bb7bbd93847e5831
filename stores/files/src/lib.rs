//! The backend of `file:///DIR`: the processes of one host that share a directory, without a server.
//!
//! - Values are in logs that all processes append to (`shard.rs`): a write takes three system calls.
//! - Messages are datagrams between sockets in the directory (`inbox.rs`).
//! - The clock is that of the host, which advances during suspend (`folder.rs`).
//!
//! Processes may be stopped or killed at any point. A reboot of the host ends every hold: nothing is written to the
//! disk for good but a floor of the fences, which rise over reboots.
//!
//! Two threads use the files, and nothing on the background thread does, because a disk may be slow and holds are
//! renewed there: one appends to logs, reads them and sends messages (`io.rs`), and the other one copies logs,
//! sweeps and waits for the disk (`keeper.rs`). What the second one waits for delays no call.
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
//! Removing the directory while processes use it, moving it, or mounting over it, ends their stores: each call reports
//! `Unavailable`. A call looks after its write whether the path still leads to the directory (`folder/identity.rs`).

// The floors, from the top: a module uses only those below its own floor (tests/floors.rs).
#[cfg(test)]
mod tests;

#[cfg(feature = "_fuzz")]
#[doc(hidden)]
pub mod fuzz;

mod gaps;
mod sweep;

mod io;
mod keeper;

mod shard;

mod inbox;
mod log;

mod folder;

mod errors;
mod pieces;
mod record;
mod url;
mod worker;

use folder::{Folder, Host, SHARDS};
use futures_util::future::BoxFuture;
use gaps::Gaps;
use io::{Io, Written};
use keeper::Keeper;
use locker_cas::{Backend, Inbox, Message, Outcome, Received, Time, Write};
use locker_core::{
    background,
    error::{Error, ErrorKind, Result},
    store::opening::Opening,
    sync::{Mutex, lock},
};
use record::{MAX_KEY, MAX_VALUE};
use shard::{Range, Size};
use std::{
    collections::BTreeMap, fmt, os::unix::net::UnixDatagram, path::PathBuf, sync::Arc, time::Duration,
};
use tokio::sync::oneshot;
use worker::Worker;

/// How long a call waits for the copy of a log that it has outgrown.
const MAX_DELAY: Duration = Duration::from_millis(200);

/// A directory that processes of one host share.
pub struct Files {
    /// Closed by one of the threads, since these are dropped later.
    folder: Arc<Folder>,
    io: Worker<Io>,
    keeper: Worker<Keeper>,
    inbox: Inbox,
    /// The socket of this process, until the receiver is known.
    bound: Mutex<Option<UnixDatagram>>,
    /// Ends the task that receives when it is dropped.
    ended: Mutex<Option<oneshot::Sender<()>>>,
}

/// Checks a URL. Nothing is asked.
///
/// # Errors
/// `Misused`, with the part of the URL that is wrong.
pub fn check_url(url: &str) -> Result<()> {
    url::read(url).map(drop)
}

impl Files {
    /// Opens the directory of a URL, after creating it if it is missing.
    ///
    /// # Errors
    /// `Misused` if the URL or the directory is not suitable, `Unavailable` if the system lacks resources.
    pub async fn open(url: &str, _opening: &Opening) -> Result<Self> {
        Self::open_at(url::read(url)?, Host::this).await
    }

    async fn open_at(path: PathBuf, host: impl FnOnce() -> Result<Host> + Send + 'static) -> Result<Self> {
        background::ready()?;
        let keeper = Worker::start("locker-keeper", move || Keeper::open(path, &host()?)).await?;
        let folder = keeper.run(|keeper| Arc::clone(&keeper.folder)).await?;
        let used = Arc::clone(&folder);
        let io = Worker::start("locker-files", move || Io::new(used)).await?;
        let (inbox, bound) = io.run(|io| (io.socket.inbox, io.socket.take_bound())).await?;
        sweep::start(&io, &keeper);
        Ok(Self { folder, io, keeper, inbox, bound: Mutex::new(bound), ended: Mutex::default() })
    }

    async fn write(&self, write: &Arc<Write>) -> Result<Written> {
        let write = Arc::clone(write);
        self.io.run(move |io| io.exchange(&write)).await.flatten()
    }

    async fn carry_out(&self, write: Write) -> Result<Outcome> {
        let key = write.key.as_str();
        if write.value.as_ref().is_some_and(|value| value.len() > MAX_VALUE) || key.len() > MAX_KEY {
            let message = "a value on file:// has at most 4 MiB, and a key 1 MiB";
            return Err(Error::new(ErrorKind::Misused, message).with_key(key));
        }
        let (number, write) = (io::shard_of(key), Arc::new(write));
        let mut written = self.write(&write).await?;
        if matches!(written, Written::Full(_)) {
            self.make_room().await?;
            written = self.write(&write).await?;
        }
        match written {
            Written::Full(error) => Err(error),
            Written::Done { outcome, outgrown } => {
                if let Some(size) = outgrown {
                    self.copy(number, size).await;
                }
                Ok(outcome)
            }
        }
    }

    /// Has a log copied, and waits for a moment, so that a quick writer is not faster than the keeper.
    async fn copy(&self, number: usize, size: Size) {
        let (done, end) = oneshot::channel::<()>();
        self.keeper.send(move |keeper| {
            keeper.copy(number, size);
            drop(done);
        });
        tokio::select! {
            _ = end => {}
            () = background::sleep(MAX_DELAY) => {}
        }
        self.io.send(move |io| io.follow(number));
    }

    /// Has logs copied, since replaced values may be all that fills the disk, and lets go of those that were replaced.
    async fn make_room(&self) -> Result<()> {
        self.keeper.run(|keeper| keeper.make_room()).await.map_err(Error::certain)?;
        for number in 0..SHARDS {
            self.io.send(move |io| io.follow(number));
        }
        Ok(())
    }

    async fn page(&self, range: Range) -> Result<Vec<(String, Vec<u8>)>> {
        let (limit, range) = (range.limit, Arc::new(range));
        let mut found: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for number in 0..SHARDS {
            let last = found.last_key_value().filter(|_| found.len() == limit);
            let (range, before) = (Arc::clone(&range), last.map(|(key, _)| key.clone()));
            found.extend(self.io.run(move |io| io.list(number, &range, before.as_deref())).await.flatten()?);
            while found.len() > limit {
                found.pop_last();
            }
        }
        Ok(found.into_iter().collect())
    }
}

impl Backend for Files {
    fn name(&self) -> &'static str {
        "files"
    }

    fn exchange(&self, write: Write) -> BoxFuture<'_, Result<Outcome>> {
        Box::pin(self.carry_out(write))
    }

    fn send(&self, messages: Vec<Message>) -> BoxFuture<'_, Result<Vec<Inbox>>> {
        Box::pin(self.io.run(move |io| io.socket.send(&messages)))
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, Vec<u8>)>>> {
        Box::pin(self.page(Range { prefix: prefix.to_owned(), after: after.map(str::to_owned), limit }))
    }

    fn time(&self) -> Time {
        Time::served(self.folder.now(), Duration::ZERO)
    }

    /// The clock, because fences begin at it and rise by one for each grant, and a grant takes longer than 1 us.
    fn fence_floor(&self) -> u64 {
        self.folder.now().as_micros()
    }

    fn fence_is_time(&self) -> bool {
        true
    }

    fn inbox(&self) -> Inbox {
        self.inbox
    }

    fn listen(&self, receiver: Box<dyn Fn(Received<'_>) + Send + Sync>) {
        let Some(socket) = lock(&self.bound).take() else { return };
        let (ended, end) = oneshot::channel();
        *lock(&self.ended) = Some(ended);
        let receiver = Arc::new(receiver);
        let gaps =
            Gaps { receiver: Arc::clone(&receiver), io: self.io.downgrade(), is_asked: Arc::default() };
        inbox::listen(socket, self.folder.path().to_owned(), receiver, move || gaps.look(), end);
    }

    fn max_value_len(&self) -> usize {
        MAX_VALUE
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Files({})", self.folder.path().display())
    }
}
