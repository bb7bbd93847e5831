//! Options of `locker health`.

use clap::Args;
use hyper::Uri;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Options of `locker health`.
#[derive(Args, Clone, Debug)]
#[command(after_help = HEALTH)]
pub(crate) struct Health {
    /// URL of the server, http://HOST:PORT. Default: the address of --http on this host
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Address of a server on this host, as its own --http
    #[arg(long, env = "LOCKER_HTTP", default_value = "127.0.0.1:5505", value_name = "ADDRESS")]
    pub(crate) http: String,
}

const HEALTH: &str = "\
Asks /readyz, without a token, for at most 5 s. Prints nothing if the server is ready.

Exit codes:
  0   ready
  64  wrong options
  69  not ready: no server, no answer, another answer, or a server without its store";

impl Health {
    /// Returns the URL of the server. One that listens on all addresses is asked at a loopback address.
    ///
    /// # Errors
    /// The reason, which never repeats the URL: it may have a password.
    pub(crate) fn server(&self) -> Result<Uri, String> {
        match (&self.url, self.http.as_str()) {
            (Some(text), _) => url(text).map_err(|reason| format!("--url: {reason}")),
            (None, "off") => Err("--http off: no server to ask, give --url".into()),
            (None, http) => {
                let socket = http.parse::<SocketAddr>();
                let socket = socket.map(|socket| SocketAddr::new(reachable(socket.ip()), socket.port()));
                let address = socket.map_or_else(|_| http.to_owned(), |socket| socket.to_string());
                url(&format!("http://{address}")).map_err(|reason| format!("--http: {reason}"))
            }
        }
    }
}

fn reachable(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        address => address,
    }
}

/// Parses the URL of a server. A server has no TLS, and takes no login for `/readyz`.
fn url(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{error}: give http://HOST:PORT"))?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => return Err("the server has no TLS: give its own http:// URL".into()),
        _ => return Err("give http://HOST:PORT".into()),
    }
    let (authority, host) = (uri.authority().map_or("", |it| it.as_str()), uri.host().unwrap_or_default());
    if authority.contains('@') || uri.query().is_some() || host.is_empty() {
        return Err("give http://HOST:PORT, without a login and without parameters".into());
    }
    if authority != host && uri.port_u16().is_none() {
        return Err("give http://HOST:PORT, with a port up to 65535".into());
    }
    Ok(uri)
}
