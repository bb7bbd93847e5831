//! A network that can be broken: a proxy before a server, with faults that a test sets.

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

/// A fault of the open and of the new connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    #[default]
    None,
    /// All data arrives this late, in both directions.
    Delay(Duration),
    /// Requests arrive and are carried out, and their replies are lost. A connection that lost a reply is closed when
    /// the fault is over, because the client would take a later reply for it.
    DropReplies,
    /// Requests are lost, and their connections are closed when the fault is over.
    DropRequests,
    /// Requests are held back and arrive when the fault is over, even if the client is gone by then.
    HoldRequests,
    /// The next request is carried out, its reply is lost and the connection is reset. New connections work.
    ExecuteAndReset,
    /// The connection is closed in the direction of the client, which may still send.
    HalfClose,
    /// All connections are closed at once, also new ones.
    Reset,
    /// Bytes of replies are replaced by as many others.
    Rewrite(String, String),
}

/// A proxy on its own port and its own thread.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    port: Arc<AtomicU16>,
    condition: Arc<watch::Sender<Condition>>,
    accepted: Arc<AtomicUsize>,
    runtime: Option<Runtime>,
}

/// A fault and the numbers of its connections, in the order in which they were accepted.
#[derive(Clone, Debug, Default)]
struct Condition {
    fault: Fault,
    connections: Range<usize>,
}

impl Condition {
    fn over(&self, number: usize) -> Fault {
        if self.connections.contains(&number) { self.fault.clone() } else { Fault::None }
    }
}

/// A connection and the condition of the network.
struct Link {
    number: usize,
    condition: Arc<watch::Sender<Condition>>,
}

impl Link {
    fn fault(&self) -> Fault {
        self.condition.borrow().over(self.number)
    }

    /// Waits until `wanted` accepts the fault.
    async fn until(&self, wanted: impl Fn(&Fault) -> bool) {
        let mut watched = self.condition.subscribe();
        drop(watched.wait_for(|condition| wanted(&condition.over(self.number))).await);
    }
}

impl Proxy {
    /// Starts a proxy to a port of this machine.
    ///
    /// # Panics
    /// If the system has no port or thread left.
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
        let condition = Arc::new(watch::channel(Condition::default()).0);
        let accepted = Arc::new(AtomicUsize::new(0));
        let port = Arc::new(AtomicU16::new(port));
        runtime.spawn(accept(listener, Arc::clone(&port), Arc::clone(&condition), Arc::clone(&accepted)));
        Self { address, port, condition, accepted, runtime: Some(runtime) }
    }

    /// Returns the URL of the Redis server behind the proxy.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Leads new connections to another port, like a host name that now means another machine.
    pub fn lead_to(&self, port: u16) {
        self.port.store(port, Ordering::SeqCst);
    }

    /// Breaks or mends all connections from now on.
    pub fn set(&self, fault: Fault) {
        self.set_for(0..usize::MAX, fault);
    }

    /// Breaks the connections that are open now. New ones have no fault.
    pub fn set_for_open(&self, fault: Fault) {
        self.set_for(0..self.accepted(), fault);
    }

    /// Breaks some connections, numbered from 0 as they are accepted. The others have no fault.
    pub fn set_for(&self, connections: Range<usize>, fault: Fault) {
        self.condition.send_replace(Condition { fault, connections });
    }

    /// Returns `true` if the network has no fault. A fault that happens once is then over.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.condition.borrow().fault == Fault::None
    }

    /// Returns the number of connections so far.
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
    condition: Arc<watch::Sender<Condition>>,
    accepted: Arc<AtomicUsize>,
) {
    while let Ok((client, _)) = listener.accept().await {
        let link =
            Link { number: accepted.fetch_add(1, Ordering::SeqCst), condition: Arc::clone(&condition) };
        let port = port.load(Ordering::SeqCst);
        tokio::spawn(async move {
            if let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await {
                drop(client.set_nodelay(true));
                drop(server.set_nodelay(true));
                join(client, server, &link).await;
            }
        });
    }
}

/// Forwards until one direction ends. Data that a client has sent before it left still arrives.
async fn join(client: TcpStream, server: TcpStream, link: &Link) {
    let ((client_in, client_out), (server_in, server_out)) = (client.into_split(), server.into_split());
    tokio::select! {
        _ = requests(client_in, server_out, link) => {}
        _ = replies(server_in, client_out, link) => {}
        () = link.until(|fault| *fault == Fault::Reset) => {}
    }
}

async fn requests(mut client: OwnedReadHalf, mut server: OwnedWriteHalf, link: &Link) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = client.read(&mut buffer).await?;
        match link.fault() {
            Fault::Delay(delay) => tokio::time::sleep(delay).await,
            Fault::HoldRequests => link.until(|fault| *fault != Fault::HoldRequests).await,
            Fault::DropRequests => return swallow(client, link, &Fault::DropRequests).await,
            _ => {}
        }
        server.write_all(&buffer[..count]).await?;
        if count == 0 {
            return Ok(());
        }
    }
}

async fn replies(mut server: OwnedReadHalf, mut client: OwnedWriteHalf, link: &Link) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = tokio::select! {
            count = server.read(&mut buffer) => count?,
            () = link.until(|fault| *fault == Fault::HalfClose) => {
                client.shutdown().await?;
                link.until(|fault| *fault != Fault::HalfClose).await;
                return Ok(());
            }
        };
        let data = &buffer[..count];
        match link.fault() {
            _ if count == 0 => return Ok(()),
            Fault::DropReplies => return swallow(server, link, &Fault::DropReplies).await,
            Fault::ExecuteAndReset => {
                link.condition.send_replace(Condition::default());
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

/// Reads everything and forwards nothing until the fault is over.
async fn swallow(mut from: OwnedReadHalf, link: &Link, fault: &Fault) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    let all = async { while from.read(&mut buffer).await.is_ok_and(|count| count > 0) {} };
    tokio::select! {
        () = all => Ok(()),
        () = link.until(|now| now != fault) => Ok(()),
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
