//! The workers in Rust of `benches/compare/run.py`, which starts them: each locks one hot name in a loop, as the
//! documentation of its library says, and writes a log of what it believes.
//!
//! `compare PEER URL FOLDER NUMBER LEASE_MS STEPS SECONDS [TASKS]`, or `compare limits SECONDS`.

mod limits;
mod log;
mod peers;
#[path = "../../stores/v3lock.rs"]
mod v3lock;

use log::Log;
use peers::Peer;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The arguments of a worker, beside the name of its peer.
#[derive(Clone, Debug)]
struct Orders {
    url: String,
    folder: String,
    number: u32,
    lease: Duration,
    steps: u32,
    duration: Duration,
    tasks: u32,
}

impl Orders {
    fn parse(arguments: &[String]) -> Option<Self> {
        let [url, folder, rest @ ..] = arguments else { return None };
        let numbers: Vec<u32> = rest.iter().map(|number| number.parse().ok()).collect::<Option<_>>()?;
        let [number, lease, steps, seconds, ..] = numbers[..] else { return None };
        Some(Self {
            url: url.clone(),
            folder: folder.clone(),
            number,
            lease: Duration::from_millis(lease.into()),
            steps,
            duration: Duration::from_secs(seconds.into()),
            tasks: numbers.get(4).copied().unwrap_or(1),
        })
    }
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let orders = arguments.get(1..).and_then(Orders::parse);
    match (arguments.first().map(String::as_str), orders) {
        (Some("limits"), _) => limits::run(arguments.get(1).and_then(|text| text.parse().ok()).unwrap_or(5)),
        (Some(peer), Some(orders)) => work(peer, &orders).await,
        _ => panic!("give: PEER URL FOLDER NUMBER LEASE_MS STEPS SECONDS [TASKS], or: limits SECONDS"),
    }
}

async fn work(name: &str, orders: &Orders) {
    let peer = Peer::connect(name, orders).await;
    let end = Instant::now() + orders.duration;
    let mut tasks = JoinSet::new();
    for task in 0..orders.tasks {
        let (mut peer, mut log) = (peer.clone(), Log::create(orders, orders.number + task));
        tasks.spawn(async move {
            while Instant::now() < end && log.has_room() {
                log.write("wait", "");
                if let Err(error) = peer.turn(&mut log).await {
                    log.write("error", &error);
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        });
    }
    tasks.join_all().await;
}
