//! A network that can be broken: a proxy before a server, with faults that a test sets.

use crate::messages::WithoutMessages;
use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    ops::Range,
    sync::{
        Arc, OnceLock,
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
    time::Instant,
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
    /// The first request with these bytes, and all that follow it on its connection, are held back like that.
    HoldRequestsFrom(&'static str),
    /// The next request is carried out, its reply is lost and the connection is reset. New connections work.
    ExecuteAndReset,
    /// The connection is closed in the direction of the client, which may still send.
    HalfClose,
    /// All connections are closed at once, also new ones.
    Reset,
    /// Published messages are lost, and replies arrive. A connection that lost a part of a message is closed when the
    /// fault is over.
    DropMessages,
    /// Bytes of replies are replaced by as many others.
    Rewrite(String, String),
}

/// A proxy on its own port and its own thread.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    network: Arc<Network>,
    runtime: Option<Runtime>,
}

#[derive(Debug)]
struct Network {
    port: AtomicU16,
    condition: watch::Sender<Condition>,
    accepted: AtomicUsize,
    lost_messages: AtomicUsize,
}

/// A fault and the numbers of its connections, in the order in which they were accepted.
#[derive(Clone, Debug, Default)]
struct Condition {
    fault: Fault,
    connections: Range<usize>,
    /// Of these only those of this member of an etcd cluster.
    member: Option<String>,
}

impl Condition {
    fn over(&self, link: &Link) -> Fault {
        let is_meant = self.member.is_none() || self.member.as_ref() == link.member.get();
        if is_meant && self.connections.contains(&link.number) { self.fault.clone() } else { Fault::None }
    }
}

/// A connection of the network.
struct Link {
    number: usize,
    network: Arc<Network>,
    /// The member of an etcd cluster that has opened the connection, once it has said so.
    member: OnceLock<String>,
}

impl Link {
    fn fault(&self) -> Fault {
        self.network.condition.borrow().over(self)
    }

    /// Looks for the header by which members of an etcd cluster name themselves.
    fn read(&self, data: &[u8]) {
        let is_request = data.starts_with(b"GET ") || data.starts_with(b"POST ");
        if is_request && self.member.get().is_none() {
            let text = String::from_utf8_lossy(data);
            if let Some((name, _)) = text.split_once(MEMBER).and_then(|(_, rest)| rest.split_once("\r\n")) {
                // Only this task sets it.
                let _ = self.member.set(name.to_owned());
            }
        }
    }

    /// Waits until `wanted` accepts the fault.
    async fn until(&self, wanted: impl Fn(&Fault) -> bool) {
        let mut watched = self.network.condition.subscribe();
        drop(watched.wait_for(|condition| wanted(&condition.over(self))).await);
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
        let network = Arc::new(Network {
            port: AtomicU16::new(port),
            condition: watch::channel(Condition::default()).0,
            accepted: AtomicUsize::new(0),
            lost_messages: AtomicUsize::new(0),
        });
        runtime.spawn(accept(listener, Arc::clone(&network)));
        Self { address, network, runtime: Some(runtime) }
    }

    /// Returns the URL of the Redis server behind the proxy.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Returns the port of the proxy.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Leads new connections to another port, like a host name that now means another machine.
    pub fn lead_to(&self, port: u16) {
        self.network.port.store(port, Ordering::SeqCst);
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
        self.network.condition.send_replace(Condition { fault, connections, member: None });
    }

    /// Breaks the connections that a member of an etcd cluster opens to another one. The others have no fault.
    pub fn set_for_member(&self, id: u64, fault: Fault) {
        let member = Some(format!("{id:x}"));
        self.network.condition.send_replace(Condition { fault, connections: 0..usize::MAX, member });
    }

