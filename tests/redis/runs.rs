//! Runs: the lock, granted to several waiters of one process at once, which pass it on.

use crate::support::{LEASE, builder, connect, hold, holder, in_time, nobody_is_left, until, waiting};
use futures_util::FutureExt;
use locker::{
    ErrorKind, Guard, Id, Key, Locker, Timestamp,
    primitives::{Context, HoldRequest, Notification, Reply, State as _, Wait, lock},
};
use locker_harness::{Fault, Proxy, RedisServer};
use std::{collections::HashMap, pin::pin, task::Poll, time::Duration};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::{JoinHandle, JoinSet},
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
        self.queue_unheard(server, locker).await;
        // Whose answer comes after the waiter's.
        hold(locker, "another").await.release().await.unwrap();
    }

    /// The same, whether its answer has come or not.
    async fn queue_unheard(&mut self, server: &RedisServer, locker: &Locker) {
        let (ahead, sender, request) = (waiting(server, "lock:a"), self.sender.clone(), locker.lock("a"));
        let number = self.waiters.len();
        self.waiters.spawn(async move {
            let guard = request.acquire().await.expect("the lock");
            drop(sender.send((number, guard)));
        });
        until("the place in the queue", async || waiting(server, "lock:a") > ahead).await;
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

#[tokio::test]
async fn a_run_passes_the_lock_on_without_a_command() {
    let Some((server, proxy, _locker, mut turns, first)) = line(3).await else { return };
    let (run, fence) = (first.id().to_owned(), first.fence());
    proxy.set(Fault::HoldRequests);
    first.release().await.unwrap();
    let second = turns.of(1).await;
    second.check().unwrap();
    second.release().await.unwrap();
    let third = turns.of(2).await;
    assert_eq!(third.fence(), fence + 2);
    let known = holder(&server, "lock:a").unwrap();
    assert_eq!(
        (&known[..12], &known[13..]),
        (&run[..12], &run[13..]),
        "the server knows the run by its first member"
    );
    assert_ne!(known, run, "and by an id that no member has");
    let record: String = server.ask("GET", &["{lock:a}:f"]);
    assert!(record.starts_with(&format!("{} ", fence + 2)), "{record}");
    proxy.set(Fault::None);
    third.release().await.unwrap();
    nobody_is_left(&server);
}

/// Numbered by the client, the fences of those that hold in turn would be ahead of what the server knows.
#[tokio::test]
async fn fences_rise_over_a_process_that_dies_in_a_run() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let doomed = builder(&proxy.url()).lease(Duration::from_secs(2)).build().await.unwrap();
    // As if the clock had been half a minute ahead.
    let now: (u64, u64) = server.ask("TIME", &[]);
    let record = format!("{} {}", (now.0 + 30) * 1_000_000, "0123456789abcdef0123456789abcdef");
    let _: String = server.ask("SET", &["{lock:a}:f", &record, "PX", "62000"]);
    let (before, mut turns) = (hold(&doomed, "a").await, Turns::new());
    for _ in 0..4 {
        turns.queue(&server, &doomed).await;
    }
    before.release().await.unwrap();
    let mut highest = 0;
    for number in 0..4 {
        let guard = turns.of(number).await;
        if number == 1 {
            proxy.set(Fault::DropRequests);
        }
        guard.check().unwrap();
        assert!(guard.fence() > highest);
        highest = guard.fence();
        // The last one is never released: the process is gone.
        if number == 3 { std::mem::forget(guard) } else { guard.release().await.unwrap() }
    }
    let other = connect(&server.url()).await;
    let next = hold(&other, "a").await;
    assert!(next.fence() > highest, "{} after {highest}", next.fence());
    next.release().await.unwrap();
}

/// As `select!` leaves a release whose answer got lost while another branch is at work.
#[tokio::test]
async fn a_release_that_is_not_polled_is_sent_from_the_background() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let (ours, theirs) = (connect(&proxy.url()).await, connect(&server.url()).await);
    let guard = ours.lock("a").lease(Duration::from_secs(600)).acquire().await.unwrap();
    proxy.set_for_open(Fault::HoldRequests);
    let mut release = pin!(guard.release());
    let look = std::future::poll_fn(|context| Poll::Ready(release.as_mut().poll(context)));
    assert!(look.await.is_pending());
    hold(&theirs, "a").await.release().await.unwrap();
    in_time("the release", release).await.unwrap();
}

