//! The ends of stores, which go on after a store was dropped.

use super::sleep;
use std::{sync::LazyLock, time::Duration};
use tokio::sync::watch;

/// How many stores have something left to do.
static ENDINGS: LazyLock<watch::Sender<usize>> = LazyLock::new(|| watch::channel(0).0);

/// A store of this process that does something at its end, such as to close its session. To be dropped after that.
#[derive(Debug)]
pub struct Ending(());

impl Ending {
    /// Begins with the store.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "each one counts")]
    pub fn new() -> Self {
        ENDINGS.send_modify(|endings| *endings += 1);
        Self(())
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        ENDINGS.send_modify(|endings| *endings -= 1);
    }
}

/// Waits until all stores of this process have ended, at most for `limit`: for programs that end after it. Call it when
/// the stores were dropped.
pub async fn ended(limit: Duration) {
    let mut endings = ENDINGS.subscribe();
    tokio::select! {
        biased;
        _ = endings.wait_for(|endings| *endings == 0) => {}
        () = sleep(limit) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{background, blocking::block_on};
    use std::time::Instant;

    #[test]
    fn ends_are_waited_for_up_to_a_limit() {
        background::ready().unwrap();
        let (one, other, started) = (Ending::new(), Ending::new(), Instant::now());
        block_on(ended(Duration::from_millis(20)));
        assert!(started.elapsed() >= Duration::from_millis(20));
        drop(one);
        let waiting = std::thread::spawn(|| block_on(ended(Duration::from_secs(60))));
        drop(other);
        waiting.join().unwrap();
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}
