//! `locker serve`: startup, signals and shutdown.

use crate::{
    caps::{Cap, WaitCaps},
    cli::{self, Serve},
    http::{AccessPolicy, Handler, Http, MAX_REFUSING, Tokens},
    live::{Live, Sources},
    log_throttle::LogThrottle,
    metrics::Metrics,
    open_files::{self, ConnectionCap},
    server::{Server, Tasks},
    service::Service,
    signals::{self, Signals},
    store,
    zeromq::{self, Sockets},
};
use locker_runtime::{ErrorKind, KeyFormat, stores::without_login};
use rustix::process::Signal;
use sd_notify::NotifyState;
use std::{io::Write, net::SocketAddr, process::ExitCode, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpSocket},
    task::JoinSet,
    time::MissedTickBehavior,
};
use tokio_util::sync::CancellationToken;

/// How long clients may take to read their last answers after the shutdown has begun.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(4);

/// How many seconds are between two upkeeps of the metrics.
const METRICS_UPKEEP: u32 = 5;

/// How often a clock is kept going, which goes on for 10 s.
const CALL_EVERY: Duration = Duration::from_secs(4);

/// Files reserved for everything but connections of clients: listeners, the store, peers and the runtime's own. An idle
/// server has 18 open.
const RESERVED_FILES: usize = 32;

/// Files reserved for the store `file://`, which keeps up to 64 logs open.
const STORE_FILES: usize = 80;

/// How many connections of one ZeroMQ socket may be in their handshake, if there are files enough. The cap on
/// connections does not count them yet.
const MAX_HANDSHAKES: usize = 4096;

/// The part of the files for connections that are being refused, and the same for handshakes.
const SIDE_PART: usize = 16;

const STORE_FIRST: &str =
    " (the server starts only if its store answers: start the store first, or retry until it answers)";

