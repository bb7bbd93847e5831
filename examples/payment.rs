//! Payments that a client may send again: `POST /payments` with the header `Idempotency-Key`.
//!
//! `cargo run --example payment -- --store redis://127.0.0.1 --ledger payments.txt`, then twice
//! `curl -i -d '{"card":4001,"amount":30}' -H 'content-type: application/json' -H 'idempotency-key: 9f3c'
//! http://127.0.0.1:8080/payments`: the card is charged once, and both get the same receipt.
//!
//! A charge is not undone if this program dies before it has the receipt. Then nothing is charged again for this key
//! for as long as a receipt is kept (`after_crash = "refuse"`), and an operator has to look. `examples/exactly_once.rs`
//! has a table that refuses a second charge.

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
    routing::post,
};
use clap::Parser;
use locker::{ErrorKind, Locker, idempotent};
use serde::{Deserialize, Serialize};
use std::{
    fs::OpenOptions,
    io::Write,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// Serves payments. A repeated request gets the receipt of the first one.
#[derive(Parser)]
struct Options {
    /// The address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: String,
    /// The store of the results, which all processes share: redis://HOST:PORT, ... In memory:// a restart forgets them.
    #[arg(long, value_name = "URL")]
    store: String,
    /// The file to which each charge is added as a line.
    #[arg(long, value_name = "FILE")]
    ledger: PathBuf,
}

#[derive(Clone)]
struct App {
    locker: Locker,
    ledger: Arc<PathBuf>,
}

#[derive(Deserialize)]
struct Payment {
    card: u64,
    amount: u64,
    /// How long the bank takes to answer, to try out what happens meanwhile.
    #[serde(default)]
    takes_ms: u64,
}

#[derive(Serialize, Deserialize)]
struct Receipt {
    number: u128,
    card: u64,
    amount: u64,
}

enum PayError {
    Bank(std::io::Error),
    Locker(locker::Error),
}

impl From<std::io::Error> for PayError {
    fn from(error: std::io::Error) -> Self {
        Self::Bank(error)
    }
}

impl From<locker::Error> for PayError {
    fn from(error: locker::Error) -> Self {
        Self::Locker(error)
    }
}

/// The errors go to the log. They name the key in the store, which is not for clients.
impl IntoResponse for PayError {
    fn into_response(self) -> Response {
        let error = match self {
            Self::Bank(error) => {
                eprintln!("pay: {error}");
                return (StatusCode::BAD_GATEWAY, "not paid, try again\n").into_response();
            }
            Self::Locker(error) => error,
        };
        eprintln!("pay: {error}");
        let (status, text) = match error.kind() {
            ErrorKind::TimedOut => (StatusCode::CONFLICT, "this payment is under way, ask again\n"),
            // Perhaps for another payment, perhaps with a receipt that is gone.
            ErrorKind::Conflict => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "this key was used before: look at the card before you pay again\n",
            ),
            ErrorKind::Lost => {
                (StatusCode::INTERNAL_SERVER_ERROR, "nobody knows whether this was paid: look at the card\n")
            }
            ErrorKind::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "out of service, try again later\n"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal error\n"),
        };
        if !error.is_temporary() {
            return (status, text).into_response();
        }
        let after = error.retry_after().unwrap_or(Duration::from_secs(1)).as_millis().div_ceil(1_000).max(1);
        (status, [(RETRY_AFTER, after.to_string())], text).into_response()
    }
}

/// Pays in a task of its own: the handler is dropped if the client goes away, and the payment goes on.
async fn handle(State(app): State<App>, headers: HeaderMap, Json(payment): Json<Payment>) -> Response {
    let Some(key) = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).map(str::to_owned)
    else {
        return (StatusCode::BAD_REQUEST, "the header Idempotency-Key is missing\n").into_response();
    };
    match tokio::spawn(async move { pay(&app, &key, &payment).await }).await {
        Ok(paid) => paid.map(Json).into_response(),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal error\n").into_response(),
    }
}

/// Charges the card once for each key of a client. A repetition waits for 2 s if the first request is under way.
///
/// It returns an error only if nothing was charged.
#[idempotent(
    keep = "24h",
    args(payment.card, key),
    same(payment.amount),
    after_crash = "refuse",
    name = "web.pay",
    lease = "3s",
    timeout = "2s",
    locker = app.locker
)]
async fn pay(app: &App, key: &str, payment: &Payment) -> Result<Receipt, PayError> {
    let number = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |now| now.as_micros());
    // If the bank may have charged in spite of its error, such as a time-out, that has to be a result.
    app.charge(payment)?;
    tokio::time::sleep(Duration::from_millis(payment.takes_ms)).await;
    Ok(Receipt { number, card: payment.card, amount: payment.amount })
}

impl App {
    fn charge(&self, payment: &Payment) -> std::io::Result<()> {
        let mut ledger = OpenOptions::new().append(true).create(true).open(&*self.ledger)?;
        ledger.write_all(format!("{} from card {}\n", payment.amount, payment.card).as_bytes())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let app = App { locker: Locker::connect(&options.store).await?, ledger: Arc::new(options.ledger) };
    let listener = tokio::net::TcpListener::bind(&options.listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let router = Router::new().route("/payments", post(handle)).with_state(app);
    axum::serve(listener, router).await?;
    Ok(())
}
