//! Behaviour that only a server across a network shows. Each file covers a fault or a topic.

mod addresses;
mod batching;
mod broken_connections;
mod crowds;
mod handoff_model;
mod handshake;
mod in_process_handoff;
mod late_messages;
mod late_requests;
mod limiters;
mod lost_replies;
mod other_clients;
mod outages;
mod rechecks;
mod refusals;
mod restarts;
mod runtimes;
mod silent_waiters;
mod slow_network;
mod stored_keys;
mod support;
#[cfg(feature = "redis-tls")]
mod tls;
