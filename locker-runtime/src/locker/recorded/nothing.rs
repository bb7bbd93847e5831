//! No metrics, without the feature `metrics`.

use super::{Holders, Kind, Loss, Outcome, Subject};
use locker_core::{
    clock::Timestamp,
    error::Error,
    primitives::{Reply, Request},
};
use std::time::Duration;

/// What a builder says about metrics.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Metering {}

/// The spans of one locker.
#[derive(Debug)]
pub(crate) struct Recorded(Holders);

#[expect(clippy::unused_self, reason = "nothing is counted")]
impl Recorded {
    pub(crate) fn new(_: Metering, _: &'static str, _: &str) -> Self {
        Self(Holders::default())
    }

    pub(super) fn holders(&self) -> &Holders {
        &self.0
    }

    pub(crate) fn leave_to_parent(&mut self) {
        std::mem::forget(std::mem::take(&mut self.0));
    }

    pub(super) fn is_on(&self) -> bool {
        false
    }

    pub(super) fn waits(&self, _: Kind) -> bool {
        false
    }

    pub(super) fn holds(&self, _: &Subject<'_>) -> bool {
        false
    }

    pub(super) fn acquired(&self, _: &Subject<'_>, _: Outcome) {}

    pub(super) fn waited(&self, _: &Subject<'_>, _: Duration) {}

    pub(super) fn held(&self, _: &Subject<'_>, _: Duration) {}

    pub(super) fn lost(&self, _: &Subject<'_>, _: Loss) {}

    pub(super) fn renewed(&self, _: Outcome) {}

    pub(crate) fn replied(&self, _: &Request, _: Timestamp, _: &Result<Reply, Error>) {}

    pub(crate) fn store_failed(&self, _: &Error) {}
}
