//! The stores under test, and helpers of the laws.

use crate::gauges::Gauges;
use futures_util::future::{Either, select};
use locker::{Key, LockRequest, Locker, LockerBuilder, testing::Control};
use locker_harness::{
    ClusterSetup, EtcdServer, MysqlServer, PgBouncer, PostgresServer, RedisServer, SentinelSetup, Shared,
    ZookeeperServer,
};
use std::{
    any::Any,
    fmt::Debug,
    future::Future,
    pin::{Pin, pin},
    sync::atomic::{AtomicU64, Ordering},
    task::Poll,
    time::{Duration, Instant},
};

pub(crate) use locker_harness::{GENEROUS, in_time, until};

/// Longer than a busy server takes to reply.
pub(crate) const SHORT: Duration = Duration::from_millis(400);

/// Ends before a waiter rechecks on its own.
pub(crate) const SOON: Duration = Duration::from_secs(4);

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// The most that a hold of a minute may have left: a store adds what it does not know about its clock.
pub(crate) const MINUTE_LEFT: Duration = Duration::from_secs(61);

/// A locker on a store that lasts as long as this value.
pub(crate) struct Opened {
    pub(crate) locker: Locker,
    pub(crate) url: String,
    control: Option<Control>,
    gauges: Gauges,
    /// The server or the directory of the store.
    _place: Box<dyn Any>,
}

impl Opened {
    async fn connect(url: &str, place: impl Any) -> Option<Self> {
        let (gauges, builder) = Gauges::of(builder(url, 0));
        let locker = builder.build().await.expect("a connection to the test's server");
        Some(Self { locker, url: url.into(), control: None, gauges, _place: Box::new(place) })
    }

    /// Returns one locker of this process, and two as in other processes, if the store can have those.
    pub(crate) async fn in_processes(&self) -> [Locker; 3] {
        let own = self.locker.clone();
        if self.url == "memory://" {
            return [own.clone(), own.clone(), own];
        }
        [own, connect_apart(&self.url, 1).await, connect_apart(&self.url, 2).await]
    }

    /// Runs a law on this store.
    pub(crate) async fn keeps(&self, law: impl Future<Output = ()>) {
        match &self.control {
            Some(control) => CONTROL.scope(control.clone(), law).await,
            None => law.await,
        }
        self.gauges.fall().await;
    }
}

pub(crate) async fn connect(url: &str) -> Locker {
    connect_apart(url, 0).await
}

/// A locker that shares no connection with those of other numbers, as if it were in another process.
pub(crate) async fn connect_apart(url: &str, number: u64) -> Locker {
    let locker = builder(url, number).build().await;
    locker.expect("a connection to the test's server")
}

pub(crate) fn builder(url: &str, number: u64) -> LockerBuilder {
    // No law is about a server that is slow, as one is that has just been started. Lockers with different options share
    // no connection.
    let timeout = Duration::from_secs(20) + Duration::from_millis(number);
    Locker::builder().url(url).command_timeout(timeout)
}

pub(crate) async fn memory() -> Option<Opened> {
    let (gauges, builder) = Gauges::of(Locker::builder());
    let (locker, control) = locker::testing::memory_with(builder).expect("valid settings");
    Some(Opened { locker, url: "memory://".into(), control: Some(control), gauges, _place: Box::new(()) })
}

tokio::task_local! {
    /// What moves the time of the store under test on.
    static CONTROL: Control;
}

/// A time for leases and the like that passes during a law: an hour where it passes on command, else a short one.
pub(crate) fn span() -> Duration {
    CONTROL.try_with(|_| MINUTE * 60).unwrap_or(SHORT)
}

/// Lets time pass on a store where it passes on command. Returns how much: nothing on the others, where a law has to
/// wait.
pub(crate) fn pass(by: Duration) -> Duration {
    CONTROL.try_with(|control| control.advance(by)).map_or(Duration::ZERO, |()| by)
}

/// Awaits a call that ends when `by` has passed. Where time passes on command, the call waits before that.
pub(crate) async fn after<F: Future<Output: Debug>>(by: Duration, what: &str, call: F) -> F::Output {
    let mut call = pin!(call);
    match futures_util::poll!(&mut call) {
        Poll::Ready(answer) if CONTROL.try_with(|_| ()).is_ok() => panic!("early, {what}: {answer:?}"),
        Poll::Ready(answer) => return answer,
        Poll::Pending => {}
    }
    pass(by);
    in_time(what, call).await
}

/// The server of the environment variable `LOCKER_TEST_REDIS_URL`, else a new one.
pub(crate) async fn redis() -> Option<Opened> {
    if let Ok(url) = std::env::var("LOCKER_TEST_REDIS_URL") {
        return Opened::connect(&url, ()).await;
    }
    let server = RedisServer::start()?;
    Opened::connect(&server.url(), server).await
}

pub(crate) async fn sentinel() -> Option<Opened> {
    static SETUP: Shared<SentinelSetup> = Shared::new();
    let setup = SETUP.get(SentinelSetup::start)?;
    Opened::connect(&setup.url(), setup).await
}

pub(crate) async fn cluster() -> Option<Opened> {
    static SETUP: Shared<ClusterSetup> = Shared::new();
    let setup = SETUP.get(ClusterSetup::start)?;
    Opened::connect(&setup.url(), setup).await
}

