//! A build without TLS.

use super::{stream::Stream, url::Url};
use locker_core::error::Result;
use std::io;
use tokio::net::TcpStream;

#[derive(Clone)]
pub(super) struct Settings;

impl Settings {
    #[expect(clippy::unnecessary_wraps, reason = "as with TLS")]
    pub(super) fn read(_url: &Url, _authorities: Option<&[u8]>) -> Result<Self> {
        Ok(Self)
    }

    #[expect(clippy::unused_async, reason = "as with TLS")]
    pub(super) async fn wrap(&self, stream: TcpStream, _host: &str) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(stream))
    }
}
