//! One attempt to hold under a name that other attempts may use as well.

use super::KeyedHold;
use crate::{
    locker::{Call, Locker, WaitOp},
    settings::{Patience, RETRY_DELAY},
};
#[cfg(feature = "idempotent")]
use locker_core::primitives::record::Ask;
use locker_core::{
    error::{Error, Result},
    id::Id,
    primitives::{Reply, Request, TOMBSTONE, Wait},
};
use std::time::Duration;

/// The waiters of one process ask again at most once in this time, but each of them within the second one.
const ASKS_EVERY: Duration = Duration::from_micros(500);
const LONGEST_RECHECK: Duration = Duration::from_secs(10);

/// An attempt to hold under a name. It confirms by asking again, so that it does not prolong the grant of another
/// attempt.
pub(super) struct Attempt<'a> {
    of: &'a KeyedHold,
    pub(super) call: Call<'a>,
    pub(super) id: Id,
    what: What,
    lease: Duration,
}

/// What an attempt asks for.
#[derive(Clone, Copy)]
enum What {
    /// The hold with this name.
    Hold(Id),
    /// A run of a record, which is called by the attempt.
    #[cfg(feature = "idempotent")]
    Run(Ask),
}

/// Returns the name of a hold in the store.
pub(super) fn name_of(holder: &str) -> Id {
    Id::of(holder)
}

impl<'a> Attempt<'a> {
    pub(super) fn new(of: &'a KeyedHold, id: Id, name: Id, lease: Duration) -> Self {
        Self { of, call: Call::start(of), id, what: What::Hold(name), lease }
    }

    #[cfg(feature = "idempotent")]
    pub(super) fn of_record(of: &'a KeyedHold, id: Id, ask: Ask, lease: Duration) -> Self {
        Self { of, call: Call::start(of), id, what: What::Run(ask), lease }
    }

    /// Returns how a record replies.
    #[cfg(feature = "idempotent")]
    pub(super) async fn begin(&self, timeout: Duration) -> Result<Reply> {
        let replied = self.wait(timeout).await;
        let ended = match &replied {
            Ok(Reply::Begun { fence, .. }) => Ok(Some(*fence)),
            Ok(Reply::Finished { .. }) => Ok(None),
            Ok(Reply::Mismatch) => Err(locker_core::error::ErrorKind::Conflict),
            Ok(reply) => Err(reply.clone().into_error().kind()),
            Err(error) => Err(error.kind()),
        };
        self.call.end(ended);
        replied
    }

    /// Returns the fence of the hold.
    pub(super) async fn acquire(&self, timeout: Duration) -> Result<u64> {
        // In the embedded store most holds are free. They are asked for without a mailbox, under the hold's name
        // alone, because no caller gives up on a reply that is already here.
        let KeyedHold { locker, key, kind } = self.of;
        let granted = if locker.is_embedded()
            && let What::Hold(name) = self.what
            && let Some(Ok(Reply::Granted { fence })) =
                locker.call_inline(key, &kind.acquire(name, self.lease, None), None)
        {
            Ok(fence)
        } else {
            self.wait(timeout).await.and_then(|reply| match reply {
                Reply::Granted { fence } => Ok(fence),
                reply => Err(reply.into_error().with_key(key.as_str())),
            })
        };
        self.call.end(granted.as_ref().map(|fence| Some(*fence)).map_err(Error::kind));
        granted
    }

    async fn wait(&self, timeout: Duration) -> Result<Reply> {
        let KeyedHold { locker, key, kind } = self.of;
        let acquired = locker.ask(key, self, Patience::up_to(timeout)).await?;
        if acquired.doubtful && matches!(self.what, What::Hold(_)) {
            // A late copy that arrived after the release would take a hold that nobody releases. The grant stays,
            // which has the holder's name.
            locker.call_in_background(key, kind.release(self.id, true), TOMBSTONE, |_| ());
        }
        Ok(acquired.reply)
    }
}

impl WaitOp for Attempt<'_> {
    fn id(&self) -> Id {
        self.id
    }

    fn call(&self) -> &Call<'_> {
        &self.call
    }

    fn ask(&self, wait: Option<Wait>) -> Request {
        match self.what {
            What::Hold(name) => self.of.kind.acquire_named(self.id, Some(name), self.lease, wait),
            #[cfg(feature = "idempotent")]
            What::Run(ask) => Request::Record(ask.begin(self.id, self.lease, wait)),
        }
    }

    fn cancel(&self, tombstone: bool) -> Request {
        self.of.kind.cancel(self.id, tombstone)
    }

    fn lease(&self) -> Duration {
        self.lease
    }

    /// Another process may have acquired under the same name, and a waiter ahead may have let its turn pass. Only the
    /// reply to a request tells. A server may have a hundred thousand waiters.
    fn longest_recheck(&self, locker: &Locker) -> Duration {
        let waiters = u32::try_from(locker.store().mailboxes().len()).unwrap_or(u32::MAX);
        ASKS_EVERY.saturating_mul(waiters).clamp(RETRY_DELAY, LONGEST_RECHECK)
    }
}
