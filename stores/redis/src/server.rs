//! One server, and its client of the `redis` crate, with TLS.

use super::{resolver, url};
use locker_core::{
    error::{Error, ErrorKind, Result},
    store::opening::NetworkOptions,
};
use redis::{Client, ConnectionAddr, ConnectionInfo};
use std::{
    fmt,
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
};

/// A server that connections lead to.
pub(super) struct Server {
    pub(super) client: Client,
    /// The address without user and password, for messages.
    pub(super) address: String,
    pub(super) host: String,
    pub(super) port: u16,
    /// How many masters there were before it, by the count of the sentinels. 0 without sentinels.
    pub(super) epoch: u64,
    is_left: AtomicBool,
}

impl Server {
    pub(super) fn new(info: ConnectionInfo, epoch: u64, options: &NetworkOptions) -> Result<Self> {
        let address = url::redacted(&info);
        let (host, port) = match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                (host.clone(), *port)
            }
            _ => Default::default(),
        };
        let is_left = AtomicBool::new(false);
        Ok(Self { client: client(info, options)?, address, host, port, epoch, is_left })
    }

    /// Returns whether both are the same master, as far as its address and the count of the sentinels say.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (&self.host, self.port, self.epoch) == (&other.host, other.port, other.epoch)
    }

    /// Returns the addresses that its name has now, or nothing if it has no name.
    pub(super) async fn addresses(&self) -> Result<Vec<Option<SocketAddr>>> {
        if self.host.is_empty() {
            return Ok(vec![None]);
        }
        let found = resolver::look_up(&self.host, self.port).await;
        let found = found.map_err(|error| self.unreachable(&error.to_string()).with_source(error))?;
        if found.is_empty() {
            Err(self.unreachable("its name has no address"))
        } else {
            Ok(found.into_iter().map(Some).collect())
        }
    }

    /// Leaves the server because another one is the master. From here on its replies count as lost.
    pub(super) fn leave(&self) {
        self.is_left.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_left(&self) -> bool {
        self.is_left.load(Ordering::SeqCst)
    }

    /// Returns the error for a connection that was not made.
    pub(super) fn unreachable(&self, why: &str) -> Error {
        unreachable(&self.address, why)
    }
}

/// Returns the error for a connection to `address` that was not made.
pub(super) fn unreachable(address: &str, why: &str) -> Error {
    let hint = if address.starts_with("rediss") { " (does this port speak TLS?)" } else { "" };
    Error::new(ErrorKind::Unavailable, format!("cannot connect to {address}: {why}{hint}"))
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Server").field(&self.address).field(&self.epoch).finish()
    }
}

#[cfg(feature = "tls")]
fn client(info: ConnectionInfo, options: &NetworkOptions) -> Result<Client> {
    drop(rustls::crypto::ring::default_provider().install_default());
    if let Some(pem) = &options.tls_ca {
        check_authority(pem)?;
    }
    let certificates = redis::TlsCertificates { client_tls: None, root_cert: options.tls_ca.clone() };
    let client = if options.tls_ca.is_some() && matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. }) {
        Client::build_with_tls(info, certificates)
    } else {
        Client::open(info)
    };
    client.map_err(|error| Error::new(ErrorKind::Misused, error.to_string()).with_source(error))
}

#[cfg(feature = "tls")]
fn check_authority(pem: &[u8]) -> Result<()> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    match CertificateDer::pem_slice_iter(pem).next() {
        Some(Ok(_)) => Ok(()),
        _ => Err(Error::new(
            ErrorKind::Misused,
            "tls_ca contains no certificate: pass one or more in PEM format",
        )),
    }
}

#[cfg(not(feature = "tls"))]
fn client(info: ConnectionInfo, _options: &NetworkOptions) -> Result<Client> {
    Client::open(info).map_err(|error| Error::new(ErrorKind::Misused, error.to_string()).with_source(error))
}
