//! The callers of a process, and what they report.

use crate::{
    fleet::{Fleet, Number},
    plan::{End, Held, LIMIT, Renewal, SEMAPHORE, Step},
};
use futures_util::future::{Either, select};
use locker_checker::format::{Call, Kind, Line, Mode, Operation, Outcome, Quota as Limit, Text};
use locker_core::{background, process::world::Inhabitant};
use locker_runtime::{ErrorKind, Guard, LockRequest, Locker, Quota, Result};
use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError, atomic::AtomicUsize},
    time::Duration,
};
use tokio::sync::oneshot;

/// The lines of a history, in their order.
#[derive(Clone, Default)]
pub(crate) struct Record(Arc<Mutex<Vec<Line>>>);

impl Record {
    pub(crate) fn add(&self, line: Line) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    pub(crate) fn lines(&self) -> Vec<Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A process as its callers see it.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) fleet: Fleet,
    pub(crate) number: Number,
    /// Its locker, once it has started.
    pub(crate) locker: Arc<OnceLock<Locker>>,
    pub(crate) inhabitant: Inhabitant,
    pub(crate) record: Record,
    /// The number of its callers that have not ended.
    pub(crate) callers: Arc<AtomicUsize>,
    /// All places, by their numbers.
    pub(crate) places: Arc<OnceLock<Vec<Self>>>,
}

/// The time between two checks of a guard.
const CHECK: Duration = Duration::from_millis(20);

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

impl Place {
    /// Does all of `steps`, as caller `caller` of the process.
    pub(crate) async fn carry_out(&self, caller: usize, steps: &[Step]) {
        for (number, step) in steps.iter().enumerate() {
            let id = (caller * 100 + number) as u64;
            match step {
                Step::Rest(time) => background::sleep(ms(*time)).await,
                Step::Until(time) => {
                    background::sleep(ms(time.saturating_sub(self.fleet.now() / 1_000))).await;
                }
                Step::Hold { .. } => self.hold(id, step).await,
                Step::Named { .. } => self.hold_by_name(id, step).await,
                Step::Limit { name, tokens, patience } => self.pass(id, name, *tokens, ms(*patience)).await,
            }
        }
    }

    fn locker(&self) -> &Locker {
        self.locker.get().expect("a process that has started")
    }

    /// The true time in nanoseconds.
    fn now(&self) -> u64 {
        self.fleet.now() * 1_000
    }

    fn begin(&self, id: u64, kind: Kind, name: &str, call: Call) -> Operation {
        Operation { id: Some(id), ..Operation::new(self.number as u64, kind, name, call, self.now()) }
    }

    fn report(&self, operation: &Operation) {
        let line = Line::Operation(Box::new(operation.clone()));
        self.fleet.trace(&format!("{line:?}"));
        self.record.add(line);
    }

    fn request(&self, what: Held) -> (LockRequest, Operation, u64) {
        let begin = |kind, name: &str| self.begin(0, kind, name, Call::Acquire);
        match what {
            Held::Lock(name) => (self.locker().lock(name), begin(Kind::Lock, name), 1),
            Held::Semaphore(name, permits) => {
                let operation = Operation { permits, size: SEMAPHORE, ..begin(Kind::Semaphore, name) };
                (self.locker().semaphore(name, SEMAPHORE).permits(permits), operation, permits)
            }
            Held::Read(name) | Held::Write(name) => {
                let is_read = matches!(what, Held::Read(_));
                let mode = Some(if is_read { Mode::Read } else { Mode::Write });
                let request =
                    if is_read { self.locker().read_lock(name) } else { self.locker().write_lock(name) };
                (request, Operation { mode, ..begin(Kind::ReadWrite, name) }, 1)
            }
        }
    }

    async fn hold(&self, id: u64, step: &Step) {
        let Step::Hold { what, lease, renew, timeout, body, end } = step else { return };
        let (request, operation, _) = self.request(*what);
        let mut operation = Operation { id: Some(id), timeout: Some(timeout * 1_000_000), ..operation };
        self.report(&operation);
        let request = request.lease(ms(*lease)).renew(*renew).timeout(ms(*timeout));
        let guard = match request.acquire().await {
            Ok(guard) => guard,
            Err(error) => return self.failed(operation, error.kind()),
        };
        (operation.entered, operation.fence) = (Some(self.now()), Some(guard.fence()));
        operation.outcome = Outcome::Granted;
        let (until, mut promised) = (self.fleet.now() + body * 1_000, 0);
        let is_lost = loop {
            let moment = self.now();
            if guard.check().is_err() {
                break true;
            }
            operation.seen = Some(moment);
            promised = promised.max(self.promised(&guard));
            self.report(&operation);
            if self.fleet.now() >= until {
                break false;
            }
            background::sleep(CHECK).await;
        };
        promised = promised.max(self.promised(&guard));
        self.end(operation, guard, *end, is_lost, promised).await;
    }

    /// Returns the true time up to which the guard says that it holds, on a clock that is at most a thousandth faster.
    fn promised(&self, guard: &Guard) -> u64 {
        self.now() + u64::try_from(guard.remaining().as_nanos()).unwrap_or(0) / 1_000 * 999
    }

