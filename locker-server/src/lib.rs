//! The server of locker: the library's primitives for every language, over HTTP and ZeroMQ.
//!
//! The program is `locker`. This library is not a public interface: only the program, the tests and the benchmarks of
//! this package use it.

#[cfg(feature = "_fuzz")]
#[doc(hidden)]
pub mod fuzz;

mod commands;

mod http;
mod zeromq;

mod server;

mod live;
mod metrics;
mod service;
mod store;

mod activity;
mod counts;

mod caps;
mod log_throttle;
mod name_registry;
mod open_files;

mod cli;

mod api;
mod signals;

mod exit_code;
mod ranges;
mod sync;

#[doc(hidden)]
pub use commands::main;

/// Entry points for the tests.
#[doc(hidden)]
pub mod internals {
    pub use crate::{
        cli::{
            Eviction, Ls, Prefix, Run, StoreOptions,
            once::{AfterCrash, Once},
        },
        commands::{ls::list, run::run_under_lock, unlock::force_release},
    };
}
