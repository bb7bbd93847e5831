//! `locker serve`: sockets, signals and their end.

use crate::{
    cli::{self, Serve},
    http::{Guard, Http, MOST_REFUSED, Tokens},
    limits::{self, Gauge, Seldom, Waits},
    metrics::Metrics,
    names::Names,
    server::Server,
    signals, store,
    zeromq::{self, Sockets},
};
use locker_runtime::{ErrorKind, stores::without_login};
use rustix::process::Signal;
use std::{io::Write, net::SocketAddr, process::ExitCode, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::mpsc,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

/// How long answers may take to leave once the server is to go.
const FAREWELL: Duration = Duration::from_secs(4);

/// Files that connections must leave to everything else, those that are being refused among it.
const OTHER_FILES: usize = 64 + MOST_REFUSED;

/// How many connections of one ZeroMQ socket may be in their handshake: they are connections that no cap counts yet.
const MOST_HANDSHAKES: usize = 4096;

const START_IT_FIRST: &str =
    " (the server starts only when its store answers: start that first, or try again until it is there)";

/// Serves until a signal comes.
pub async fn serve(options: Serve) -> ExitCode {
    let mut signals = match Signals::caught() {
        Ok(signals) => signals,
        Err(error) => {
            tracing::error!(%error, "signals cannot be handled");
            return ExitCode::FAILURE;
        }
    };
    let started = tokio::select! {
        started = start(options) => started,
        name = signals.next() => {
            tracing::info!("{name}: ending before all is there to be served");
            return ExitCode::SUCCESS;
        }
    };
    match started {
        Ok(running) => running.until_signalled(signals).await,
        Err(reason) => {
            tracing::error!("{reason}");
            ExitCode::FAILURE
        }
    }
}

/// Those that end a server.
struct Signals(mpsc::Receiver<Signal>);

struct Running {
    server: Arc<Server>,
    tasks: Tasks,
}

/// What a server does until it is told to end, by name: when one of them ends before, so does the server.
pub(crate) type Tasks = JoinSet<&'static str>;

async fn start(options: Serve) -> Result<Running, String> {
    let http = listen(&options).await?;
    let guard = guard(&options)?;
    let server = Arc::new(server(&options).await?);
    let sockets = zeromq::bind(&options, &server).await?;
    let mut tasks = JoinSet::new();
    announce(&options, http.as_ref(), sockets.as_ref()).map_err(|error| error.to_string())?;
    if let Some(listener) = http {
        let header_size = options.header_size as usize;
        let header_timeout = options.header_timeout;
        let http = Http::new(server.clone(), guard, header_size, header_timeout);
        tasks.spawn(async {
            Arc::new(http).serve(listener).await;
            "HTTP"
        });
    }
    if let Some(sockets) = sockets {
        sockets.serve(&mut tasks);
    }
    tasks.spawn(upkeep(server.clone()));
    Ok(Running { server, tasks })
}

async fn server(options: &Serve) -> Result<Server, String> {
    let locker = store::open(&options.store, options.eviction).await;
    let locker = locker.map_err(|error| {
        let hint = if error.kind() == ErrorKind::Unavailable { START_IT_FIRST } else { "" };
        format!("store {}: {error}{hint}", without_login(&options.store))
    })?;
    let files = limits::open_files().saturating_sub(OTHER_FILES).max(1);
    let of = |address: &str, most: usize| if address == "off" { 0 } else { most };
    let http = of(&options.http, options.max_connections);
    let zmq = of(&options.zmq, options.max_zmq_connections);
    let sockets = of(&options.zmq, 1 + usize::from(options.publish.is_some()));
    let handshakes = sockets * MOST_HANDSHAKES;
    let (http, zmq_files) = limits::share(files, http, zmq.saturating_add(handshakes));
    let (zmq, handshakes) = limits::share(zmq_files, zmq, handshakes);
    tracing::debug!(http, zmq, handshakes, files, "the most connections");
    Ok(Server {
        door: locker.admin(),
        locker,
        names: Names::new(options.max_names),
        event_ttl: options.event_ttl,
        waits: Waits::new(options.max_waits, options.max_waits_per_name),
        connections: Gauge::new(http),
        zmq_connections: Arc::new(Gauge::new(zmq)),
        max_zmq_calls: options.max_zmq_calls,
        zmq_handshakes: (handshakes / sockets.max(1)).max(1),
        often: Seldom::default(),
        metrics: Metrics::new().map_err(|error| error.to_string())?,
        shutdown: CancellationToken::new(),
    })
}

fn guard(options: &Serve) -> Result<Guard, String> {
    let tokens = options.token_file.as_deref().map(Tokens::read).transpose()?;
    let mut hosts = options.allow_host.clone();
    hosts.extend(rustix::system::uname().nodename().to_str().map(str::to_owned));
    if let Some((host, _)) = options.http.rsplit_once(':') {
        hosts.push(host.to_owned());
    }
    Ok(Guard::new(tokens, hosts))
}

async fn listen(options: &Serve) -> Result<Option<TcpListener>, String> {
    if options.http == "off" {
        return Ok(None);
    }
    let fail = |reason: String| format!("http {}: {reason}", options.http);
    let found = tokio::net::lookup_host(&options.http).await;
    let addresses: Vec<_> = found.map_err(|error| fail(format!("{error}: give host:port")))?.collect();
    if !cli::is_loopback(&addresses) && options.token_file.is_none() {
        return Err(fail("beyond loopback everybody could call: give --token-file, too".into()));
    }
    let &address = addresses.first().ok_or_else(|| fail("no such host".into()))?;
    open(address).map(Some).map_err(|error| fail(error.to_string()))
}

fn open(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(4096)
}

/// The one line on standard output: whoever started the server knows that it can be called.
fn announce(options: &Serve, http: Option<&TcpListener>, sockets: Option<&Sockets>) -> std::io::Result<()> {
    let mut parts = Vec::new();
    if let Some(listener) = http {
        parts.push(format!("http://{}", listener.local_addr()?));
    }
    let endpoints = sockets.map(Sockets::endpoints).unwrap_or_default();
    parts.extend(endpoints.iter().map(|(what, endpoint)| format!("{what} {endpoint}")));
    parts.push(format!("store {}", without_login(&options.store)));
    // Where nobody listens there is all the same somebody to serve.
    writeln!(std::io::stdout(), "locker {} serves {}", env!("CARGO_PKG_VERSION"), parts.join(", ")).ok();
    Ok(())
}

async fn upkeep(server: Arc<Server>) -> &'static str {
    let handle = server.metrics.handle();
    while server.shutdown.run_until_cancelled(tokio::time::sleep(Duration::from_secs(5))).await.is_some() {
        handle.run_upkeep();
    }
    "the upkeep of the metrics"
}

