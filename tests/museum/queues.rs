//! Fair queues that stay shut although nobody holds the lock.

use crate::support::{GENEROUS, Opened, connect, connect_apart, fresh_name, in_time, until, waiting_at};
use locker::Locker;
use locker_harness::TestProcess;
use std::{
    env,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

const APPLICATION: &str = "LOCKER_TEST_APPLICATION";
const HOUR: Duration = Duration::from_secs(3_600);
const SECOND: Duration = Duration::from_secs(1);

/// More seconds than a store keeps the place of a waiter whose process is silent.
const PATIENCE: usize = 33;

exhibits! {
    {
        impatient_callers_delay_no_waiter,
        patient_waiters_keep_their_places,
        killed_application_blocks_no_restart
    } on redis postgres etcd files
}

/// Starts a process with so many callers of one lock, each of which keeps what it gets.
fn start_application(store: &Opened, name: &str, callers: usize) -> TestProcess {
    TestProcess::start("queues::application", APPLICATION, &format!("{callers} {} {name}", store.url))
}

/// The process that [`start_application`] starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn application() {
    let Ok(arguments) = env::var(APPLICATION) else { return };
    let mut arguments = arguments.splitn(3, ' ');
    let mut next = || arguments.next().unwrap();
    let (count, locker, name) = (next().parse().unwrap(), connect(next()).await, next());
    let mut callers = JoinSet::new();
    for _ in 0..count {
        let request = locker.lock(name).lease(3 * SECOND).timeout(HOUR);
        callers.spawn(async move {
            let _held = request.acquire().await.unwrap();
            // It is killed long before, unless the test that started it is.
            sleep(10 * GENEROUS).await;
        });
    }
    callers.join_all().await;
}

/// redisson#1104: each caller that gave up moved the deadlines of the waiters further into the future. When the first
/// waiter died, the others waited for its deadline.
async fn impatient_callers_delay_no_waiter(store: &Opened) {
    let (locker, name) = (&store.locker, fresh_name());
    let held = locker.lock(&name).lease(HOUR).acquire().await.unwrap();
    let application = start_application(store, &name, 1);
    waiting_at(locker, "lock", &name, 1).await;
    application.stop();
    let mut impatient = JoinSet::new();
    for _ in 0..3 {
        let request = locker.lock(&name).lease(HOUR).timeout(SECOND / 20);
        impatient.spawn(async move {
            for _ in 0..20 {
                assert!(request.clone().acquire().await.unwrap_err().is_temporary());
            }
        });
    }
    impatient.join_all().await;
    let living = tokio::spawn(locker.lock(&name).timeout(HOUR).acquire());
    held.release().await.unwrap();
    drop(in_time("the living waiter", living).await.unwrap().unwrap());
}

/// redisson#2883: of 501 callers in a queue most were never served. redisson#3004: callers that had waited for long
/// were removed from the queue by later ones, and waited for ever.
async fn patient_waiters_keep_their_places(store: &Opened) {
    let (locker, name) = (&store.locker, fresh_name());
    let (others, newcomers) = (connect_apart(&store.url, 1).await, connect_apart(&store.url, 2).await);
    let held = locker.lock(&name).lease(HOUR).acquire().await.unwrap();
    let (mut waiters, fences) = (JoinSet::new(), Arc::new(Mutex::new(Vec::new())));
    for number in 0..500 {
        let of = if number % 20 < 10 { locker } else { &others };
        let (request, fences) = (of.lock(&name).timeout(HOUR), Arc::clone(&fences));
        waiters.spawn(async move {
            let guard = request.acquire().await.unwrap();
            fences.lock().unwrap().push((guard.fence(), number));
            guard.release().await.unwrap();
        });
        if number == 0 {
            waiting_at(locker, "lock", &name, 1).await;
        }
    }
    waiting_at(locker, "lock", &name, 500).await;
    for _ in 0..PATIENCE {
        let error = newcomers.lock(&name).timeout(SECOND).acquire().await.unwrap_err();
        assert!(error.is_temporary(), "{error}");
    }
    held.release().await.unwrap();
    timeout(10 * GENEROUS, waiters.join_all()).await.expect("all waiters are served");
    assert_eq!(fences.lock().unwrap().iter().min().unwrap().1, 0, "the first one kept its place");
    assert_unused(locker, &name).await;
}

/// redisson#6150: an application was killed while it held a fair lock and waited for it. After its restart, it waited
/// for itself.
async fn killed_application_blocks_no_restart(store: &Opened) {
    let (name, admin) = (fresh_name(), store.locker.admin());
    let (application, key) = (start_application(store, &name, 6), admin.key("lock", &name));
    until("a holder and five waiters", async || {
        let state = admin.inspect(&key).await.unwrap();
        state.is_some_and(|state| (state.holders.len(), state.waiting) == (1, 5))
    })
    .await;
    drop(application);
    let (restarted, mut callers) = (connect_apart(&store.url, 1).await, JoinSet::new());
    for _ in 0..6 {
        let request = restarted.lock(&name).timeout(HOUR);
        callers.spawn(async move { request.acquire().await.unwrap().release().await.unwrap() });
    }
    in_time("all callers after the restart", callers.join_all()).await;
    assert_unused(&restarted, &name).await;
}

async fn assert_unused(locker: &Locker, name: &str) {
    waiting_at(locker, "lock", name, 0).await;
    locker.lock(name).try_acquire().await.unwrap().expect("it is free").release().await.unwrap();
}
