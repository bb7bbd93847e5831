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
    /// Where to listen.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: String,
    /// Where the locks live: memory://, redis://HOST:PORT, ...
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
    /// How long the bank takes, for trying out what a second request gets meanwhile.
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
            Self::Lock(error) => {
                let status = match error.kind() {
                    ErrorKind::TimedOut | ErrorKind::RetriesExhausted | ErrorKind::Lost => {
                        StatusCode::CONFLICT
                    }
                    _ => StatusCode::SERVICE_UNAVAILABLE,
                };
                let after =
                    error.retry_after().unwrap_or(Duration::from_secs(1)).as_millis().div_ceil(1_000).max(1);
                (status, [(RETRY_AFTER, after.to_string())], format!("{error}\n")).into_response()
            }
        }
    }
}

/// A card is locked, not the whole handler; a second request for it is told to come back.
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
