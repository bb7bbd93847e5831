//! The scripts list the same waiters as the step, in the same order.

use super::comparison::{Comparison, Side};
use crate::{codec::primitives, script::ScriptReply};
use locker_core::{
    id::Id,
    primitives::{AnyState, Context, Reply, Request},
};

impl Comparison {
    /// Compares the waiters of each lock and semaphore, as operators see them.
    pub(super) fn compare_waiters(&mut self) -> Result<(), String> {
        let Self { connection, texts, sides, .. } = self;
        for side in sides {
            if !matches!(side.state, Some(AnyState::Lock(_) | AnyState::Semaphore(_))) {
                return Ok(());
            }
            let call = primitives::kind_of(&side.key).of(&side.settings);
            let command = call.changed(|text| texts.change(text), true, side.now.as_micros());
            let answer = ScriptReply::read(command.query(connection).expect("an answer")).expect("a reply");
            let (lua, step) = (primitives::waiters(answer.text()), side.waiters());
            if lua != step {
                return Err(format!("lua lists {lua:?}, the step {step:?} for\n{}", side.history.join("\n")));
            }
        }
        Ok(())
    }
}

impl Side {
    fn waiters(&mut self) -> Vec<Id> {
        let (key, mut notifications) = (&self.key, Vec::new());
        let mut context = Context::new(key, self.now, &mut notifications);
        match self.state.as_mut().map(|state| state.step(&Request::Inspect, &mut context)) {
            Some(Reply::Inspected(seen)) => seen.waiters,
            _ => Vec::new(),
        }
    }
}
