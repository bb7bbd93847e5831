//! A network that can be broken: forwards connections to a server, and does to them what a test says.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
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
    /// Requests arrive and are carried out; answers disappear.
    DropReplies,
    /// Requests disappear.
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
    Rewrite(&'static str, &'static str),
}

/// A proxy on its own port and its own thread.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    fault: Arc<watch::Sender<Fault>>,
    accepted: Arc<AtomicUsize>,
    runtime: Option<Runtime>,
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
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port for the proxy");
        let address = listener.local_addr().expect("its address");
        let (fault, accepted) = (Arc::new(watch::channel(Fault::None).0), Arc::new(AtomicUsize::new(0)));
        runtime.spawn(accept(listener, port, Arc::clone(&fault), Arc::clone(&accepted)));
        Self { address, fault, accepted, runtime: Some(runtime) }
    }

    /// The URL of a Redis server behind it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Breaks or mends the network from now on.
    pub fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    /// Whether the network is whole: a fault that happens once has happened.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        *self.fault.borrow() == Fault::None
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
    port: u16,
    fault: Arc<watch::Sender<Fault>>,
    accepted: Arc<AtomicUsize>,
) {
    while let Ok((client, _)) = listener.accept().await {
        accepted.fetch_add(1, Ordering::SeqCst);
        let fault = Arc::clone(&fault);
        tokio::spawn(async move {
            if let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await {
                drop(client.set_nodelay(true));
                drop(server.set_nodelay(true));
                join(client, server, &fault).await;
            }
        });
    }
}

/// Ends when one direction says so; a client that has gone does not take back what it has sent.
async fn join(client: TcpStream, server: TcpStream, fault: &watch::Sender<Fault>) {
    let (mut client_in, mut client_out) = client.into_split();
    let (mut server_in, mut server_out) = server.into_split();
    let requests = async {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = client_in.read(&mut buffer).await?;
            if forward_request(&buffer[..count], fault).await {
                server_out.write_all(&buffer[..count]).await?;
            }
            if count == 0 {
                return io::Result::Ok(());
            }
        }
    };
    let answers = async {
        let (mut buffer, mut watched) = (vec![0; 64 * 1024], fault.subscribe());
        loop {
            let count = tokio::select! {
                count = server_in.read(&mut buffer) => Some(count?),
                _ = watched.wait_for(|fault| *fault == Fault::HalfClose) => None,
            };
            let Some(count) = count else {
                client_out.shutdown().await?;
                watched.wait_for(|fault| *fault != Fault::HalfClose).await.ok();
                return Ok(());
            };
            if count == 0 {
                return io::Result::Ok(());
            }
            let Some(answer) = forward_answer(&buffer[..count], fault).await else { return Ok(()) };
            client_out.write_all(&answer).await?;
        }
    };
    let mut watched = fault.subscribe();
    tokio::select! {
        _ = requests => {}
        _ = answers => {}
        _ = watched.wait_for(|fault| *fault == Fault::Reset) => {}
    }
}

/// Whether the server gets it.
async fn forward_request(data: &[u8], fault: &watch::Sender<Fault>) -> bool {
    let mut watched = fault.subscribe();
    let now = watched.borrow().clone();
    match now {
        Fault::Delay(delay) => tokio::time::sleep(delay).await,
        Fault::HoldRequests => {
            watched.wait_for(|fault| *fault != Fault::HoldRequests).await.ok();
        }
        Fault::DropRequests => return false,
        _ => {}
    }
    !data.is_empty()
}

/// What the client gets; `None` breaks the connection.
async fn forward_answer(data: &[u8], fault: &watch::Sender<Fault>) -> Option<Vec<u8>> {
    let now = fault.borrow().clone();
    match now {
        Fault::Delay(delay) => tokio::time::sleep(delay).await,
        Fault::DropReplies => return Some(Vec::new()),
        Fault::ExecuteAndReset => {
            fault.send_replace(Fault::None);
            return None;
        }
        Fault::Rewrite(old, new) => return Some(rewrite(data, old, new)),
        _ => {}
    }
    Some(data.to_vec())
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
