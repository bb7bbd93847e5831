//! A web handler under a lock: `POST /withdraw/{card}` with `{"amount": 30}`.
//!
//! `cargo run --example web_handler -- --listen 127.0.0.1:8080`, then
//! `curl -i -d '{"amount":30}' -H 'content-type: application/json' http://127.0.0.1:8080/withdraw/4001`

use axum::{
    Json, Router,
    extract::{Path, State},
    http::{StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
    routing::post,
};
use clap::Parser;
use locker::{ErrorKind, Locker, lock_on_argument};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Serves withdrawals, one at a time for each card.
#[derive(Parser)]
struct Options {
    /// The address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: String,
    /// The store of the locks: memory://, redis://HOST:PORT, ...
    #[arg(long, value_name = "URL", default_value = "memory://")]
    store: String,
}

#[derive(Clone)]
struct App {
    locker: Locker,
    balances: Arc<Mutex<HashMap<u64, u64>>>,
}

#[derive(Deserialize)]
struct Withdrawal {
    amount: u64,
    /// How long the bank takes, to try out the response to a second request.
    #[serde(default)]
    takes_ms: u64,
}

#[derive(Serialize)]
struct Receipt {
    card: u64,
    balance: u64,
}

enum BankError {
    NotEnough,
    Lock(locker::Error),
}

impl From<locker::Error> for BankError {
    fn from(error: locker::Error) -> Self {
        Self::Lock(error)
    }
}

impl IntoResponse for BankError {
    fn into_response(self) -> Response {
        match self {
            Self::NotEnough => (StatusCode::UNPROCESSABLE_ENTITY, "not enough on the card\n").into_response(),
            Self::Lock(error) => refuse(&error),
        }
    }
}

/// The response to a request that did not get its lock, or lost it.
///
/// The error goes to the log. It names the lock's key, which is not for clients.
fn refuse(error: &locker::Error) -> Response {
    eprintln!("withdraw: {error}");
    let (status, text) = match error.kind() {
        ErrorKind::TimedOut | ErrorKind::RetriesExhausted => {
            (StatusCode::CONFLICT, "the card is in use, try again\n")
        }
        ErrorKind::Limited => (StatusCode::TOO_MANY_REQUESTS, "too many requests, try again later\n"),
        ErrorKind::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "out of service, try again later\n"),
        // The handler was cancelled between two steps. The money may have moved.
        ErrorKind::Lost => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "the outcome is unknown, look at the balance before you go on\n",
        ),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal error\n"),
    };
    if !error.is_temporary() {
        return (status, text).into_response();
    }
    let after = error.retry_after().unwrap_or(Duration::from_secs(1)).as_millis().div_ceil(1_000).max(1);
    (status, [(RETRY_AFTER, after.to_string())], text).into_response()
}

/// Locks the card, not the whole handler. A second request for the same card waits for 200 ms.
#[lock_on_argument(expr = 10, args(card), name = "web.withdraw", timeout = "200ms", locker = app.locker)]
async fn withdraw(
    State(app): State<App>,
    Path(card): Path<u64>,
    Json(order): Json<Withdrawal>,
) -> Result<Json<Receipt>, BankError> {
    let balance = app.read(card).checked_sub(order.amount).ok_or(BankError::NotEnough)?;
    tokio::time::sleep(Duration::from_millis(order.takes_ms)).await;
    app.balances.lock().unwrap_or_else(PoisonError::into_inner).insert(card, balance);
    Ok(Json(Receipt { card, balance }))
}

impl App {
    fn read(&self, card: u64) -> u64 {
        *self.balances.lock().unwrap_or_else(PoisonError::into_inner).get(&card).unwrap_or(&1_000)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let app = App { locker: Locker::connect(&options.store).await?, balances: Arc::default() };
    let listener = tokio::net::TcpListener::bind(&options.listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let router = Router::new().route("/withdraw/{card}", post(withdraw)).with_state(app);
    axum::serve(listener, router).await?;
    Ok(())
}
