//! The baseline of `benches/server/run.sh`: an axum route that answers an empty 204.

use axum::{Router, http::StatusCode, routing::any};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:5504".into());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    let router =
        Router::new().route("/v1/{resource}/{name}/{action}", any(|| async { StatusCode::NO_CONTENT }));
    axum::serve(listener, router).await
}
