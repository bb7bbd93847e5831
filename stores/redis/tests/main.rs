//! Behaviour that only a server across a network shows. Each file covers a fault or a topic.

mod addresses;
mod batching;
mod broken_connections;
mod cluster;
mod cluster_moves;
mod crowds;
mod failovers;
mod handoff_model;
mod handshake;
mod in_process_handoff;
mod late_messages;
mod late_requests;
mod limiters;
mod lost_data;
mod lost_messages;
mod lost_replies;
mod other_clients;
mod outages;
mod rechecks;
mod refusals;
mod replicas;
mod restarts;
mod runtimes;
mod self_calls;
mod sentinel;
mod silent_waiters;
mod slow_network;
mod stored_keys;
mod strict;
mod support;
#[cfg(feature = "redis-tls")]
mod tls;
mod watchers;
