//! Changes that other programs have made between two overviews.

use super::row::Row;
use crate::activity::{Activity, Own, What};
use std::{cmp::Ordering, time::Instant};

/// Notes the grants and ends of holds that this server has not made since `began`, in milliseconds since 1970. Nothing
/// is noted if it has made too many to tell.
pub(super) fn note(activity: &Activity, began: u64, last: &[Row], next: &[Row]) {
    let Some(own) = activity.own_since(began) else { return };
    let now = Instant::now();
    for (before, after) in pairs(last, next) {
        let (old, new) = (before.map_or(0, |row| row.fence), after.map_or(0, |row| row.fence));
        if let Some(what) = change(&own, before, after, now)
            && let Some(row) = after.or(before)
        {
            activity.note_elsewhere(row.id, what, if new == 0 { old } else { new });
        }
    }
}

fn change(own: &Own, before: Option<&Row>, after: Option<&Row>, now: Instant) -> Option<What> {
    let fence = |row: Option<&Row>| row.map_or(0, |row| row.fence);
    let (old, new) = (fence(before), fence(after));
    if new > old {
        return after.filter(|row| !own.granted(row.id, new)).map(|_| What::Granted);
    }
    let ended = before.filter(|row| old > 0 && new == 0 && !own.ended(row.id))?;
    Some(if ended.has_expired(now) { What::Lost } else { What::Released })
}

/// Returns the rows of each key before and after. Both are in the order of their keys.
fn pairs<'a>(
    before: &'a [Row],
    after: &'a [Row],
) -> impl Iterator<Item = (Option<&'a Row>, Option<&'a Row>)> {
    let (mut before, mut after) = (before.iter().peekable(), after.iter().peekable());
    std::iter::from_fn(move || {
        let order = match (before.peek(), after.peek()) {
            (Some(old), Some(new)) => old.key.as_str().cmp(new.key.as_str()),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return None,
        };
        Some(match order {
            Ordering::Less => (before.next(), None),
            Ordering::Equal => (before.next(), after.next()),
            Ordering::Greater => (None, after.next()),
        })
    })
}
