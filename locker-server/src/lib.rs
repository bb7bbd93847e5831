//! The server of locker: the primitives of the library for every language, over HTTP and `ZeroMQ`.
//!
//! The program is `locker`; this library is its inside, shared with its tests and benchmarks, and no public interface.

pub mod calls;
mod carry_out;
pub mod http;
pub mod limits;
pub mod metrics;
mod openapi;
pub mod server;
