//! The members of a cluster, and which of them is asked.

use super::url::Url;
use locker_core::{
    background,
    error::{Error, ErrorKind, Result},
    id::Id,
    sync::{Mutex, lock},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;
use tonic::transport::{Channel, Endpoint};

/// All members. Calls go to the one that answered last.
#[derive(Debug)]
pub(super) struct Endpoints {
    members: Vec<Arc<Member>>,
    current: AtomicUsize,
    failed: Notify,
}

/// One member.
pub(super) struct Member {
    /// Host and port.
    pub(super) address: String,
    index: usize,
    endpoint: Endpoint,
    channel: Mutex<Channel>,
    /// The number of answers. It does not change while the member is silent.
    answers: AtomicUsize,
}

/// How to connect to a member.
pub(super) struct Host {
    address: String,
    endpoint: Endpoint,
}

/// Returns how to connect to each member. Reads the files of the URL.
pub(super) fn prepare(url: &Url, authorities: Option<&[u8]>, connect_timeout: Duration) -> Result<Vec<Host>> {
    let tls = tls::Settings::read(url, authorities)?;
    let host = |address: &String| {
        let scheme = if url.tls { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))
            .map_err(|error| misused(&format!("the host {address} is not valid: {error}")))?
            .connect_timeout(connect_timeout)
            .tcp_nodelay(true)
            .tcp_keepalive(Some(PING))
            .http2_keep_alive_interval(PING)
            .keep_alive_timeout(PING_TIMEOUT);
        Ok(Host { address: address.clone(), endpoint: tls.apply(endpoint)? })
    };
    url.hosts.iter().map(host).collect()
}

impl Endpoints {
    /// Takes the members, of which each is connected to when it is asked. To be called on the background thread.
    pub(super) fn new(hosts: Vec<Host>) -> Self {
        let members = hosts.into_iter().enumerate().map(|(index, Host { address, endpoint })| {
            let channel = Mutex::new(endpoint.connect_lazy());
            Arc::new(Member { address, index, endpoint, channel, answers: AtomicUsize::new(0) })
        });
        let members: Vec<_> = members.collect();
        // The processes of an application begin with different members.
        let first = usize::try_from(Id::random().jitter(256)).unwrap_or(0) % members.len();
        Self { members, current: AtomicUsize::new(first), failed: Notify::new() }
    }

    /// Returns the member to ask.
    pub(super) fn current(&self) -> &Arc<Member> {
        &self.members[self.current.load(Ordering::Relaxed) % self.members.len()]
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Records that a member does not serve: the next one is asked from now on.
    pub(super) fn leave(&self, member: &Member) {
        let next = (member.index + 1) % self.members.len();
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        // Unless another call has noticed it before.
        if self.current.compare_exchange(member.index, next, success, failure).is_ok() {
            self.failed.notify_one();
        }
    }

    /// Waits until a member was left.
    pub(super) async fn left(&self) {
        self.failed.notified().await;
    }
}

impl Member {
    pub(super) fn channel(&self) -> Channel {
        lock(&self.channel).clone()
    }

    pub(super) fn answers(&self) -> usize {
        self.answers.load(Ordering::Relaxed)
    }

    pub(super) fn has_answered(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
    }

    /// Replaces the connection: without any answer, it may lead to a host that is gone, of which the system learns only
    /// after many minutes.
    pub(super) fn reconnect(self: &Arc<Self>) {
        let member = Arc::clone(self);
        background::spawn(async move {
            let channel = member.endpoint.connect_lazy();
            let former = std::mem::replace(&mut *lock(&member.channel), channel);
            drop(former);
        });
    }
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.address)
    }
}

/// How long a connection with calls under way is silent before it is probed. etcd ends connections that are probed
/// more often than every five seconds (`--grpc-keepalive-min-time`).
const PING: Duration = Duration::from_secs(6);

const PING_TIMEOUT: Duration = Duration::from_secs(3);

fn misused(message: &str) -> Error {
    Error::new(ErrorKind::Misused, message)
}

#[cfg(feature = "tls")]
mod tls {
    use super::misused;
    use crate::url::Url;
    use locker_core::error::Result;
    use std::fs;
    use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

    pub(super) struct Settings(Option<ClientTlsConfig>);

    impl Settings {
        pub(super) fn read(url: &Url, authorities: Option<&[u8]>) -> Result<Self> {
            if !url.tls {
                return Ok(Self(None));
            }
            let file = |name: &str, path: &str| {
                fs::read(path).map_err(|error| misused(&format!("{name} in the etcd URL: {path}: {error}")))
            };
            let mut config = ClientTlsConfig::new();
            let ca = url.ca.as_deref().map(|path| file("ca", path)).transpose()?;
            config = match ca.as_deref().or(authorities) {
                Some(pem) if !pem.windows(CERTIFICATE.len()).any(|part| part == CERTIFICATE) => {
                    return Err(misused(
                        "ca in the etcd URL, or tls_ca, contains no certificate in PEM format",
                    ));
                }
                Some(pem) => config.ca_certificate(Certificate::from_pem(pem)),
                None => config.with_native_roots(),
            };
            if let (Some(cert), Some(key)) = (&url.cert, &url.key) {
                config = config.identity(Identity::from_pem(file("cert", cert)?, file("key", key)?));
            }
            Ok(Self(Some(config)))
        }

        pub(super) fn apply(&self, endpoint: Endpoint) -> Result<Endpoint> {
            let Some(config) = &self.0 else { return Ok(endpoint) };
            let invalid = |error| misused(&format!("the TLS files of the etcd URL: {}", chain(&error)));
            endpoint.tls_config(config.clone()).map_err(invalid)
        }
    }

    const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----";

    fn chain(error: &dyn std::error::Error) -> String {
        error.source().map_or_else(|| error.to_string(), chain)
    }
}

#[cfg(not(feature = "tls"))]
mod tls {
    use crate::url::Url;
    use locker_core::error::Result;
    use tonic::transport::Endpoint;

    pub(super) struct Settings;

    impl Settings {
        #[expect(clippy::unnecessary_wraps, reason = "as with TLS")]
        pub(super) fn read(_url: &Url, _authorities: Option<&[u8]>) -> Result<Self> {
            Ok(Self)
        }

        #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "as with TLS")]
        pub(super) fn apply(&self, endpoint: Endpoint) -> Result<Endpoint> {
            Ok(endpoint)
        }
    }
}