/// Serves until a signal ends the server.
pub(super) async fn serve(options: Serve) -> ExitCode {
    let mut signals = match TerminationSignals::catch() {
        Ok(signals) => signals,
        Err(error) => {
            tracing::error!(%error, "cannot catch signals");
            return ExitCode::FAILURE;
        }
    };
    let started = tokio::select! {
        started = start(options) => started,
        name = signals.next() => {
            tracing::info!("{name} during startup, exiting");
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

/// The signals that end a server.
struct TerminationSignals(Signals);

struct Running {
    server: Arc<Server>,
    tasks: Tasks,
}

async fn start(options: Serve) -> Result<Running, String> {
    let http = listen(&options).await?;
    let access = access_policy(&options)?;
    let files = Files::of(&options);
    let server = Arc::new(Box::pin(server(&options, &files)).await?);
    let sockets = zeromq::bind(&options, &server).await?;
    let mut tasks = JoinSet::new();
    announce(&options, http.as_ref(), sockets.as_ref()).map_err(|error| error.to_string())?;
    if let Some(listener) = http {
        let header_size = options.header_size as usize;
        let header_timeout = options.header_timeout;
        let handler =
            Handler::new(server.clone(), access, header_size, header_timeout, options.max_unread_bytes);
        let http = Http::new(handler, files.refusing);
        tasks.spawn(async {
            http.serve(listener).await;
            "HTTP"
        });
    }
    if let Some(sockets) = sockets {
        sockets.serve(&mut tasks);
    }
    tasks.spawn(upkeep(server.clone()));
    if ["etcd", "etcds", "zk", "zks"].contains(&&*scheme(&options.store).to_ascii_lowercase()) {
        tasks.spawn(keep_time(server.clone()));
    }
    tell_supervisor(NotifyState::Ready);
    Ok(Running { server, tasks })
}

async fn server(options: &Serve, files: &Files) -> Result<Server, String> {
    let metrics = Metrics::new().map_err(|error| error.to_string())?;
    let builder = store::builder(&options.store, options.eviction, &options.prefix, KeyFormat::default());
    // Labels last as long as the process, as does the list.
    let names = options.metric_names.iter().map(|name| &*name.clone().leak()).collect();
    let locker = store::open(builder.recorder(metrics.recorder()).metric_names(names)).await;
    let locker = locker.map_err(|error| {
        let hint = if error.kind() == ErrorKind::Unavailable { STORE_FIRST } else { "" };
        format!("store {}: {error}{hint}", without_login(&options.store))
    })?;
    let (service, shutdown) = (Service::new(locker, options), CancellationToken::new());
    let waits = Arc::new(WaitCaps::new(options.max_waits, options.max_waits_per_name));
    let live = Live::new(Sources {
        store: scheme(&options.store).to_owned(),
        admin: service.locker().admin(),
        names: service.names().clone(),
        waits: waits.clone(),
        activity: service.activity().clone(),
        shutdown: shutdown.clone(),
    });
    Ok(Server {
        service,
        live,
        waits,
        http_connections: files.http.clone(),
        zmq_connections: files.zmq.clone(),
        max_zmq_calls: options.max_zmq_calls,
        zmq_bytes: Cap::new(options.max_zmq_bytes),
        max_zmq_handshakes: files.handshakes,
        log_throttle: LogThrottle::default(),
        metrics,
        shutdown,
    })
}

/// Returns the kind of store in a URL.
fn scheme(store: &str) -> &str {
    store.split_once(':').map_or(store, |(scheme, _)| scheme)
}

/// How the open files are used.
struct Files {
    http: ConnectionCap,
    zmq: ConnectionCap,
    /// How many connections beyond the cap of HTTP are refused at a time.
    refusing: usize,
    /// How many connections of one ZeroMQ socket may be in their handshake.
    handshakes: usize,
}

impl Files {
    fn of(options: &Serve) -> Self {
        let in_files = options.store.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("file:"));
        let reserved = RESERVED_FILES + options.peers.len() + if in_files { STORE_FILES } else { 0 };
        let files = open_files::raise_limit().saturating_sub(reserved);
        let unless_off = |address: &str, number: usize| if address == "off" { 0 } else { number };
        let part = |most: usize| (files / SIDE_PART).clamp(1, most);
        let refusing = unless_off(&options.http, part(MAX_REFUSING));
        let sockets = unless_off(&options.zmq, 1 + usize::from(options.publish.is_some()));
        let handshakes = (part(MAX_HANDSHAKES * sockets.max(1)) / sockets.max(1)).max(1);
        let files = files.saturating_sub(refusing + sockets * handshakes);
        let limits = [
            unless_off(&options.http, options.max_connections),
            unless_off(&options.zmq, options.max_zmq_connections),
        ];
        let [http, zmq] = open_files::share(files, limits);
        tracing::debug!(http = http.limit(), zmq = zmq.limit(), handshakes, files, "caps on connections");
        Self { http, zmq, refusing, handshakes }
    }
}

fn access_policy(options: &Serve) -> Result<AccessPolicy, String> {
    let tokens = options.token_file.as_deref().map(Tokens::read).transpose()?;
    let mut hosts = options.allow_host.clone();
    hosts.extend(rustix::system::uname().nodename().to_str().map(str::to_owned));
    if let Some((host, _)) = options.http.rsplit_once(':') {
        hosts.push(host.to_owned());
    }
    Ok(AccessPolicy::new(tokens, hosts))
}

async fn listen(options: &Serve) -> Result<Option<TcpListener>, String> {
    if options.http == "off" {
        return Ok(None);
    }
    let fail = |reason: String| format!("http {}: {reason}", options.http);
    let found = tokio::net::lookup_host(&options.http).await;
    let addresses: Vec<_> = found.map_err(|error| fail(format!("{error}: give host:port")))?.collect();
    if !cli::is_loopback(&addresses) && options.token_file.is_none() {
        return Err(fail("an address beyond loopback needs --token-file".into()));
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

/// Prints one line on standard output when the server can be called.
fn announce(options: &Serve, http: Option<&TcpListener>, sockets: Option<&Sockets>) -> std::io::Result<()> {
    let mut parts = Vec::new();
    if let Some(listener) = http {
        parts.push(format!("http://{}", listener.local_addr()?));
    }
    let endpoints = sockets.map(Sockets::endpoints).unwrap_or_default();
    parts.extend(endpoints.iter().map(|(what, endpoint)| format!("{what} {endpoint}")));
    parts.push(format!("store {}", without_login(&options.store)));
    // A closed standard output does not end the server.
    writeln!(std::io::stdout(), "locker {} serves {}", env!("CARGO_PKG_VERSION"), parts.join(", ")).ok();
    Ok(())
}

/// Tells a supervisor that has set `NOTIFY_SOCKET`, such as systemd.
fn tell_supervisor(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "cannot tell the supervisor at NOTIFY_SOCKET");
    }
}

async fn upkeep(server: Arc<Server>) -> &'static str {
    let (handle, activity) = (server.metrics.handle(), server.service.activity());
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut until_upkeep = 0..METRICS_UPKEEP;
    while server.shutdown.run_until_cancelled(ticks.tick()).await.is_some() {
        activity.pass_second(server.waits.count());
        if until_upkeep.next().is_none() {
            until_upkeep = 1..METRICS_UPKEEP;
            handle.run_upkeep();
        }
    }
    "the metrics"
}

/// Keeps the clock of a store going that stands still while nobody calls, so that the holds of dead processes end
/// though others come for moments only, as those of crontabs.
async fn keep_time(server: Arc<Server>) -> &'static str {
    let mut calls = tokio::time::interval(CALL_EVERY);
    calls.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while server.shutdown.run_until_cancelled(calls.tick()).await.is_some() {
        // Without an answer, the next call is as good.
        server.service.ready("").await;
    }
    "the time"
}

