//! The server from outside: the real binary over real sockets, with independent clients.

mod access;
mod calls;
mod docs;
mod files;
mod limits;
mod openapi;
mod peers;
mod run;
mod run_shared;
mod shared;
mod shutdown;
mod support;
mod waits;
mod zeromq;
