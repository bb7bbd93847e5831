//! Functions of every shape, compiled with all warnings denied, and called.

#![deny(warnings, clippy::pedantic)]
#![deny(
    rust_2018_idioms,
    unused,
    unused_qualifications,
    unused_lifetimes,
    let_underscore_drop,
    tail_expr_drop_order
)]

mod arguments;
mod functions;
mod futures;
#[cfg(feature = "idempotent")]
mod idempotent;
mod leader;
mod once;
#[rustfmt::skip]
mod one_line;
mod options;
mod other_crates;
mod plain_bodies;
mod receivers;
mod signatures;
mod surroundings;
