//! The attributes: shapes that are accepted, mistakes that are refused, and what happens at run time.

mod accepted;
mod exclusion;
mod keys;
mod loss;
mod nesting;
mod release;
mod support;
mod waiting;
