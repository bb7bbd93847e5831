//! The judge of histories: what callers did with locks, limiters and other primitives, and what they were told.
//!
//! It uses no crate of locker, so that nothing is judged by its own code. `docs/contributing/histories.md` describes
//! the lines of a history and the laws.
//!
//! ```
//! let history = concat!(
//!     r#"{"type":"header","version":1,"store":"mine","made_by":"hand","lease":1000}"#, "\n",
//!     r#"{"type":"operation","process":1,"kind":"lock","name":"a","call":"acquire","asked":1,"entered":2,"#,
//!     r#""fence":1,"seen":9,"ended":10,"outcome":"released"}"#, "\n",
//!     r#"{"type":"operation","process":2,"kind":"lock","name":"a","call":"acquire","asked":1,"entered":8,"#,
//!     r#""fence":2,"seen":12,"ended":13,"outcome":"released"}"#, "\n",
//! );
//! let verdict = locker_checker::judge(history.as_bytes())?;
//! assert!(verdict.problems[0].to_string().starts_with("lines 2, 3: on lock a, overlap"));
//! # Ok::<(), locker_checker::Unreadable>(())
//! ```

mod judge;

mod circles;

mod liveness;
mod steps;

mod holds;
mod limits;
mod resources;

mod history;

mod verdict;

pub mod format;

pub use history::Unreadable;
pub use judge::judge;
pub use verdict::{Problem, Verdict};
