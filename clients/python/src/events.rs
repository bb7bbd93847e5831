//! The events of the runtime, for `logging`.
//!
//! A thread of the runtime only puts an event into a list. A thread of Python takes it out and logs it, so that no
//! handler of the application delays a renewal.

use locker_runtime::private::bindings::ProcessLocal;
use pyo3::prelude::*;
use std::{
    collections::VecDeque,
    fmt::{Debug, Write},
    mem::take,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span,
    subscriber::set_global_default,
};

/// What is kept if nobody logs: the latest.
const MOST: usize = 1_000;

static LOG: ProcessLocal<Log> = ProcessLocal::new();

/// The most detailed level that is wanted, as a number of `logging`.
static LEVEL: AtomicU8 = AtomicU8::new(OFF);
const OFF: u8 = u8::MAX;

#[derive(Debug, Default)]
struct Log {
    entries: Mutex<VecDeque<Entry>>,
    changed: Condvar,
}

/// A level, a message, and the names and values of fields.
type Entry = (u8, String, Vec<(&'static str, String)>);

impl Log {
    fn entries(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the runtime keep its events of this level of `logging` and above for `events`.
#[pyfunction]
pub(crate) fn keep_events(level: u8) {
    LEVEL.store(level, Ordering::Relaxed);
    // An error means that it is set already. No other library has the statics of this one.
    let _ = set_global_default(Keeper);
    tracing::callsite::rebuild_interest_cache();
}

/// Returns the events since the last call as level, message and fields. Blocks this thread, without the GIL, while
/// there are none, unless `wait` is false.
#[pyfunction]
#[pyo3(signature = (*, wait=true))]
pub(crate) fn events(py: Python<'_>, wait: bool) -> Vec<Entry> {
    py.detach(|| {
        let log = LOG.get();
        let mut entries = log.entries();
        if wait {
            let waited = log.changed.wait_while(entries, |entries| entries.is_empty());
            entries = waited.unwrap_or_else(PoisonError::into_inner);
        }
        take(&mut *entries).into()
    })
}

struct Keeper;

impl Subscriber for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target() == "locker" && number(*metadata.level()) >= level()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match level() {
            0..=10 => LevelFilter::DEBUG,
            11..=20 => LevelFilter::INFO,
            21..=30 => LevelFilter::WARN,
            31..=40 => LevelFilter::ERROR,
            _ => LevelFilter::OFF,
        })
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let log = LOG.get();
        let mut entries = log.entries();
        if entries.len() == MOST {
            entries.pop_front();
        }
        entries.push_back((number(*event.metadata().level()), fields.message, fields.others));
        log.changed.notify_one();
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

fn level() -> u8 {
    LEVEL.load(Ordering::Relaxed)
}

/// Returns the number of a level in `logging`.
fn number(level: Level) -> u8 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        _ => 10,
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, String)>,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            // Nothing fails that writes into a `String`.
            let _ = write!(self.message, "{value:?}");
        } else {
            self.others.push((field.name(), format!("{value:?}")));
        }
    }
}
