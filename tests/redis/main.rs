//! What only a server across a network can do to locks: faults, restarts, wrong addresses, other clients.

mod addresses;
mod crowds;
mod failures;
mod interop;
mod late;
mod limiters;
mod loss;
mod primitives;
mod rechecks;
mod refusals;
mod runs;
mod runtimes;
mod start;
mod support;
#[cfg(feature = "redis-tls")]
mod tls;
mod together;
mod waiters;
