//! One connection: requests and their answers, in one order, and what is heard of nodes that are watched.

use super::{
    errors::{CLOSED, Failure},
    stream::Stream,
    wire::{Body, Reader, next_frame, put_frame},
};
use locker_core::{background, clock::Timestamp, error::ErrorKind};
use std::{
    collections::VecDeque,
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, WriteHalf},
    select,
    sync::{mpsc, oneshot},
};

/// A request.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) code: i32,
    pub(super) body: Body,
    pub(super) answer: oneshot::Sender<Result<Answer, Failure>>,
}

/// An answer: an error code and, without an error, what was asked for.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: i32,
    pub(super) body: Vec<u8>,
}

/// What has become of a node that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) change: Change,
    pub(super) path: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Created,
    Deleted,
    Written,
    Other,
}

/// A connection whose session is accepted.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    address: String,
    /// The last transaction that this process has seen.
    zxid: Arc<AtomicI64>,
    /// How long the server may be silent while it owes an answer.
    patience: Duration,
    /// How long nothing is sent before a sign of life.
    ping_after: Duration,
    input: Vec<u8>,
    output: Vec<u8>,
    written: usize,
    must_flush: bool,
    pending: VecDeque<Pending>,
    last_xid: i32,
    /// When the last answer came, or a part of it.
    answered: Timestamp,
    sent: Timestamp,
    pinged: Option<Timestamp>,
}

struct Pending {
    xid: i32,
    sent: Timestamp,
    answer: oneshot::Sender<Result<Answer, Failure>>,
}

/// The numbers of what is no answer to a call.
const EVENT: i32 = -1;
const PING: i32 = -2;
pub(super) const AUTH: i32 = -4;

const PING_CODE: i32 = 11;
pub(super) const AUTH_CODE: i32 = 100;

/// What is on its way to the server at most, beside one request. What waits longer is known to be unsent.
const MAX_OUTPUT: usize = 256 << 10;

/// The least room for what comes.
const READ_AT_ONCE: usize = 16 << 10;

/// How often silence is noticed at least.
const BEAT: Duration = Duration::from_millis(250);

impl Connection {
    /// Takes a connection of which `input` has been read already.
    pub(super) fn new(
        stream: Box<dyn Stream>,
        address: String,
        zxid: Arc<AtomicI64>,
        patience: Duration,
        ping_after: Duration,
        input: Vec<u8>,
    ) -> Self {
        let now = Timestamp::now();
        Self {
            stream,
            address,
            zxid,
            patience,
            ping_after,
            input,
            output: Vec::new(),
            written: 0,
            must_flush: false,
            pending: VecDeque::new(),
            last_xid: 0,
            answered: now,
            sent: now,
            pinged: None,
        }
    }

    /// Carries out calls until the connection ends or nobody can make one any more. Returns why it has ended. Calls
    /// that have not left this process get a certain error, those without an answer an unknown one.
    pub(super) async fn run(
        mut self,
        mut calls: mpsc::UnboundedReceiver<Call>,
        events: mpsc::UnboundedSender<Event>,
    ) -> Failure {
        let failure = self.serve(&mut calls, &events).await;
        calls.close();
        while let Ok(call) = calls.try_recv() {
            drop(call.answer.send(Err(Failure::unsent(failure.error.message()))));
        }
        for pending in self.pending {
            drop(pending.answer.send(Err(Failure::unknown(failure.error.message()))));
        }
        failure
    }

    async fn serve(
        &mut self,
        calls: &mut mpsc::UnboundedReceiver<Call>,
        events: &mpsc::UnboundedSender<Event>,
    ) -> Failure {
        let stream = std::mem::replace(&mut self.stream, Box::new(tokio::io::empty()));
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut beat = pin!(background::sleep(BEAT));
        let mut is_closing = false;
        if let Err(failure) = self.take_frames(events) {
            return failure;
        }
        loop {
            let has_output = self.written < self.output.len();
            if is_closing && !has_output && !self.must_flush && self.pending.is_empty() {
                return Failure::unsent("the store was dropped");
            }
            self.input.reserve(READ_AT_ONCE);
            let has_room = self.output.len() - self.written < MAX_OUTPUT;
            let result = select! {
                read = reader.read_buf(&mut self.input) => match read {
                    Ok(0) => Err(self.failed(CLOSED)),
                    Ok(_) => self.take_frames(events),
                    Err(error) => Err(self.failed(&format!("has ended the connection: {error}"))),
                },
                written = put(&mut writer, &self.output[self.written..]), if has_output || self.must_flush => {
                    match written {
                        Ok(0) if has_output => Err(self.failed(CLOSED)),
                        Ok(count) => {
                            self.wrote(count);
                            Ok(())
                        }
                        Err(error) => Err(self.failed(&format!("has ended the connection: {error}"))),
                    }
                }
                call = calls.recv(), if has_room && !is_closing => {
                    match call {
                        Some(call) => self.send(call),
                        None => is_closing = true,
                    }
                    Ok(())
                }
                () = &mut beat => {
                    beat.set(background::sleep(BEAT.min(self.patience / 8)));
                    self.beat()
                }
            };
            if let Err(failure) = result {
                return failure;
            }
        }
    }

