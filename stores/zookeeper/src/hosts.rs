//! The servers of an ensemble, and how to connect to them.

#[cfg(not(feature = "tls"))]
use super::plain as tls;
#[cfg(feature = "tls")]
use super::tls;
use super::{
    errors::{CLOSED, Failure},
    stream::Stream,
    url::{PORT, Url},
};
use locker_core::{error::Result, id::Id, store::url::Host};
use std::io;
use tokio::net::{TcpStream, lookup_host};

/// All servers.
#[derive(Clone)]
pub(super) struct Servers {
    hosts: Vec<Host>,
    next: usize,
    /// How often all were tried.
    rounds: usize,
    tls: tls::Settings,
}

impl Servers {
    /// Takes the servers. Reads the files of the URL.
    pub(super) fn new(url: &mut Url, authorities: Option<&[u8]>) -> Result<Self> {
        let tls = tls::Settings::read(url, authorities)?;
        let hosts = std::mem::take(&mut url.hosts);
        // The processes of an application begin with different servers.
        let next = usize::try_from(Id::random().jitter(256)).unwrap_or(0);
        Ok(Self { hosts, next, rounds: 0, tls })
    }

    pub(super) fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Returns the address of the server that was connected to last.
    pub(super) fn address(&self) -> String {
        self.last().place(PORT)
    }

    fn last(&self) -> &Host {
        &self.hosts[self.next % self.hosts.len()]
    }

    /// Connects to the next server. Returns it with its address.
    pub(super) async fn connect(&mut self) -> Result<(Box<dyn Stream>, String), Failure> {
        self.next = (self.next + 1) % self.hosts.len();
        self.rounds = self.rounds.wrapping_add(usize::from(self.next == 0));
        self.dial().await
    }

    /// Connects to the server that was connected to last.
    pub(super) async fn dial(&self) -> Result<(Box<dyn Stream>, String), Failure> {
        let host = self.last();
        let address = host.place(PORT);
        let failed = |error: io::Error| match error.kind() {
            // Not by the host: a server was there.
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof => {
                Failure::unsent(format!("ZooKeeper at {address} {CLOSED} ({error})"))
            }
            _ => Failure::unreachable(format!("cannot connect to ZooKeeper at {address}: {error}")),
        };
        let port = host.port.unwrap_or(PORT);
        let mut addresses: Vec<_> = lookup_host((&*host.name, port)).await.map_err(failed)?.collect();
        // The first one may be silent.
        let first = self.rounds.checked_rem(addresses.len()).unwrap_or(0);
        addresses.rotate_left(first);
        let stream = TcpStream::connect(&*addresses).await.map_err(failed)?;
        // An error is told by what follows: the server has ended the connection.
        let _ = stream.set_nodelay(true);
        Ok((self.tls.wrap(stream, &host.name).await.map_err(failed)?, address))
    }
}
