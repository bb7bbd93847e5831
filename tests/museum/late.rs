//! Requests and replies that arrive after the end of a hold.

use crate::support::{GENEROUS, MINUTE, connect, in_time, until, waiting_at};
use locker::Locker;
use locker_harness::{
    EtcdServer, Fault, PostgresServer, Proxy, RedisServer, ScriptedStore, Step, is_renewal,
};
use std::{future::ready, time::Duration};
use tokio::sync::watch;

const SECOND: Duration = Duration::from_secs(1);

/// Returns how many renewals of a key have been sent.
fn renewals(store: &ScriptedStore, of: &str) -> usize {
    let requests = store.requests();
    requests.iter().filter(|(key, request)| key.as_str() == of && is_renewal(request)).count()
}

/// redisson#7272: the renewal of a lock went on after its release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn released_hold_is_never_renewed() {
    let store = ScriptedStore::remote();
    let locker = Locker::builder().store(store.clone()).build().await.unwrap();
    let (gate, closed) = watch::channel(false);
    store.on_call(move |request| {
        let mut gate = closed.clone();
        let opened = async move { drop(gate.wait_for(|is_open| *is_open).await) };
        if is_renewal(request) { Step::Delay(Box::pin(opened), Box::pin(ready(()))) } else { Step::CarryOut }
    });
    let brief = locker.lock("brief").lease(3 * SECOND).acquire().await.unwrap();
    let brief_key = brief.key().to_owned();
    brief.release().await.unwrap();
    let guard = locker.lock("a").lease(9 * SECOND).acquire().await.unwrap();
    until("a renewal on its way", async || renewals(&store, guard.key()) == 1).await;
    guard.release().await.unwrap();
    let next = locker.lock("a").lease(MINUTE).renew(false).try_acquire().await.unwrap().expect("it is free");
    gate.send(true).unwrap();
    // These take longer than the next renewals of the released holds would.
    let mut other = locker.lock("b").lease(3 * SECOND).acquire().await.unwrap();
    until("renewals of another lock", async || {
        if !other.is_held() {
            other = locker.lock("b").lease(3 * SECOND).acquire().await.unwrap();
        }
        renewals(&store, other.key()) >= 5
    })
    .await;
    assert_eq!((renewals(&store, &brief_key), renewals(&store, next.key())), (0, 1));
    assert!(next.remaining() <= MINUTE && next.is_held());
    next.release().await.unwrap();
}

/// Jepsen, etcd 3.4.3: the news of a grant arrived when its lease was over, and two held the lock.
async fn grant_that_comes_late_is_not_held(url: &str, behind: &str, proxy: &Proxy) {
    let (direct, behind) = (connect(url).await, connect(behind).await);
    let held = direct.lock("a").lease(MINUTE).acquire().await.unwrap();
    let late = tokio::spawn(behind.lock("a").lease(2 * SECOND).timeout(10 * MINUTE).acquire());
    waiting_at(&direct, "lock", "a", 1).await;
    proxy.set(Fault::Delay(4 * SECOND));
    held.release().await.unwrap();
    let next = in_time("the next holder", direct.lock("a").timeout(GENEROUS).acquire()).await.unwrap();
    // Until the news has arrived, and the reply to its confirmation.
    for _ in 0..15 {
        assert!(direct.lock("a").timeout(SECOND).acquire().await.unwrap_err().is_temporary());
        assert!(!late.is_finished() && next.is_held());
    }
    let fence = next.fence();
    next.release().await.unwrap();
    proxy.set(Fault::None);
    let late = in_time("the late waiter", late).await.unwrap().unwrap();
    assert!(late.fence() > fence, "{} after {fence}", late.fence());
}

mod redis {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn late_grant_is_not_held() {
        let Some(server) = RedisServer::start() else { return };
        let proxy = Proxy::to(server.port());
        grant_that_comes_late_is_not_held(&server.url(), &proxy.url(), &proxy).await;
    }
}

mod postgres {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn late_grant_is_not_held() {
        let Some(server) = PostgresServer::start() else { return };
        let proxy = Proxy::to(server.port());
        let behind = proxied(&server.url(), server.port(), &proxy);
        grant_that_comes_late_is_not_held(&server.url(), &behind, &proxy).await;
    }
}

mod etcd {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn late_grant_is_not_held() {
        let Some(server) = EtcdServer::start() else { return };
        let proxy = Proxy::to(server.port());
        let behind = proxied(&server.url(), server.port(), &proxy);
        grant_that_comes_late_is_not_held(&server.url(), &behind, &proxy).await;
    }
}

fn proxied(url: &str, port: u16, proxy: &Proxy) -> String {
    let behind = url.replace(&port.to_string(), &proxy.port().to_string());
    assert_ne!(behind, url);
    behind
}
