//! A semaphore whose holders are names that clients choose.

use super::request_with_retry;
use crate::{
    error::Result,
    id::Id,
    key::Key,
    locker::{Locker, WaitOp},
    primitives::{HoldRequest, IdempotencyKey, Reply, Request, TOMBSTONE, Wait, semaphore::Permits},
    ranges::{SHORTEST, check_range},
    settings::Patience,
};
use std::time::Duration;

/// A semaphore whose holders are names that clients choose: for servers, whose clients have no guard. Created by
/// [`Locker::keyed_semaphore`].
///
/// It takes permits of the same semaphore as [`Locker::semaphore`] does. Nothing is renewed or released automatically.
#[derive(Clone, Debug)]
pub struct KeyedSemaphore {
    locker: Locker,
    key: Key,
}

/// A permit that [`KeyedSemaphore::acquire`] took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// Rises with every grant. A holder that already held gets its former fence.
    pub fence: u64,
}

impl Locker {
    /// Returns the semaphore called `name`, for holders that clients name.
    #[must_use]
    pub fn keyed_semaphore(&self, name: &str) -> KeyedSemaphore {
        KeyedSemaphore { locker: self.clone(), key: Key::named(self.prefix(), "semaphore", name) }
    }
}

impl KeyedSemaphore {
    /// Takes a permit for the client that calls itself `holder`. The semaphore has `size` permits from now on.
    ///
    /// A holder that already holds gets its former fence; it takes no second permit, and its expiry stays. `expires`
    /// is 1 ms to 10 years; with [`Duration::MAX`] the hold never expires. `timeout` is that of
    /// [`LockRequest::timeout`](crate::LockRequest::timeout).
    ///
    /// # Errors
    /// `TimedOut`; `Conflict` if the name is deleted while the caller waits, or belongs to another kind of primitive;
    /// `Misused`; `Unavailable`.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future leaves the queue, and returns a permit that was granted to this very call.
    pub fn acquire(
        self,
        size: u64,
        holder: &str,
        expires: Duration,
        timeout: Duration,
    ) -> impl Future<Output = Result<Grant>> + Send + use<> {
        let ask = Permits { size, permits: 1, key: Id::of(holder) };
        let op = Acquire { id: self.locker.new_id(), ask, lease: expires };
        async move {
            check_expires(op.lease)?;
            // In the embedded store most permits are free. They are asked for without a mailbox, under the hold's name
            // alone, because no caller gives up on a reply that is already here.
            if self.locker.is_embedded()
                && let Some(Ok(Reply::Granted { fence })) =
                    self.locker.call_inline(&self.key, &op.under_the_holders_name())
            {
                return Ok(Grant { fence });
            }
            let acquired = self.locker.ask(&self.key, &op, Patience::up_to(timeout)).await?;
            if acquired.doubtful {
                // A late copy that arrived after the release would take a permit that nobody releases.
                self.locker.call_in_background(&self.key, op.tombstone(), TOMBSTONE, |_| ());
            }
            match acquired.reply {
                Reply::Granted { fence } => Ok(Grant { fence }),
                reply => Err(reply.into_error().with_key(self.key.as_str())),
            }
        }
    }

    /// Makes the hold of `holder` expire `expires` from now. Returns `false` if there is no such hold.
    ///
    /// # Errors
    /// `Conflict` if the name belongs to another kind of primitive; `Misused`; `Unavailable`: the hold may have been
    /// renewed.
    ///
    /// # Cancel safety
    /// Not cancel safe: when the future is dropped, the hold may have been renewed.
    pub async fn renew(&self, holder: &str, expires: Duration) -> Result<bool> {
        check_expires(expires)?;
        let request = HoldRequest::Renew { id: Id::of(holder), lease: expires, once: self.once() };
        let settled = request_with_retry(&self.locker, &self.key, Request::Semaphore(request)).await?;
        Ok(matches!(settled.reply, Reply::Renewed { .. }))
    }

    /// Ends the hold of `holder`. Returns `false` if there is no such hold.
    ///
    /// # Errors
    /// `Conflict` if the name belongs to another kind of primitive; `Unavailable`: the hold may have been released.
    ///
    /// # Cancel safety
    /// Not cancel safe: when the future is dropped, the hold may have been released.
    pub async fn release(&self, holder: &str) -> Result<bool> {
        let request = HoldRequest::Release { id: Id::of(holder), tombstone: false, once: self.once() };
        let settled = request_with_retry(&self.locker, &self.key, Request::Semaphore(request)).await?;
        Ok(settled.reply == Reply::Released || settled.retried)
    }

    /// Returns the idempotency key of a change. An embedded store gets no request twice.
    fn once(&self) -> Option<IdempotencyKey> {
        (!self.locker.is_embedded()).then(|| IdempotencyKey::new(self.locker.new_id()))
    }
}

fn check_expires(expires: Duration) -> Result<()> {
    if expires == Duration::MAX { Ok(()) } else { check_range("expires", expires, SHORTEST) }
}

/// An attempt to hold under a name that other attempts may use as well. It confirms by asking again, so that it does
/// not prolong the grant of another attempt.
struct Acquire {
    id: Id,
    ask: Permits,
    lease: Duration,
}

impl Acquire {
    /// Returns the request without waiting, with the hold's name as the attempt's.
    fn under_the_holders_name(&self) -> Request {
        let Self { ask, lease, .. } = *self;
        Request::Semaphore(HoldRequest::Acquire { id: ask.key, lease, wait: None, ask })
    }

    /// Returns the request that rejects late copies of the attempt. Its grant stays, which has the holder's name.
    fn tombstone(&self) -> Request {
        Request::Semaphore(HoldRequest::Release { id: self.id, tombstone: true, once: None })
    }
}

impl WaitOp for Acquire {
    fn id(&self) -> Id {
        self.id
    }

    fn ask(&self, wait: Option<Wait>) -> Request {
        let Self { id, ask, lease } = *self;
        Request::Semaphore(HoldRequest::Acquire { id, lease, wait, ask })
    }

    fn cancel(&self, tombstone: bool) -> Request {
        Request::Semaphore(HoldRequest::Cancel { id: self.id, tombstone })
    }

    fn lease(&self) -> Duration {
        self.lease
    }
}
