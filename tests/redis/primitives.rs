//! What only a server across a network can do to the primitives beside the lock.

use crate::support::{connect, in_time, until};
use locker_harness::{Fault, Proxy, RedisServer};

#[tokio::test]
async fn an_addition_whose_answer_is_lost_is_answered_with_its_own_sum() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let (behind, direct) = (connect(&proxy.url()).await, connect(&server.url()).await);
    behind.counter("a").add(0).await.unwrap();
    proxy.set(Fault::DropReplies);
    let adding = tokio::spawn({
        let counter = behind.counter("a");
        async move { counter.add(1).await }
    });
    until("it being added", async || direct.counter("a").get().await.unwrap() == 1).await;
    assert_eq!(direct.counter("a").add(1).await.unwrap(), 2);
    proxy.set(Fault::None);
    assert_eq!(in_time("the answer", adding).await.unwrap().unwrap(), 1);
    assert_eq!(direct.counter("a").get().await.unwrap(), 2);
}
