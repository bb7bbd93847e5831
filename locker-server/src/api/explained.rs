//! The JSON document that says who holds a key.

use super::state::millis;
use locker_runtime::{
    Explanation, FunctionSource, Holder, Inspection, Key, Listed, Named, primitives::inspection::Held,
};
use serde::Serialize;
use utoipa::ToSchema;

/// The holders of a key, and how many callers wait for it; times in milliseconds.
#[derive(Serialize, ToSchema)]
#[schema(as = Explanation)]
pub(crate) struct Explained {
    #[schema(required)]
    kind: Option<&'static str>,
    /// The name. Keys of functions have none.
    #[schema(required)]
    name: Option<String>,
    /// The whole key.
    key: String,
    /// The function with the attribute, if a process has told the store about it.
    #[schema(required)]
    function: Option<String>,
    /// The file of the function.
    #[schema(required)]
    file: Option<String>,
    /// The line of the function.
    #[schema(required)]
    line: Option<u32>,
    /// The holders, in the order of their fences.
    holders: Vec<ExplainedHolder>,
    /// The number of waiting callers.
    waiting: u64,
    /// The keys that the holders wait for while they hold this one, each with its own. A list of keys has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, no_recursion)]
    waiting_for: Option<Vec<Explained>>,
}

/// A holder of a key.
#[derive(Serialize, ToSchema)]
pub(crate) struct ExplainedHolder {
    fence: u64,
    /// What the holder says about itself. Clients of a server say nothing.
    #[schema(required)]
    note: Option<String>,
    /// `null` if the hold lasts until it is released.
    #[schema(required)]
    left_ms: Option<u64>,
    permits: u64,
}

impl Explained {
    fn new(key: &Key, named: Option<&Named>, function: Option<&FunctionSource>) -> Self {
        let name = match named {
            Some(Named::Kind { name, .. }) => Some(name.clone()),
            _ => None,
        };
        Self {
            kind: named.map(Named::kind),
            name,
            key: key.to_string(),
            function: function.map(|function| function.name.clone()),
            file: function.map(|function| function.file.clone()),
            line: function.map(|function| function.line),
            holders: Vec::new(),
            waiting: 0,
            waiting_for: None,
        }
    }

    pub(crate) fn of_listed(listed: &Listed, seen: &Inspection) -> Self {
        let holders = seen.holders.iter().map(ExplainedHolder::from).collect();
        let entry = Self::new(&listed.key, Some(&listed.named), listed.function.as_ref());
        Self { holders, waiting: seen.waiting, ..entry }
    }
}

impl Explained {
    /// Leaves out the holders of each key behind the first ones.
    pub(crate) fn of_first(explanation: &Explanation, most_holders: usize) -> Self {
        let holders = explanation.holders().iter().take(most_holders).map(ExplainedHolder::from).collect();
        let entry = Self::new(explanation.key(), explanation.named(), explanation.function());
        let waiting_for = explanation.waiting_for().iter();
        let waiting_for = waiting_for.map(|next| Self::of_first(next, most_holders)).collect();
        Self { holders, waiting: explanation.waiting(), waiting_for: Some(waiting_for), ..entry }
    }
}

impl From<&Explanation> for Explained {
    fn from(explanation: &Explanation) -> Self {
        Self::of_first(explanation, usize::MAX)
    }
}

impl From<&Holder> for ExplainedHolder {
    fn from(holder: &Holder) -> Self {
        let Holder { fence, permits, .. } = *holder;
        Self { fence, note: holder.note.clone(), left_ms: holder.time_left.map(millis), permits }
    }
}

impl From<&Held> for ExplainedHolder {
    fn from(held: &Held) -> Self {
        let note = held.note.clone().filter(|note| !note.is_empty());
        Self { fence: held.fence, note, left_ms: held.time_left.map(millis), permits: held.permits }
    }
}

/// Returns the lines of `locker explain`, with this many holders of each key at most.
pub(crate) fn lines(explanation: &Explanation, most_holders: Option<usize>) -> String {
    let text = match most_holders {
        Some(most) => format!("{explanation:.most$}"),
        None => explanation.to_string(),
    };
    text.lines().map(printable).collect::<Vec<_>>().join("\n")
}

/// Returns a line without what would move the cursor or reverse the text: other users of the store have written it.
fn printable(line: &str) -> String {
    let escaped = |letter: char| match letter {
        '"' | '\'' | '\\' => letter.to_string(),
        _ => letter.escape_debug().to_string(),
    };
    line.chars().map(escaped).collect()
}