#[tokio::test]
async fn a_run_that_ends_without_being_polled_is_ended_from_the_background() {
    let Some((server, proxy, locker, mut turns, first)) = line(2).await else { return };
    let theirs = connect(&server.url()).await;
    first.release().await.unwrap();
    let last = turns.of(1).await;
    let _: i64 = server.ask("PEXPIRE", &["lock:a", "600000"]);
    proxy.set_for_open(Fault::HoldRequests);
    let mut release = pin!(last.release());
    let look = std::future::poll_fn(|context| Poll::Ready(release.as_mut().poll(context)));
    assert!(look.await.is_pending());
    hold(&theirs, "a").await.release().await.unwrap();
    in_time("the release", release).await.unwrap();
    hold(&locker, "a").await.release().await.unwrap();
    nobody_is_left(&server);
}

#[tokio::test]
async fn the_last_member_is_told_of_a_loss_by_force() {
    let Some((server, _proxy, _locker, mut turns, first)) = line(2).await else { return };
    first.release().await.unwrap();
    let last = turns.of(1).await;
    let _: String = server.ask("SET", &["lock:a", "another", "PX", "60000"]);
    assert_eq!(last.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(holder(&server, "lock:a").as_deref(), Some("another"));
}

/// What ended the hold says nothing: the holder finds out when it renews.
#[tokio::test]
async fn a_run_that_is_lost_is_lost_for_its_members() {
    let Some((server, _proxy, _locker, mut turns, first)) = line(3).await else { return };
    let _: i64 = server.ask("DEL", &["lock:a"]);
    in_time("the loss", first.lost()).await;
    for number in [1, 2] {
        let guard = turns.of(number).await;
        assert!(guard.fence() > first.fence() + 2, "a new grant");
        guard.release().await.unwrap();
    }
    assert_eq!(first.release().await.unwrap_err().kind(), ErrorKind::Lost);
    nobody_is_left(&server);
}

#[tokio::test]
async fn an_evicted_run_is_told_so_at_once() {
    let Some(server) = RedisServer::start() else { return };
    let locker = builder(&server.url()).lease(Duration::from_secs(600)).build().await.unwrap();
    let (before, mut turns) = (hold(&locker, "a").await, Turns::new());
    for _ in 0..3 {
        turns.queue(&server, &locker).await;
    }
    before.release().await.unwrap();
    let first = turns.of(0).await;
    let admin = connect(&format!("{}/0", server.url())).await.admin();
    assert!(admin.evict(&admin.key("lock", "a")).await.unwrap());
    in_time("the loss", first.lost()).await;
    for number in [1, 2] {
        turns.of(number).await.release().await.unwrap();
    }
    assert_eq!(first.release().await.unwrap_err().kind(), ErrorKind::Lost);
    nobody_is_left(&server);
}

#[tokio::test]
async fn a_deleted_name_is_told_to_members_that_wait() {
    let Some((server, _proxy, locker, mut turns, first)) = line(1).await else { return };
    let other = tokio::spawn(locker.lock("a").acquire());
    until("the other's place", async || waiting(&server, "lock:a") == 1).await;
    let member = tokio::spawn(locker.lock("a").acquire());
    until("the member's place", async || waiting(&server, "lock:a") == 2).await;
    first.release().await.unwrap();
    let held = in_time("the run", other).await.unwrap().unwrap();
    let admin = locker.admin();
    assert!(admin.delete(&admin.key("lock", "a")).await.unwrap());
    let error = in_time("the member's end", member).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    in_time("the holder's loss", held.lost()).await;
    drop(turns.receiver.try_recv());
}

#[tokio::test]
async fn a_member_whose_future_is_not_polled_is_passed_over() {
    let Some(server) = RedisServer::start() else { return };
    let locker = builder(&server.url()).lease(Duration::from_secs(600)).build().await.unwrap();
    let first = hold(&locker, "a").await;
    let mut silent = Box::pin(locker.lock("a").acquire());
    until("the place in the queue", async || {
        assert!(silent.as_mut().now_or_never().is_none());
        waiting(&server, "lock:a") == 1
    })
    .await;
    hold(&locker, "another").await.release().await.unwrap();
    assert!(silent.as_mut().now_or_never().is_none());
    let (mut turns, other) = (Turns::new(), connect(&format!("{}/0", server.url())).await);
    turns.queue(&server, &locker).await;
    turns.queue(&server, &other).await;
    first.release().await.unwrap();
    for number in [0, 1] {
        turns.of(number).await.release().await.unwrap();
    }
    in_time("the one that was passed over", silent).await.unwrap().release().await.unwrap();
    nobody_is_left(&server);
}

/// Its cancel comes when the lock has been granted to it and to the next one together.
#[tokio::test]
async fn a_first_member_that_gives_up_does_not_end_the_run() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let (ours, theirs) = (connect(&proxy.url()).await, connect(&server.url()).await);
    let (before, mut turns) = (hold(&theirs, "a").await, Turns::new());
    let quitter = tokio::spawn(ours.lock("a").acquire());
    until("the quitter's place", async || waiting(&server, "lock:a") == 1).await;
    let run: Vec<String> = server.ask("ZRANGE", &["{lock:a}:q", "0", "0"]);
    turns.queue(&server, &ours).await;
    turns.queue(&server, &theirs).await;
    proxy.set(Fault::HoldRequests);
    quitter.abort();
    assert!(quitter.await.unwrap_err().is_cancelled());
    before.release().await.unwrap();
    let granted = holder(&server, "lock:a");
    assert_eq!(granted.as_ref().map(|run| &run[..12]), Some(&run[0][..12]));
    proxy.set(Fault::None);
    let next = turns.of(0).await;
    assert_eq!(holder(&server, "lock:a"), granted, "the same run");
    next.release().await.unwrap();
    turns.of(1).await.release().await.unwrap();
    nobody_is_left(&server);
}

