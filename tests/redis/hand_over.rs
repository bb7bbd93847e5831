//! Hand-overs within one process, which Redis hears of when the next one holds already.

use crate::support::{
    LEASE, builder, connect, hold, holder, in_time, nobody_is_left, tell_late, until, waiting,
};
use futures_util::FutureExt;
use locker::{ErrorKind, Guard, Locker};
use locker_harness::{Fault, Proxy, RedisServer};
use std::{pin::pin, task::Poll, time::Duration};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinSet,
};

/// What the waiters were given, in the order in which they were given it.
struct Turns {
    sender: UnboundedSender<(usize, Guard)>,
    receiver: UnboundedReceiver<(usize, Guard)>,
    waiters: JoinSet<()>,
}

impl Turns {
    fn new() -> Self {
        let (sender, receiver) = unbounded_channel();
        Self { sender, receiver, waiters: JoinSet::new() }
    }

    /// Another one who waits for the lock `a`, behind all others.
    async fn queue(&mut self, server: &RedisServer, locker: &Locker) {
        let (ahead, sender, request) = (waiting(server, "lock:a"), self.sender.clone(), locker.lock("a"));
        let number = self.waiters.len();
        self.waiters.spawn(async move {
            let guard = request.acquire().await.expect("the lock");
            drop(sender.send((number, guard)));
        });
        until("the place in the queue", async || waiting(server, "lock:a") > ahead).await;
        // Whose answer comes after the waiter's.
        hold(locker, "another").await.release().await.unwrap();
    }

    async fn next(&mut self) -> (usize, Guard) {
        in_time("the next turn", self.receiver.recv()).await.expect("a turn")
    }

    /// The next turn, which is that of `number`.
    async fn of(&mut self, number: usize) -> Guard {
        let (who, guard) = self.next().await;
        assert_eq!(who, number);
        guard
    }
}

/// A server, a proxy before it, a locker behind that, and `count` waiters, the first of which holds now.
async fn line(count: usize) -> Option<(RedisServer, Proxy, Locker, Turns, Guard)> {
    let server = RedisServer::start()?;
    let proxy = Proxy::to(server.port());
    let locker = connect(&proxy.url()).await;
    let (before, mut turns) = (hold(&locker, "a").await, Turns::new());
    for _ in 0..count {
        turns.queue(&server, &locker).await;
    }
    before.release().await.unwrap();
    let first = turns.of(0).await;
    Some((server, proxy, locker, turns, first))
}

#[tokio::test]
async fn the_next_one_holds_while_the_release_is_on_its_way() {
    let Some((server, proxy, _locker, mut turns, first)) = line(3).await else { return };
    let (id, fence) = (first.id().to_owned(), first.fence());
    proxy.set(Fault::HoldRequests);
    let release = tokio::spawn(first.release());
    let second = turns.of(1).await;
    assert_eq!(holder(&server, "lock:a"), Some(id), "the server has not heard of it");
    assert!(second.is_held());
    assert_eq!(second.fence(), fence + 1);
    proxy.set(Fault::None);
    in_time("the release", release).await.unwrap().unwrap();
    assert_eq!(holder(&server, "lock:a").as_deref(), Some(second.id()));
    let record: String = server.ask("GET", &["{lock:a}:f"]);
    assert_eq!(record, format!("{} {}", second.fence(), second.id()));
    second.release().await.unwrap();
    turns.of(2).await.release().await.unwrap();
    nobody_is_left(&server);
}

#[tokio::test]
async fn the_first_who_waits_needs_no_answer_to_a_release_to_be_known() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let (locker, mut turns) = (connect(&proxy.url()).await, Turns::new());
    let first = hold(&locker, "a").await;
    turns.queue(&server, &locker).await;
    turns.queue(&server, &locker).await;
    let id = first.id().to_owned();
    proxy.set(Fault::HoldRequests);
    let mut releases = JoinSet::new();
    releases.spawn(first.release());
    for number in [0, 1] {
        let guard = turns.of(number).await;
        assert_eq!(holder(&server, "lock:a").as_ref(), Some(&id), "the server has not heard of it");
        releases.spawn(guard.release());
    }
    proxy.set(Fault::None);
    while let Some(release) = in_time("the releases", releases.join_next()).await {
        release.unwrap().unwrap();
    }
    nobody_is_left(&server);
}

