//! The bodies of functions that run on this thread while they hold something. A call inside a body that waits for the
//! same hold would wait for itself.
//!
//! A plain body is listed from its start to its end, an async one during each of its polls. So a call on this thread
//! is inside all bodies that are listed, unless an executor inside a body polls another task: see `Caller::is_inside`.

use super::{Guard, guard::Release, hold::Hold};
use crate::locker::{Around, Locker};
use locker_core::{
    blocking::Driver,
    error::{Error, ErrorKind, Result},
    key::Key,
    primitives::HoldKind,
};
use std::{
    cell::RefCell,
    future::Future,
    iter::once,
    pin::Pin,
    ptr,
    sync::Arc,
    task::{Context, Poll, Waker},
};
use tokio::task::{self, try_id};

thread_local! {
    static BODIES: RefCell<Vec<Body>> = const { RefCell::new(Vec::new()) };
}

/// A body that runs on this thread.
struct Body {
    held: Held,
    caller: Caller,
}

/// What a body holds: one hold, or several with `each`.
#[derive(Debug)]
pub(crate) struct Held {
    first: Arc<Hold>,
    others: Box<[Arc<Hold>]>,
}

impl Held {
    /// Returns the holds that end with the body, or `None` if there is none.
    pub(crate) fn by<'a>(guards: impl Iterator<Item = &'a Guard>) -> Option<Self> {
        let mut holds = guards.filter(|guard| guard.release == Release::OnDrop);
        let first = Arc::clone(&holds.next()?.hold);
        Some(Self { first, others: holds.map(|guard| Arc::clone(&guard.hold)).collect() })
    }

    /// Lists the body that holds this, and returns what [`unlist`] finds it by.
    fn list(self, caller: Caller) -> usize {
        let name = name(&self.first);
        // While the thread ends, nothing is listed.
        let _ = BODIES.try_with(|bodies| bodies.borrow_mut().push(Body { held: self, caller }));
        name
    }

    fn iter(&self) -> impl Iterator<Item = &Hold> {
        once(&self.first).chain(&self.others).map(Arc::as_ref)
    }
}

/// Takes a body off the list, wherever it is.
fn unlist(of: usize) -> Option<Held> {
    let taken = BODIES.try_with(|bodies| {
        let mut bodies = bodies.borrow_mut();
        let at = bodies.iter().rposition(|body| name(&body.held.first) == of)?;
        Some(bodies.remove(at))
    });
    // Dropping a waker may call anything, so the list is no longer borrowed.
    taken.ok().flatten().map(|body| body.held)
}

fn name(hold: &Arc<Hold>) -> usize {
    Arc::as_ptr(hold).addr()
}

/// A plain body, which is listed until this is dropped.
#[derive(Debug)]
pub(crate) struct PlainBody(Option<usize>);

impl PlainBody {
    pub(crate) fn begin(held: Option<Held>) -> Self {
        Self(held.map(|held| held.list(Caller::plain())))
    }
}

impl Drop for PlainBody {
    fn drop(&mut self) {
        drop(self.0.and_then(unlist));
    }
}

/// An async body, which is listed while it is polled.
pub(crate) struct AsyncBody<'a, F> {
    body: Pin<&'a mut F>,
    held: Option<Held>,
}

impl<'a, F> AsyncBody<'a, F> {
    pub(crate) fn new(body: Pin<&'a mut F>, held: Option<Held>) -> Self {
        Self { body, held }
    }
}

impl<F: Future> Future for AsyncBody<'_, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { body, held } = self.get_mut();
        let listed = held.take().map(|held| held.list(Caller::of(context)));
        let _listed = listed.map(|name| Polled { name, held });
        body.as_mut().poll(context)
    }
}

/// A poll of an async body. Its end, which may be a panic, gives the holds back.
struct Polled<'a> {
    name: usize,
    held: &'a mut Option<Held>,
}

impl Drop for Polled<'_> {
    fn drop(&mut self) {
        *self.held = unlist(self.name);
    }
}

/// The task that a body or a call runs in, as far as that is known.
#[derive(Debug)]
pub(crate) struct Caller {
    /// The task of tokio.
    task: Option<task::Id>,
    /// `None` for a plain body, and in a task of tokio.
    waker: Option<Waker>,
    /// Whether it blocks the thread until it ends.
    blocks: bool,
}

impl Caller {
    fn plain() -> Self {
        Self { task: try_id(), waker: None, blocks: true }
    }

    pub(crate) fn of(context: &Context<'_>) -> Self {
        let (task, blocks) = (try_id(), Driver::of_this_thread() != Driver::Executor);
        let waker = task.is_none().then(|| context.waker().clone());
        Self { task, waker, blocks }
    }

    /// Whether `body`, which is listed, cannot go on before this call ends.
    ///
    /// A call that blocks the thread keeps all bodies below it on the stack from going on. Any other call may belong to
    /// another task, which an executor inside the body polls. The tasks of tokio have ids. Elsewhere, a task has a
    /// waker of its own, which an async body can be compared by.
    fn is_inside(&self, body: &Self) -> bool {
        let wakes = |waker: &Waker| self.waker.as_ref().is_some_and(|own| own.will_wake(waker));
        self.blocks || (self.task == body.task && body.waker.as_ref().is_none_or(wakes))
    }
}

/// Returns whether a body runs on this thread.
pub(crate) fn any() -> bool {
    BODIES.try_with(|bodies| !bodies.borrow().is_empty()).unwrap_or(false)
}

/// Refuses a call that would wait for a body that it is inside of.
///
/// # Errors
/// `Misused` if the bodies around the call hold so much of `key` that it cannot be granted before they end.
pub(crate) fn check(caller: &Caller, locker: &Locker, kind: HoldKind, key: &Key) -> Result<()> {
    BODIES
        .try_with(|bodies| {
            let bodies = bodies.borrow();
            let around = bodies.iter().filter(|body| caller.is_inside(&body.caller));
            check_holds(around.flat_map(|body| body.held.iter()), locker, kind, key)
        })
        .unwrap_or(Ok(()))
}

/// Returns the holds of the bodies around a call, which do not end before it.
pub(crate) fn around(caller: &Caller) -> Vec<Around> {
    BODIES
        .try_with(|bodies| {
            let bodies = bodies.borrow();
            let around = bodies.iter().filter(|body| caller.is_inside(&body.caller));
            around.flat_map(|body| body.held.iter().filter_map(Hold::around)).collect()
        })
        .unwrap_or_default()
}

/// Refuses a call that would wait for one of these holds, which cannot end before it.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_holds<'a>(
    holds: impl Iterator<Item = &'a Hold>,
    locker: &Locker,
    kind: HoldKind,
    key: &Key,
) -> Result<()> {
    let is_same = |hold: &&Hold| {
        hold.key == *key && ptr::addr_eq(hold.locker.store(), locker.store()) && hold.is_held()
    };
    let waits = kind.waits_for(holds.filter(is_same).map(|hold| hold.kind));
    if waits { Err(error().with_key(key.as_str())) } else { Ok(()) }
}

fn error() -> Error {
    let message = "the function around this call holds it, and would wait for itself: make the call after that \
                   function, or move the shared part into a function that does not lock";
    Error::new(ErrorKind::Misused, message)
}
