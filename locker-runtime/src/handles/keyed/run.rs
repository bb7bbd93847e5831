//! Runs of records for the clients of a server. A client names its run by a key, and renews it.

use super::{KeyedHold, attempt::Attempt, request_with_retry};
use crate::{
    handles::{
        lock::record_error,
        once::{Asks, kept_text, text, unread},
    },
    locker::Locker,
};
use locker_core::{
    clock::Timestamp,
    error::{Error, Result},
    id::Id,
    key::Key,
    primitives::{HoldKind, MAX_VALUE, Reply, Request, TOMBSTONE, record},
    ranges::LONGEST,
};
use std::{
    str::from_utf8,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// How a record answers a client.
#[derive(Debug)]
pub enum Answered {
    /// It runs.
    Runs {
        /// What the run is called from now on.
        key: String,
        /// Rises with every run.
        fence: u64,
        /// When its slot begins. `None`: its result counts for a while.
        slot: Option<SystemTime>,
        /// How many slots had no success since the last one.
        missed: u64,
    },
    /// Another run has succeeded, perhaps with this result as JSON text.
    Done(Option<String>),
    /// A call with the same key has other values that must be the same.
    Mismatch,
}

/// Asks a record for a run. The lease is that of the request. The call waits for up to `timeout`, and for any time with
/// [`Duration::MAX`].
///
/// # Errors
/// Those of `OncePer::run` and `OnceKeep::run` without those of the body, and `Conflict` if the result of another run
/// was not kept.
///
/// # Cancel safety
/// Cancel safe: a call that is dropped while it waits begins nothing.
pub async fn begin(request: impl Asks, timeout: Duration) -> Result<Answered> {
    let (request, ask, ends) = request.asked()?.into_parts();
    let (locker, key, lease) = request.into_parts();
    let of = locker.keyed(HoldKind::Record, key);
    // A client sees the id and ends its run by it, so no id may follow from another one. The client is the holder: an
    // id with the tag of the locker would name the server.
    let id = Id::random_in(locker.new_id().inbox());
    let attempt = Attempt::of_record(&of, id, ask, lease);
    attempt.call.check(of.check_expires(lease))?;
    let named = |error: Error| error.with_key(of.key.as_str());
    match attempt.begin(timeout).await? {
        Reply::Begun { fence, slot, missed } => {
            let key = KeyedRun::text(attempt.id, ends.keep);
            Ok(Answered::Runs { key, fence, slot: slot.map(time_of), missed })
        }
        Reply::Finished { value } if value.as_bytes().is_empty() => Ok(Answered::Done(None)),
        Reply::Finished { value } => {
            let text = text(&value).and_then(|text| from_utf8(text).map_err(|_| unread()));
            text.map(|text| Answered::Done(Some(text.to_owned()))).map_err(named)
        }
        Reply::Mismatch => Ok(Answered::Mismatch),
        reply => Err(named(record_error(reply))),
    }
}

fn time_of(slot: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(slot.as_micros())
}

/// A run by its key.
#[derive(Debug)]
pub struct KeyedRun {
    of: KeyedHold,
    id: Id,
    /// How long its success counts. It is part of the key, so that the client does not say it again.
    keep: Duration,
}

impl KeyedRun {
    /// Returns the run of the record called `name` that [`begin`] has called `key`, or `None` if that is no key of a
    /// run.
    #[must_use]
    pub fn parse(locker: &Locker, name: &str, key: &str) -> Option<Self> {
        let (id, keep) = key.split_once('.')?;
        let keep = keep.bytes().all(|byte| byte.is_ascii_digit()).then(|| keep.parse().ok()).flatten()?;
        let keep = Some(Duration::from_millis(keep)).filter(|keep| *keep <= LONGEST)?;
        let of = locker.keyed(HoldKind::Record, Key::named(locker.prefix(), "once", name));
        Some(Self { of, id: Id::parse(id)?, keep })
    }

    fn text(id: Id, keep: Duration) -> String {
        format!("{id}.{}", keep.as_millis())
    }

    /// Makes the lease end `lease` from now, unless it lasts longer. Returns `false` if the run is over.
    ///
    /// # Errors
    /// `Misused` if `lease` is out of range; `Unavailable`: the lease may have been prolonged.
    pub async fn renew(&self, lease: Duration) -> Result<bool> {
        self.of.check_expires(lease)?;
        let KeyedHold { locker, key, kind } = &self.of;
        // A late copy shortens nothing.
        let settled = request_with_retry(locker, key, kind.renew(self.id, lease)).await?;
        Ok(matches!(settled.reply, Reply::Renewed { .. }))
    }

    /// Ends the run with success, and with this JSON text as its result. Returns `false` if the run is lost. A
    /// repetition returns `true`.
    ///
    /// # Errors
    /// `Unavailable`: the success may be recorded.
    pub async fn finish(&self, result: Option<&str>) -> Result<bool> {
        let value = result.map(|text| kept_text(Some(text.as_bytes()), MAX_VALUE)).unwrap_or_default();
        let request = record::Request::Finish { id: self.id, value, keep: self.keep };
        let KeyedHold { locker, key, .. } = &self.of;
        let settled = request_with_retry(locker, key, Request::Record(request)).await?;
        Ok(settled.reply == Reply::Recorded)
    }

    /// Ends the run without success: the next caller runs. Returns `false` if the run is over.
    ///
    /// # Errors
    /// `Unavailable`: the run may have been ended.
    pub async fn fail(&self) -> Result<bool> {
        let KeyedHold { locker, key, kind } = &self.of;
        let settled = request_with_retry(locker, key, kind.release(self.id, false)).await?;
        let has_failed = settled.reply == Reply::Released || settled.retried;
        if has_failed && !locker.is_embedded() {
            // A late copy of the request that began it would begin a run that nobody ends. Only of a run that was
            // there: any client can make up keys.
            locker.call_in_background(key, kind.release(self.id, true), TOMBSTONE, |_| ());
        }
        Ok(has_failed)
    }
}
