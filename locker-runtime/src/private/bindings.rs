//! What packages for other languages and the command line call, beside the functions of the attributes. Not public
//! either.
//!
//! A binding has futures that outlive the borrow of a guard, callers that have something to let go of while they wait,
//! lockers that are opened at their first use, and processes that fork.

#[cfg(feature = "idempotent")]
use crate::handles::once::{MAX_SIZE, check_kept, kept_text};
#[cfg(feature = "idempotent")]
pub use crate::handles::{
    keyed::run::{Answered, KeyedRun, begin},
    lock::Done,
};
#[cfg(feature = "_control")]
use crate::testing::{Control, memory_with};
use crate::{
    builder::LockerBuilder,
    handles::{
        Election, LockRequest, Once, Origin, RateLimiter,
        lock_all::acquire_in_order,
        once::{Asked, Run},
    },
    lease::{Guard, Hold, release_all, worst},
    locker::Locker,
};
pub use crate::{
    handles::once::{Asks, Began, Ends, slots},
    stores::without_login,
};
use futures_util::{
    FutureExt,
    future::{BoxFuture, join_all},
};
#[cfg(feature = "idempotent")]
pub use locker_core::key::ArgumentsDigest;
use locker_core::{
    background,
    blocking::block_on_within,
    error::{Error, Result},
    key::{Function, FunctionDigest, Key, KeyBuilder, KeyFormat},
    primitives::{HoldKind, Value, rate_limiter::Quota},
    process::{OfProcess, PerProcess, Process},
};
pub use locker_core::{background::ended, blocking::Rest, primitives::record::Slots, ranges::parse_duration};
use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

/// Adds a parameter of redis to the URL of the builder, or of `LOCKER_URL`: for callers that have an option in its
/// place.
///
/// Opening fails with `Misused` if the URL has another value, or is of another store, which `allow_eviction` does not
/// change.
pub fn with_parameter(builder: LockerBuilder, name: &str, value: &str) -> LockerBuilder {
    builder.parameter(name, value)
}

/// Makes the request know the holds around it, which do not end before it does.
pub fn holding(request: LockRequest, around: &[Holding]) -> LockRequest {
    request.holding_all(around.iter().map(|holding| &holding.0))
}

/// A locker that each process opens at its first use.
#[derive(Debug)]
pub struct LazyLocker {
    builder: LockerBuilder,
    opened: PerProcess<Locker>,
}

impl LazyLocker {
    /// Checks the settings and the URL. Nothing is opened.
    ///
    /// # Errors
    /// `Misused` for what `LockerBuilder::build` would refuse without asking the store.
    pub fn new(builder: LockerBuilder) -> Result<Self> {
        builder.check_unopened()?;
        Ok(Self { builder, opened: PerProcess::new() })
    }

    /// Does what [`new`](Self::new) does, and opens it on a store of its own in memory, which a test controls. A forked
    /// child opens `builder`.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    #[cfg(feature = "_control")]
    pub fn controlled(builder: LockerBuilder) -> Result<(Self, Control)> {
        let (lazy, (locker, control)) = (Self::new(builder.clone())?, memory_with(builder)?);
        lazy.opened.cell().get_or_init(|| locker);
        Ok((lazy, control))
    }

    /// Returns the locker if this process has opened it.
    pub fn get(&self) -> Option<&Locker> {
        self.opened.cell().get()
    }

    /// Returns the locker of this process. The first caller opens it, and others wait for that. The store is not waited
    /// for: calls on the locker report its errors.
    ///
    /// # Errors
    /// Those of `LockerBuilder::build`. The next caller tries again.
    pub fn open(&self) -> Result<&Locker> {
        self.opened.cell().get_or_try_init(|| self.builder.clone().lazy().build_blocking())
    }
}