    /// Returns `true` if the network has no fault. A fault that happens once is then over.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.network.condition.borrow().fault == Fault::None
    }

    /// Returns the number of connections so far.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.network.accepted.load(Ordering::SeqCst)
    }

    /// Returns the number of messages that were lost so far.
    #[must_use]
    pub fn lost_messages(&self) -> usize {
        self.network.lost_messages.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

const MEMBER: &str = "X-Server-From: ";

async fn accept(listener: TcpListener, network: Arc<Network>) {
    while let Ok((client, _)) = listener.accept().await {
        let number = network.accepted.fetch_add(1, Ordering::SeqCst);
        let port = network.port.load(Ordering::SeqCst);
        let link = Link { number, network: Arc::clone(&network), member: OnceLock::new() };
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

/// Data on its way. What is sent later does not wait for what was sent before.
#[derive(Default)]
struct Late(VecDeque<(Instant, Vec<u8>)>);

impl Late {
    fn push(&mut self, delay: Duration, data: &[u8]) {
        self.0.push_back((Instant::now() + delay, data.to_vec()));
    }

    /// Reads, and forwards what is due meanwhile.
    async fn read(
        &mut self,
        from: &mut OwnedReadHalf,
        to: &mut OwnedWriteHalf,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        while let Some((due, data)) = self.0.front() {
            tokio::select! {
                () = tokio::time::sleep_until(*due) => {
                    to.write_all(data).await?;
                    self.0.pop_front();
                }
                count = from.read(buffer) => return count,
            }
        }
        from.read(buffer).await
    }

    /// Forwards the rest.
    async fn flush(&mut self, to: &mut OwnedWriteHalf) -> io::Result<()> {
        while let Some((due, data)) = self.0.pop_front() {
            tokio::time::sleep_until(due).await;
            to.write_all(&data).await?;
        }
        Ok(())
    }
}

async fn requests(mut client: OwnedReadHalf, mut server: OwnedWriteHalf, link: &Link) -> io::Result<()> {
    let (mut buffer, mut late) = (vec![0; 64 * 1024], Late::default());
    loop {
        let count = late.read(&mut client, &mut server, &mut buffer).await?;
        link.read(&buffer[..count]);
        let fault = link.fault();
        match fault {
            Fault::Delay(delay) if count > 0 => {
                late.push(delay, &buffer[..count]);
                continue;
            }
            _ => late.flush(&mut server).await?,
        }
        match fault {
            // The data that was just read may have shown which member has this connection.
            Fault::Reset => return Ok(()),
            Fault::HoldRequests => link.until(|fault| *fault != Fault::HoldRequests).await,
            Fault::HoldRequestsFrom(start) if contains(&buffer[..count], start) => {
                link.until(|fault| !matches!(fault, Fault::HoldRequestsFrom(_))).await;
            }
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
    let (mut buffer, mut messages) = (vec![0; 64 * 1024], WithoutMessages::default());
    let mut late = Late::default();
    loop {
        let count = tokio::select! {
            count = late.read(&mut server, &mut client, &mut buffer) => count?,
            () = link.until(|fault| *fault == Fault::HalfClose) => {
                client.shutdown().await?;
                link.until(|fault| *fault != Fault::HalfClose).await;
                return Ok(());
            }
        };
        let (data, fault) = (&buffer[..count], link.fault());
        if !matches!(fault, Fault::Delay(_)) || count == 0 {
            late.flush(&mut client).await?;
        }
        match fault {
            _ if count == 0 => return Ok(()),
            Fault::DropReplies => return swallow(server, link, &Fault::DropReplies).await,
            Fault::ExecuteAndReset => {
                link.network.condition.send_replace(Condition::default());
                return Ok(());
            }
            Fault::DropMessages => {
                let (forward, lost) = messages.filter(data);
                link.network.lost_messages.fetch_add(lost, Ordering::SeqCst);
                client.write_all(&forward).await?;
            }
            _ if messages.is_cut() => return Ok(()),
            Fault::Rewrite(old, new) => client.write_all(&rewrite(data, &old, &new)).await?,
            Fault::Delay(delay) => late.push(delay, data),
            _ => client.write_all(data).await?,
        }
    }
}

fn contains(data: &[u8], part: &str) -> bool {
    data.windows(part.len()).any(|bytes| bytes == part.as_bytes())
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
