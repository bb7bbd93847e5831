//! What a call of an action did, for the page.

use super::action::ActionCall;
use crate::{activity::What, api::Answer};
use locker_runtime::{ErrorKind, Result};
use std::time::Duration;

impl ActionCall<'_> {
    /// Notes the result of the call. `took` is the time since its start, if it is counted.
    pub(super) fn note(&self, result: &Result<Answer>, took: Option<Duration>) {
        let Some(what) = self.what(result) else { return };
        let waited = took.filter(|_| matches!(what, What::Granted | What::TimedOut));
        let fence = result.as_ref().ok().and_then(|answer| answer.fence).unwrap_or_default();
        self.shared.activity.note((self.resource(), self.name), what, fence, waited);
    }

    /// Notes that the call was refused because of a cap.
    pub(super) fn note_refusal(&self) {
        self.shared.activity.note((self.resource(), self.name), What::Refused, 0, None);
    }

    fn what(&self, result: &Result<Answer>) -> Option<What> {
        let action = self.action;
        let not_in_time = if self.params.maxwait.is_zero() { What::Refused } else { What::TimedOut };
        match result {
            Ok(answer) if answer.is_replay_of(action) => None,
            Ok(answer) if answer.status < 300 && action.waits() => Some(What::Granted),
            Ok(answer) if answer.status < 300 => action.releases_hold().then_some(What::Released),
            Ok(answer) if answer.status == 409 => action.needs_key().then_some(What::Lost),
            Ok(answer) if answer.status == 429 => Some(What::Refused),
            Ok(_) => None,
            Err(error) => match error.kind() {
                ErrorKind::TimedOut | ErrorKind::Limited => Some(not_in_time),
                _ => None,
            },
        }
    }
}
