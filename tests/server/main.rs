//! The server from outside: the real binary over real sockets, with independent clients.

mod access;
mod administration;
mod calls;
mod clocks;
mod docs;
mod files;
mod ipc;
mod limits;
mod names;
mod openapi;
mod outages;
mod peers;
mod primitives;
mod run;
mod run_shared;
mod shared;
mod shutdown;
mod store_command;
mod stores;
mod support;
mod unread;
mod vanished;
mod waits;
mod zeromq;