#[tokio::test]
async fn a_run_of_which_nobody_waits_any_more_is_ended() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let (ours, theirs) = (connect(&proxy.url()).await, connect(&server.url()).await);
    let before = hold(&theirs, "a").await;
    let quitters: Vec<_> = (0..3).map(|_| tokio::spawn(ours.lock("a").acquire())).collect();
    until("their places", async || waiting(&server, "lock:a") == 3).await;
    proxy.set(Fault::HoldRequests);
    for quitter in quitters {
        quitter.abort();
        assert!(quitter.await.unwrap_err().is_cancelled());
    }
    before.release().await.unwrap();
    assert!(holder(&server, "lock:a").is_some(), "it was granted to them");
    proxy.set(Fault::None);
    until("its end", async || holder(&server, "lock:a").is_none()).await;
    in_time("what is sent from the background", ours.settled()).await;
    nobody_is_left(&server);
}

/// A message that is lost: the first member that asks again learns of the run, and the others have their turns.
#[tokio::test]
async fn a_run_whose_message_is_lost_is_found_by_asking() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let guard = hold(&locker, "a").await;
    let mut turns = Turns::new();
    for _ in 0..2 {
        turns.queue(&server, &locker).await;
    }
    let ids: Vec<String> = server.ask("ZRANGE", &["{lock:a}:q", "0", "-1"]);
    let channels: Vec<String> = server.ask("PUBSUB", &["CHANNELS", "locker:push:*"]);
    let fence = guard.fence() + 2;
    let run = format!("{}8{}", &ids[0][..12], &ids[0][13..]);
    let record = format!("{fence} {}:6000,{}:6000 {} {run}", ids[0], ids[1], channels[0]);
    let _: () = redis::pipe()
        .atomic()
        .del(&["{lock:a}:q", "{lock:a}:w"])
        .cmd("SET")
        .arg(&["{lock:a}:f", &record, "PX", "60000"])
        .cmd("SET")
        .arg(&["lock:a", &run, "PX", "6000"])
        .query(&mut server.connection())
        .unwrap();
    for (number, fence) in [(0, fence - 1), (1, fence)] {
        let guard = turns.of(number).await;
        assert_eq!(guard.fence(), fence);
        guard.release().await.unwrap();
    }
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    nobody_is_left(&server);
}

