//! The attributes of locker.
//!
//! Applications use the crate `locker-rs` (library name `locker`), which re-exports them.

mod attribute;
mod expand;
#[cfg(test)]
mod fuzz;
mod hygiene;
mod parse;
mod ranges;
mod runtime_path;
mod validate;

use attribute::Attribute;
use proc_macro::TokenStream;

/// Runs the function only while it holds the lock on its arguments.
///
/// Calls with the same arguments never overlap, calls with different arguments do not wait for each other. The lock
/// is free when the function has returned, however it ended. Works on sync and async functions and methods, with and
/// without a runtime.
///
/// ```
/// use locker::lock_on_argument;
///
/// #[lock_on_argument(expr = 10, args(0, 1))]
/// async fn withdraw(card: u64, amount: u64, memo: &str) -> locker::Result<u64> {
///     // nobody else withdraws this amount from this card now
///     println!("{memo}");
///     Ok(card + amount)
/// }
///
/// #[lock_on_argument(name = "bank.close", args(id), timeout = "5s")]
/// fn close(id: u64) -> locker::Result<u64> {
///     Ok(id)
/// }
/// # assert_eq!(close(1).unwrap(), 1);
/// ```
///
/// # Options
///
/// - `expr = 10`, `lease = "10s"` or `expire = ..`: the lease, how long others wait if the holder dies. A duration is
///   a number of seconds, a text, or a constant of type `Duration`. Default: the locker's, 10 s.
/// - `args(0, account, order.id)`: the parts of the key by position, by name, or as expressions over the parameters;
///   each is written with `Display`. Default: none, the function as a whole is locked.
/// - `each(from, to)`: several locks, one per part, all or none, in an order that is the same everywhere.
/// - `mode = "read"` or `"write"`: share the lock with other readers, or not. Default: a plain lock, which readers
///   cannot share.
/// - `name = "bank.withdraw"`: stands for the module path and the name of the function in the key. Recommended: it
///   survives renaming and rolling deploys.
/// - `timeout = "10s"`, `max_retry = 3`, `retry_delay = "2s"`: how long and how often to try. `timeout = 0` tries
///   once. Default: the locker's, 10 s, as often as fits, 2 s.
/// - `renew = false`, `max_hold = "1m"`: whether the lease is renewed while the function runs, and for how long at
///   most. Default: renewed for 10 leases.
/// - `release = "on_expiry"`: the lock stays until the lease runs out, however the function ends; the default
///   `timeout` is then 0. Default: `"on_return"`.
/// - `fair = false`: newcomers may overtake. Default: `true`.
/// - `on_error = path`: a function `fn(locker::Error) -> ReturnType`. Default: the function returns a `Result` whose
///   error is `From<locker::Error>`.
/// - `on_lost = "cancel"`, `"continue"` or `"error"`: what a lease lost while the body runs does: drop the body at its
///   next await point and return the error; nothing, its result stands; let it end and return the error. Default:
///   `"cancel"` in async functions, `"continue"` in plain ones, which cannot be cancelled.
/// - `guard = lease`: binds a `&Guard` under this name in the body.
/// - `locker = expr`: which locker, borrowed: a `Locker`, or anything that dereferences to one. Default:
///   `locker::global()`.
/// - `crate = path`: where the library is. Default: found in the manifest.
///
/// # Errors
///
/// When the lock was not acquired, the body does not run and the function returns the error: `TimedOut`,
/// `RetriesExhausted`, `Unavailable`, `Misused`, `Conflict`; and `Lost` as `on_lost` says. A failing release never
/// masks the value, error or panic of the body.
///
/// # Cancel safety
///
/// A future dropped while it waits leaves the queue; dropped while the body runs, it drops the body and gives the lock
/// back from the background.
///
/// # Several attributes
///
/// Those of this crate act in the order written, the uppermost outermost. Of other crates' attributes the ones below
/// end up outside.
#[proc_macro_attribute]
pub fn lock_on_argument(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::attribute(Attribute::Lock, args.into(), item.into()).into()
}

/// Lets the function run only so many times per interval and arguments.
///
/// A call waits for its turn if that comes within the `timeout`; else it is refused at once.
///
/// ```
/// use locker::{ErrorKind, rate_limit};
///
/// #[rate_limit(size = 2, interval = "1m", args(user), timeout = 0)]
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
/// - `size = 5`, `interval = "800ms"`: how many calls per time. Both are required and not zero; the size is a number
///   or a constant of type `u64`, the interval a number of seconds, a text, or a constant of type `Duration`.
/// - `algorithm = "token_bucket"`, `"fixed_window"` or `"gcra"`: how they are counted, see `Quota`. Default:
///   `"token_bucket"`.
/// - `burst = n`: how many at once, with `"gcra"` only. Default: the size.
/// - `timeout = "10s"`: the longest wait for the turn; `0` never waits. Default: the locker's, 10 s.
/// - `args`, `name`, `on_error`, `locker`, `crate`: as in `lock_on_argument`.
///
/// # Errors
///
/// When the turn would not come in time, the body does not run and the function returns the error: `Limited`, with
/// `retry_after`. Also `Unavailable`, `Misused`, `Conflict`.
///
/// # Cancel safety
///
/// A future dropped while it waits gives its turn back.
#[proc_macro_attribute]
pub fn rate_limit(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::attribute(Attribute::Rate, args.into(), item.into()).into()
}

/// Lets only so many calls of the function run at once per arguments: a semaphore.
///
/// ```
/// use locker::limit_concurrency;
///
/// #[limit_concurrency(size = 10, expr = 60, args(tenant))]
/// async fn render(tenant: &str, page: u32) -> locker::Result<u32> {
///     // at most ten pages of this tenant are rendered now
///     Ok(page)
/// }
/// # let _ = render("a", 1);
/// ```
///
/// # Options
///
/// - `size = 10`: how many calls at once, a number or a constant of type `u64`. Required and not zero.
/// - all options of `lock_on_argument` except `each` and `mode`.
///
/// # Errors
///
/// As `lock_on_argument`.
///
/// # Cancel safety
///
/// As `lock_on_argument`.
#[proc_macro_attribute]
pub fn limit_concurrency(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::attribute(Attribute::Semaphore, args.into(), item.into()).into()
}