impl Running {
    async fn until_signalled(mut self, mut signals: TerminationSignals) -> ExitCode {
        let ended = tokio::select! {
            name = signals.next() => Ok(name),
            Some(ended) = self.tasks.join_next() => Err(ended),
        };
        tell_supervisor(NotifyState::Stopping);
        self.server.shutdown.cancel();
        let code = match ended {
            Ok(name) => {
                tracing::info!("{name}: shutting down");
                ExitCode::SUCCESS
            }
            Err(ended) => {
                let reason = ended
                    .map_or_else(|error| error.to_string(), |task| format!("{task} stopped unexpectedly"));
                tracing::error!("shutting down: {reason}");
                ExitCode::FAILURE
            }
        };
        self.shut_down(signals, code).await
    }

    async fn shut_down(mut self, mut signals: TerminationSignals, code: ExitCode) -> ExitCode {
        let all = async {
            while self.tasks.join_next().await.is_some() {}
            self.server.service.locker().settled().await;
        };
        tokio::select! {
            ended = tokio::time::timeout(SHUTDOWN_TIMEOUT, all) => {
                if ended.is_err() {
                    tracing::warn!("some clients did not read their last answer in time");
                }
                code
            }
            name = signals.next() => {
                tracing::warn!("{name} again: exiting immediately");
                ExitCode::FAILURE
            }
        }
    }
}

impl TerminationSignals {
    /// Does not catch SIGHUP if it is ignored: a server under `nohup` outlives its terminal.
    fn catch() -> std::io::Result<Self> {
        let hang_up = (!signals::is_ignored(Signal::HUP)).then_some(Signal::HUP);
        signals::catch([Signal::TERM, Signal::INT].into_iter().chain(hang_up)).map(Self)
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
    use tokio::sync::mpsc;

    /// One task panics or ends, and all others end.
    #[tokio::test]
    async fn a_server_ends_with_any_of_its_tasks() {
        for broken in [true, false] {
            let line = ["locker", "serve", "--http", "127.0.0.1:0", "--zmq", "tcp://127.0.0.1:0"];
            let cli::Command::Serve(options) = cli::Cli::parse_from(line).command else { panic!("{line:?}") };
            let mut running = start(*options).await.unwrap();
            running.tasks.spawn(async move { if broken { panic!("broken") } else { "it" } });
            let (_sender, signals) = mpsc::channel(1);
            let code = in_time("the end", running.until_signalled(TerminationSignals(signals))).await;
            assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::FAILURE));
        }
    }

    #[test]
    fn passwords_are_hidden() {
        assert_eq!(without_login("redis://me:se@cret@host:1/0"), "redis://..@host:1/0");
        assert_eq!(without_login("memory://"), "memory://");
        assert_eq!(without_login("unix:///run/r.sock?user=me&pass=se@cret"), "unix:///run/r.sock");
    }
}
