//! The server of locker: the library's primitives for every language, over HTTP and ZeroMQ.
//!
//! The program is `locker`. This library is not a public interface: only the program, the tests and the benchmarks of
//! this package use it.

mod api;
mod caps;
mod cli;
mod commands;
mod http;
mod log_throttle;
mod metrics;
mod name_registry;
mod open_files;
mod ranges;
mod server;
mod service;
mod signals;
mod store;
mod sync;
mod zeromq;

#[doc(hidden)]
pub use commands::main;

/// Entry points for the tests and the fuzz driver.
#[doc(hidden)]
pub mod internals {
    pub use crate::{
        api::{Answer, Method, ParsedCall, RawParams, parse},
        cli::{Eviction, Run, StoreOptions},
        commands::{ls::list, run::run_under_lock, unlock::force_release},
        zeromq::frames,
    };
}
