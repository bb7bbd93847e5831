//! Which of several hosts is connected to.

use futures_util::{StreamExt, stream::FuturesUnordered};
use locker_core::background;
use std::time::Duration;

/// How long the hosts of a URL are alone, each before the next one is tried beside it: a host that takes connections
/// and never answers would use up the time of all.
const HEAD_START: Duration = Duration::from_millis(500);

/// Connects to the first of `count` hosts that succeeds, tried in their order.
///
/// # Errors
/// Returns the error of the last host.
///
/// # Panics
/// If there are none.
pub async fn first_of<F, T, E>(count: usize, connect: impl Fn(usize) -> F) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    let attempt = |at: usize| {
        let connecting = connect(at);
        async move { (at, connecting.await) }
    };
    let (mut attempts, mut begun) = (FuturesUnordered::new(), 0);
    let mut last: Option<(usize, E)> = None;
    loop {
        if begun < count {
            attempts.push(attempt(begun));
            begun += 1;
        }
        let ended = tokio::select! {
            biased;
            ended = attempts.next() => ended,
            () = background::sleep(HEAD_START), if begun < count => continue,
        };
        match (ended, last.take()) {
            (Some((_, Ok(connected))), _) => return Ok(connected),
            (Some((at, Err(error))), former) => {
                last = former.filter(|(before, _)| *before > at).or(Some((at, error)));
            }
            (None, Some((_, error))) => return Err(error),
            (None, None) => unreachable!("each attempt ends with a result"),
        }
    }
}
