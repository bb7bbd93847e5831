//! The spans of waits and holds.

#![cfg(all(feature = "metrics", feature = "tracing"))]

use futures_util::FutureExt;
use locker::{ErrorKind, Locker};
use locker_harness::in_time;
use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Mutex, Once},
    time::Duration,
};
use tracing::{
    Instrument, Subscriber,
    field::{Field, Visit},
    instrument::WithSubscriber,
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{Layer, Registry, layer::Context, prelude::*, registry::LookupSpan};

/// One span, as a subscriber saw it.
#[derive(Clone, Debug, Default)]
struct Seen {
    name: &'static str,
    parent: Option<&'static str>,
    fields: BTreeMap<&'static str, String>,
    follows: Vec<u64>,
    is_closed: bool,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

impl Seen {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }
}

/// All spans, in the order in which they began.
#[derive(Clone)]
struct Spans(Arc<Mutex<Vec<(u64, Seen)>>>);

impl Spans {
    /// Call this before the test makes a locker. While a program has one subscriber only, `tracing` turns a span off
    /// for all threads if the thread that reaches it first has none, such as the background thread.
    fn new() -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| Registry::default().init());
        Self(Arc::default())
    }

    fn named(&self, name: &str) -> Vec<(u64, Seen)> {
        self.0.lock().unwrap().iter().filter(|(_, seen)| seen.name == name).cloned().collect()
    }

    fn change(&self, id: &Id, change: impl FnOnce(&mut Seen)) {
        let mut spans = self.0.lock().unwrap();
        // An id may be used again after its span was closed.
        change(&mut spans.iter_mut().rfind(|(own, _)| *own == id.into_u64()).unwrap().1);
    }

    /// Awaits it in the span `caller`.
    async fn watch<T>(&self, what: impl Future<Output = T>) -> T {
        let in_a_span = async { what.instrument(tracing::info_span!("caller")).await };
        in_a_span.with_subscriber(Registry::default().with(self.clone())).await
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let parent = context.span(id).and_then(|span| Some(span.parent()?.name()));
        let mut seen = Seen { name: attributes.metadata().name(), parent, ..Seen::default() };
        attributes.record(&mut seen);
        self.0.lock().unwrap().push((id.into_u64(), seen));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        self.change(id, |seen| values.record(seen));
    }

    fn on_follows_from(&self, id: &Id, follows: &Id, _: Context<'_, S>) {
        self.change(id, |seen| seen.follows.push(follows.into_u64()));
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let name = context.span(id).map(|span| span.name());
        assert!(name.is_none_or(|name| !name.starts_with("locker.")), "nothing runs inside of {name:?}");
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        self.change(&id, |seen| seen.is_closed = true);
    }
}

#[locker::lock_on_argument(name = "bank.withdraw", args(card), locker = locker)]
async fn withdraw(locker: &Locker, card: u64) -> locker::Result<()> {
    let _ = card;
    Ok(())
}

#[tokio::test]
async fn hold_has_a_span_below_that_of_its_caller() {
    let (spans, locker) = (Spans::new(), Locker::memory());
    let fence = spans
        .watch(async {
            let guard = locker.lock("a").acquire().await.unwrap();
            let fence = guard.fence();
            assert!(!spans.named("locker.hold")[0].1.is_closed);
            guard.release().await.unwrap();
            withdraw(&locker, 7).await.unwrap();
            fence
        })
        .await;
    let holds = spans.named("locker.hold");
    let [(_, by_hand), (_, annotated)] = &holds[..] else { panic!("{holds:?}") };
    assert_eq!((by_hand.parent, annotated.parent), (Some("caller"), Some("caller")));
    assert_eq!(by_hand.field("key"), Some("lock:a"));
    assert_eq!(by_hand.field("fence"), Some(&*fence.to_string()));
    assert_eq!([by_hand.field("function"), annotated.field("function")], [None, Some("bank.withdraw")]);
    assert!(holds.iter().all(|(_, seen)| seen.is_closed && seen.field("outcome") == Some("released")));
    assert!(spans.named("locker.wait").is_empty(), "none has waited");
}

