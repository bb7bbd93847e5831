use super::*;
use futures_util::{FutureExt, future::join_all};
use locker_harness::RedisServer;

#[tokio::test]
async fn a_bounded_number_of_calls_is_unanswered_and_the_others_have_their_turns() {
    const MORE: usize = 10;
    let Some(server) = RedisServer::start() else { return };
    let client = redis::Client::open(server.url()).unwrap();
    let (outbox, writing) = Outbox::new(client.get_multiplexed_async_connection().await.unwrap());
    let in_line = || lock(&outbox.queue.waiting).calls.len();

    // The first goes out at once, and has no answer before the server is asked.
    let ping = || Box::pin(outbox.send(Content::Command(redis::cmd("PING"))));
    let mut calls: Vec<_> = (0..ROOM + MORE).map(|_| ping()).collect();
    assert!(calls.iter_mut().all(|call| call.now_or_never().is_none()));
    assert_eq!(in_line(), ROOM - 1);

    // Whoever gives up makes room for the next.
    drop(calls.drain(1..4));
    assert!(calls.iter_mut().all(|call| call.now_or_never().is_none()));
    assert_eq!(in_line(), ROOM - 1 + 3);

    let answers = tokio::select! {
        answers = join_all(calls) => answers,
        () = writing => unreachable!("it writes for as long as there is an outbox"),
    };
    assert_eq!(answers.len(), ROOM + MORE - 3);
    assert!(answers.iter().all(|answer| *answer == Ok(Value::SimpleString("PONG".into()))));
    assert_eq!(outbox.room.available_permits(), ROOM);
}
