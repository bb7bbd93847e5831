//! The watch on the mail of this process, and on the clock.

use super::{
    client::Client,
    endpoints::Member,
    errors::{Failure, Meaning},
    messages::{KeepAliveAnswer, KeyValue, LeaseId, NO_DELETIONS, WatchAnswer, WatchCreate, WatchRequest},
};
use futures_util::{StreamExt, stream};
use locker_core::error::{Error, ErrorKind};
use prost::bytes::Bytes;
use std::sync::Arc;
use tonic::Streaming;

/// A watch on two keys.
pub(super) struct Watch {
    answers: Streaming<WatchAnswer>,
    address: String,
    /// The number of the watch on the mail.
    mail: i64,
}

/// What a watch has shown.
pub(super) struct Seen {
    /// The changes of the mail, in order.
    pub(super) changes: Vec<KeyValue>,
    /// The revision to resume at.
    pub(super) next: Option<i64>,
    /// The present clock, if it has changed.
    pub(super) tick: Option<KeyValue>,
}

impl Seen {
    /// Reads an answer to the watches, of which that on the mail has this number.
    pub(super) fn of(answer: WatchAnswer, mail: i64) -> Self {
        let mut changes: Vec<_> = answer.events.into_iter().filter_map(|event| event.kv).collect();
        if answer.watch_id != mail {
            return Self { tick: changes.pop(), changes: Vec::new(), next: None };
        }
        // Without changes it says up to which revision there were none. With changes, more of them may follow.
        let next = match (changes.last(), answer.header) {
            (Some(last), _) => Some(last.mod_revision.saturating_add(1)),
            (None, Some(header)) if !answer.created => Some(header.revision.saturating_add(1)),
            _ => None,
        };
        Self { changes, next, tick: None }
    }
}

impl Watch {
    /// Watches the mail from a revision on, and the clock from now on.
    ///
    /// # Errors
    /// The meaning is `Compacted` if etcd does not know all changes since that revision.
    pub(super) async fn open(
        client: &Arc<Client>,
        member: &Arc<Member>,
        (mail, from): (Bytes, i64),
        clock: Bytes,
    ) -> Result<Self, Failure> {
        let create = |key, start_revision| {
            let filters = vec![NO_DELETIONS];
            WatchRequest { create: Some(WatchCreate { key, start_revision, progress_notify: true, filters }) }
        };
        // The watch ends with the stream of its requests. Its watches are numbered in the order of the requests.
        let requests = stream::iter([create(mail, from), create(clock, 0)]).chain(stream::pending());
        let answers = client.stream(member, "/etcdserverpb.Watch/Watch", requests).await?;
        let mut watch = Self { answers, address: member.address.clone(), mail: 0 };
        let created = client.next(member, &mut watch.answers).await?;
        let created = watch.check(created)?;
        if !created.created {
            return Err(watch.ended("the watch was not created"));
        }
        watch.mail = created.watch_id;
        Ok(watch)
    }

    /// Waits for changes.
    pub(super) async fn next(&mut self) -> Result<Seen, Failure> {
        let answer = self.answers.message().await.map_err(|status| Failure::of(&status, &self.address))?;
        Ok(Seen::of(self.check(answer)?, self.mail))
    }

    fn check(&self, answer: Option<WatchAnswer>) -> Result<WatchAnswer, Failure> {
        let Some(answer) = answer else { return Err(self.ended("the watch has ended")) };
        if answer.compact_revision > 0 {
            let error = Error::new(ErrorKind::Unavailable, "the changes to watch are compacted");
            return Err(Failure { meaning: Meaning::Compacted, error });
        }
        if answer.canceled {
            return Err(self.ended(&format!("the watch was ended: {}", answer.cancel_reason)));
        }
        Ok(answer)
    }

    fn ended(&self, why: &str) -> Failure {
        let error = Error::new(ErrorKind::Unavailable, format!("etcd at {}: {why}", self.address));
        Failure { meaning: Meaning::Elsewhere, error }
    }
}

/// Renews a lease. Returns whether it exists.
pub(super) async fn keep_alive(client: &Arc<Client>, member: &Arc<Member>, id: i64) -> Result<bool, Failure> {
    let requests = stream::iter([LeaseId { id }]).chain(stream::pending());
    let mut answers = client.stream(member, "/etcdserverpb.Lease/LeaseKeepAlive", requests).await?;
    let answer: Option<KeepAliveAnswer> = client.next(member, &mut answers).await?;
    Ok(answer.is_some_and(|answer| answer.ttl > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Event, Header};

    #[test]
    fn watch_resumes_after_what_was_seen() {
        let header = |revision| Some(Header { cluster_id: 1, revision });
        let event = |mod_revision| Event { kv: Some(KeyValue { mod_revision, ..KeyValue::default() }) };
        let next = |revision, created, changes: &[i64]| {
            let events = changes.iter().copied().map(event).collect();
            Seen::of(WatchAnswer { header: header(revision), created, events, ..WatchAnswer::default() }, 0)
                .next
        };
        assert_eq!(next(9, false, &[5, 7]), Some(8));
        assert_eq!(next(9, false, &[]), Some(10));
        assert_eq!(next(9, true, &[]), None);
        assert_eq!(next(i64::MAX, false, &[]), Some(i64::MAX), "no revision follows the greatest one");
        assert_eq!(next(9, false, &[i64::MAX]), Some(i64::MAX));
    }
}
