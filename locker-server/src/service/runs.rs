//! Actions on records.

use super::action::ActionCall;
use crate::api::{Action, Answer, Counts, Record, Run};
use locker_runtime::{
    Result,
    private::bindings::{Answered, KeyedRun, begin},
};

impl ActionCall<'_> {
    pub(super) async fn change_run(&self) -> Result<Answer> {
        if let Some(run) = &self.params.run {
            // Boxed, because all other waiting calls would reserve space for it.
            return Box::pin(self.begin_run(run)).await;
        }
        let Some(run) = KeyedRun::parse(&self.shared.locker, self.name, self.key()) else {
            return Ok(Answer::not_held());
        };
        let was_running = match self.action {
            Action::FinishRun => run.finish(self.params.message.as_deref()).await?,
            Action::FailRun => run.fail().await?,
            _ => run.renew(self.expires()).await?,
        };
        Ok(if was_running { Answer::done() } else { Answer::not_held() })
    }

    async fn begin_run(&self, run: &Run) -> Result<Answer> {
        let (once, lease) = (self.shared.locker.once(self.name), self.expires());
        let answered = match run.counts {
            Counts::InSlots(slots) => {
                let asks = once.per(slots.every).slots(slots).lease(lease).without_place();
                let asks = if run.refuses { asks.refuse_after_crash() } else { asks };
                begin(asks, self.maxwait()).await?
            }
            Counts::For(keep) => {
                let asks = once.keep(keep).lease(lease).without_place();
                let asks = if run.refuses { asks.refuse_after_crash() } else { asks };
                let asks = match &run.same {
                    Some(same) => asks.same(&[same]),
                    None => asks,
                };
                begin(asks, self.maxwait()).await?
            }
        };
        Ok(match answered {
            Answered::Runs { key, fence, slot, missed } => {
                let slot = slot.map(|begins| Record::Slot { begins, missed });
                Answer::text(key).with_fence(fence).with_record(slot)
            }
            Answered::Done(Some(result)) => Answer::json(result).with_record(Some(Record::Replayed)),
            Answered::Done(None) => Answer::done(),
            Answered::Mismatch => Answer::mismatch(),
        })
    }
}
