//! The attributes: shapes that are accepted, mistakes that are refused, and what happens at run time.

mod accepted;
mod drops;
mod exclusion;
mod failing_release;
mod keys;
mod limits;
mod loss;
mod nesting;
mod refused;
mod release;
mod support;
mod waiting;
