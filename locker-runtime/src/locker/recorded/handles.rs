//! The metrics of one locker, through handles of a recorder: a macro would look its metric up at each call.
//!
//! A handle that is made before a recorder is installed writes nowhere for good. So handles are made when a recorder is
//! first seen, and those of a function at its first call after that.

use super::{
    Holders, Kind, Loss, Outcome, Subject, label_of,
    labels::{
        self, ACQUIRES, HELD, HOLD_SECONDS, LOSSES, RENEWALS, STORE_ERRORS, STORE_SECONDS, WAIT_SECONDS,
        WAITING,
    },
    table::Table,
};
use locker_core::{
    clock::Timestamp,
    error::Error,
    key::{Key, Named},
    panics,
    primitives::{Reply, Request},
    process::PerProcess,
};
use metrics::{Counter, Gauge, Histogram, Label, Level, Metadata, Recorder, with_recorder};
use once_cell::race::OnceBox;
use std::{cell::Cell, collections::HashMap, fmt, sync::Arc, time::Duration};

const METADATA: Metadata<'static> = Metadata::new("locker", Level::INFO, None);

thread_local! {
    /// Whether a recorder is being called.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

type Shared = Arc<dyn Recorder + Send + Sync>;

/// What a builder says about metrics.
#[derive(Clone, Default)]
pub(crate) struct Metering {
    pub(crate) recorder: Option<Shared>,
    /// The names that may be a label.
    pub(crate) names: Vec<&'static str>,
}

/// The metrics and spans of one locker.
pub(crate) struct Recorded {
    /// `None`: the recorder that is installed globally.
    recorder: Option<Shared>,
    store: &'static str,
    /// The names that are labels, by key.
    names: HashMap<Key, &'static str>,
    handles: OnceBox<Handles>,
    holders: Holders,
}

/// Made once there is a recorder.
#[derive(Default)]
struct Handles {
    held: [OnceBox<Gauge>; Kind::ALL.len()],
    waiting: [OnceBox<Gauge>; Kind::ALL.len()],
    functions: Table<OfFunction>,
    renewed: OnceBox<Counter>,
    requests: Table<Histogram>,
}

/// The handles of a function, or of all calls without one, for one kind.
#[derive(Debug)]
struct OfFunction {
    granted: Counter,
    waited: OnceBox<Histogram>,
    held: OnceBox<Histogram>,
    /// Made with the first hold: an increase shows only in a counter that was zero before.
    lost: OnceBox<[Counter; Loss::ALL.len()]>,
}

impl Recorded {
    pub(crate) fn new(metering: Metering, store: &'static str, prefix: &str) -> Self {
        let Metering { recorder, names } = metering;
        let keys =
            |name: &'static str| Named::KINDS.iter().map(move |kind| (Key::named(prefix, kind, name), name));
        let names = names.into_iter().flat_map(keys).collect();
        Self { recorder, store, names, handles: OnceBox::new(), holders: Holders::default() }
    }

    pub(super) fn holders(&self) -> &Holders {
        &self.holders
    }

    /// Keeps the spans for good, in a forked child.
    pub(crate) fn leave_to_parent(&mut self) {
        std::mem::forget(std::mem::take(&mut self.holders));
    }

    /// Returns whether there is a recorder.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.handles.get().is_some() || self.recorder.is_some() || is_installed()
    }

    /// Adds to the gauge of waiting calls. Returns whether there is a recorder.
    pub(super) fn waits(&self, kind: Kind) -> bool {
        self.with(|handles| self.gauge(&handles.waiting, WAITING, kind).increment(1.0))
    }

    /// Adds to the gauge of holds. Returns whether there is a recorder.
    #[inline]
    pub(super) fn holds(&self, subject: &Subject<'_>) -> bool {
        // The call has looked for a recorder.
        self.handles.get().is_some()
            && self.with(|handles| {
                // First, since it may panic: then the hold is not counted.
                self.lost_of(handles, subject);
                self.gauge(&handles.held, HELD, subject.kind).increment(1.0);
            })
    }

    pub(super) fn acquired(&self, subject: &Subject<'_>, outcome: Outcome) {
        self.with(|handles| match outcome {
            Outcome::Granted => self.of_function(handles, subject).granted.increment(1),
            _ => self.acquires(subject, outcome).increment(1),
        });
    }

    /// Ends a wait that was counted.
    pub(super) fn waited(&self, subject: &Subject<'_>, time: Duration) {
        self.with(|handles| {
            self.gauge(&handles.waiting, WAITING, subject.kind).decrement(1.0);
            let of = self.of_function(handles, subject);
            let make = || Box::new(self.histogram(WAIT_SECONDS, self.labels(subject)));
            of.waited.get_or_init(make).record(time.as_secs_f64());
        });
    }

    /// Ends a hold that was counted.
    pub(super) fn held(&self, subject: &Subject<'_>, time: Duration) {
        self.with(|handles| {
            self.gauge(&handles.held, HELD, subject.kind).decrement(1.0);
            let of = self.of_function(handles, subject);
            let make = || Box::new(self.histogram(HOLD_SECONDS, self.labels(subject)));
            of.held.get_or_init(make).record(time.as_secs_f64());
        });
    }

    #[cold]
    pub(super) fn lost(&self, subject: &Subject<'_>, loss: Loss) {
        self.with(|handles| self.lost_of(handles, subject)[loss as usize].increment(1));
    }

    fn lost_of<'a>(&self, handles: &'a Handles, subject: &Subject<'_>) -> &'a [Counter; Loss::ALL.len()] {
        let counter = |loss: Loss| {
            let cause = Label::from_static_parts("cause", loss.cause());
            self.counter(LOSSES, [self.labels(subject), vec![cause]].concat())
        };
        self.of_function(handles, subject).lost.get_or_init(|| Box::new(Loss::ALL.map(counter)))
    }

    pub(super) fn renewed(&self, outcome: Outcome) {
        let label = || vec![Label::new("outcome", outcome.label())];
        let make = || Box::new(self.counter(RENEWALS, label()));
        self.with(|handles| match outcome {
            Outcome::Granted => handles.renewed.get_or_init(make).increment(1),
            _ => self.counter(RENEWALS, label()).increment(1),
        });
    }

    /// Records a request that was sent at `sent` to a store outside of this process.
    pub(crate) fn replied(&self, request: &Request, sent: Timestamp, reply: &Result<Reply, Error>) {
        self.with(|handles| {
            let request = labels::request(request);
            let labels = || vec![self.store_label(), Label::from_static_parts("request", request)];
            let seconds = handles.requests.get(0, request, || self.histogram(STORE_SECONDS, labels()));
            seconds.record(Timestamp::now().since(sent).as_secs_f64());
        });
        if let Err(error) = reply {
            self.store_failed(error);
        }
    }

    #[cold]
    pub(crate) fn store_failed(&self, error: &Error) {
        let kind = || Label::new("kind", label_of(error.kind()));
        self.with(|_| self.counter(STORE_ERRORS, vec![self.store_label(), kind()]).increment(1));
    }

    /// Does `what` if there is a recorder, and returns whether there is. A panic of a recorder is contained, as those
    /// of subscribers are. What a recorder calls itself is not recorded, since that would never end.
    #[inline]
    fn with(&self, what: impl FnOnce(&Handles)) -> bool {
        if !self.is_on() || INSIDE.replace(true) {
            return false;
        }
        let done = panics::contain(|| what(self.handles.get().unwrap_or_else(|| self.begin())));
        INSIDE.set(false);
        done.is_some()
    }

    #[cold]
    fn begin(&self) -> &Handles {
        self.on(labels::describe);
        if self.recorder.is_none() {
            self.zero_after_fork();
        }
        self.handles.get_or_init(Box::default)
    }

    /// The recorder of a forked child has a copy of its parent's gauges.
    fn zero_after_fork(&self) {
        static BEGUN: PerProcess<()> = PerProcess::new();
        BEGUN.cell().get_or_init(|| {
            if BEGUN.inherited().next().is_some() {
                for kind in Kind::ALL {
                    self.new_gauge(WAITING, kind).set(0.0);
                    if kind.is_held() {
                        self.new_gauge(HELD, kind).set(0.0);
                    }
                }
            }
        });
    }

    fn on<T>(&self, what: impl FnOnce(&dyn Recorder) -> T) -> T {
        match &self.recorder {
            Some(recorder) => what(recorder),
            None => with_recorder(what),
        }
    }

    fn gauge<'a>(&self, gauges: &'a [OnceBox<Gauge>], name: &'static str, kind: Kind) -> &'a Gauge {
        gauges[kind as usize].get_or_init(|| Box::new(self.new_gauge(name, kind)))
    }

    fn new_gauge(&self, name: &'static str, kind: Kind) -> Gauge {
        let key = metrics::Key::from_parts(name, vec![kind.label()]);
        self.on(|recorder| recorder.register_gauge(&key, &METADATA))
    }

    fn of_function<'a>(&self, handles: &'a Handles, subject: &Subject<'_>) -> &'a OfFunction {
        handles.functions.get(subject.kind as u8, self.function(subject), || OfFunction {
            granted: self.acquires(subject, Outcome::Granted),
            waited: OnceBox::new(),
            held: OnceBox::new(),
            lost: OnceBox::new(),
        })
    }

    fn acquires(&self, subject: &Subject<'_>, outcome: Outcome) -> Counter {
        let mut labels = self.labels(subject);
        labels.push(Label::new("outcome", outcome.label()));
        self.counter(ACQUIRES, labels)
    }

    fn counter(&self, name: &'static str, labels: Vec<Label>) -> Counter {
        let key = metrics::Key::from_parts(name, labels);
        self.on(|recorder| recorder.register_counter(&key, &METADATA))
    }

    fn histogram(&self, name: &'static str, labels: Vec<Label>) -> Histogram {
        let key = metrics::Key::from_parts(name, labels);
        self.on(|recorder| recorder.register_histogram(&key, &METADATA))
    }

    fn labels(&self, subject: &Subject<'_>) -> Vec<Label> {
        vec![subject.kind.label(), Label::from_static_parts("function", self.function(subject))]
    }

    fn store_label(&self) -> Label {
        Label::from_static_parts("store", self.store)
    }

    /// Returns the annotated function, else the name if it may be a label, else nothing. Never a key or an argument:
    /// there are few functions, and no end of keys.
    fn function(&self, subject: &Subject<'_>) -> &'static str {
        let named = || if self.names.is_empty() { None } else { self.names.get(subject.key).copied() };
        subject.function.or_else(named).unwrap_or_default()
    }
}

/// Returns whether the application has installed a recorder.
///
/// Without one, `metrics` has a recorder without a size in a static. An installed one is in a box: if it has no size,
/// its address is its alignment.
#[inline]
fn is_installed() -> bool {
    with_recorder(|recorder| {
        let address = std::ptr::from_ref(recorder).addr();
        size_of_val(recorder) > 0 || address == align_of_val(recorder)
    })
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded").finish_non_exhaustive()
    }
}
