use super::*;
use crate::zeromq::connections::Connections;

#[tokio::test(start_paused = true)]
async fn only_a_closed_socket_is_the_end() {
    let broken = || Err(omq_tokio::Error::Protocol("broken".into()));
    let mut results = [broken(), Ok(1), broken(), Err(omq_tokio::Error::Closed)].into_iter();
    let mut next = || std::future::ready(results.next().unwrap());
    assert_eq!((received(&mut next).await, received(&mut next).await), (Some(1), None));
}

/// Messages may come without end.
#[tokio::test]
async fn what_was_missed_is_made_up_for_first() {
    let (mut router, _sender, bound) =
        Router::bind(&"tcp://127.0.0.1:0".parse().unwrap(), 1, None).await.unwrap();
    let client = Socket::new(SocketType::Dealer, Options::default());
    client.connect(bound.parse::<Endpoint>().unwrap()).await.unwrap();
    for _ in 0..100 {
        client.send(message(vec![Bytes::from_static(b"x")])).await.unwrap();
    }
    while !matches!(locker_harness::in_time("one", router.next()).await, Some(Event::Message(..))) {}
    router.watch.behind = true;
    let next = locker_harness::in_time("the list", router.next()).await;
    assert!(matches!(next, Some(Event::Change(Change::Now(_)))), "{next:?}");
}

/// Also in the moment in which it is learnt that something was missed.
#[tokio::test]
async fn no_answer_is_sent_before_what_was_missed_is_made_up_for() {
    let socket = Socket::new(SocketType::Router, options(1, None).monitor_capacity(1));
    let watch = Watch::new(&socket);
    let bound = socket.bind("tcp://127.0.0.1:0".parse::<Endpoint>().unwrap()).await.unwrap();
    let (sender, answers) = mpsc::unbounded_channel();
    let mut router = Router { socket: socket.try_into().unwrap(), watch, answers, receives: true };
    let [asks, comes] = std::array::from_fn(|_| Socket::new(SocketType::Dealer, Options::default()));
    asks.connect(bound.clone()).await.unwrap();
    asks.send(message(vec![Bytes::from_static(b"x")])).await.unwrap();
    let (peer, frames) = loop {
        let event = locker_harness::in_time("a message", router.next()).await.unwrap();
        if let Event::Message(peer, frames) = event {
            break (peer, frames);
        }
    };
    comes.connect(bound).await.unwrap();
    locker_harness::until("it is there", async || router.socket.connections().await.unwrap().len() == 2)
        .await;
    let client = Connections::new(Arc::new(Gauge::new(1)), 1).of(1).unwrap();
    Sender(sender).send(peer, frames, client);
    let next = locker_harness::in_time("the list", router.next()).await;
    assert!(matches!(next, Some(Event::Change(Change::Now(_)))), "{next:?}");
    assert_eq!(router.answers.len(), 1, "the answer was sent before");
}

#[tokio::test]
async fn a_closed_socket_is_noticed() {
    let (mut router, _sender, _) =
        Router::bind(&"tcp://127.0.0.1:0".parse().unwrap(), 1, None).await.unwrap();
    let socket = router.watch.socket.clone();
    let closed = tokio::spawn(async move { while router.next().await.is_some() {} });
    socket.close().await.unwrap();
    locker_harness::in_time("the end", closed).await.unwrap();
}
