//! Where ZeroMQ may listen, and to whom it speaks.

use crate::cli::{self, Serve};
use omq_tokio::{
    CurveKeypair, CurvePublicKey, CurveSecretKey, CurveServerOptions, Endpoint, Options, endpoint::Host,
};
use std::{collections::HashSet, fs, net::SocketAddr, path::Path, sync::Arc};

/// The CURVE keys: the server's own, and those of the clients that may connect.
#[derive(Clone, Debug)]
pub(super) struct Security {
    own: CurveKeypair,
    clients: Arc<HashSet<[u8; 32]>>,
}

impl Security {
    /// `None` when no keys are configured.
    pub(super) fn read(options: &Serve) -> Result<Option<Self>, String> {
        let Some(path) = &options.curve_key_file else { return Ok(None) };
        let keys = lines(path)?;
        let [key] = &keys[..] else { return Err(format!("{}: give one key", path.display())) };
        let secret = CurveSecretKey::from_z85(key).map_err(|_| no_key(path))?;
        let own = CurveKeypair { public: secret.derive_public(), secret };
        let mut clients = HashSet::from([*own.public.as_bytes()]);
        if let Some(path) = &options.curve_clients_file {
            for line in lines(path)? {
                let key = CurvePublicKey::from_z85(&line).map_err(|_| no_key(path))?;
                clients.insert(*key.as_bytes());
            }
        }
        if clients.len() == 1 {
            tracing::warn!(
                "ZeroMQ lets in nobody without the server's own key: --curve-clients-file names others"
            );
        }
        Ok(Some(Self { own, clients: Arc::new(clients) }))
    }

    /// The side that is connected to.
    pub(super) fn serve(&self, options: Options) -> Options {
        let clients = self.clients.clone();
        let known =
            CurveServerOptions::default().authenticator(move |peer| clients.contains(&peer.public_key));
        options.curve_server_with_options(self.own.clone(), known)
    }

    /// The side that connects, to a server with the same key.
    pub(super) fn call(&self, options: Options) -> Options {
        options.curve_client(self.own.clone(), self.own.public)
    }
}

fn no_key(path: &Path) -> String {
    format!(
        "{}: a CURVE key is 40 characters of Z85, as zmq.curve_keypair() of pyzmq makes them",
        path.display()
    )
}

fn lines(path: &Path) -> Result<Vec<String>, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

/// Reads an endpoint and refuses one that others could reach without keys.
pub(super) async fn endpoint(
    option: &str,
    text: &str,
    security: Option<&Security>,
) -> Result<Endpoint, String> {
    let fail = |reason: &str| format!("{option} {text}: {reason}");
    let endpoint: Endpoint = text.parse().map_err(|error| fail(&format!("{error}: give tcp://host:port")))?;
    let Endpoint::Tcp { host, port } = &endpoint else { return Err(fail("give tcp://host:port")) };
    if security.is_some() {
        return Ok(endpoint);
    }
    let addresses: Vec<SocketAddr> = match host {
        Host::Ip(ip) => vec![SocketAddr::new(*ip, *port)],
        Host::Name(name) => {
            let found = tokio::net::lookup_host((name.as_str(), *port)).await;
            found.map_err(|error| fail(&error.to_string()))?.collect()
        }
        _ => vec![SocketAddr::from(([0, 0, 0, 0], *port))],
    };
    if !cli::is_loopback(&addresses) {
        return Err(fail("beyond loopback everybody could listen: give --curve-key-file, too"));
    }
    Ok(endpoint)
}
