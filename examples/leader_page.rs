//! A leader and its followers: one process of several sweeps, and the page of each names it.
//!
//! Start two with a shared store, and end the one that leads:
//! `cargo run --example leader_page -- --store redis://127.0.0.1 --listen 127.0.0.1:8081`, the same with 8082, then
//! `curl http://127.0.0.1:8082/`

use axum::{Router, extract::State, routing::get};
use clap::Parser;
use locker::{Locker, Observer, leader};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::signal::{
    ctrl_c,
    unix::{SignalKind, signal},
};

/// Serves a page that names the leader among the processes with one store.
#[derive(Parser)]
struct Options {
    /// The address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    listen: String,
    /// The store of the election: redis://HOST:PORT, ... In memory this process is alone.
    #[arg(long, value_name = "URL", default_value = "memory://")]
    store: String,
}

#[derive(Clone)]
struct App {
    locker: Locker,
    address: String,
    observer: Arc<Observer>,
    swept: Arc<AtomicU64>,
}

/// Works as long as this process leads. If the term is lost, it is dropped at an await point, and called again once
/// this process leads again.
#[leader(name = "web.sweeper", lease = 3, guard = term, locker = app.locker)]
async fn sweep(app: App) -> locker::Result<()> {
    eprintln!("{} leads with fence {}", app.address, term.fence());
    loop {
        // A sweep that others must not repeat is sent with the fence of the term.
        app.swept.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn page(State(app): State<App>) -> String {
    let Some(leader) = app.observer.leader() else { return "nobody leads\n".to_owned() };
    let address = leader.note.unwrap_or_else(|| "somebody".to_owned());
    let who = if address == app.address { "this process" } else { &address };
    let swept = app.swept.load(Ordering::Relaxed);
    format!("{who} leads with fence {}; this process has swept {swept} times\n", leader.fence)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let listener = tokio::net::TcpListener::bind(&options.listen).await?;
    let address = format!("http://{}", listener.local_addr()?);
    // The note is what observers see of this process.
    let locker = Locker::builder().url(&options.store).note(&*address).build().await?;
    let observer = Arc::new(locker.elect("web.sweeper").lease(Duration::from_secs(3)).observe().await?);
    let app = App { locker: locker.clone(), address: address.clone(), observer, swept: Arc::default() };
    println!("listening on {address}");
    let router = Router::new().route("/", get(page)).with_state(app.clone());
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        served = axum::serve(listener, router) => served?,
        led = sweep(app) => led?,
        interrupted = ctrl_c() => interrupted?,
        _ = terminated.recv() => {}
    }
    // The next leader need not wait for the lease of this one.
    locker.settled().await;
    Ok(())
}
