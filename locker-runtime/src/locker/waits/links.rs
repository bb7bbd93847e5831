//! The traces of the holders that waits wait for.

use super::{
    Listed,
    detection::{MOST_TEXTS, inspect},
    subject, text,
};
use crate::locker::{Around, Locker, TraceContext, traces::TracedHold};
use locker_core::primitives::inspection::{Held, Inspection};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The most holds of one process that follow each other with one grant, as in `lock.lua` of the store on Redis.
const RUN: u64 = 32;

/// Reads the holders of these waits and what their lockers tell of them. What the store does not tell is not linked.
pub(super) async fn find(locker: &Locker, waits: &[Arc<Listed>]) {
    let states = inspect(locker, waits.iter().map(|listed| listed.wait.key.clone()).collect()).await;
    let holders = states.values().flat_map(|seen| &seen.holders);
    let tags: BTreeSet<u64> = holders.filter_map(|held| held.tag).collect();
    let tags: Vec<u64> = tags.into_iter().take(MOST_TEXTS).collect();
    if tags.is_empty() {
        return;
    }
    let subjects: Vec<_> = tags.iter().copied().map(subject).collect();
    let texts = locker.descriptions(&subjects).await.unwrap_or_default();
    let known = tags.into_iter().zip(texts).filter_map(|(tag, text)| Some((tag, text?)));
    let told = known.flat_map(|(tag, text)| text::read_holds(&text, tag)).collect();
    for listed in waits {
        if let Some(seen) = states.get(&listed.wait.key) {
            listed.link(locker, contexts(listed.wait.key.as_str(), seen, &told).into_iter());
        }
    }
}

/// What lockers tell of their holds: by tag, key and fence.
struct TracesTold(BTreeMap<(u64, String, u64), TraceContext>);

impl FromIterator<TracedHold> for TracesTold {
    fn from_iter<I: IntoIterator<Item = TracedHold>>(holds: I) -> Self {
        let entry = |TracedHold { hold: Around { key, fence, tag }, context }: TracedHold| {
            ((tag, key.as_str().to_owned(), fence), context)
        };
        Self(holds.into_iter().map(entry).collect())
    }
}

/// Returns the traces of those who hold the key in this state.
fn contexts(key: &str, seen: &Inspection, told: &TracesTold) -> Vec<TraceContext> {
    // Permits and read/write locks have no runs.
    let before = if seen.used.is_none() { RUN - 1 } else { 0 };
    let context = |held: &Held| {
        let at = |fence| held.tag.map(|tag| (tag, key.to_owned(), fence));
        // A run has the fence of its last member.
        let run = at(held.fence.saturating_sub(before))?..=at(held.fence)?;
        told.0.range(run).next_back().map(|(_, context)| *context)
    };
    seen.holders.iter().filter_map(context).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use locker_core::key::Key;

    fn told(fences: &[u64]) -> TracesTold {
        let hold = |fence: &u64| TracedHold {
            hold: Around { key: Key::new("a"), fence: *fence, tag: 1 },
            context: [u8::try_from(*fence % 100).unwrap(); 25],
        };
        fences.iter().map(hold).collect()
    }

    fn seen(fence: u64) -> Inspection {
        let mut seen = Inspection::default();
        let mut held = Held::new(fence, 1);
        held.tag = Some(1);
        seen.holders.push(held);
        seen
    }

    /// The store tells the fence of the last member of a run, and its process that of the member which holds.
    #[test]
    fn member_of_a_run_is_its_holder() {
        let found = |fences: &[u64], fence| contexts("a", &seen(fence), &told(fences));
        assert_eq!(found(&[1_010, 1_012], 1_020), [[12; 25]], "the latest before the last");
        assert_eq!(found(&[1_020, 1_021], 1_020), [[20; 25]], "not one after it");
        assert_eq!(found(&[988, 1_021], 1_020), [[0; 25]; 0], "not one of an earlier run");
        assert_eq!(found(&[989], 1_020), [[89; 25]]);
        assert!(contexts("b", &seen(1_020), &told(&[1_020])).is_empty(), "another key");
    }

    #[test]
    fn permits_have_no_runs() {
        let mut permits = seen(1_020);
        permits.used = Some(1);
        assert!(contexts("a", &permits, &told(&[1_019])).is_empty());
        assert_eq!(contexts("a", &permits, &told(&[1_020])), [[20; 25]]);
    }
}
