//! The attributes: accepted functions, refused mistakes, and behaviour at run time.

mod accepted;
mod announced;
mod deadlocks;
mod drops;
mod errors;
mod exclusion;
mod failing_release;
mod keys;
mod limits;
mod loss;
mod nesting;
mod refused;
mod release;
mod self_calls;
mod support;
mod waiting;
