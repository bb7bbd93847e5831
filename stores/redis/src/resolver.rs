//! The addresses behind the name of a server.
//!
//! A name may have several, of several masters, or of another one than a moment ago. So each connection leads to one
//! address, and those of callers' runtimes to that of the main connection.

use redis::{RedisFuture, io::AsyncDNSResolver};
use std::{future::ready, io, iter::once, net::SocketAddr};

/// Looks a name up.
pub(super) async fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    #[cfg(test)]
    if let Some(address) = test_names::next(host) {
        return Ok(vec![address]);
    }
    Ok(tokio::net::lookup_host((host, port)).await?.collect())
}

/// A resolver to which every name means this address.
pub(super) struct Only(pub(super) SocketAddr);

impl AsyncDNSResolver for Only {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        _: &'b str,
        _: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        Box::pin(ready(Ok(Box::new(once(self.0)) as Box<_>)))
    }
}

/// Names that tests give to servers. Each look finds the next address.
#[cfg(test)]
pub(super) mod test_names {
    use locker_core::sync::{Mutex, lock};
    use std::{collections::HashMap, net::SocketAddr};

    static NAMES: Mutex<Option<HashMap<String, Vec<SocketAddr>>>> = Mutex::new(None);

    pub(crate) fn set(host: &str, addresses: Vec<SocketAddr>) {
        lock(&NAMES).get_or_insert_default().insert(host.to_owned(), addresses);
    }

    pub(super) fn next(host: &str) -> Option<SocketAddr> {
        let mut names = lock(&NAMES);
        let addresses = names.as_mut()?.get_mut(host)?;
        addresses.rotate_left(1);
        addresses.last().copied()
    }
}