/// Its first question got no answer, so a copy of it may come late: that is refused when it has released.
#[tokio::test]
async fn a_member_that_asked_twice_releases_what_it_held() {
    for members in [1, 2] {
        let Some(server) = RedisServer::start() else { return };
        let proxy = Proxy::to(server.port());
        let (ours, theirs) = (connect(&proxy.url()).await, connect(&server.url()).await);
        let (before, mut turns) = (hold(&theirs, "a").await, Turns::new());
        proxy.set_for_open(Fault::DropReplies);
        for _ in 0..members {
            turns.queue_unheard(&server, &ours).await;
        }
        hold(&ours, "another").await.release().await.unwrap();
        before.release().await.unwrap();
        for number in 0..members {
            let guard = turns.of(number).await;
            let refused = format!("{{lock:a}}:x:{}", guard.id());
            guard.release().await.unwrap();
            assert_eq!(server.ask::<i64>("EXISTS", &[&refused]), 1);
        }
        nobody_is_left(&server);
    }
}

/// Its renewals are carried out, and it is told of none: the next member holds when the first one is released.
#[tokio::test]
async fn a_late_release_of_a_member_spares_the_next_one() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let (ours, theirs) = (connect(&proxy.url()).await, connect(&server.url()).await);
    let (before, mut turns) = (hold(&theirs, "a").await, Turns::new());
    for _ in 0..2 {
        turns.queue(&server, &ours).await;
    }
    before.release().await.unwrap();
    let first = turns.of(0).await;
    proxy.set(Fault::DropReplies);
    in_time("the loss", first.lost()).await;
    proxy.set(Fault::None);
    let second = turns.of(1).await;
    assert_eq!(first.release().await.unwrap_err().kind(), ErrorKind::Lost);
    in_time("what is sent from the background", ours.settled()).await;
    second.check().unwrap();
    let third = theirs.lock("a").try_acquire().await.unwrap();
    assert!(second.check().is_err() || third.is_none(), "two hold at once");
    second.release().await.unwrap();
    nobody_is_left(&server);
}

/// Its lease would begin with what is left of a longer one.
#[tokio::test]
async fn a_member_with_a_shorter_lease_begins_another_run() {
    let Some(server) = RedisServer::start() else { return };
    let (ours, theirs) = (connect(&server.url()).await, connect(&format!("{}/0", server.url())).await);
    let before = hold(&theirs, "a").await;
    let mut waiters = Vec::new();
    for (place, lease) in [(1, 600), (2, 600), (3, 60)] {
        waiters.push(tokio::spawn(ours.lock("a").lease(Duration::from_secs(lease)).acquire()));
        until("the place in the queue", async || waiting(&server, "lock:a") == place).await;
    }
    before.release().await.unwrap();
    for (waiter, left) in waiters.into_iter().zip([590_000, 590_000, 1_000]) {
        let guard = in_time("the turn", waiter).await.unwrap().unwrap();
        until("the lease", async || server.ask::<i64>("PTTL", &["lock:a"]) > left).await;
        if left < 60_000 {
            assert!(server.ask::<i64>("PTTL", &["lock:a"]) <= 60_000);
        }
        guard.release().await.unwrap();
    }
    nobody_is_left(&server);
}

/// Nothing of the first release was sent: that another one is sent from the background makes neither a repetition.
#[tokio::test]
async fn a_release_during_an_outage_that_costs_the_hold_says_so() {
    let Some(mut server) = RedisServer::start() else { return };
    let locker = builder(&server.url()).lease(Duration::from_secs(60)).build().await.unwrap();
    let guard = hold(&locker, "a").await;
    server.kill();
    let is_away = async || {
        let error = locker.lock("b").timeout(Duration::ZERO).acquire().await.unwrap_err();
        // Of what goes out on a connection that breaks, nobody knows whether it has arrived.
        error.is_certain()
    };
    until("the loss of the connection", is_away).await;
    let mut release = pin!(guard.release());
    for _ in 0..3 {
        assert!(is_away().await);
        assert!(release.as_mut().now_or_never().is_none());
    }
    server.restart();
    assert_eq!(in_time("the release", release).await.unwrap_err().kind(), ErrorKind::Lost);
}

/// What leaves a queue, joins it, or waits in it, and who has the lock then, is as the step has it: a run changes who
/// passes the lock on, and not whose turn it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_serve_waiters_as_the_step_does() {
    let Some(server) = RedisServer::start() else { return };
    let lockers = [connect(&server.url()).await, connect(&format!("{}/0", server.url())).await];
    let mut model = Model::default();
    let mut real = Real::new(&server, &lockers);
    for _ in 0..400 {
        match fastrand::u8(..8) {
            0..=3 if model.waiting.len() < 40 => {
                let number = real.join(fastrand::usize(..2)).await;
                model.join(number);
            }
            4 if !model.waiting.is_empty() => {
                let number = model.waiting[fastrand::usize(..model.waiting.len())];
                real.give_up(number).await;
                model.give_up(number);
            }
            _ => {
                real.release().await;
                model.release();
            }
        }
        real.agrees_with(&model).await;
    }
    while model.holder.is_some() {
        real.release().await;
        model.release();
        real.agrees_with(&model).await;
    }
    nobody_is_left(&server);
}

