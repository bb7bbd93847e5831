//! TLS, with the certificate authorities of the system or of the caller.

use super::{stream::Stream, url::Url};
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
#[derive(Clone)]
pub(super) struct Settings(Option<TlsConnector>);

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
