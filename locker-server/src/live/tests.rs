//! What streams show of an embedded store.

use super::{Event, INTERVAL, KeyView, Live, NamesView, Sources, View, overview::Overview};
use crate::{activity::Activity, api::Resource, caps::WaitCaps, name_registry::NameRegistry};
use futures_util::FutureExt;
use locker_runtime::{Key, Locker};
use serde_json::Value;
use std::{
    sync::{Arc, mpsc},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// Shows an embedded store with this many names in use.
async fn live(names: usize) -> Arc<Live> {
    let locker = Locker::memory();
    for number in 0..names {
        let semaphore = locker.keyed_semaphore(&number.to_string(), 1);
        semaphore.acquire("k", Duration::MAX, Duration::ZERO).await.unwrap();
    }
    Live::new(Sources {
        store: "memory".into(),
        admin: locker.admin(),
        names: NameRegistry::new(locker.admin(), 1),
        waits: Arc::new(WaitCaps::new(1, 1)),
        activity: Arc::new(Activity::default()),
        shutdown: CancellationToken::new(),
    })
}

fn totals(batch: &[Event]) -> Value {
    let totals = batch.iter().find(|event| event.name == "totals").unwrap();
    serde_json::from_str(&totals.data).unwrap()
}

/// The page is loaded again, or a filter is typed. The next stream showed a part of the names for as long as the server
/// rested for the work of that part.
#[tokio::test(start_paused = true)]
async fn first_pass_goes_on_for_the_next_looker() {
    let live = live(1_000).await;
    let mut overviews = live.overview.subscribe();
    let is_whole = |overview: &Option<Arc<Overview>>| overview.as_ref().is_some_and(|seen| seen.is_whole);
    let looking = live.look();
    assert!(!is_whole(&overviews.wait_for(Option::is_some).await.unwrap()));
    drop(looking);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!is_whole(&overviews.borrow()), "nobody looks");
    let started = tokio::time::Instant::now();
    let mut view = NamesView::new(live.stream().unwrap(), View::default());
    assert_eq!(view.batch().await[0].name, "past");
    let told = totals(&view.batch().await);
    assert!(told["whole"] == false && told["names"].as_u64().unwrap() < 1_000, "{told}");
    overviews.wait_for(is_whole).await.unwrap();
    assert!(started.elapsed() < INTERVAL, "{:?}", started.elapsed());
    let told = totals(&view.batch().await);
    assert!(told["whole"] == true && told["names"] == 1_000, "{told}");
}

#[tokio::test(start_paused = true)]
async fn first_pass_is_dropped_if_nobody_is_back() {
    let live = live(1_000).await;
    let mut overviews = live.overview.subscribe();
    let looking = live.look();
    overviews.wait_for(Option::is_some).await.unwrap();
    drop(looking);
    overviews.wait_for(Option::is_none).await.unwrap();
    let started = tokio::time::Instant::now();
    let _looking = live.look();
    let seen = overviews.wait_for(|seen| seen.as_ref().is_some_and(|seen| seen.is_whole)).await.unwrap();
    assert_eq!(seen.as_ref().unwrap().rows.len(), 1_000);
    assert!(started.elapsed() < INTERVAL, "{:?}", started.elapsed());
}

/// Each batch read all names of the kind, and calls with names had to wait meanwhile.
#[tokio::test]
async fn batch_of_a_key_reads_no_other_names() {
    let live = live(1).await;
    let mut view = KeyView::new(live.stream().unwrap(), Key::new("semaphore:0"), true);
    let _busy = live.sources.names.busy(Resource::Semaphore);
    let (sent, received) = mpsc::channel();
    std::thread::spawn(move || sent.send(view.batch().now_or_never()));
    let batch = received.recv_timeout(Duration::from_secs(10)).unwrap().unwrap();
    assert!(batch[0].data.contains(r#""path":"/v1/semaphore/0?fence="#), "{batch:?}");
}
