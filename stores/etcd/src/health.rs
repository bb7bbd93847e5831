//! Warns once of a cluster that keeps all of its history: sooner or later it is full and refuses every write.

use super::{
    client::{Client, Repeat},
    errors::{Failure, Meaning},
    keys::Keys,
    messages::{Empty, Range, RangeAnswer, StatusAnswer},
};
use locker_core::diagnostics;
use std::sync::Arc;

/// How many revisions a cluster with compaction keeps at most.
const KEPT: i64 = 100_000;

/// Looks at the cluster, and warns if need be.
pub(super) async fn check(client: Arc<Client>, keys: Keys, address: String) {
    let Ok(status) = status(&client).await else { return };
    let revision = status.revision();
    let keeps_all = revision > KEPT && has_revision(&client, &keys, revision - KEPT).await;
    if let Some(warning) = warning(&status, keeps_all) {
        diagnostics::warn_aloud(&format!("{address}: {warning}"));
    }
}

pub(super) async fn status(client: &Arc<Client>) -> Result<StatusAnswer, Failure> {
    client.call("/etcdserverpb.Maintenance/Status", Empty {}, Repeat::Yes).await
}

/// Returns whether the cluster still has an old revision.
pub(super) async fn has_revision(client: &Arc<Client>, keys: &Keys, revision: i64) -> bool {
    let range = Range { key: keys.base(), revision, ..Range::default() };
    let answer = client.call::<_, RangeAnswer>("/etcdserverpb.KV/Range", range, Repeat::Yes).await;
    !answer.is_err_and(|failure| failure.meaning == Meaning::Compacted)
}

/// Returns what is wrong. Compaction leaves parts of the database unused.
fn warning(status: &StatusAnswer, keeps_all: bool) -> Option<String> {
    if status.errors.iter().any(|error| error.contains("NOSPACE")) {
        return Some("the database is full: etcd refuses every write until space is freed".into());
    }
    let is_in_use = status.db_size_in_use > status.db_size / 2;
    (keeps_all && is_in_use).then(|| {
        format!(
            "etcd keeps every change of the past ({} MB, of which {} MB are in use) and refuses writes when its \
             database is full: start it with --auto-compaction-mode=revision --auto-compaction-retention=10000",
            status.db_size >> 20,
            status.db_size_in_use >> 20
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warns_of_missing_compaction_and_of_a_full_database() {
        let status = |db_size, db_size_in_use| StatusAnswer { db_size, db_size_in_use, ..Default::default() };
        assert!(warning(&status(300 << 20, 290 << 20), true).unwrap().contains("300 MB, of which 290 MB"));
        assert_eq!(warning(&status(300 << 20, 290 << 20), false), None);
        assert_eq!(warning(&status(300 << 20, 20 << 20), true), None);
        let errors = vec!["memberID:8 alarm:NOSPACE ".into()];
        assert!(warning(&StatusAnswer { errors, ..Default::default() }, false).unwrap().contains("full"));
    }
}
