//! One connection.

use super::{handler::Handler, response, stream::Stream};
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};
use tokio::net::TcpStream;

/// A permit for one connection, returned on drop.
#[derive(Debug)]
pub(super) struct ConnectionPermit(Arc<Handler>);

impl ConnectionPermit {
    /// Returns `None` if the cap on connections is reached.
    pub(super) fn take(handler: &Arc<Handler>) -> Option<Self> {
        handler.server().http_connections.try_enter().then(|| Self(handler.clone()))
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.server().http_connections.leave();
    }
}

/// Serves one connection until it ends.
pub(super) async fn serve(permit: ConnectionPermit, stream: TcpStream) {
    let handler = &permit.0;
    let Ok(stream) = Stream::new(stream, handler.header_timeout(), handler.unread().clone()) else { return };
    let client = &stream.client().clone();
    let service = service_fn(async |request: Request<Incoming>| {
        let response = handler.answer(client, request).await;
        Ok::<_, Infallible>(response.unwrap_or_else(|| {
            client.close();
            response::nothing()
        }))
    });
    let builder = builder(handler.header_size(), handler.header_timeout());
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = handler.server().shutdown.cancelled() => {
            client.drain();
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended with an error");
    }
}

/// `header_timeout` also closes idle connections.
fn builder(header_size: usize, header_timeout: Duration) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        // A client that has closed its sending side may still read. Calls that wait watch for the close themselves,
        // and the bytes behind them stay with the system.
        .half_close(true)
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_buf_size(header_size)
        // A long answer is not copied, and counts as unread until it is written.
        .writev(true);
    builder
}

#[cfg(test)]
mod tests {
    use super::{super::unread::UnreadCap, *};
    use std::{future::poll_fn, io, sync::atomic::AtomicUsize, sync::atomic::Ordering};
    use tokio::{io::AsyncWriteExt, net::TcpListener, sync::Notify};

    /// The first buffer of the HTTP library.
    const BUFFER: usize = 8192;

    /// Returns how often the connection of a waiting call is polled within an hour.
    async fn polls_while_waiting(head: String) -> usize {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (timeout, unread) = (Duration::from_secs(5), Arc::new(UnreadCap::new(0)));
        let stream = Stream::new(listener.accept().await.unwrap().0, timeout, unread).unwrap();
        let (peer, called) = (stream.client().clone(), Arc::new(Notify::new()));
        let calls = called.clone();
        let service = service_fn(move |_| {
            let (peer, calls) = (peer.clone(), calls.clone());
            async move {
                calls.notify_one();
                peer.disconnected().await;
                Err::<hyper::Response<String>, _>(io::Error::other("disconnected"))
            }
        });
        let mut connection =
            Box::pin(builder(BUFFER, timeout).serve_connection(TokioIo::new(stream), service));
        let polls = Arc::new(AtomicUsize::new(0));
        let counted = polls.clone();
        let connection = tokio::spawn(poll_fn(move |context| {
            counted.fetch_add(1, Ordering::Relaxed);
            connection.as_mut().poll(context)
        }));
        client.write_all(head.as_bytes()).await.unwrap();
        called.notified().await;
        let before = polls.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_hours(1)).await;
        let polls = polls.load(Ordering::Relaxed) - before;
        drop(client);
        assert!(connection.await.unwrap().is_err(), "it ends with its client");
        polls
    }

    /// The paused clock moves on to the next timer of any task.
    #[tokio::test(start_paused = true)]
    async fn waiting_call_sleeps_until_the_client_closes() {
        assert_eq!(polls_while_waiting("GET / HTTP/1.1\r\n\r\n".into()).await, 0);
    }

    /// A read that fills the buffer does not show whether more has arrived. Such a wait checked every 250 ms.
    #[tokio::test(start_paused = true)]
    async fn waiting_call_with_a_full_buffer_sleeps() {
        let head = |padding| format!("GET / HTTP/1.1\r\nPadding: {}\r\n\r\n", "x".repeat(padding));
        let head = head(BUFFER - head(0).len());
        assert_eq!(head.len(), BUFFER);
        let polls = polls_while_waiting(head).await;
        assert!(polls <= 1, "{polls} polls");
    }
}
