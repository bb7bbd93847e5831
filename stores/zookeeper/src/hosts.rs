//! The servers of an ensemble, and how to connect to them.

use super::{
    errors::{CLOSED, Failure},
    url::{PORT, Url},
};
use locker_core::{error::Result, id::Id, store::url::Host};
use std::io;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

/// A connection.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// All servers.
pub(super) struct Servers {
    hosts: Vec<Host>,
    next: usize,
    tls: tls::Settings,
}

impl Servers {
    /// Takes the servers. Reads the files of the URL.
    pub(super) fn new(url: &mut Url, authorities: Option<&[u8]>) -> Result<Self> {
        let tls = tls::Settings::read(url, authorities)?;
        let hosts = std::mem::take(&mut url.hosts);
        // The processes of an application begin with different servers.
        let next = usize::try_from(Id::random().jitter(256)).unwrap_or(0);
        Ok(Self { hosts, next, tls })
    }

    pub(super) fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Returns the address of the server that was connected to last.
    pub(super) fn address(&self) -> String {
        self.hosts[self.next % self.hosts.len()].place(PORT)
    }

    /// Connects to the next server. Returns it with its address.
    pub(super) async fn connect(&mut self) -> Result<(Box<dyn Stream>, String), Failure> {
        self.next = (self.next + 1) % self.hosts.len();
        let host = &self.hosts[self.next];
        let address = host.place(PORT);
        let failed = |error: io::Error| match error.kind() {
            // Not by the host: a server was there.
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof => {
                Failure::unsent(format!("ZooKeeper at {address} {CLOSED} ({error})"))
            }
            _ => Failure::unreachable(format!("cannot connect to ZooKeeper at {address}: {error}")),
        };
        let port = host.port.unwrap_or(PORT);
        let stream = TcpStream::connect((&*host.name, port)).await.map_err(failed)?;
        // An error is told by what follows: the server has ended the connection.
        let _ = stream.set_nodelay(true);
        Ok((self.tls.wrap(stream, &host.name).await.map_err(failed)?, address))
    }
}

#[cfg(feature = "tls")]
mod tls {
    use super::{Stream, Url};
    use locker_core::error::{Error, ErrorKind, Result};
    use rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName, pem::PemObject},
    };
    use std::{fs, io, sync::Arc};
    use tokio::net::TcpStream;
    use tokio_rustls::TlsConnector;

    /// What is trusted, if TLS is in use.
    pub(in super::super) struct Settings(Option<TlsConnector>);

    impl Settings {
        pub(super) fn read(url: &Url, authorities: Option<&[u8]>) -> Result<Self> {
            if !url.tls {
                return Ok(Self(None));
            }
            let read = |path: &String| {
                let error = |error| misused(&format!("ca in the ZooKeeper URL: {path}: {error}"));
                fs::read(path).map_err(error)
            };
            let file = url.ca.as_ref().map(read).transpose()?;
            let roots = match file.as_deref().or(authorities) {
                Some(pem) => of_pem(pem)?,
                None => of_system()?,
            };
            let config = ClientConfig::builder_with_provider(ring::default_provider().into());
            let config = config.with_safe_default_protocol_versions();
            let config = config.map_err(|error| misused(&format!("TLS: {error}")))?;
            let config = config.with_root_certificates(roots).with_no_client_auth();
            Ok(Self(Some(TlsConnector::from(Arc::new(config)))))
        }

        pub(super) async fn wrap(&self, stream: TcpStream, host: &str) -> io::Result<Box<dyn Stream>> {
            let Some(connector) = &self.0 else { return Ok(Box::new(stream)) };
            let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
            Ok(Box::new(connector.connect(name, stream).await?))
        }
    }

    fn of_pem(pem: &[u8]) -> Result<RootCertStore> {
        let none = || misused("ca in the ZooKeeper URL, or tls_ca, contains no certificate in PEM format");
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let added = certificate.ok().and_then(|certificate| roots.add(certificate).ok());
            added.ok_or_else(none)?;
        }
        if roots.is_empty() { Err(none()) } else { Ok(roots) }
    }

    fn of_system() -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let none = || misused("this system has no certificates: pass ca in the ZooKeeper URL, or tls_ca");
        if roots.is_empty() { Err(none()) } else { Ok(roots) }
    }

    fn misused(message: &str) -> Error {
        Error::new(ErrorKind::Misused, message)
    }
}

#[cfg(not(feature = "tls"))]
mod tls {
    use super::{Stream, Url};
    use locker_core::error::Result;
    use std::io;
    use tokio::net::TcpStream;

    pub(in super::super) struct Settings;

    impl Settings {
        #[expect(clippy::unnecessary_wraps, reason = "as with TLS")]
        pub(super) fn read(_url: &Url, _authorities: Option<&[u8]>) -> Result<Self> {
            Ok(Self)
        }

        #[expect(clippy::unused_async, reason = "as with TLS")]
        pub(super) async fn wrap(&self, stream: TcpStream, _host: &str) -> io::Result<Box<dyn Stream>> {
            Ok(Box::new(stream))
        }
    }
}
