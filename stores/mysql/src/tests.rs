//! The backend against real servers.

use super::*;
use locker_cas::{
    Holder, Inbox, Message, Outcome, Version, Write,
    contract::{self, Party, comparison, fresh, write},
};
use locker_core::{id::Id, sync::lock};
use locker_harness::{MysqlServer, in_time, until};
use std::sync::{Mutex, Weak};

/// The server that most tests share. It ends with the last of them.
fn shared_server() -> Option<Arc<MysqlServer>> {
    static SERVER: Mutex<Weak<MysqlServer>> = Mutex::new(Weak::new());
    let mut running = lock(&SERVER);
    if let Some(server) = running.upgrade() {
        return Some(server);
    }
    let server = Arc::new(MysqlServer::start()?);
    *running = Arc::downgrade(&server);
    Some(server)
}

/// Returns the URL of a new database, so that no other test uses its tables.
fn in_new_database(server: &MysqlServer) -> (String, String) {
    let name = format!("d{}", Id::random());
    server.sql(&format!("CREATE DATABASE {name}"));
    (server.url_of(&name), name)
}

async fn party(url: &str) -> Party<Mysql> {
    let store = in_time("a store", open_drawing(Box::new(random_inbox), url, &Opening::default())).await;
    Party::new(store.unwrap_or_else(|error| panic!("{url}: {error:?}")))
}

async fn pair(url: &str) -> (Party<Mysql>, Party<Mysql>) {
    tokio::join!(party(url), party(url))
}

#[tokio::test(flavor = "multi_thread")]
async fn keeps_the_contract() {
    let Some(server) = shared_server() else { return };
    let (url, _) = in_new_database(&server);
    let (one, other) = pair(&url).await;
    contract::all(&one, &other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gone_processes_are_reported() {
    let Some(server) = shared_server() else { return };
    let (url, _) = in_new_database(&server);
    let (one, ended) = pair(&url).await;
    contract::gone_inboxes_are_reported(&one, ended).await;
}