impl Running {
    async fn until_signalled(mut self, mut signals: Signals) -> ExitCode {
        let ended = tokio::select! {
            name = signals.next() => Ok(name),
            Some(ended) = self.tasks.join_next() => Err(ended),
        };
        self.server.shutdown.cancel();
        let code = match ended {
            Ok(name) => {
                tracing::info!("{name}: shutting down");
                ExitCode::SUCCESS
            }
            Err(ended) => {
                let reason = ended.map_or_else(|error| error.to_string(), |what| format!("{what} has ended"));
                tracing::error!("shutting down, since not all is served any more: {reason}");
                ExitCode::FAILURE
            }
        };
        self.farewell(signals, code).await
    }

    async fn farewell(mut self, mut signals: Signals, code: ExitCode) -> ExitCode {
        let all = async {
            while self.tasks.join_next().await.is_some() {}
            self.server.locker.settled().await;
        };
        tokio::select! {
            left = tokio::time::timeout(FAREWELL, all) => {
                if left.is_err() {
                    tracing::warn!("some clients did not take their last answer");
                }
                code
            }
            name = signals.next() => {
                tracing::warn!("{name} again: ending at once");
                ExitCode::FAILURE
            }
        }
    }
}

impl Signals {
    /// A server under `nohup` outlives its terminal; every other one ends in order when that goes.
    fn caught() -> std::io::Result<Self> {
        let hang_up = (!signals::is_ignored(Signal::HUP)).then_some(Signal::HUP);
        signals::caught([Signal::TERM, Signal::INT].into_iter().chain(hang_up)).map(Self)
    }

    async fn next(&mut self) -> &'static str {
        match self.0.recv().await {
            Some(Signal::INT) => "SIGINT",
            Some(Signal::HUP) => "SIGHUP",
            _ => "SIGTERM",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use locker_harness::in_time;

    /// One has panicked, one has ended, and the others are told.
    #[tokio::test]
    async fn a_server_that_does_not_serve_all_any_more_ends() {
        for broken in [true, false] {
            let line = ["locker", "serve", "--http", "127.0.0.1:0", "--zmq", "tcp://127.0.0.1:0"];
            let cli::Command::Serve(options) = cli::Cli::parse_from(line).command else { panic!("{line:?}") };
            let mut running = start(*options).await.unwrap();
            running.tasks.spawn(async move { if broken { panic!("broken") } else { "it" } });
            let (_sender, signals) = mpsc::channel(1);
            let code = in_time("the end", running.until_signalled(Signals(signals))).await;
            assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::FAILURE));
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(without_login("redis://me:se@cret@host:1/0"), "redis://..@host:1/0");
        assert_eq!(without_login("memory://"), "memory://");
        assert_eq!(without_login("unix:///run/r.sock?user=me&pass=se@cret"), "unix:///run/r.sock");
    }
}
