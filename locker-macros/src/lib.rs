//! The attributes of `locker`: [`macro@lock_on_argument`], [`macro@rate_limit`] and [`macro@limit_concurrency`].
//!
//! Applications depend on the package `locker-rs` (library name `locker`), which re-exports them.

// The floors, from the top: a module imports only those of paragraphs below its own (tests/floors.rs).
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod refusals;

mod expand;

mod validate;

mod parse;

mod attribute;
mod hygiene;
mod ranges;
mod runtime_path;

use attribute::Attribute;
use proc_macro::TokenStream;

/// Runs the function only while it holds the lock on its arguments.
///
/// Calls with the same key run one after the other, calls with different keys run concurrently. The key is made of the
/// function and the arguments that `args` names. The lock is in the store of `locker::global()`: the one that
/// `LOCKER_URL` names, such as `redis://` or `postgres://` for all hosts, else the memory of this process.
///
/// The lease is renewed while the function runs, and the lock is released when the function ends with a value, an error
/// or a panic.
///
/// ```
/// use locker::lock_on_argument;
///
/// #[lock_on_argument(name = "bank.withdraw", expr = 10, args(card))]
/// fn withdraw(card: u64, amount: u64) -> locker::Result<u64> {
///     // No other withdrawal from this card runs now.
///     Ok(amount)
/// }
///
/// assert_eq!(withdraw(6222, 30)?, 30);
/// # Ok::<(), locker::Error>(())
/// ```
///
/// Async functions and methods are locked in the same way. They run on any executor:
///
/// ```
/// use locker::lock_on_argument;
///
/// struct Order {
///     id: u64,
/// }
///
/// #[lock_on_argument(args(order.id), timeout = "5s", guard = lease)]
/// async fn ship(order: &Order) -> locker::Result<u64> {
///     // Ends the function if the lease is no longer known to be valid.
///     lease.check()?;
///     Ok(lease.fence())
/// }
/// # let _ = ship(&Order { id: 1 });
/// ```
///
/// # Options
///
/// - `expr = 10`, `lease = "10s"` or `expire = ..`: the lease, which is how long other calls wait if the holder dies.
///   Default: the locker's, 10 s.
/// - `args(0, card, order.id)`: the parts of the key, each a position (from 0, `self` not counted), a name, or an
///   expression over the parameters. Each part implements `Display`. Default: none, one lock for the function.
/// - `each(from, to)`: one lock per part instead of `args`. The call gets all of them or none, always in the same
///   order.
/// - `mode = "read"` or `"write"`: shares the lock with other readers, or holds it alone. Default: a plain lock, which
///   readers cannot share.
/// - `name = "bank.withdraw"`: replaces the module path and name of the function in the key. Recommended, because the
///   lock then survives renaming and rolling deploys.
/// - `timeout = "10s"`: how long to wait. `0` tries once, and neither `max_retry` nor `retry_delay` may stand beside
///   it; `Duration::MAX` waits indefinitely. Default: the locker's, 10 s.
/// - `max_retry = 3`: the number of attempts, at least 1. Default: the locker's, unlimited.
/// - `retry_delay = "2s"`: the time between two attempts with `max_retry`; otherwise the longest pause after an error.
///   Default: the locker's, 2 s.
/// - `renew = false`: lets the lease run out although the function still runs, which is a loss. Default: `true`.
/// - `max_hold = "1m"`: the longest time to hold the lock, renewals included; at least the lease. Then the lease is
///   lost. Default: none, the lease is renewed while the function runs, with a `tracing` warning every 10 leases.
/// - `stop_before = "3s"`: how long before the end of the lease, and of `max_hold`, the hold counts as lost. It is not
///   released then, so that what is on its way arrives before the next caller is granted the lock. At most half of the
///   lease. Default: the locker's, 0.
/// - `min_hold = "30s"`: how long the lock is held at least, although the function returns, with a result or an error,
///   at once; at most `max_hold`. Refused beside `on_expiry`. Default: the locker's, 0.
/// - `release = "on_expiry"`: keeps the lock until the lease runs out, however the function ends, and makes 0 the
///   default `timeout`. Default: `"on_return"`.
/// - `fair = false`: lets newcomers overtake waiters that have `fair = false`, too. Default: `true`.
/// - `on_error = path`: a function `fn(locker::Error) -> ReturnType`, which makes the value to return if the lock is
///   not acquired or is lost. Default: the error is returned.
/// - `on_lost`: what happens if the lease is lost while the body runs. `"cancel"` drops the body at its next await
///   point and returns the error, `"continue"` runs it to its end, returns its result and logs a warning, `"error"`
///   runs it to its end and returns the error. Default: `"cancel"` in async functions, `"error"` in plain ones, which
///   cannot be cancelled.
/// - `guard = lease`: binds a `&Guard` under this name in the body, except beside `each`. Default: not bound.
/// - `locker = expr`: the locker to use, a `Locker` or an expression that dereferences to one. Default:
///   `locker::global()`.
/// - `crate = path`: the path of the library, for macros that write the attribute in other crates. Default: found in
///   the manifest.
///
/// A duration is a number of seconds (`10`, `0.5`), a text (`"800ms"`, `"1m 30s"`), or a constant of type `Duration`:
/// 1 ms to 10 years. Unknown options, most contradictions and values out of range are compile errors.
/// [Attributes](https://github.com/locker-rs/locker/blob/main/docs/reference/attributes.md) has all rules.
///
/// # Functions
///
/// The attribute applies to functions and methods with a body. The return type is `Result<_, E>` with `E:
/// From<locker::Error>`, or any type with `on_error`. `const fn` is refused, and so are plain functions that return a
/// future, stream or iterator, because their work would start after the release.
///
/// # Errors
///
/// If the lock is not acquired, the body does not run and the function returns the error:
///
/// - `TimedOut`: the lock was not acquired within `timeout`;
/// - `RetriesExhausted`: nor within `max_retry` attempts;
/// - `Deadlock`: the caller holds what others wait for, which the lock waits for;
/// - `Unavailable`: the store cannot be reached;
/// - `Misused`: a setting is invalid, such as a `max_hold` below the locker's lease, or the call is inside of a body
///   that holds this lock, and would wait for itself;
/// - `Conflict`: another kind of primitive uses the key, or the key was deleted during the wait;
/// - `Lost`: the lease was lost while the body ran, unless `on_lost` is `"continue"`; with `each` also if one
///   lock was lost during the wait for another.
///
/// A release that fails never hides the value, error or panic of the body. If it finds that the hold was gone, and
/// `on_lost` is `"error"`, the function returns `Lost` in place of a value or error.
///
/// # Cancel safety
///
/// A future that is dropped while it waits leaves the queue. A future that is dropped while the body runs drops the
/// body and releases the lock in the background.
///
/// # Several attributes
///
/// Attributes of this crate act in the order written, the uppermost one outermost. Attributes of other crates
/// below the uppermost one end up outside of all of them.
#[proc_macro_attribute]
pub fn lock_on_argument(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::attribute(Attribute::Lock, args.into(), item.into()).into()
}