    /// Takes note of so many bytes that were written, or of a flush.
    fn wrote(&mut self, count: usize) {
        self.written += count;
        self.must_flush = count > 0;
        // What was written is dropped also if there is always more.
        if self.written == self.output.len() || self.written > MAX_OUTPUT {
            self.output.drain(..self.written);
            self.written = 0;
        }
    }

    fn send(&mut self, Call { code, body, answer }: Call) {
        self.last_xid = self.last_xid.checked_add(1).unwrap_or(1);
        put_frame(&mut self.output, &[self.last_xid, code], &body.0);
        self.sent = Timestamp::now();
        self.pending.push_back(Pending { xid: self.last_xid, sent: self.sent, answer });
    }

    /// Ends the connection if the server is silent, and shows it that this process lives.
    fn beat(&mut self) -> Result<(), Failure> {
        let now = Timestamp::now();
        let owed = self.pending.front().map(|pending| pending.sent);
        let is_late = |since: Timestamp, limit| now.since(since.max(self.answered)) > limit;
        if owed.is_some_and(|since| is_late(since, self.patience))
            || self.pinged.is_some_and(|since| is_late(since, self.patience.max(self.ping_after)))
        {
            return Err(self.failed("does not answer"));
        }
        if self.pinged.is_none() && now.since(self.sent) > self.ping_after {
            put_frame(&mut self.output, &[PING, PING_CODE], &[]);
            (self.sent, self.pinged) = (now, Some(now));
        }
        Ok(())
    }

    fn take_frames(&mut self, events: &mpsc::UnboundedSender<Event>) -> Result<(), Failure> {
        let (input, mut events_only) = (std::mem::take(&mut self.input), None);
        let mut rest = &input[..];
        while let Some(frame) = next_frame(&mut rest).map_err(|_| self.failed(NO_ANSWER))? {
            events_only = Some(events_only.unwrap_or(true) && frame.starts_with(&EVENT.to_be_bytes()));
            self.take(frame, events).unwrap_or_else(|| Err(self.failed(NO_ANSWER)))?;
        }
        // Events still come from a server that this process does not reach any more.
        if events_only != Some(true) {
            self.answered = Timestamp::now();
        }
        let taken = input.len() - rest.len();
        self.input = input;
        self.input.drain(..taken);
        Ok(())
    }

    /// Takes one frame. Returns `None` if it cannot be read.
    fn take(&mut self, frame: &[u8], events: &mpsc::UnboundedSender<Event>) -> Option<Result<(), Failure>> {
        let mut reader = Reader(frame);
        let (xid, zxid, code) = (reader.int()?, reader.long()?, reader.int()?);
        match xid {
            EVENT => drop(events.send(Event::read(&mut reader)?)),
            PING => self.pinged = None,
            AUTH if code != 0 => {
                let why = "refuses the user and password of the URL";
                return Some(Err(Failure::refused(ErrorKind::Misused, format!("ZooKeeper {why}"))));
            }
            AUTH => {}
            _ => {
                self.pending.front().filter(|pending| pending.xid == xid)?;
                let pending = self.pending.pop_front()?;
                // Before the answer: what follows from it happens after that transaction.
                self.zxid.fetch_max(zxid, Ordering::AcqRel);
                drop(pending.answer.send(Ok(Answer { code, body: reader.0.to_vec() })));
            }
        }
        Some(Ok(()))
    }

    fn failed(&self, why: &str) -> Failure {
        Failure::unknown(format!("ZooKeeper at {} {why}", self.address))
    }
}

/// Writes some bytes, or flushes if there are none. Nothing is lost if the future is dropped.
async fn put(writer: &mut WriteHalf<Box<dyn Stream>>, bytes: &[u8]) -> io::Result<usize> {
    if bytes.is_empty() { writer.flush().await.map(|()| 0) } else { writer.write(bytes).await }
}

const NO_ANSWER: &str = "has sent what is no answer";

impl Event {
    pub(super) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let change = match reader.int()? {
            1 => Change::Created,
            2 => Change::Deleted,
            3 => Change::Written,
            _ => Change::Other,
        };
        let _state = reader.int()?;
        Some(Self { change, path: reader.text()?.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The network is so slow that something is always left to write.
    #[tokio::test]
    async fn output_that_was_written_is_dropped() {
        const CALL: usize = 100 << 10;
        let (near, mut far) = tokio::io::duplex(16 << 10);
        let minute = Duration::from_secs(60);
        let mut connection =
            Connection::new(Box::new(near), "x".into(), Arc::default(), minute, minute, Vec::new());
        let (sender, mut calls) = mpsc::unbounded_channel();
        let (events, _heard) = mpsc::unbounded_channel();
        let feed = async {
            let (mut buffer, mut sent, mut read) = (vec![0; 16 << 10], 0, 0);
            while read < 20 << 20 {
                // Some calls always wait.
                while sent < read + 10 * CALL {
                    let (answer, _) = oneshot::channel();
                    sender.send(Call { code: 5, body: Body(vec![0; CALL]), answer }).unwrap();
                    sent += CALL;
                }
                read += far.read(&mut buffer).await.unwrap();
            }
        };
        tokio::select! {
            failure = connection.serve(&mut calls, &events) => panic!("{failure:?}"),
            () = feed => {}
        }
        assert!(connection.output.len() < 2 << 20, "{} bytes are kept", connection.output.len());
    }
}