/// A call of this process. A forked child neither polls nor drops its copy, and gets `Misused` instead.
pub struct ProcessCall<T>(OfProcess<BoxFuture<'static, Result<T>>>);

impl<T> ProcessCall<T> {
    /// Wraps a call.
    pub fn new(call: impl Future<Output = Result<T>> + Send + 'static) -> Self {
        Self(OfProcess::new(Box::pin(call)))
    }
}

impl<T> Future for ProcessCall<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let made = || Error::made_before_a_fork("this call was made", "make it again in the child");
        Pin::new(&mut self.0).poll(context).map(|output| output.unwrap_or_else(|| Err(made())))
    }
}

impl<T> fmt::Debug for ProcessCall<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessCall").finish_non_exhaustive()
    }
}

/// The process that has made a value.
#[derive(Clone, Copy, Debug)]
pub struct OwnerProcess(&'static Process);

impl OwnerProcess {
    /// Returns the calling process.
    #[must_use]
    pub fn this() -> Self {
        Self(Process::this())
    }

    /// Whether it is the calling process, and not one that it was forked from.
    #[must_use]
    pub fn is_this(self) -> bool {
        self.0.is_this()
    }
}

/// A static of which each process has its own, which the first use makes.
#[derive(Debug)]
pub struct ProcessLocal<T>(PerProcess<T>);

impl<T: Default> ProcessLocal<T> {
    /// Creates a static that is empty in each process.
    #[must_use]
    pub const fn new() -> Self {
        Self(PerProcess::new())
    }

    /// Returns the value of the calling process.
    pub fn get(&self) -> &T {
        self.0.cell().get_or_init(T::default)
    }
}

impl<T: Default> Default for ProcessLocal<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Runs `future` to completion and blocks the calling thread. Unless it is ready at its first poll, `around` runs the
/// [`Rest`] of it.
pub fn block_on<F: Future>(future: F, around: impl FnOnce(Rest<'_, F>) -> F::Output) -> F::Output {
    block_on_within(future, around)
}

/// Waits for `time`, under any executor.
pub fn sleep(time: Duration) -> impl Future<Output = ()> + Send + Unpin {
    background::sleep(time)
}

/// Returns the digest of a function that operators read with its path, file and line.
#[must_use]
pub fn described(path: &str, file: &str, line: u32) -> FunctionDigest {
    FunctionDigest::described(&[path], file, line)
}

/// Returns the digest in hexadecimal digits.
#[must_use]
pub fn digest(function: &FunctionDigest) -> &str {
    function.as_str()
}

/// Returns the builder of the key of `part` (`:lock|`, `:semaphore|`, `:rate|` or `:once|`) of a function; the
/// arguments follow.
#[must_use]
pub fn key_of<'a>(
    prefix: &'a str,
    format: KeyFormat,
    function: &'a FunctionDigest,
    part: &'static str,
) -> KeyBuilder<'a> {
    KeyBuilder::new(prefix, format, function, part)
}

/// Returns the key of the primitive `name`.
#[must_use]
pub fn named(prefix: &str, kind: &str, name: &str) -> Key {
    Key::named(prefix, kind, name)
}

/// Makes sure that the store knows the name of a function that uses it.
pub fn describe(locker: &Locker, function: &FunctionDigest) {
    locker.describe(function);
}

/// Returns the request for a hold at `key`, for a call of `function`.
pub fn request(
    locker: &Locker,
    kind: HoldKind,
    key: Key,
    function: Option<&'static Function>,
) -> LockRequest {
    let request = locker.request(kind, key);
    match function {
        Some(function) => request.origin(Origin::Function(function)),
        None => request,
    }
}

/// Returns the rate limiter at `key`, for calls of `function`.
#[must_use]
pub fn limiter(locker: &Locker, key: Key, quota: Quota, function: Option<&'static str>) -> RateLimiter {
    let limiter = locker.limiter(key, quota);
    match function {
        Some(path) => limiter.function(path),
        None => limiter,
    }
}

/// Refuses a request whose settings no call accepts. It asks no store.
///
/// # Errors
/// `Misused`, naming the setting.
pub fn check_request(request: &LockRequest) -> Result<()> {
    request.check()
}

/// Refuses a limit that no call accepts.
///
/// # Errors
/// `Misused`, naming the setting.
pub fn check_quota(quota: &Quota) -> Result<()> {
    quota.check(1)
}

