use super::*;
use crate::zeromq::connections::Connections;

#[tokio::test(start_paused = true)]
async fn errors_do_not_end_receiving() {
    let broken = || Err(omq_tokio::Error::Protocol("broken".into()));
    let mut results = [broken(), Ok(1), broken(), Err(omq_tokio::Error::Closed)].into_iter();
    let mut next = || std::future::ready(results.next().unwrap());
    assert_eq!((received(&mut next).await, received(&mut next).await), (Some(1), None));
}

/// Endless messages would otherwise delay the list of connections indefinitely.
#[tokio::test]
async fn missed_changes_come_before_messages() {
    let (mut router, _sender, bound) =
        Router::bind(&"tcp://127.0.0.1:0".parse().unwrap(), 1, None).await.unwrap();
    let client = Socket::new(SocketType::Dealer, Options::default());
    client.connect(bound.parse::<Endpoint>().unwrap()).await.unwrap();
    for _ in 0..100 {
        client.send(message(vec![Bytes::from_static(b"x")])).await.unwrap();
    }
    while !matches!(locker_harness::in_time("one", router.next()).await, Some(RouterEvent::Message(..))) {}
    router.monitor.missed = true;
    let next = locker_harness::in_time("the list", router.next()).await;
    assert!(matches!(next, Some(RouterEvent::Change(Change::All(_)))), "{next:?}");
}

/// Even if the loss is noticed while an answer is pending.
#[tokio::test]
async fn missed_changes_come_before_answers() {
    let socket = Socket::new(SocketType::Router, options(1, None).monitor_capacity(1));
    let monitor = ConnectionMonitor::new(&socket);
    let bound = socket.bind("tcp://127.0.0.1:0".parse::<Endpoint>().unwrap()).await.unwrap();
    let (sender, answers) = mpsc::unbounded_channel();
    let mut router = Router { socket: socket.try_into().unwrap(), monitor, answers, receives: true };
    let [asks, comes] = std::array::from_fn(|_| Socket::new(SocketType::Dealer, Options::default()));
    asks.connect(bound.clone()).await.unwrap();
    asks.send(message(vec![Bytes::from_static(b"x")])).await.unwrap();
    let (address, frames) = loop {
        let event = locker_harness::in_time("a message", router.next()).await.unwrap();
        if let RouterEvent::Message(address, frames) = event {
            break (address, frames);
        }
    };
    comes.connect(bound).await.unwrap();
    locker_harness::until("it is there", async || router.socket.connections().await.unwrap().len() == 2)
        .await;
    let [_, cap] = crate::open_files::share(1, [0, 1]);
    let client = Connections::new(cap, 1).client(1).unwrap();
    AnswerSender(sender).send(address, frames, client);
    let next = locker_harness::in_time("the list", router.next()).await;
    assert!(matches!(next, Some(RouterEvent::Change(Change::All(_)))), "{next:?}");
    assert_eq!(router.answers.len(), 1, "the answer was sent first");
}

#[tokio::test]
async fn a_closed_socket_ends_the_router() {
    let (mut router, _sender, _) =
        Router::bind(&"tcp://127.0.0.1:0".parse().unwrap(), 1, None).await.unwrap();
    let socket = router.monitor.socket.clone();
    let closed = tokio::spawn(async move { while router.next().await.is_some() {} });
    socket.close().await.unwrap();
    locker_harness::in_time("the end", closed).await.unwrap();
}