/// The step of the lock, and the callers as it serves them.
#[derive(Default)]
struct Model {
    state: lock::State,
    waiting: Vec<usize>,
    holder: Option<usize>,
}

impl Model {
    fn step(&mut self, request: &lock::Request) -> (Reply, Vec<Notification>) {
        let (key, mut notifications) = (Key::new("lock:a"), Vec::new());
        let mut context =
            Context { key: &key, now: Timestamp::from_micros(1), notifications: &mut notifications };
        (self.state.step(request, &mut context), notifications)
    }

    fn id(number: usize) -> Id {
        Id::from(number as u128 + 1)
    }

    fn join(&mut self, number: usize) {
        let wait = Some(Wait { live: None, fair: true });
        let acquire = HoldRequest::Acquire { id: Self::id(number), lease: LEASE, wait, ask: () };
        match self.step(&acquire).0 {
            Reply::Granted { .. } => self.holder = Some(number),
            Reply::Queued { .. } => self.waiting.push(number),
            other => panic!("{other:?}"),
        }
    }

    fn give_up(&mut self, number: usize) {
        self.waiting.retain(|waiting| *waiting != number);
        self.step(&HoldRequest::Cancel { id: Self::id(number), tombstone: false });
    }

    fn release(&mut self) {
        let Some(holder) = self.holder.take() else { return };
        let release = HoldRequest::Release { id: Self::id(holder), tombstone: false, once: None };
        let (reply, notifications) = self.step(&release);
        assert_eq!(reply, Reply::Released);
        if let [push] = &notifications[..] {
            let at = self.waiting.iter().position(|number| Self::id(*number) == push.id);
            self.holder = at.map(|at| self.waiting.remove(at));
        }
    }
}

/// The same callers on a server.
struct Real<'a> {
    server: &'a RedisServer,
    lockers: &'a [Locker],
    waiters: HashMap<usize, JoinHandle<()>>,
    turns: Turns,
    holder: Option<(usize, Guard)>,
    next_number: usize,
    fence: u64,
}

impl<'a> Real<'a> {
    fn new(server: &'a RedisServer, lockers: &'a [Locker]) -> Self {
        let (waiters, turns) = (HashMap::new(), Turns::new());
        Self { server, lockers, waiters, turns, holder: None, next_number: 0, fence: 0 }
    }

    /// Joins the queue, or holds: until the server knows it.
    async fn join(&mut self, process: usize) -> usize {
        let (number, before) = (self.next_number, waiting(self.server, "lock:a"));
        self.next_number += 1;
        let (sender, request) = (self.turns.sender.clone(), self.lockers[process].lock("a"));
        let task = tokio::spawn(async move {
            let guard = request.acquire().await.expect("the lock");
            drop(sender.send((number, guard)));
        });
        self.waiters.insert(number, task);
        if self.holder.is_some() {
            until("the place", async || waiting(self.server, "lock:a") > before).await;
        }
        number
    }

    async fn give_up(&mut self, number: usize) {
        let waiter = self.waiters.remove(&number).expect("a waiter");
        waiter.abort();
        assert!(waiter.await.unwrap_err().is_cancelled());
        for locker in self.lockers {
            in_time("the end of the attempt", locker.settled()).await;
        }
    }

    async fn release(&mut self) {
        if let Some((_, guard)) = self.holder.take() {
            guard.release().await.unwrap();
        }
    }

    async fn agrees_with(&mut self, model: &Model) {
        if model.holder.is_some() && self.holder.is_none() {
            let (number, guard) = self.turns.next().await;
            assert!(guard.fence() > self.fence, "the fence fell");
            self.fence = guard.fence();
            self.waiters.remove(&number);
            self.holder = Some((number, guard));
        }
        assert_eq!(self.holder.as_ref().map(|(number, _)| *number), model.holder);
        assert!(self.turns.receiver.try_recv().is_err(), "two hold at once");
    }
}
