//! What is asked of a record.

use super::{AfterCrash, Answer, RawParams, bad};
use crate::ranges::MAX_TIME;
use locker_runtime::private::bindings::{Slots, slots};
use serde_json::Value;
use std::time::Duration;

/// The largest result, in bytes.
const MAX_RESULT: usize = 6 * 1024;

/// A run that a call asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) counts: Counts,
    /// What calls must have in common.
    pub(crate) same: Option<Box<str>>,
    /// Whether nothing runs after a run without a report.
    pub(crate) refuses: bool,
}

/// Which other calls a success counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counts {
    /// For the other calls of its slot.
    InSlots(Slots),
    /// For the calls of this time.
    For(Duration),
}

impl Run {
    pub(super) fn new(raw: &RawParams) -> Result<Self, Answer> {
        let RawParams { after_crash, early, every, from, keep, key, same, .. } = raw;
        let refused = |reason: &str| Err(bad(reason.to_owned()));
        if key.is_some() {
            return refused("key is not for begin: a run gets a key of its own, which is the answer");
        }
        let time = |ms: &u64| Duration::from_millis(*ms).min(MAX_TIME);
        let counts = match (every, keep) {
            (None, None) => {
                return refused(
                    "every or keep is missing: give the length of a slot, or how long a success counts",
                );
            }
            (Some(_), Some(_)) => return refused("every and keep are both given: give one of them"),
            (Some(_), None) if same.is_some() => return refused("same needs keep"),
            (None, Some(_)) if from.is_some() => return refused("from needs every"),
            (None, Some(_)) if early.is_some() => return refused("early needs every"),
            (Some(every), None) => {
                let slots = slots(time(every), from.as_ref().map(time), early.as_ref().map(time));
                Counts::InSlots(slots.map_err(|error| bad(error.message().to_owned()))?)
            }
            (None, Some(0)) if *after_crash == Some(AfterCrash::Refuse) => {
                return refused(
                    "keep is 0, which forgets a crash at once: keep results, or repeat after a crash",
                );
            }
            (None, Some(keep)) => Counts::For(time(keep)),
        };
        Ok(Self { counts, same: same.clone(), refuses: *after_crash == Some(AfterCrash::Refuse) })
    }
}

/// Returns the result of a run.
///
/// # Errors
/// 400 if it is no JSON text, 413 if it is too large.
pub(super) fn checked_result(result: Option<Box<str>>) -> Result<Option<Box<str>>, Answer> {
    let Some(text) = result else { return Ok(None) };
    if text.len() > MAX_RESULT {
        return Err(Answer::result_too_large(text.len(), MAX_RESULT));
    }
    match serde_json::from_str::<Value>(&text) {
        Ok(_) => Ok(Some(text)),
        Err(error) => {
            Err(bad(format!("result is no JSON text that all can read: see column {}", error.column())))
        }
    }
}
