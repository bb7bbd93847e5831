//! What is sent and what the server answers.

use locker_cas::served::StoreState;
use mysql_async::{Row, prelude::FromValue};
use std::fmt::Write as _;

/// The answer to one statement.
#[derive(Debug)]
pub(super) struct Answer {
    /// The number of rows that were changed.
    pub(super) affected: u64,
    /// What `LAST_INSERT_ID` was set to, 0 if it was not.
    pub(super) insert_id: i64,
    pub(super) rows: Vec<Row>,
}

/// The answers to the statements that were carried out, and the error of the one after them: the server carries out
/// none of those behind it.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) done: Vec<Answer>,
    pub(super) error: Option<mysql_async::Error>,
}

impl Answers {
    /// Returns the rows of the last statement, if all were carried out.
    pub(super) fn last(mut self) -> Result<Vec<Row>, mysql_async::Error> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.done.pop().map(|answer| answer.rows).unwrap_or_default()),
        }
    }
}

/// Returns the value in a column of a row, `None` if it is `NULL` or of another type.
pub(super) fn value<T: FromValue>(row: &Row, column: usize) -> Option<T> {
    row.get_opt(column).and_then(Result::ok)
}

/// Returns the state of the store from the columns that start at `first`, in the order of `sql::STORE_STATE`.
pub(super) fn store_state(row: &Row, first: usize) -> StoreState {
    let number = |at: usize| value::<i64>(row, first + at);
    StoreState {
        now: number(0).unwrap_or(0),
        fence: number(1).unwrap_or(0),
        removals: number(2).unwrap_or(-1),
        longest: number(3).unwrap_or(0),
        quick: number(4).is_some_and(|quick| quick != 0),
        is_written: number(4) != Some(2),
        quiet_until: number(5).unwrap_or(0),
        epoch: number(6),
    }
}

/// Returns a literal of bytes.
pub(super) fn literal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2 + 3);
    text.push_str("x'");
    for byte in bytes {
        // Writing to a text does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\'');
    text
}
