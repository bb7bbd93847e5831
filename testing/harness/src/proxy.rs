//! A network that can be broken: forwards connections to a server, and does to them what a test says.

use std::{
    io,
    net::SocketAddr,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU16, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    runtime::Runtime,
    sync::watch,
};

/// What happens to the connections, the open ones and new ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Every piece of data is this late, either way.
    Delay(Duration),
    /// Requests arrive and are carried out; answers disappear. A connection that has lost some is closed when the
    /// fault is over: what comes later must not be taken for them.
    DropReplies,
    /// Requests disappear, and so does the connection when the fault is over.
    DropRequests,
    /// Requests are held back, and arrive when the fault is over, even if the client has gone by then.
    HoldRequests,
    /// The next answer is swallowed and the connection reset: the request was carried out. New connections work.
    ExecuteAndReset,
    /// The client is told that the server has finished sending; it may still send.
    HalfClose,
    /// Open connections are closed at once, new ones too.
    Reset,
    /// Bytes of answers are replaced by as many others.
    Rewrite(String, String),
}

/// A proxy on its own port and its own thread.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    port: Arc<AtomicU16>,
    weather: Arc<watch::Sender<Weather>>,
    accepted: Arc<AtomicUsize>,
    runtime: Option<Runtime>,
}

/// A fault, and the connections that it is about, counted as they were accepted.
#[derive(Clone, Debug, Default)]
struct Weather {
    fault: Fault,
    connections: Range<usize>,
}

impl Weather {
    fn over(&self, number: usize) -> Fault {
        if self.connections.contains(&number) { self.fault.clone() } else { Fault::None }
    }
}

/// One connection's view of the network.
struct Line {
    number: usize,
    weather: Arc<watch::Sender<Weather>>,
}

impl Line {
    fn fault(&self) -> Fault {
        self.weather.borrow().over(self.number)
    }

    /// Waits until the fault is one that `wanted` names.
    async fn until(&self, wanted: impl Fn(&Fault) -> bool) {
        let mut watched = self.weather.subscribe();
        drop(watched.wait_for(|weather| wanted(&weather.over(self.number))).await);
    }
}

impl Proxy {
    /// A proxy to a port of this machine.
    ///
    /// # Panics
    /// When the system has no port or thread left.
    #[must_use]
    pub fn to(port: u16) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime for the proxy");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port for the proxy");
        let address = listener.local_addr().expect("its address");
        listener.set_nonblocking(true).expect("a listener that does not block");
        let listener = {
            let _entered = runtime.enter();
            TcpListener::from_std(listener).expect("a listener for the proxy")
        };
        let weather = Arc::new(watch::channel(Weather::default()).0);
        let accepted = Arc::new(AtomicUsize::new(0));
        let port = Arc::new(AtomicU16::new(port));
        runtime.spawn(accept(listener, Arc::clone(&port), Arc::clone(&weather), Arc::clone(&accepted)));
        Self { address, port, weather, accepted, runtime: Some(runtime) }
    }

    /// The URL of a Redis server behind it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// New connections lead to another port, as a name that means another machine from now on.
    pub fn lead_to(&self, port: u16) {
        self.port.store(port, Ordering::SeqCst);
    }

    /// Breaks or mends the network from now on.
    pub fn set(&self, fault: Fault) {
        self.set_for(0..usize::MAX, fault);
    }

    /// Breaks the connections that are open now; new ones are whole.
    pub fn set_for_open(&self, fault: Fault) {
        self.set_for(0..self.accepted(), fault);
    }

    /// Breaks some connections, counted from 0 as they are accepted; the others are whole.
    pub fn set_for(&self, connections: Range<usize>, fault: Fault) {
        self.weather.send_replace(Weather { fault, connections });
    }

    /// Whether the network is whole: a fault that happens once has happened.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.weather.borrow().fault == Fault::None
    }

    /// How many connections there have been.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(
    listener: TcpListener,
    port: Arc<AtomicU16>,
    weather: Arc<watch::Sender<Weather>>,
    accepted: Arc<AtomicUsize>,
) {
    while let Ok((client, _)) = listener.accept().await {
        let line = Line { number: accepted.fetch_add(1, Ordering::SeqCst), weather: Arc::clone(&weather) };
        let port = port.load(Ordering::SeqCst);
        tokio::spawn(async move {
            if let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await {
                drop(client.set_nodelay(true));
                drop(server.set_nodelay(true));
                join(client, server, &line).await;
            }
        });
    }
}

/// Ends when one direction does. A client that has gone does not take back what it has sent.
async fn join(client: TcpStream, server: TcpStream, line: &Line) {
    let ((client_in, client_out), (server_in, server_out)) = (client.into_split(), server.into_split());
    tokio::select! {
        _ = requests(client_in, server_out, line) => {}
        _ = answers(server_in, client_out, line) => {}
        () = line.until(|fault| *fault == Fault::Reset) => {}
    }
}

async fn requests(mut client: OwnedReadHalf, mut server: OwnedWriteHalf, line: &Line) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = client.read(&mut buffer).await?;
        match line.fault() {
            Fault::Delay(delay) => tokio::time::sleep(delay).await,
            Fault::HoldRequests => line.until(|fault| *fault != Fault::HoldRequests).await,
            Fault::DropRequests => return swallow(client, line, &Fault::DropRequests).await,
            _ => {}
        }
        server.write_all(&buffer[..count]).await?;
        if count == 0 {
            return Ok(());
        }
    }
}

async fn answers(mut server: OwnedReadHalf, mut client: OwnedWriteHalf, line: &Line) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = tokio::select! {
            count = server.read(&mut buffer) => count?,
            () = line.until(|fault| *fault == Fault::HalfClose) => {
                client.shutdown().await?;
                line.until(|fault| *fault != Fault::HalfClose).await;
                return Ok(());
            }
        };
        let data = &buffer[..count];
        match line.fault() {
            _ if count == 0 => return Ok(()),
            Fault::DropReplies => return swallow(server, line, &Fault::DropReplies).await,
            Fault::ExecuteAndReset => {
                line.weather.send_replace(Weather::default());
                return Ok(());
            }
            Fault::Rewrite(old, new) => client.write_all(&rewrite(data, &old, &new)).await?,
            Fault::Delay(delay) => {
                tokio::time::sleep(delay).await;
                client.write_all(data).await?;
            }
            _ => client.write_all(data).await?,
        }
    }
}

/// Takes everything in and passes nothing on until the fault is over.
async fn swallow(mut from: OwnedReadHalf, line: &Line, fault: &Fault) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    let all = async { while from.read(&mut buffer).await.is_ok_and(|count| count > 0) {} };
    tokio::select! {
        () = all => Ok(()),
        () = line.until(|now| now != fault) => Ok(()),
    }
}

fn rewrite(data: &[u8], old: &str, new: &str) -> Vec<u8> {
    assert_eq!(old.len(), new.len(), "lengths are part of the protocol");
    let mut data = data.to_vec();
    for start in 0..data.len().saturating_sub(old.len() - 1) {
        if data[start..].starts_with(old.as_bytes()) {
            data[start..start + old.len()].copy_from_slice(new.as_bytes());
        }
    }
    data
}