/// Waits until a candidate is elected. The caller ends what it does with the term, once that is lost, and asks again.
///
/// # Errors
/// Those of `Election::run`, without those of the body.
pub fn term(election: &Election) -> impl Future<Output = Result<Guard>> + Send + '_ {
    election.term()
}

/// Returns the request of a candidate, which may give up.
pub fn candidate(election: &Election) -> LockRequest {
    election.request()
}

/// Makes errors of a candidate name no place of the program.
pub fn without_place(election: Election) -> Election {
    election.origin(Origin::Elsewhere)
}

/// Makes errors of a candidate name this function.
pub fn candidate_of(election: Election, function: &'static Function) -> Election {
    election.origin(Origin::Function(function))
}

/// Makes a candidate know the holds around it, which do not end before it does.
pub fn candidate_holding(election: Election, around: &[Holding]) -> Election {
    election.holding_all(around.iter().map(|holding| &holding.0))
}

/// Refuses a candidate with settings that no call accepts, or that would wait for a hold around it. It asks no store.
///
/// # Errors
/// `Misused`, naming the setting, or as for a call inside of an attribute's function.
pub fn check_candidate(election: &Election) -> Result<()> {
    election.check()
}

/// Returns the record at `key`, for a call of `function`.
pub fn record(locker: &Locker, key: Key, function: Option<&'static Function>) -> Once {
    let record = locker.record(key);
    match function {
        Some(function) => record.origin(Origin::Function(function)),
        None => record,
    }
}

/// Returns what a call asks of a record. Refuses settings that no call accepts, and one that would wait for a hold
/// around it, without asking a store.
///
/// # Errors
/// `Misused`, naming the setting, or as for a call inside of an attribute's function.
pub fn asked(call: impl Asks, around: &[Holding]) -> Result<Asked> {
    call.asked()?.with(|request| {
        request.check()?;
        check_around(&request, around)?;
        Ok(holding(request, around))
    })
}

/// Begins a run, and returns its guard, and how it ends, which [`finish`] and `finish_with` take; or returns the
/// success of another run. To end the run without success, release the guard.
///
/// # Errors
/// Those of `OncePer::run` and `OnceKeep::run`, without those of the body and of reading a result.
pub async fn begin_run(asked: Asked) -> Result<Began<(Guard, Ends)>> {
    Ok(asked.enter().await?.map(Run::into_parts))
}

/// Ends a run with success. It begins to at once, also if what is returned is dropped.
///
/// # Errors
/// `Lost` if the run was over before; `Unavailable` if the store has not answered for as long as `Guard::release`
/// waits. It is asked on in the background. `Misused` in a forked child.
pub fn finish(guard: Guard, ends: Ends) -> impl Future<Output = Result<()>> + Send {
    guard.finish(Value::default(), ends.keep)
}

/// Does what [`finish`] does, and keeps this JSON text of the result, unless it is too long. `None`: it has none.
///
/// # Errors
/// As [`finish`].
#[cfg(feature = "idempotent")]
pub fn finish_with(
    guard: Guard,
    ends: Ends,
    text: Option<&[u8]>,
) -> impl Future<Output = Result<()>> + Send + use<> {
    guard.finish(kept_text(text, ends.at_most), ends.keep)
}

/// Refuses settings of a result that no call accepts. `None` is the default.
///
/// # Errors
/// `Misused`, naming the setting.
#[cfg(feature = "idempotent")]
pub fn check_keep(keep: Duration, max_size: Option<usize>, refuses_after_crash: bool) -> Result<()> {
    check_kept(keep, max_size.unwrap_or(MAX_SIZE), refuses_after_crash)
}

/// Returns the JSON text of the result of another run.
///
/// # Errors
/// `Conflict` if it was not kept.
#[cfg(feature = "idempotent")]
pub fn result_text(done: &Done) -> Result<&[u8]> {
    done.text()
}

/// Returns the error of a caller that cannot read the text of the result.
#[cfg(feature = "idempotent")]
#[must_use]
pub fn unread(done: &Done) -> Error {
    done.unread()
}

