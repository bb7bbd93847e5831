//! Links between the traces of callers that wait and of those they wait for, in other processes, too.
//!
//! A locker that tells its holds writes the context of each into the text of its [waits](super::waits), after a time,
//! so that short holds cost no write. A wait that lasts reads the texts of its holders.

use super::{Around, Locker};
use locker_core::{clock::Timestamp, key::Key, panics};
use std::{num::NonZeroU64, sync::Arc, time::Duration};

/// The trace id, the id of the span and the flags.
pub(crate) type TraceContext = [u8; 25];

type Ask = dyn Fn() -> Option<TraceContext> + Send + Sync;
type Tell = dyn Fn(&TraceContext) + Send + Sync;

/// What an application has set.
#[derive(Clone, Default)]
pub(crate) struct Traces {
    pub(crate) context: Option<Arc<Ask>>,
    pub(crate) on_link: Option<Arc<Tell>>,
    /// How long a hold lasts before it is told.
    pub(crate) tell_after: Option<Duration>,
}

/// A hold with the trace of its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TracedHold {
    pub(super) hold: Around,
    pub(super) context: TraceContext,
}

impl Locker {
    /// Enters a hold that began at `since` into the list of those to be told, if the application wants that. Returns
    /// its number there.
    pub(super) fn trace_hold(&self, key: &Key, fence: u64, since: Timestamp) -> Option<NonZeroU64> {
        let Traces { context: Some(context), tell_after: Some(after), .. } = &self.0.traces else {
            return None;
        };
        let context = panics::contain(|| context())??;
        let hold = Around { key: key.clone(), fence, tag: self.0.descriptions.ids.tag() };
        Some(self.list_hold(TracedHold { hold, context }, since + *after))
    }

    /// Tells the application the traces of the holders that a wait has found.
    pub(super) fn link(&self, contexts: &[TraceContext]) {
        if let Some(on_link) = &self.0.traces.on_link {
            for context in contexts {
                panics::contain(|| on_link(context));
            }
        }
    }

    /// Whether waits look for the traces of their holders.
    pub(super) fn links(&self) -> bool {
        self.0.traces.on_link.is_some()
    }
}
