//! The process that made a locker: no other one can use it.

use super::{Inner, Locker};
use locker_core::{
    background,
    error::{Error, Result},
    key::Key,
    primitives::{Reply, Request},
    process::OfProcess,
    store::KeyPage,
};
use std::{
    mem::{forget, take},
    sync::Arc,
};

impl Locker {
    /// Whether this process made the locker, and not one that it was forked from.
    #[inline]
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.0.process.is_this()
    }

    /// Prepares this process for calls to the store.
    ///
    /// # Errors
    /// `Misused` if the locker was made before a fork; `Unavailable` if the background thread cannot be started.
    #[inline]
    pub(crate) fn ready(&self) -> Result<()> {
        if self.is_of_this_process() { background::ready() } else { Err(made_before_a_fork()) }
    }

    /// Makes one call, without a time limit of its own.
    pub(crate) async fn call_once(&self, key: &Key, request: &Request) -> Result<Reply> {
        self.ready()?;
        OfProcess::new(self.store().call(key, request)).await.unwrap_or_else(|| Err(made_before_a_fork()))
    }

    /// Lists keys with this locker's prefix.
    pub(crate) async fn page(&self, after: Option<&str>, limit: usize) -> Result<KeyPage> {
        self.ready()?;
        OfProcess::new(self.store().page(self.prefix(), after, limit))
            .await
            .unwrap_or_else(|| Err(made_before_a_fork()))
    }

    /// Returns the text of each subject, as far as the store knows it.
    pub(crate) async fn descriptions(&self, subjects: &[String]) -> Result<Vec<Option<String>>> {
        self.ready()?;
        OfProcess::new(self.store().descriptions(self.prefix(), subjects))
            .await
            .unwrap_or_else(|| Err(made_before_a_fork()))
    }
}

/// A forked child keeps its copies of the store, of spans and of hooks for good: the connections are the parent's, and
/// a thread of the parent may hold the mutexes of a subscriber.
impl Drop for Inner {
    fn drop(&mut self) {
        if !self.process.is_this() {
            forget(Arc::clone(&self.store));
            self.recorded.leave_to_parent();
            forget(take(&mut self.traces));
        }
    }
}

/// Returns the error of every call in a forked child.
pub(super) fn made_before_a_fork() -> Error {
    Error::made_before_a_fork("this locker was made", "make a new one in the child")
}
