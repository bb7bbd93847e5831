//! The server from outside: the real binary over real sockets, with clients of other makes.

mod support;
mod zeromq;
