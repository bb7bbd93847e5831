//! The client of the `redis` crate, with TLS.

use crate::{
    error::{Error, ErrorKind, Result},
    stores::opening::RedisOptions,
};
use redis::{Client, ConnectionInfo};

#[cfg(feature = "redis-tls")]
pub(super) fn client(info: ConnectionInfo, options: &RedisOptions) -> Result<Client> {
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

#[cfg(feature = "redis-tls")]
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

#[cfg(not(feature = "redis-tls"))]
pub(super) fn client(info: ConnectionInfo, _options: &RedisOptions) -> Result<Client> {
    Client::open(info).map_err(|error| Error::new(ErrorKind::Misused, error.to_string()).with_source(error))
}
