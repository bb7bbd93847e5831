//! TLS, with the certificate authorities of the system or of the caller.

use locker_core::error::{Error, ErrorKind, Result};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Returns a connector that checks the certificate and the name of the server, with the authorities in `pem` or, if
/// that is `None`, those of the system.
pub(super) fn connector(pem: Option<&[u8]>) -> Result<MakeRustlsConnect> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let Some(pem) = pem else {
        let found = MakeRustlsConnect::with_native_certs().map(|(connector, _)| connector);
        return found
            .map_err(|_| Error::new(ErrorKind::Misused, "this system has no certificates: pass tls_ca"));
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let added = certificate.ok().and_then(|certificate| roots.add(certificate).ok());
        added.ok_or_else(no_certificate)?;
    }
    if roots.is_empty() {
        return Err(no_certificate());
    }
    Ok(MakeRustlsConnect::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()))
}

fn no_certificate() -> Error {
    Error::new(ErrorKind::Misused, "tls_ca contains no certificate: pass one or more in PEM format")
}