#[tokio::test]
async fn a_hold_that_was_handed_on_is_renewed_like_any_other() {
    let Some((server, _proxy, _locker, mut turns, first)) = line(2).await else { return };
    let release = tokio::spawn(first.release());
    let second = turns.of(1).await;
    in_time("the release", release).await.unwrap().unwrap();
    let _: i64 = server.ask("PEXPIRE", &["lock:a", "3000"]);
    until("a renewal", async || server.ask::<i64>("PTTL", &["lock:a"]) > 4_000).await;
    second.check().unwrap();
    second.release().await.unwrap();
    nobody_is_left(&server);
}

/// The heir may have been granted the lock before, and not have come in time: that message may still be on its way.
#[tokio::test]
async fn a_late_message_about_an_old_grant_does_not_end_what_was_handed_on() {
    let Some((server, _proxy, _locker, mut turns, first)) = line(2).await else { return };
    let old = first.fence() - 1;
    first.release().await.unwrap();
    let second = turns.of(1).await;
    tell_late(&server, &format!("lock granted {} {old} lock:a", second.id())).await;
    assert_eq!(holder(&server, "lock:a").as_deref(), Some(second.id()));
    second.release().await.unwrap();
    nobody_is_left(&server);
}

#[tokio::test]
async fn a_lost_answer_costs_nobody_the_lock() {
    let Some((server, proxy, _locker, mut turns, first)) = line(4).await else { return };
    proxy.set(Fault::ExecuteAndReset);
    let release = tokio::spawn(first.release());
    let second = turns.of(1).await;
    in_time("the first release", release).await.unwrap().unwrap();
    assert!(proxy.is_whole(), "the answer was lost");
    second.check().unwrap();
    in_time("the second release", second.release()).await.unwrap();
    for number in [2, 3] {
        turns.of(number).await.release().await.unwrap();
    }
    nobody_is_left(&server);
}

#[tokio::test]
async fn a_release_dropped_on_its_way_arrives_before_that_of_its_heir() {
    let Some((server, proxy, _locker, mut turns, first)) = line(2).await else { return };
    proxy.set(Fault::HoldRequests);
    let id = first.id().to_owned();
    {
        let mut release = pin!(first.release());
        let look = std::future::poll_fn(|context| Poll::Ready(release.as_mut().poll(context)));
        assert!(look.await.is_pending());
    }
    let second = turns.of(1).await;
    assert_eq!(holder(&server, "lock:a"), Some(id));
    proxy.set(Fault::None);
    in_time("the release", second.release()).await.unwrap();
    until("the end", async || holder(&server, "lock:a").is_none()).await;
    nobody_is_left(&server);
}

#[tokio::test]
async fn releases_that_hang_are_told_again_in_their_order_and_their_late_copies_change_nothing() {
    let Some((server, proxy, locker, mut turns, first)) = line(4).await else { return };
    proxy.set_for_open(Fault::HoldRequests);
    let mut releases = JoinSet::new();
    releases.spawn(first.release());
    for number in 1..4 {
        let guard = turns.of(number).await;
        guard.check().unwrap();
        releases.spawn(guard.release());
    }
    while let Some(release) = in_time("the releases", releases.join_next()).await {
        release.unwrap().unwrap();
    }
    nobody_is_left(&server);
    let next = hold(&locker, "a").await;
    let before = crate::support::scripts_run(&server);
    proxy.set(Fault::None);
    until("the late copies", async || crate::support::scripts_run(&server) >= before + 4).await;
    assert_eq!(holder(&server, "lock:a").as_deref(), Some(next.id()));
    next.release().await.unwrap();
}

#[tokio::test]
async fn when_the_lock_was_lost_the_one_told_of_it_learns_that_too() {
    let Some((server, _proxy, _locker, mut turns, first)) = line(3).await else { return };
    let _: i64 = server.ask("DEL", &["lock:a"]);
    assert_eq!(first.release().await.unwrap_err().kind(), ErrorKind::Lost);
    let second = turns.of(1).await;
    in_time("the loss", second.lost()).await;
    assert_eq!(second.release().await.unwrap_err().kind(), ErrorKind::Lost);
    turns.of(2).await.release().await.unwrap();
    nobody_is_left(&server);
}

