//! The server of locker: the primitives of the library for every language, over HTTP and ZeroMQ.
//!
//! The program is `locker`; this library is its inside, shared with its tests and benchmarks, and no public interface.

pub mod calls;
mod carry_out;
pub mod cli;
pub mod http;
pub mod limits;
pub mod metrics;
pub mod names;
mod openapi;
pub mod run;
pub mod serve;
pub mod server;
mod signals;
mod store;
pub mod zeromq;