/// Limits how often the function runs per interval and key.
///
/// A call that exceeds the limit reserves the next free time and waits for it if it is due within `timeout`. Otherwise
/// the call fails at once, and its error says when to try again.
///
/// ```
/// use locker::{ErrorKind, rate_limit};
///
/// #[rate_limit(name = "users.send_code", size = 2, interval = "1m", args(user), timeout = 0)]
/// fn send_code(user: u64) -> locker::Result<u64> {
///     Ok(user)
/// }
///
/// send_code(1)?;
/// send_code(1)?;
/// let refused = send_code(1).unwrap_err();
/// assert_eq!(refused.kind(), ErrorKind::Limited);
/// assert!(refused.retry_after().is_some());
/// # Ok::<(), locker::Error>(())
/// ```
///
/// # Options
///
/// - `size = 5`: how many calls per interval, 1 to 2^53 - 1: a number or a constant of type `u64`. Required.
/// - `interval = "800ms"`: the interval, 1 µs to 10 years. Required.
/// - `algorithm = "token_bucket"`, `"fixed_window"` or `"gcra"`: how calls are counted, see `Quota`. Default:
///   `"token_bucket"`.
/// - `burst = 10`: how many calls may come at once, 1 to 2^53 - 1, with `"gcra"` only. Default: the size.
/// - `timeout = "10s"`: the longest wait for a reservation. `0` never waits; `Duration::MAX` waits indefinitely.
///   Default: the locker's, 10 s.
/// - `args`, `name`, `on_error`, `locker`, `crate`: as in [`macro@lock_on_argument`].
///
/// # Errors
///
/// If the call is not admitted, the body does not run and the function returns the error:
///
/// - `Limited`: the reservation is not due within `timeout`; `retry_after` says when to try again;
/// - `Unavailable`: the store cannot be reached;
/// - `Misused`: a setting is invalid;
/// - `Conflict`: another kind of primitive uses the key, or the key was deleted during the wait.
///
/// # Cancel safety
///
/// A future that is dropped while it waits returns its reservation. An admitted call counts even if its body is
/// dropped.
#[proc_macro_attribute]
pub fn rate_limit(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::attribute(Attribute::Rate, args.into(), item.into()).into()
}

