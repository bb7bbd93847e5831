//! CURVE keys, and the check of endpoints that need them.

use crate::cli::{self, Serve};
use omq_tokio::{
    CurveKeypair, CurvePublicKey, CurveSecretKey, CurveServerOptions, Endpoint, IpcPath, Options,
    endpoint::Host,
};
use std::{
    collections::HashSet,
    fs,
    net::SocketAddr,
    os::unix::{fs::FileTypeExt, net::UnixStream},
    path::Path,
    sync::Arc,
};

/// The CURVE keys of the server and of the clients that may connect.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    own: CurveKeypair,
    clients: Arc<HashSet<[u8; 32]>>,
}

impl Curve {
    /// Reads the key files. Returns `None` if no key is configured.
    pub(super) fn read(options: &Serve) -> Result<Option<Self>, String> {
        let Some(path) = &options.curve_key_file else { return Ok(None) };
        let keys = lines(path)?;
        let [key] = &keys[..] else {
            return Err(format!("{}: the file must have exactly one key", path.display()));
        };
        let secret = CurveSecretKey::from_z85(key).map_err(|_| not_a_key(path))?;
        let own = CurveKeypair { public: secret.derive_public(), secret };
        let mut clients = HashSet::from([*own.public.as_bytes()]);
        if let Some(path) = &options.curve_clients_file {
            for line in lines(path)? {
                let key = CurvePublicKey::from_z85(&line).map_err(|_| not_a_key(path))?;
                clients.insert(*key.as_bytes());
            }
        }
        if clients.len() == 1 {
            tracing::warn!(
                "no ZeroMQ client may connect except peers with the server's own key: add clients with --curve-clients-file"
            );
        }
        Ok(Some(Self { own, clients: Arc::new(clients) }))
    }

    /// Adds the keys to the options of a socket that binds.
    pub(super) fn serve(&self, options: Options) -> Options {
        let clients = self.clients.clone();
        let known =
            CurveServerOptions::default().authenticator(move |peer| clients.contains(&peer.public_key));
        options.curve_server_with_options(self.own.clone(), known)
    }

    /// Adds the keys to the options of a socket that connects to a server with the same key.
    pub(super) fn call(&self, options: Options) -> Options {
        options.curve_client(self.own.clone(), self.own.public)
    }
}

fn not_a_key(path: &Path) -> String {
    format!(
        "{}: a CURVE key must be 40 characters of Z85, as zmq.curve_keypair() of pyzmq makes them",
        path.display()
    )
}

fn lines(path: &Path) -> Result<Vec<String>, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

/// Parses an endpoint. Refuses an endpoint beyond loopback if no keys are configured.
pub(super) async fn endpoint(option: &str, text: &str, curve: Option<&Curve>) -> Result<Endpoint, String> {
    let fail = |reason: &str| format!("{option} {text}: {reason}");
    let parsed = text.parse::<Endpoint>();
    let endpoint = parsed.map_err(|error| fail(&format!("{error}: {FORMS}")))?;
    let (host, port) = match &endpoint {
        Endpoint::Tcp { host, port } => (host, port),
        // The permissions of the file say who may connect.
        Endpoint::Ipc(_) => return Ok(endpoint),
        _ => return Err(fail(FORMS)),
    };
    if curve.is_some() {
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
        return Err(fail("an endpoint beyond loopback needs --curve-key-file"));
    }
    Ok(endpoint)
}

const FORMS: &str = "give tcp://host:port or ipc:///path";

/// Refuses to bind where the ZeroMQ library would delete a file that is no socket, or the socket of a running server.
/// It replaces the socket that a killed server has left.
pub(super) fn check_socket_file(option: &str, endpoint: &Endpoint) -> Result<(), String> {
    let Endpoint::Ipc(IpcPath::Filesystem(path)) = endpoint else { return Ok(()) };
    let fail = |reason: &str| Err(format!("{option} {endpoint}: {reason}"));
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => fail("the file exists and is not a socket"),
        Ok(_) if UnixStream::connect(path).is_ok() => fail("another process listens at this socket"),
        _ => Ok(()),
    }
}
