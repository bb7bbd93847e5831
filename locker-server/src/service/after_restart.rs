//! Actions on holds in the grace after a restart.

use super::action::ActionCall;
use crate::{
    api::{Answer, Params},
    restart_grace::{Claim, Places, RestartGrace},
};
use locker_runtime::Result;
use std::{
    pin::pin,
    task::Poll,
    time::{Duration, Instant},
};

impl ActionCall<'_> {
    /// Runs an action that takes a hold when the grace after a restart is over.
    pub(super) async fn run_after(&self, grace: &RestartGrace) -> Result<Answer> {
        grace.warn_of_long_hold(self.params.expires);
        let started = Instant::now();
        let turn = match grace.turn(self.maxwait()).await {
            Ok(turn) => turn,
            Err(refusal) => return Ok(refusal),
        };
        let maxwait = self.params.maxwait.saturating_sub(started.elapsed());
        let params = Params { maxwait, ..self.params.clone() };
        let later = ActionCall { params: &params, ..*self };
        let mut work = pin!(later.run());
        // The call joins its queue before the next one gets its turn.
        let first = futures_util::poll!(work.as_mut());
        drop(turn);
        match first {
            Poll::Ready(answer) => answer,
            Poll::Pending => work.await,
        }
    }

    pub(super) async fn remember_release(&self) {
        if let Some(grace) = &self.shared.restart_grace {
            grace.released(self.resource(), self.name, self.key()).await;
        }
    }

    /// Takes back a hold that a restarted server does not know.
    pub(super) async fn take_back(&self) -> Result<Answer> {
        let Some(grace) = self.shared.restart_grace.as_ref().filter(|grace| !grace.is_over()) else {
            return Ok(Answer::not_held());
        };
        if let Some(refusal) = self.shared.names.admit(self.resource(), self.name, self.maxwait()).await {
            return Ok(refusal);
        }
        let Params { size, fence, .. } = *self.params;
        let claim = Claim { resource: self.resource(), name: self.name, key: self.key(), size, fence };
        Ok(match grace.take_back(claim, self).await? {
            Some(true) => Answer::done(),
            Some(false) => Answer::conflict("another client has taken this place back"),
            // A renewal of the same hold may have come first and taken it back.
            None if self.renew().await? => Answer::done(),
            None => Answer::not_held(),
        })
    }
}

/// The places of a hold that is taken back. They are those of the action's resource.
impl Places for ActionCall<'_> {
    fn raise_fence(&self, fence: u64) -> Result<()> {
        self.shared.admin.raise_fence(&self.shared.key(self.resource(), self.name), fence)
    }

    async fn take(&self, size: u64) -> Result<()> {
        let (size, _) = self.shared.holds.limit(size, Duration::ZERO);
        let params = Params { size, maxwait: Duration::ZERO, ..self.params.clone() };
        ActionCall { params: &params, ..*self }.acquire_hold().await.map(drop)
    }

    async fn end(&self, key: &str) -> Result<()> {
        self.release(key).await.map(drop)
    }
}