/// Of a release that was given up the answer is not heard: that nothing was handed on turns out when it is told again.
#[tokio::test]
async fn when_the_lock_was_lost_the_one_told_of_it_by_a_release_given_up_learns_that_too() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let locker = builder(&proxy.url()).lease(Duration::from_secs(600)).build().await.unwrap();
    let (first, mut turns) = (hold(&locker, "a").await, Turns::new());
    turns.queue(&server, &locker).await;
    let _: String = server.ask("SET", &["lock:a", "another", "PX", "60000"]);
    proxy.set(Fault::HoldRequests);
    {
        let mut release = pin!(first.release());
        let look = std::future::poll_fn(|context| Poll::Ready(release.as_mut().poll(context)));
        assert!(look.await.is_pending());
    }
    let second = turns.of(0).await;
    proxy.set(Fault::None);
    in_time("the loss", second.lost()).await;
    assert_eq!(holder(&server, "lock:a").as_deref(), Some("another"));
}

/// An heir whose executor has no time for it has not looked yet when it turns out that there was nothing to hand on.
#[tokio::test]
async fn who_learns_of_a_hand_over_and_of_the_loss_at_once_waits_on() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let first = hold(&locker, "a").await;
    let mut heir = Box::pin(locker.lock("a").acquire());
    until("the place in the queue", async || {
        assert!(heir.as_mut().now_or_never().is_none());
        waiting(&server, "lock:a") == 1
    })
    .await;
    // Whose answer comes after the waiter's.
    hold(&locker, "another").await.release().await.unwrap();
    assert!(heir.as_mut().now_or_never().is_none());
    let _: String = server.ask("SET", &["lock:a", "another", "PX", "60000"]);
    assert_eq!(first.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(heir.as_mut().now_or_never().is_none(), "two hold at once");
    assert_eq!(server.ask::<i64>("DEL", &["lock:a"]), 1);
    in_time("the heir", heir).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn who_was_evicted_chooses_no_heir() {
    let Some((server, _proxy, _locker, mut turns, evicted)) = line(3).await else { return };
    let door = connect(&server.url()).await.door();
    assert!(door.evict(&door.key("lock", "a")).await.unwrap());
    let second = turns.of(1).await;
    assert_eq!(evicted.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(holder(&server, "lock:a").as_deref(), Some(second.id()));
    let fence = second.fence();
    second.release().await.unwrap();
    let third = turns.of(2).await;
    assert!(third.fence() > fence);
    third.release().await.unwrap();
    nobody_is_left(&server);
}

/// Who was evicted does not know it yet; meanwhile the lock is another's, and who waits behind that one is new, too.
#[tokio::test]
async fn who_was_evicted_hands_nothing_to_those_who_wait_for_the_next_holder() {
    let Some(server) = RedisServer::start() else { return };
    // Another URL is another connection, as of another process.
    let (ours, theirs) = (connect(&server.url()).await, connect(&format!("{}/0", server.url())).await);
    let (evicted, door, mut turns) = (hold(&ours, "a").await, theirs.door(), Turns::new());
    assert!(door.evict(&door.key("lock", "a")).await.unwrap());
    let next = hold(&theirs, "a").await;
    turns.queue(&server, &ours).await;
    assert_eq!(evicted.release().await.unwrap_err().kind(), ErrorKind::Lost);
    hold(&ours, "later").await.release().await.unwrap();
    assert!(turns.receiver.try_recv().is_err(), "two hold at once");
    assert!(next.is_held());
    next.release().await.unwrap();
    turns.of(0).await.release().await.unwrap();
    nobody_is_left(&server);
}

#[tokio::test]
async fn a_server_that_has_forgotten_its_scripts_is_told_in_order() {
    let Some((server, _proxy, _locker, mut turns, first)) = line(6).await else { return };
    let _: () = server.ask("SCRIPT", &["FLUSH"]);
    let mut releases = JoinSet::new();
    releases.spawn(first.release());
    for number in 1..6 {
        releases.spawn(turns.of(number).await.release());
    }
    while let Some(release) = in_time("the releases", releases.join_next()).await {
        release.unwrap().unwrap();
    }
    nobody_is_left(&server);
}

#[tokio::test]
async fn who_has_given_up_is_passed_over() {
    let Some((server, _proxy, locker, mut turns, first)) = line(1).await else { return };
    let quitter = tokio::spawn(locker.lock("a").acquire());
    until("the quitter's place", async || waiting(&server, "lock:a") == 1).await;
    turns.queue(&server, &locker).await;
    quitter.abort();
    assert!(quitter.await.unwrap_err().is_cancelled());
    first.release().await.unwrap();
    turns.of(1).await.release().await.unwrap();
    nobody_is_left(&server);
}

#[tokio::test]
async fn nobody_of_another_process_is_passed() {
    let Some(server) = RedisServer::start() else { return };
    // Another URL is another connection, as of another process.
    let (ours, theirs) = (connect(&server.url()).await, connect(&format!("{}/0", server.url())).await);
    let (before, mut turns) = (hold(&ours, "a").await, Turns::new());
    let order = [&ours, &ours, &theirs, &ours, &theirs, &theirs, &ours, &ours, &ours, &theirs];
    for locker in order {
        turns.queue(&server, locker).await;
    }
    before.release().await.unwrap();
    let mut fence = 0;
    for number in 0..order.len() {
        let guard = turns.of(number).await;
        assert!(guard.fence() > fence);
        fence = guard.fence();
        guard.release().await.unwrap();
    }
    nobody_is_left(&server);
}

/// The server tells a holder who comes next also where those are of another process: behind them nobody is next.
#[tokio::test]
async fn nobody_of_another_process_is_passed_by_those_who_come_later() {
    let Some(server) = RedisServer::start() else { return };
    // Another URL is another connection, as of another process.
    let (ours, theirs) = (connect(&server.url()).await, connect(&format!("{}/0", server.url())).await);
    let (before, mut turns) = (hold(&ours, "a").await, Turns::new());
    turns.queue(&server, &ours).await;
    turns.queue(&server, &theirs).await;
    before.release().await.unwrap();
    let first = turns.of(0).await;
    turns.queue(&server, &ours).await;
    first.release().await.unwrap();
    for number in [1, 2] {
        turns.of(number).await.release().await.unwrap();
    }
    nobody_is_left(&server);
}

/// As `select!` leaves a future whose turn comes while another branch is at work.
#[tokio::test]
async fn an_heir_of_the_same_process_that_does_not_come_is_passed_over_after_its_lease() {
    let Some(server) = RedisServer::start() else { return };
    let (ours, theirs) = (connect(&server.url()).await, connect(&format!("{}/0", server.url())).await);
    let first = hold(&ours, "a").await;
    let mut silent = Box::pin(ours.lock("a").lease(Duration::from_secs(5)).acquire());
    until("the place in the queue", async || {
        assert!(silent.as_mut().now_or_never().is_none());
        waiting(&server, "lock:a") == 1
    })
    .await;
    // Whose answer comes after the waiter's.
    hold(&ours, "another").await.release().await.unwrap();
    assert!(silent.as_mut().now_or_never().is_none());
    let mut turns = Turns::new();
    turns.queue(&server, &theirs).await;
    first.release().await.unwrap();
    assert!(server.ask::<i64>("PTTL", &["lock:a"]) > 2_000, "longer than the grant window");
    turns.of(0).await.release().await.unwrap();
    in_time("who did not come", silent).await.unwrap().release().await.unwrap();
    nobody_is_left(&server);
}

/// A release with an heir that comes after the lease was not carried out: the heir has nothing to hand on, and the
/// answer is not the beginning of its lease.
#[tokio::test]
async fn nothing_is_handed_on_after_a_release_that_came_too_late() {
    let Some((server, proxy, locker, mut turns, first)) = line(3).await else { return };
    proxy.set(Fault::DropRequests);
    let release = tokio::spawn(first.release());
    let second = turns.of(1).await;
    let _: String = server.ask("SET", &["lock:a", "another", "PX", "60000"]);
    until("half of the lease to be over", async || second.remaining() < LEASE / 2).await;
    proxy.set(Fault::None);
    drop(in_time("the end of the second hold", second.release()).await);
    drop(in_time("the end of the first hold", release).await);
    hold(&locker, "later").await.release().await.unwrap();
    assert!(turns.receiver.try_recv().is_err(), "the lock is another's");
    assert_eq!(server.ask::<i64>("DEL", &["lock:a"]), 1);
    turns.of(2).await.release().await.unwrap();
}

#[tokio::test]
async fn an_heir_whose_lease_is_not_renewed_has_all_of_it() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let of = |seconds| Duration::from_secs(seconds);
    let first = locker.lock("a").lease(of(50)).acquire().await.unwrap();
    let heir = tokio::spawn(locker.lock("a").lease(of(60)).renew(false).acquire());
    until("the place in the queue", async || waiting(&server, "lock:a") == 1).await;
    // Whose answer comes after the waiter's.
    hold(&locker, "another").await.release().await.unwrap();
    first.release().await.unwrap();
    let heir = in_time("the heir", heir).await.unwrap().unwrap();
    assert!(heir.remaining() > of(55), "{:?}", heir.remaining());
    assert!(server.ask::<i64>("PTTL", &["lock:a"]) > 55_000);
    heir.release().await.unwrap();
    nobody_is_left(&server);
}
