//! A connection with TLS or without.

use tokio::io::{AsyncRead, AsyncWrite};

/// A connection.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}