/// Limits how many calls of the function run at once per key: a semaphore.
///
/// ```
/// use locker::limit_concurrency;
///
/// #[limit_concurrency(name = "pages.render", size = 10, expr = 60, args(tenant))]
/// fn render(tenant: &str, page: u32) -> locker::Result<u32> {
///     // At most ten pages of this tenant are rendered at once.
///     Ok(page)
/// }
///
/// assert_eq!(render("shop", 1)?, 1);
/// # Ok::<(), locker::Error>(())
/// ```
///
/// # Options
///
/// - `size = 10`: how many calls at once, 1 to 2^53 - 1: a number or a constant of type `u64`. Required.
/// - All options of [`macro@lock_on_argument`] except `each` and `mode`.
///
/// # Errors
///
/// As for [`macro@lock_on_argument`], about the permit instead of the lock.
///
/// # Cancel safety
///
/// As for [`macro@lock_on_argument`].
#[proc_macro_attribute]
pub fn limit_concurrency(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::attribute(Attribute::Semaphore, args.into(), item.into()).into()
}

/// Runs an async function on one of its callers at a time: the leader.
///
/// ```
/// use locker::leader;
///
/// #[leader(name = "reaper", lease = "15s", guard = term)]
/// async fn reap(batches: u32) -> locker::Result<u64> {
///     for _ in 0..batches {
///         // Only one process is here at a time. A resource rejects lower fences than the highest it has seen.
///         let _ = term.fence();
///     }
///     Ok(term.fence())
/// }
///
/// # async fn example() -> locker::Result<()> {
/// assert!(reap(3).await? > 0);
/// # Ok(()) }
/// ```
///
/// A call waits until it is elected, runs the body, and ends the term with it. If the term is lost, the body is
/// dropped, and the call waits to be elected again, behind the other candidates. Each term gets clones of the
/// parameters. To step down, return.
///
/// The leader holds the lock with the key `leader:NAME`, as `Locker::elect` does: candidates by hand, by `locker lead`
/// and from Python take part in one election, and `Locker::elect(NAME).observe()` shows the leader.
///
/// # Options
///
/// - `name = ".."`: the name of the election. Required.
/// - `stop_before = "3s"`: how long before the end of its lease a leader stops that cannot renew it; at most half of
///   the lease. Default: the locker's, or a fifth of the lease.
/// - `lease`, `renew`, `max_hold`, `min_hold`, `fair`, `guard`, `on_error`, `locker`, `crate`: as in
///   [`macro@lock_on_argument`]. With `max_hold` a term ends after that time less
///   `stop_before`, and the next candidate leads.
///
/// # Functions
///
/// Async functions and methods that take `&self`. The parameters are `Clone`. The return type is as in
/// [`macro@lock_on_argument`].
///
/// # Errors
///
/// Those of the body, and the following, if the call is not elected. While the store cannot be reached, it is asked
/// again after 0.1 to 10 s.
///
/// - `Misused`: a setting is invalid, or the call is inside of a body that leads, and would wait for itself;
/// - `Conflict`: another kind of primitive uses the key, or the name was deleted during the wait;
/// - `Deadlock`: the caller holds what others wait for, which the leader waits for.
///
/// # Cancel safety
///
/// A future that is dropped while it waits leaves the queue. A future that is dropped while the body runs drops the
/// body first, and then ends the term in the background.
#[proc_macro_attribute]
pub fn leader(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::attribute(Attribute::Leader, args.into(), item.into()).into()
}