/// The engine of the stores that compare and set, on a backend in memory that takes its time.
pub(crate) async fn served_clock() -> Option<Opened> {
    fake("clock=served&delay=1ms").await
}

/// As [`served_clock`], but nobody can read a clock that all share.
pub(crate) async fn ticked_clock() -> Option<Opened> {
    fake("clock=ticked").await
}

async fn fake(parameters: &str) -> Option<Opened> {
    let url = format!("fake://{}?{parameters}", fresh_name().replace(' ', "-"));
    Opened::connect(&url, ()).await
}

pub(crate) async fn postgres() -> Option<Opened> {
    static SERVER: Shared<PostgresServer> = Shared::new();
    let server = SERVER.get(PostgresServer::start)?;
    Opened::connect(&server.url(), server).await
}

/// A pool of connections in transaction mode, and one connection per process beside it, which hears messages.
pub(crate) async fn pgbouncer() -> Option<Opened> {
    static SERVER: Shared<(PgBouncer, PostgresServer)> = Shared::new();
    let place = SERVER.get(|| {
        let server = PostgresServer::start()?;
        Some((PgBouncer::start(&server, 10)?, server))
    })?;
    let url = format!("{}?listen=127.0.0.1:{}", place.0.url(), place.1.port());
    Opened::connect(&url, place).await
}

pub(crate) async fn etcd() -> Option<Opened> {
    static SERVER: Shared<EtcdServer> = Shared::new();
    let server = SERVER.get(EtcdServer::start)?;
    Opened::connect(&server.url(), server).await
}

pub(crate) async fn mysql() -> Option<Opened> {
    static SERVER: Shared<MysqlServer> = Shared::new();
    let server = SERVER.get(MysqlServer::start)?;
    Opened::connect(&server.url(), server).await
}

pub(crate) async fn zookeeper() -> Option<Opened> {
    static SERVER: Shared<ZookeeperServer> = Shared::new();
    let server = SERVER.get(ZookeeperServer::start)?;
    Opened::connect(&server.url(), server).await
}

pub(crate) async fn files() -> Option<Opened> {
    // In memory: a write to a busy disk may take longer than the leases of the laws.
    let directory = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
    Opened::connect(&format!("file://{}", directory.path().display()), directory).await
}

/// A name that no other test uses and that is no prefix of another test's name.
pub(crate) fn fresh_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("test {} {:05}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Starts a call that has to wait at a name, and returns when the store has it in the queue there.
pub(crate) async fn queued<F: Future<Output: Debug>>(
    locker: &Locker,
    kind: &str,
    name: &str,
    call: F,
) -> Pin<Box<F>> {
    queued_at(locker, &locker.admin().key(kind, name), call).await
}

/// As [`queued`], at a key.
pub(crate) async fn queued_at<F: Future<Output: Debug>>(locker: &Locker, key: &Key, call: F) -> Pin<Box<F>> {
    match queued_or_ended(locker, key, call).await {
        Ok(call) => call,
        Err(answer) => panic!("the call did not wait: {answer:?}"),
    }
}

/// As [`queued_at`], but a call that does not wait is returned as the error with its answer.
pub(crate) async fn queued_or_ended<F: Future>(
    locker: &Locker,
    key: &Key,
    call: F,
) -> Result<Pin<Box<F>>, F::Output> {
    // A reply to a later request would not do: the later request may overtake this one, over another connection.
    let one_more = waiting(locker, key).await + 1;
    match select(Box::pin(call), Box::pin(until_waiting(locker, key, one_more))).await {
        Either::Left((answer, _)) => Err(answer),
        Either::Right(((), call)) => Ok(call),
    }
}

/// Waits until `count` callers wait at a name. The cancel of a caller may arrive a little later.
pub(crate) async fn waiting_at(locker: &Locker, kind: &str, name: &str, count: u64) {
    until_waiting(locker, &locker.admin().key(kind, name), count).await;
}

async fn until_waiting(locker: &Locker, key: &Key, count: u64) {
    in_time("the expected number of waiters", async {
        while waiting(locker, key).await != count {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn waiting(locker: &Locker, key: &Key) -> u64 {
    locker.admin().inspect(key).await.unwrap().map_or(0, |state| state.waiting)
}

/// The hold ends later in the store than its first lease does. No thread has to run before a certain time for that: two
/// thirds of the lease are left when it is renewed.
pub(crate) async fn outlives_its_lease(locker: &Locker, kind: &str, name: &str, request: LockRequest) {
    let (lease, key) = (Duration::from_secs(9), locker.admin().key(kind, name));
    let guard = request.lease(lease).acquire().await.unwrap();
    // A store adds what it does not know about its clock, when it takes the lease and when it tells.
    let first_end = Instant::now() + lease + Duration::from_secs(2);
    let passed = pass(span());
    until("the hold ends later", async || {
        let asked = Instant::now();
        let state = locker.admin().inspect(&key).await.unwrap().expect("a hold");
        assert_eq!(state.holders[0].fence, guard.fence());
        asked + passed + state.holders[0].time_left.unwrap() > first_end
    })
    .await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
}
