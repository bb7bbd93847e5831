use super::Zookeeper;
use locker_cas::contract::{self, Party};
use locker_core::{error::Result, store::opening::Opening};
use locker_harness::{ZookeeperServer, in_time};
use std::time::Duration;

async fn party(url: &str) -> Party<Zookeeper> {
    Party::new(open(url).await.unwrap())
}

/// Calls of this store take as long as they need on a busy machine.
async fn open(url: &str) -> Result<Zookeeper> {
    let mut opening = Opening::default();
    opening.network.command_timeout = Duration::from_secs(4);
    in_time("a store", Zookeeper::open(url, &opening)).await
}

#[tokio::test]
async fn keeps_the_contract() {
    let Some(server) = ZookeeperServer::start() else { return };
    let (one, other) = (party(&server.url()).await, party(&server.url()).await);
    contract::all(&one, &other).await;
    contract::gone_inboxes_are_reported(&one, other).await;
    assert_eq!(one.gaps(), 0);
}
