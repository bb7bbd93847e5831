//! Messages between processes: Unix datagram sockets, one for each process, named by its [`Inbox`].
//!
//! Nobody waits for a receiver. If its queue is full (`net.unix.max_dgram_qlen`, often 10), the sender creates a file
//! beside the socket, and the receiver reports a gap when it finds that file after it has emptied its queue. The sender
//! tries once more after creating the file: either that succeeds, or the queue was full at that time, so the receiver
//! will be woken by one of those messages. The socket is read on the background thread; files are looked for elsewhere.

use super::{
    errors::errno,
    folder::{Folder, names},
};
use locker_cas::{Inbox, Message, Received, random_inbox};
use locker_core::{background, diagnostics, error::Result};
use rustix::{
    fd::AsRawFd,
    fs::{self, AtFlags},
    io::Errno,
};
use std::{
    io::{self, ErrorKind as IoErrorKind},
    os::unix::net::UnixDatagram,
    path::PathBuf,
    sync::Arc,
};
use tokio::{select, sync::oneshot};

/// The maximum of bytes of a message. A longer one is a gap.
const LONGEST: usize = 64 * 1024;

/// How many messages are handled in a row before other work of the thread.
const IN_A_ROW: usize = 64;

pub(super) type Receiver = Box<dyn Fn(Received<'_>) + Send + Sync>;

/// The address of this process, and what sends to others.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) inbox: Inbox,
    folder: Arc<Folder>,
    sender: UnixDatagram,
    /// Until the receiver is known.
    bound: Option<UnixDatagram>,
}

impl Socket {
    pub(super) fn bind(folder: &Arc<Folder>) -> Result<Self> {
        let fail = |error: io::Error| folder.failed("create a socket", errno(&error));
        let sender = unbound().map_err(fail)?;
        let (inbox, bound) = loop {
            let inbox = random_inbox();
            match UnixDatagram::bind(path(folder, inbox)) {
                Ok(socket) => break (inbox, socket),
                Err(error) if error.kind() == IoErrorKind::AddrInUse => {}
                Err(error) => return Err(fail(error)),
            }
        };
        bound.set_nonblocking(true).map_err(fail)?;
        let shared = folder.share_socket(&name(inbox));
        shared.map_err(|errno| folder.failed("create a socket", errno))?;
        Ok(Self { inbox, folder: Arc::clone(folder), sender, bound: Some(bound) })
    }

    /// Returns the socket that receives.
    pub(super) fn take_bound(&mut self) -> Option<UnixDatagram> {
        self.bound.take()
    }

    /// Sends messages. Returns the inboxes that no process listens to.
    pub(super) fn send(&self, messages: &[Message]) -> Vec<Inbox> {
        let mut gone = Vec::new();
        for message in messages {
            if !gone.contains(&message.to) && !self.send_one(message) {
                gone.push(message.to);
            }
        }
        gone
    }

    /// Returns whether a process listens.
    fn send_one(&self, message: &Message) -> bool {
        let (place, text) = (path(&self.folder, message.to), message.text.as_bytes());
        let sent = if text.len() > LONGEST {
            Err(IoErrorKind::WouldBlock.into())
        } else {
            self.sender.send_to(text, &place)
        };
        let Err(error) = sent else { return true };
        if is_gone(&error) {
            remove(&self.folder, message.to);
            return false;
        }
        // What a stopped process has not received counts for the sending socket, so the second try is by another one.
        let _ = self.folder.touch(&self.folder.inbox, &gap(message.to));
        let text = if text.len() <= LONGEST && error.kind() == IoErrorKind::WouldBlock { text } else { b"" };
        let again = unbound().and_then(|socket| socket.send_to(text, &place));
        !again.is_err_and(|error| is_gone(&error))
    }

    /// Whether a sender found the queue full since the last call.
    pub(super) fn was_missed(&self) -> bool {
        self.folder.pause("before a look for a gap");
        fs::unlinkat(&self.folder.inbox, gap(self.inbox), AtFlags::empty()).is_ok()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        remove(&self.folder, self.inbox);
    }
}

/// Removes the files of a process that has ended.
fn remove(folder: &Folder, inbox: Inbox) {
    for name in [name(inbox), gap(inbox)] {
        let _ = fs::unlinkat(&folder.inbox, &*name, AtFlags::empty());
    }
}

/// Removes the files of all processes that have ended.
pub(super) fn sweep(folder: &Folder) -> Result<(), Errno> {
    let socket = unbound().map_err(|error| errno(&error))?;
    for name in names(&folder.inbox)? {
        let inbox = name.get(..8).and_then(|digits| Inbox::from_str_radix(digits, 16).ok());
        if let Some(inbox) = inbox
            && socket.connect(path(folder, inbox)).is_err_and(|error| is_gone(&error))
        {
            remove(folder, inbox);
        }
    }
    Ok(())
}

/// Receives until the sender of `end` is dropped. Each time that the queue is empty, `look` looks for a file of a
/// sender that found it full. A socket that cannot be read is kept, since others would take a process without one for
/// gone.
pub(super) fn listen(
    socket: UnixDatagram,
    dir: PathBuf,
    receiver: Arc<Receiver>,
    look: impl Fn() + Send + Sync + 'static,
    mut end: oneshot::Receiver<()>,
) {
    background::spawn(async move {
        let kept = socket.try_clone();
        let deaf = async |error: io::Error, end: &mut oneshot::Receiver<()>| {
            diagnostics::warn_aloud(&format!(
                "messages are not heard in the directory {}, because the socket cannot be watched: {error}; waiters \
                 ask again instead; raise fs.epoll.max_user_watches and open the store anew",
                dir.display()
            ));
            receiver(Received::Gap);
            let _ = end.await;
        };
        let socket = match tokio::net::UnixDatagram::from_std(socket) {
            Ok(socket) => socket,
            Err(error) => return deaf(error, &mut end).await,
        };
        drop(kept);
        let mut buffer = vec![0; LONGEST + 1].into_boxed_slice();
        loop {
            select! {
                _ = &mut end => return,
                readable = socket.readable() => if let Err(error) = readable {
                    return deaf(error, &mut end).await;
                },
            }
            receive(&socket, &mut buffer, &receiver).await;
            look();
        }
    });
}

async fn receive(socket: &tokio::net::UnixDatagram, buffer: &mut [u8], receiver: &Receiver) {
    for received in 1_usize.. {
        match socket.try_recv(buffer) {
            Ok(len) => match str::from_utf8(&buffer[..len]) {
                Ok(text) if !text.is_empty() && len <= LONGEST => receiver(Received::Text(text)),
                _ => receiver(Received::Gap),
            },
            Err(error) if error.kind() == IoErrorKind::WouldBlock => break,
            Err(_) => {
                receiver(Received::Gap);
                break;
            }
        }
        if received.is_multiple_of(IN_A_ROW) {
            tokio::task::yield_now().await;
        }
    }
}

fn unbound() -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), IoErrorKind::ConnectionRefused | IoErrorKind::NotFound)
}

fn name(inbox: Inbox) -> String {
    format!("{inbox:08x}")
}

fn gap(inbox: Inbox) -> String {
    format!("{inbox:08x}.gap")
}

/// Returns a path of a socket that fits into its address, which has 108 bytes, however long that of the folder is.
fn path(folder: &Folder, inbox: Inbox) -> String {
    format!("/proc/self/fd/{}/{inbox:08x}", folder.inbox.as_raw_fd())
}
