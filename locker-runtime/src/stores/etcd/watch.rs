//! The watch on the mail of this process.

use super::{
    client::Client,
    endpoints::Member,
    errors::{Failure, Meaning},
    messages::{KeepAliveAnswer, KeyValue, LeaseId, NO_DELETIONS, WatchAnswer, WatchCreate, WatchRequest},
};
use crate::error::{Error, ErrorKind};
use futures_util::{StreamExt, stream};
use prost::bytes::Bytes;
use std::sync::Arc;
use tonic::Streaming;

/// A watch on one key.
pub(super) struct Watch {
    answers: Streaming<WatchAnswer>,
    address: String,
}

/// What a watch has shown.
pub(super) struct Seen {
    /// The changes, in order.
    pub(super) changes: Vec<KeyValue>,
    /// The revision to resume at.
    pub(super) next: Option<i64>,
}

impl Watch {
    /// Watches a key from a revision on.
    ///
    /// # Errors
    /// The meaning is `Compacted` if etcd does not know all changes since that revision.
    pub(super) async fn open(
        client: &Arc<Client>,
        member: &Arc<Member>,
        key: Bytes,
        from: i64,
    ) -> Result<Self, Failure> {
        let filters = vec![NO_DELETIONS];
        let create = WatchCreate { key, start_revision: from, progress_notify: true, filters };
        // The watch ends with the stream of its requests.
        let requests = stream::iter([WatchRequest { create: Some(create) }]).chain(stream::pending());
        let answers = client.stream(member, "/etcdserverpb.Watch/Watch", requests).await?;
        let mut watch = Self { answers, address: member.address.clone() };
        let created = client.next(member, &mut watch.answers).await?;
        let created = watch.check(created)?;
        if created.created { Ok(watch) } else { Err(watch.ended("the watch was not created")) }
    }

    /// Waits for changes.
    pub(super) async fn next(&mut self) -> Result<Seen, Failure> {
        let answer = self.answers.message().await.map_err(|status| Failure::of(&status, &self.address))?;
        let answer = self.check(answer)?;
        let changes: Vec<_> = answer.events.into_iter().filter_map(|event| event.kv).collect();
        // Without changes it says up to which revision there were none. With changes, more of them may follow.
        let next = match (changes.last(), answer.header) {
            (Some(last), _) => Some(last.mod_revision + 1),
            (None, Some(header)) if !answer.created => Some(header.revision + 1),
            _ => None,
        };
        Ok(Seen { changes, next })
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