/// Runs the function once in each slot of time: of all calls in a slot, on all hosts, one runs, and its success counts
/// for all.
///
/// ```
/// use locker::once_per;
///
/// #[once_per("1d", from = "3h", name = "report.nightly", args(tenant))]
/// fn report(tenant: u64) -> locker::Result<Option<u64>> {
///     // Once a day and tenant, in slots from 03:00 UTC.
///     Ok(Some(tenant))
/// }
///
/// assert_eq!(report(7)?, Some(7));
/// assert_eq!(report(7)?, None, "skipped");
/// # Ok::<(), locker::Error>(())
/// ```
///
/// The first call of a slot runs. Others wait for it up to `timeout`, and are skipped once it has succeeded. If it
/// returns an error, panics, is dropped or dies, the next call runs. Slots in which nobody called are not made up.
///
/// # Options
///
/// - `"1d"` or `every = "1d"`: the length of a slot, 1 s to 366 d. Required.
/// - `from = "3h"`: when slots begin, after midnight UTC. Default: 0.
/// - `early`: how much earlier than its slot a call counts for it, at most half of a slot: hosts are early and late.
///   Default: 30 s, or a tenth of the slot if that is less.
/// - `timeout`: how long a call waits for another run. Default: half of a slot. `0` never waits.
/// - `after_crash = "refuse"`: calls get `Lost` in a slot in which a run has ended in another way than by its result,
///   because its process died, its lease was lost, it panicked, or its future was dropped; the next slot runs. Default:
///   `"repeat"`, the next call runs.
/// - `on_skip = path`: a function without arguments, which gives the value in `Ok` of a skipped call. Default: `()`, or
///   `None` of an `Option`.
/// - `args`, `name`, `lease`, `renew`, `max_hold`, `stop_before`, `min_hold`, `fair`, `guard`, `on_error`, `locker`,
///   `crate`: as in [`macro@lock_on_argument`].
///
/// # Errors
///
/// Those of the body, and those of [`macro@lock_on_argument`] if the call cannot run; `Lost` also as `after_crash`
/// says.
///
/// # Cancel safety
///
/// A future that is dropped while it waits leaves the queue. A future that is dropped while the body runs drops the
/// body, and the next call runs, unless crashes are refused.
#[proc_macro_attribute]
pub fn once_per(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::attribute(Attribute::Once, args.into(), item.into()).into()
}

/// Runs the function once for its key, and gives its result to the calls that repeat it.
///
/// ```
/// use locker::idempotent;
///
/// #[idempotent(name = "shop.pay", args(request), same(amount), keep = "24h", after_crash = "refuse")]
/// fn pay(request: &str, amount: u64) -> locker::Result<String> {
///     Ok(format!("paid {amount}"))
/// }
///
/// assert_eq!(pay("9f3c", 100)?, "paid 100");
/// assert_eq!(pay("9f3c", 100)?, "paid 100", "the first one has paid");
/// assert_eq!(pay("9f3c", 200).unwrap_err().kind(), locker::ErrorKind::Conflict);
/// # Ok::<(), locker::Error>(())
/// ```
///
/// The first call with a key runs. Others wait for it up to `timeout`, and return its result, as do all later calls
/// while the result is kept. If it returns an error, panics, is dropped or dies, the next call runs: errors are not
/// kept. The function returns `Result<T, E>`, where `T` is `serde::Serialize` and `serde::de::DeserializeOwned`;
/// results are kept as JSON text. One that was too large to be kept, or is no `T`, is a `Conflict` for the others, and
/// never a second run.
///
/// # Options
///
/// - `keep = "24h"`: how long a result is kept, up to 10 years. Required. With `0` only calls get it that waited while
///   it was made.
/// - `same(..)`: parameters and expressions, as in `args`, that all calls with a key must have in common: a call with
///   others gets `Conflict`. Default: nothing.
/// - `args(..)`: what tells requests apart, as in [`macro@lock_on_argument`]. Required if there are parameters;
///   `args()` is one result for all calls.
/// - `after_crash = "refuse"`: calls get `Lost` after a run that has ended in another way than by its result, because
///   its process died, its lease was lost, it panicked, or its future was dropped, for as long as a result would have
///   been kept. Default: `"repeat"`, the next call runs.
/// - `max_size = 65536`: how many bytes of JSON text a result may have, up to 524288.
/// - `name`, `lease`, `timeout`, `renew`, `max_hold`, `stop_before`, `min_hold`, `fair`, `guard`, `on_error`, `locker`,
///   `crate`: as in [`macro@lock_on_argument`].
///
/// # Errors
///
/// Those of the body; `Conflict` as above; `Lost` as `after_crash` says; and those of [`macro@lock_on_argument`] if the
/// call cannot run.
///
/// # Cancel safety
///
/// A future that is dropped while it waits leaves the queue. A future that is dropped while the body runs drops the
/// body, and the next call runs, unless crashes are refused.
#[proc_macro_attribute]
pub fn idempotent(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::attribute(Attribute::Idempotent, args.into(), item.into()).into()
}
