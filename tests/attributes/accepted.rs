//! Every shape of function: compiled with all warnings denied, and called.

#![deny(warnings, clippy::pedantic)]

mod arguments;
mod futures;
mod options;
mod other_crates;
mod signatures;
mod surroundings;