#[tokio::test]
async fn wait_is_linked_to_the_hold_it_waits_for() {
    let (spans, locker) = (Spans::new(), Locker::memory());
    spans
        .watch(async {
            let other = locker.lock("b").acquire().await.unwrap();
            let guard = locker.lock("a").acquire().await.unwrap();
            let mut waiting = Box::pin(locker.lock("a").acquire());
            assert!(waiting.as_mut().now_or_never().is_none());
            assert!(!spans.named("locker.wait")[0].1.is_closed);
            guard.release().await.unwrap();
            in_time("the lock", waiting).await.unwrap().release().await.unwrap();
            other.release().await.unwrap();
        })
        .await;
    let (waits, holds) = (spans.named("locker.wait"), spans.named("locker.hold"));
    let [(_, wait)] = &waits[..] else { panic!("{waits:?}") };
    let [_, (first, _), (_, second)] = &holds[..] else { panic!("{holds:?}") };
    assert_eq!((wait.parent, &wait.follows), (Some("caller"), &vec![*first]));
    assert_eq!((wait.field("key"), wait.field("outcome")), (Some("lock:a"), Some("granted")));
    assert_eq!(wait.field("fence"), second.field("fence"));
    assert!(wait.is_closed && holds.iter().all(|(_, hold)| hold.is_closed));
}

/// A subscriber that cannot clone a span.
struct Fragile(Registry);

impl Subscriber for Fragile {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        self.0.enabled(metadata)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.0.new_span(span)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.0.record(span, values);
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.0.record_follows_from(span, follows);
    }

    fn event(&self, event: &tracing::Event<'_>) {
        self.0.event(event);
    }

    fn enter(&self, span: &Id) {
        self.0.enter(span);
    }

    fn exit(&self, span: &Id) {
        self.0.exit(span);
    }

    fn clone_span(&self, _: &Id) -> Id {
        panic!("no span is cloned");
    }

    fn try_close(&self, id: Id) -> bool {
        self.0.try_close(id)
    }
}

/// It would be called while the list of holders is locked, and may call the locker itself.
#[tokio::test]
async fn subscriber_is_not_asked_to_clone_spans() {
    let (_, locker) = (Spans::new(), Locker::memory());
    let calls = async {
        let guard = locker.lock("a").acquire().await.unwrap();
        let mut waiting = Box::pin(locker.lock("a").acquire());
        assert!(waiting.as_mut().now_or_never().is_none());
        guard.release().await.unwrap();
        in_time("the lock", waiting).await.unwrap().release().await.unwrap();
    };
    calls.with_subscriber(Fragile(Registry::default())).await;
}

/// Only its release shows that it was gone.
#[tokio::test]
async fn hold_that_was_evicted_has_the_outcome_lost() {
    let (spans, locker) = (Spans::new(), Locker::memory());
    let call = async {
        let guard = locker.lock("a").acquire().await.unwrap();
        assert!(locker.admin().evict(&locker.admin().key("lock", "a")).await.unwrap());
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    };
    spans.watch(call).await;
    let holds = spans.named("locker.hold");
    assert_eq!(holds.iter().map(|(_, seen)| seen.field("outcome")).collect::<Vec<_>>(), [Some("lost")]);
}

#[tokio::test]
async fn spans_say_how_a_wait_or_a_hold_ended() {
    let (spans, (locker, control)) = (Spans::new(), locker::testing::memory());
    spans
        .watch(async {
            let guard = locker.lock("a").acquire().await.unwrap();
            let timeout = Duration::from_millis(20);
            let error = locker.lock("a").timeout(timeout).acquire().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            let mut waiting = Box::pin(locker.lock("a").acquire());
            assert!(waiting.as_mut().now_or_never().is_none());
            drop(waiting);
            control.lose(&locker.admin().key("lock", "a")).unwrap();
            assert_eq!(spans.named("locker.hold")[0].1.field("outcome"), Some("lost"));
            drop(guard);
            locker.settled().await;
        })
        .await;
    let ends: Vec<_> = spans
        .named("locker.wait")
        .into_iter()
        .map(|(_, seen)| (seen.fields["outcome"].clone(), seen.is_closed))
        .collect();
    assert_eq!(ends, [("timed_out".to_owned(), true), ("cancelled".to_owned(), true)]);
    assert!(spans.named("locker.hold")[0].1.is_closed);
}
