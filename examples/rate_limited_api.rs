//! An API with a limit for each client and a lock for each order.
//!
//! `cargo run --example rate_limited_api -- --size 5 --interval 10`, then
//! `curl -i -H 'x-api-key: me' http://127.0.0.1:8080/quote` until it says 429.

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{StatusCode, Uri},
    routing::{get, post},
};
use clap::Parser;
use locker::{
    Locker, Quota,
    tower::{LockLayer, RateLimitLayer},
};
use std::time::Duration;

const STORES: &str = "The store of limits and locks: memory://, redis://HOST:PORT, and with the Cargo feature in \
                      parentheses file:///DIR (files), postgres://HOST:PORT/DATABASE (postgres), \
                      mysql://HOST:PORT/DATABASE (mysql), \
                      etcd://HOST:PORT,.. (etcd), \
                      zk://HOST:PORT,.. (zookeeper)";

/// Serves quotes, with a limit per client, and ships orders, each at most once at a time.
#[derive(Parser)]
struct Options {
    /// The address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: String,
    #[arg(long, value_name = "URL", default_value = "memory://", help = STORES)]
    store: String,
    /// The number of quotes per client and interval.
    #[arg(long, default_value_t = 5)]
    size: u64,
    /// The length of an interval, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    interval: u64,
}

/// The name of the limit of a request's client.
fn client(request: &Request<Body>) -> String {
    let key = request.headers().get("x-api-key").and_then(|key| key.to_str().ok());
    format!("client {}", key.unwrap_or("anonymous"))
}

/// The number of the order, for the lock and for the handler.
///
/// Both must agree that `/ship/7` and `/ship/07` are one order.
fn number(uri: &Uri) -> Option<u64> {
    uri.path().strip_prefix("/ship/")?.parse().ok()
}

/// The lock of a request: one request at a time for each order. Others wait for up to 100 ms.
fn order(locker: &Locker, request: &Request<Body>) -> locker::LockRequest {
    locker.lock(&format!("order {:?}", number(request.uri()))).timeout(Duration::from_millis(100))
}

async fn ship(uri: Uri) -> Result<String, StatusCode> {
    let order = number(&uri).ok_or(StatusCode::NOT_FOUND)?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(format!("order {order} is on its way\n"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let locker = Locker::connect(&options.store).await?;
    let quota = Quota::token_bucket(options.size, Duration::from_secs(options.interval));
    let quotes = Router::new().route("/quote", get(|| async { "42\n" })).layer(RateLimitLayer::new(
        locker.clone(),
        quota,
        client,
    ));
    let orders = Router::new().route("/ship/{order}", post(ship)).layer(LockLayer::with(locker, order));
    let listener = tokio::net::TcpListener::bind(&options.listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, quotes.merge(orders)).await?;
    Ok(())
}