/// Acquires all in the order of their keys, within the timeout of one, or none.
///
/// # Errors
/// Those of `LockAllRequest::acquire`.
pub async fn acquire_all(mut requests: Vec<LockRequest>) -> Result<Vec<Guard>> {
    requests.sort_by(|one, other| one.key().as_str().cmp(other.key().as_str()));
    requests.dedup_by(|one, other| one.key() == other.key());
    acquire_in_order(requests).await
}

/// Refuses a request that would wait for one of the holds around it.
///
/// # Errors
/// `Misused`, as for a call inside of an attribute's function.
pub fn check_around(request: &LockRequest, around: &[Holding]) -> Result<()> {
    request.check_around(around.iter().map(|holding| &*holding.0))
}

/// A hold without the duty to release it: it is not renewed any longer once its guard has ended.
#[derive(Clone, Debug)]
pub struct Holding(Arc<Hold>);

impl Holding {
    /// Returns the hold of a guard.
    #[must_use]
    pub fn of(guard: &Guard) -> Self {
        Self(guard.hold())
    }

    /// Returns the key, with its prefix.
    #[must_use]
    pub fn key(&self) -> &str {
        self.0.key.as_str()
    }

    /// Returns the fence.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.0.fence()
    }

    /// Returns the id of the hold, 32 hexadecimal digits.
    #[must_use]
    pub fn id(&self) -> String {
        self.0.id().to_string()
    }

    /// Does what `Guard::remaining` does, as long as its guard lives.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Does what `Guard::lost` does.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + 'static {
        let hold = Arc::clone(&self.0);
        async move { hold.lost().await }
    }

    /// Returns the error of a hold that is lost.
    #[must_use]
    pub fn loss_error(&self) -> Error {
        self.0.loss_error()
    }
}

/// Releases all guards at the same time, the last one first, with the bound that applies to the end of a function.
///
/// # Errors
/// The first `Lost`, or else the first error. All are released.
pub fn release_bounded(guards: Vec<Guard>) -> impl Future<Output = Result<()>> + Send + 'static {
    release_all(guards.into_iter())
}