    async fn end(&self, mut operation: Operation, guard: Guard, end: End, is_lost: bool, promised: u64) {
        if end == End::Leave {
            return std::mem::forget(guard);
        }
        operation.left = Some(self.now());
        // A release that never returns leaves this line.
        self.report(&operation);
        let lost = |at: u64| if at < promised { Outcome::LostEarly } else { Outcome::Lost };
        if end == End::Release {
            operation.outcome = match guard.release().await {
                Ok(()) => Outcome::Released,
                // The loss that was seen before the release.
                Err(_) if is_lost => lost(operation.left.unwrap_or(0)),
                Err(error) if error.kind() == ErrorKind::Lost => lost(self.now()),
                Err(_) => Outcome::Lost,
            };
        } else {
            operation.outcome = if is_lost { lost(self.now()) } else { Outcome::Released };
        }
        operation.ended = Some(self.now());
        self.report(&operation);
    }

    fn failed(&self, mut operation: Operation, kind: ErrorKind) {
        operation.ended = Some(self.now());
        operation.outcome = match kind {
            ErrorKind::TimedOut => Outcome::TimedOut,
            ErrorKind::Limited => Outcome::Refused,
            ErrorKind::Conflict => Outcome::Conflict,
            ErrorKind::Misused => {
                self.problem(format!("misused: {operation:?}"));
                Outcome::Unknown
            }
            _ => Outcome::Unknown,
        };
        self.report(&operation);
    }

    /// Holds by name, which ends by its time or a release. Until then no other holder may get in. The time counts from
    /// before the request, on a clock that is at most a thousandth faster.
    async fn hold_by_name(&self, id: u64, step: &Step) {
        let Step::Named { name, expires, timeout, renews, release } = step else { return };
        let (hold, holder) = (self.locker().keyed_lock(name), format!("{}/{id}", self.number));
        let mut operation = self.begin(id, Kind::Lock, name, Call::Acquire);
        operation.timeout = Some(timeout * 1_000_000);
        self.report(&operation);
        let lasts = |asked: u64, expires: u64| Some(asked + expires * 999_000);
        match hold.clone().acquire(&holder, ms(*expires), ms(*timeout)).await {
            Ok(grant) => operation.fence = Some(grant.fence),
            Err(error) => return self.failed(operation, error.kind()),
        }
        (operation.entered, operation.outcome) = (Some(self.now()), Outcome::Granted);
        operation.seen = lasts(operation.asked, *expires).filter(|until| *until > self.now());
        self.report(&operation);
        for Renewal { after, expires, at } in renews {
            background::sleep(ms(*after)).await;
            let asked = self.now();
            match self.renew_at(*at, name, &holder, *expires).await {
                Some(Ok(true)) => operation.seen = operation.seen.max(lasts(asked, *expires)),
                Some(Ok(false)) if operation.seen.is_some_and(|until| self.now() < until) => {
                    self.problem(format!("renewed in vain before its end: {operation:?}"));
                }
                _ => {}
            }
            self.report(&operation);
        }
        if *release {
            operation.left = Some(self.now());
            operation.seen = operation.seen.map(|until| until.min(self.now()));
            self.report(&operation);
            let released = hold.release(&holder).await;
            operation.outcome = if released.is_ok() { Outcome::Released } else { Outcome::Lost };
            operation.ended = Some(self.now());
            self.report(&operation);
        }
    }

    /// Renews at another process, as a client does that has another server. Returns `None` without an answer.
    async fn renew_at(&self, at: Number, name: &str, holder: &str, expires: u64) -> Option<Result<bool>> {
        let place = self.places.get()?.get(at)?;
        let locker = place.locker.get()?.clone();
        let (answer, renewed) = oneshot::channel();
        let (name, holder) = (name.to_owned(), holder.to_owned());
        place.inhabitant.spawn(async move {
            // An error means that the caller does not wait any more.
            let _ = answer.send(locker.keyed_lock(&name).renew(&holder, ms(expires)).await);
        });
        match select(renewed, background::sleep(ms(20_000))).await {
            Either::Left((answer, _)) => answer.ok(),
            Either::Right(_) => None,
        }
    }

    fn problem(&self, text: String) {
        self.record.add(Line::Problem(Text { text }));
    }

    async fn pass(&self, id: u64, name: &str, tokens: u64, patience: Duration) {
        let (size, interval) = (LIMIT.0, ms(LIMIT.1));
        let nanos = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        let quota = Some(Limit::FixedWindow { size, interval: nanos });
        let mut operation = Operation { tokens, quota, ..self.begin(id, Kind::Limiter, name, Call::Admit) };
        operation.timeout = u64::try_from(patience.as_nanos()).ok();
        self.report(&operation);
        let limiter = self.locker().rate_limiter(name, Quota::fixed_window(size, interval));
        match limiter.tokens(tokens).timeout(patience).acquire().await {
            Ok(_) => {
                (operation.entered, operation.ended) = (Some(self.now()), Some(self.now()));
                operation.outcome = Outcome::Admitted;
                self.report(&operation);
            }
            Err(error) => self.failed(operation, error.kind()),
        }
    }
}
