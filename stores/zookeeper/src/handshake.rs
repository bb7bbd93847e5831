//! The first frames of a connection: its session.

use super::{
    connection::{AUTH, AUTH_CODE, Connection},
    errors::{CLOSED, Failure},
    stream::Stream,
    wire::{Body, Reader, next_frame, put_frame},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The session as the server knows it.
#[derive(Clone, Default)]
pub(super) struct Identity {
    /// 0 if there is none.
    pub(super) id: i64,
    password: Vec<u8>,
    /// After how long a silence the server ends it.
    pub(super) timeout: Duration,
}

/// What the server says of this session when it does not know it any more.
pub(super) enum Opened {
    Accepted(Box<Connection>, Identity),
    SessionOver,
}

impl Opened {
    /// Resumes a session, or begins one.
    pub(super) async fn open(
        (mut stream, address): (Box<dyn Stream>, String),
        zxid: Arc<AtomicI64>,
        identity: &Identity,
        login: Option<&str>,
        patience: Duration,
    ) -> Result<Self, Failure> {
        let mut output = Vec::new();
        put_frame(&mut output, &[], &identity.request(zxid.load(Ordering::Acquire)).0);
        if let Some(login) = login {
            let body = Body::default().int(0).text("digest").text(login);
            put_frame(&mut output, &[AUTH, AUTH_CODE], &body.0);
        }
        let failed = |why: &str| Failure::unsent(format!("ZooKeeper at {address} {why}"));
        let ended = |error: std::io::Error| failed(&format!("{CLOSED} ({error})"));
        stream.write_all(&output).await.map_err(ended)?;
        stream.flush().await.map_err(ended)?;
        let mut input = Vec::new();
        let (frame, rest) = loop {
            let mut rest = &input[..];
            match next_frame(&mut rest) {
                Ok(Some(frame)) => break (frame.to_vec(), rest.to_vec()),
                Ok(None) => {}
                Err(_) => return Err(failed("answers like another kind of server")),
            }
            if stream.read_buf(&mut input).await.map_err(ended)? == 0 {
                return Err(failed(CLOSED));
            }
        };
        let identity = Identity::read(&frame).ok_or_else(|| failed("answers like another kind of server"))?;
        if identity.id == 0 {
            return Ok(Self::SessionOver);
        }
        let connection = Connection::new(stream, address, zxid, patience, identity.timeout / 3, rest);
        Ok(Self::Accepted(Box::new(connection), identity))
    }
}

impl Identity {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { id: 0, password: vec![0; 16], timeout }
    }

    fn request(&self, zxid: i64) -> Body {
        let timeout = i32::try_from(self.timeout.as_millis()).unwrap_or(i32::MAX);
        // Not from a server that only reads.
        Body::default().int(0).long(zxid).int(timeout).long(self.id).bytes(&self.password).flag(false)
    }

    pub(super) fn read(frame: &[u8]) -> Option<Self> {
        let mut reader = Reader(frame);
        let (version, timeout, id) = (reader.int()?, reader.int()?, reader.long()?);
        let password = reader.bytes()?.to_vec();
        let timeout = Duration::from_millis(u64::try_from(timeout).ok()?);
        (version == 0).then_some(Self { id, password, timeout })
    }
}