/// Releases all guards at the same time.
///
/// # Errors
/// The first `Lost`, or else the first error. All are released.
pub fn release(guards: Vec<Guard>) -> impl Future<Output = Result<()>> + Send + 'static {
    join_all(guards.into_iter().map(Guard::release)).map(worst)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::private::Function;
    use locker_core::{blocking::block_on as block, error::ErrorKind};
    use std::{sync::mpsc, thread, time::Duration};

    static WITHDRAW: Function = Function::named("bank.withdraw", "bank.rs", 7);

    fn lock(locker: &Locker, name: &str) -> LockRequest {
        request(locker, HoldKind::Lock, named(locker.prefix(), "lock", name), Some(&WITHDRAW))
    }

    #[test]
    fn wrong_settings_are_refused_before_anything_is_opened() {
        for builder in [
            Locker::builder().url("nope://h"),
            Locker::builder().url("memory://h"),
            Locker::builder().lease(Duration::ZERO),
            Locker::builder().url("memory://").note("a\nb"),
            #[cfg(feature = "redis")]
            Locker::builder().url("redis://h:port"),
            #[cfg(feature = "redis")]
            Locker::builder().url("redis://h").prefix("{a}"),
            #[cfg(feature = "redis")]
            with_parameter(Locker::builder().url("redis://h?strict=60s"), "allow_eviction", "yes"),
            #[cfg(feature = "redis")]
            with_parameter(Locker::builder().url("redis://h?strict=60s"), "strict", "61s"),
            #[cfg(feature = "redis")]
            with_parameter(Locker::builder(), "wait_replicas", "0"),
            with_parameter(Locker::builder().url("memory://"), "strict", "60s"),
            #[cfg(feature = "postgres")]
            Locker::builder().url("postgres://"),
            #[cfg(feature = "etcd")]
            Locker::builder().url("etcd://h:port"),
            #[cfg(feature = "files")]
            Locker::builder().url("file://h"),
        ] {
            let shown = format!("{builder:?}");
            let error = LazyLocker::new(builder).expect_err(&shown);
            assert_eq!(error.kind(), ErrorKind::Misused, "{shown}");
        }
    }

    /// `LOCKER_URL` may name the replicas.
    #[test]
    fn option_may_need_another_one_of_a_url_that_is_not_known_yet() {
        for (name, value) in [("wait_timeout", "200ms"), ("wait_replicas", "2"), ("allow_eviction", "no")] {
            LazyLocker::new(with_parameter(Locker::builder(), name, value)).expect(name);
        }
    }

    /// Two stores would not notice that a call inside a body waits for that body.
    #[cfg(feature = "redis")]
    #[test]
    fn options_in_any_order_open_one_store() {
        let url = "redis://127.0.0.1:1?strict=1m";
        let open = |options: &[(&str, &str)]| {
            let builder = Locker::builder().url(url).lazy();
            let with = |builder, option: &(&str, &str)| with_parameter(builder, option.0, option.1);
            block(options.iter().fold(builder, with).build()).unwrap()
        };
        let one = open(&[("wait_replicas", "1"), ("wait_timeout", "200ms")]);
        let two = open(&[("wait_timeout", "200ms"), ("allow_eviction", "no"), ("wait_replicas", "1")]);
        let other = open(&[("wait_replicas", "2")]);
        let is_one_store = |other: &Locker| std::ptr::addr_eq(one.store(), other.store());
        assert!(is_one_store(&two) && !is_one_store(&other));
    }

    #[test]
    fn many_threads_open_one_locker() {
        let lazy = LazyLocker::new(Locker::builder().url("memory://").prefix("lazy/")).unwrap();
        assert!(lazy.get().is_none());
        let place = |locker: &Locker| std::ptr::from_ref(locker).addr();
        let opened: Vec<_> = thread::scope(|scope| {
            let open = || lazy.open().map(place).unwrap();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(opened.iter().all(|one| *one == opened[0]), "{opened:?}");
        assert_eq!(lazy.get().map(place), Some(opened[0]));
    }

    #[test]
    fn only_a_wait_is_run_around() {
        let locker = Locker::memory();
        let guard = block_on(lock(&locker, "a").acquire(), |_| unreachable!("the lock is free")).unwrap();
        let (waits, waiting) = mpsc::channel();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                block_on(lock(&locker, "a").acquire(), |rest| {
                    waits.send(()).unwrap();
                    rest.run()
                })
            });
            waiting.recv().unwrap();
            drop(guard);
            waiter.join().unwrap().unwrap().release_blocking().unwrap();
        });
    }

    #[test]
    fn keys_are_those_of_attributes() {
        let (locker, function) = (Locker::memory(), described("bank.withdraw", "bank.py", 7));
        assert_eq!(digest(&function), digest(WITHDRAW.digest()));
        let mut ours = key_of("", KeyFormat::Escaped, &function, ":rate|");
        let mut theirs = crate::private::rate_key(&locker, WITHDRAW.digest());
        for part in ["a:b", "1"] {
            ours.part(part);
            theirs.part(part);
        }
        assert_eq!(ours.finish(), theirs.finish());
    }

    #[test]
    fn functions_are_named_to_operators() {
        let locker = Locker::memory();
        let function = described("bank.withdraw", "bank.py", 7);
        describe(&locker, &function);
        let key = key_of("", KeyFormat::Escaped, &function, ":lock|").finish();
        let guard = request(&locker, HoldKind::Lock, key, None).acquire_blocking().unwrap();
        let listed = locker_harness::eventually("the description", || {
            let page = block(locker.admin().page(&crate::Filter::default(), None, 10)).unwrap();
            let [listed] = &page.keys[..] else { return None };
            listed.function.as_ref().map(|source| (source.name.clone(), source.file.clone(), source.line))
        });
        assert_eq!(listed, ("bank.withdraw".to_owned(), "bank.py".to_owned(), 7));
        guard.release_blocking().unwrap();
    }

    #[test]
    fn errors_name_the_function() {
        let locker = Locker::memory();
        let _held = lock(&locker, "a").acquire_blocking().unwrap();
        let error = lock(&locker, "a").timeout(Duration::ZERO).acquire_blocking().unwrap_err();
        assert_eq!(error.function(), Some("bank.withdraw"));
        let none = limiter(&locker, Key::new("b"), Quota::fixed_window(0, Duration::from_secs(1)), Some("f"));
        assert_eq!(none.timeout(Duration::ZERO).acquire_blocking().unwrap_err().function(), Some("f"));
    }

    #[test]
    fn all_are_acquired_once_and_in_order() {
        let locker = Locker::memory();
        let requests = ["b", "a", "b"].map(|name| lock(&locker, name)).to_vec();
        let guards = block(acquire_all(requests)).unwrap();
        assert_eq!(guards.iter().map(Guard::key).collect::<Vec<_>>(), ["lock:a", "lock:b"]);
        block(release_bounded(guards)).unwrap();
        assert!(lock(&locker, "a").try_acquire_blocking().unwrap().is_some());
    }

    #[test]
    fn a_request_inside_of_its_own_hold_is_refused() {
        let (locker, other) = (Locker::memory(), Locker::memory());
        let guard = lock(&locker, "a").acquire_blocking().unwrap();
        let around = [Holding::of(&guard)];
        let error = check_around(&lock(&locker, "a"), &around).unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::Misused, Some("lock:a")));
        check_around(&lock(&locker, "b"), &around).unwrap();
        check_around(&lock(&other, "a"), &around).unwrap();
        check_around(&lock(&locker, "a").timeout(Duration::ZERO), &around).unwrap();
        guard.release_blocking().unwrap();
        check_around(&lock(&locker, "a"), &around).unwrap();
    }

    #[test]
    fn candidate_inside_of_its_own_term_is_refused() {
        let locker = Locker::memory();
        let election = candidate_of(locker.elect("a"), &WITHDRAW);
        let leading = block(term(&election)).unwrap();
        let around = [Holding::of(&leading)];
        let inside = candidate_holding(election, &around);
        let error = check_candidate(&inside).unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::Misused, Some("leader:a")));
        let error = block(term(&inside)).unwrap_err();
        assert_eq!((error.kind(), error.function()), (ErrorKind::Misused, Some("bank.withdraw")));
        check_candidate(&candidate_holding(locker.elect("b"), &around)).unwrap();
        leading.release_blocking().unwrap();
        block(term(&inside)).unwrap().release_blocking().unwrap();
    }

    #[test]
    fn candidate_with_wrong_settings_is_refused() {
        let locker = Locker::memory();
        let elect = || locker.elect("a");
        for wrong in [
            elect().lease(Duration::ZERO),
            elect().stop_before(Duration::from_secs(6)),
            elect().max_hold(Duration::from_secs(1)),
            elect().note("a\nb"),
        ] {
            assert_eq!(check_candidate(&wrong).unwrap_err().kind(), ErrorKind::Misused, "{wrong:?}");
        }
        check_candidate(&elect()).unwrap();
    }

    #[test]
    fn a_holding_reports_the_loss_and_keeps_nothing_held() {
        let locker = Locker::memory();
        let request = lock(&locker, "a").lease(Duration::from_millis(20)).renew(false);
        let guard = request.acquire_blocking().unwrap();
        let holding = Holding::of(&guard);
        assert_eq!(
            (holding.key(), holding.fence(), &*holding.id()),
            (guard.key(), guard.fence(), guard.id())
        );
        block(holding.lost());
        assert_eq!(holding.loss_error().kind(), ErrorKind::Lost);
        assert!(holding.remaining().is_zero());
        let (held, name) = (lock(&locker, "b").acquire_blocking().unwrap(), "b");
        let holding = Holding::of(&held);
        drop(held);
        assert!(lock(&locker, name).try_acquire_blocking().unwrap().is_some(), "{holding:?}");
    }
}
