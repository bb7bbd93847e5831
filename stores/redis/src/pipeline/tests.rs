use super::*;
use futures_util::{FutureExt, future::join_all};
use locker_harness::RedisServer;

#[tokio::test]
async fn pipeline_bounds_calls_without_reply() {
    const MORE: usize = 10;
    let Some(server) = RedisServer::start() else { return };
    let client = redis::Client::open(server.url()).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let (pipeline, writing) = Pipeline::new(connection, Means::default());
    let queued = || pipeline.queue.len();

    // The first call is sent at once, and has no reply before the first poll of the connection.
    let ping = || Box::pin(pipeline.send(Payload::Command(redis::cmd("PING"))));
    let mut calls: Vec<_> = (0..MAX_CALLS + MORE).map(|_| ping()).collect();
    assert!(calls.iter_mut().all(|call| call.now_or_never().is_none()));
    assert_eq!(queued(), MAX_CALLS - 1);

    // A caller that gives up makes room for the next one.
    drop(calls.drain(1..4));
    assert!(calls.iter_mut().all(|call| call.now_or_never().is_none()));
    assert_eq!(queued(), MAX_CALLS - 1 + 3);

    let replies = tokio::select! {
        replies = join_all(calls) => replies,
        () = writing => unreachable!("the pipeline is open"),
    };
    assert_eq!(replies.len(), MAX_CALLS + MORE - 3);
    assert!(replies.iter().all(|reply| *reply == Ok(Value::SimpleString("PONG".into()))));
    assert_eq!(pipeline.room.available_permits(), MAX_CALLS);
}
