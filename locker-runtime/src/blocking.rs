//! The same futures for callers that are not async.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};
use tokio::task::unconstrained;

/// Drives `future` on the calling thread; timers and connections live on the background thread, so this works
/// outside any runtime and inside every flavour of one. It blocks the thread it is called on.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    // Within a task, tokio's timers and channels stop answering after a while until the task yields, which this cannot.
    let mut future = pin!(unconstrained(future));
    // Most calls on the embedded store are answered at once: no waker has to be made for them.
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => pollster::block_on(future),
    }
}
