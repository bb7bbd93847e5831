//! `locker health`.

use crate::{
    cli::health::Health,
    exit_code::{MISUSED, UNAVAILABLE},
};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{Request, StatusCode, Uri, client::conn::http1, header::HOST};
use hyper_util::rt::TokioIo;
use std::{error::Error, process::ExitCode, time::Duration};
use tokio::net::TcpStream;

/// A server whose store is silent answers after a second.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How much of the reason is read.
const LONGEST_REASON: usize = 1000;

/// Asks a server whether it is ready.
pub(super) async fn health(options: Health) -> ExitCode {
    let url = match options.server() {
        Ok(url) => url,
        Err(reason) => {
            tracing::error!("{reason}");
            return MISUSED.into();
        }
    };
    let asked = tokio::time::timeout(TIMEOUT, ask(&url)).await;
    match asked.unwrap_or_else(|_| Err(format!("no answer within {TIMEOUT:?}").into())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            tracing::error!("{url} is not ready: {reason}");
            UNAVAILABLE.into()
        }
    }
}

async fn ask(url: &Uri) -> Result<(), Box<dyn Error + Send + Sync>> {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let stream = TcpStream::connect((host, url.port_u16().unwrap_or(80))).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let path = format!("{}/readyz", url.path().trim_end_matches('/'));
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let request = Request::get(path).header(HOST, authority).body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    if status == StatusCode::OK {
        return Ok(());
    }
    let reason = Limited::new(answer.into_body(), LONGEST_REASON).collect().await?.to_bytes();
    Err(format!("{status}: {}", String::from_utf8_lossy(&reason).escape_debug()).into())
}
