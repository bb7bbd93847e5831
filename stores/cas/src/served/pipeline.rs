//! The batches that one connection has sent and the server has not answered.
//!
//! Near the server there is one: what comes meanwhile shares the next statement, and its commit. Across a network that
//! would leave the server idle for most of a round trip, so the next batch is sent as soon as the server is done with
//! the one before, by what it has needed lately.

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use locker_core::{background, clock::Timestamp};
use std::time::Duration;

/// A shorter round trip is not worth more statements and commits.
const FAR: Duration = Duration::from_millis(1);

/// The maximum of batches under way.
const DEPTH: usize = 8;

/// How long the answers of a connection take.
#[derive(Clone, Copy, Debug)]
pub struct Distance {
    /// The time that the network needs for a question and its answer.
    pub round_trip: Duration,
    /// The time from a statement to its answer, of late.
    pub answer_time: Duration,
}

/// What became of the batches under way.
pub(super) enum Answer {
    /// One was answered.
    Came { is_good: bool },
    /// None was answered in time.
    Late,
}

/// The batches under way. The result of each is whether the connection is still good.
#[derive(Default)]
pub(super) struct Pipeline {
    under_way: FuturesUnordered<BoxFuture<'static, bool>>,
    last_sent: Timestamp,
    /// When the last answer came, or the first batch was sent after that.
    silent_since: Timestamp,
}

impl Pipeline {
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Sends a batch.
    pub(super) fn send(&mut self, work: impl Future<Output = bool> + Send + 'static) {
        self.last_sent = Timestamp::now();
        if self.is_empty() {
            self.silent_since = self.last_sent;
        }
        self.under_way.push(Box::pin(work));
    }

    /// Returns how long to wait with the next batch. `None`: until the next answer.
    pub(super) fn pause(&self, distance: impl FnOnce() -> Option<Distance>) -> Option<Duration> {
        if self.is_empty() {
            return Some(Duration::ZERO);
        }
        let Distance { round_trip, answer_time } = distance()?;
        let at_server = answer_time.saturating_sub(round_trip);
        if round_trip < FAR || at_server > round_trip / 2 || self.under_way.len() >= DEPTH {
            return None;
        }
        let now = Timestamp::now();
        // The connection may be dead: what is not sent yet can go over another one.
        let is_late = now > self.silent_since + answer_time * 2;
        (!is_late).then(|| (self.last_sent + at_server).since(now))
    }

    /// Waits for the next answer until the connection has been silent for `limit`.
    ///
    /// # Panics
    /// If nothing is under way.
    pub(super) async fn answer(&mut self, limit: Duration) -> Answer {
        tokio::select! {
            biased;
            answer = self.under_way.next() => {
                let is_good = answer.expect("something is under way");
                self.silent_since = Timestamp::now();
                Answer::Came { is_good }
            }
            () = background::sleep_from(Timestamp::now(), self.silent_since + limit) => Answer::Late,
        }
    }

    /// Waits for all answers, however long. All are waited for at once: none is read before those in front of it.
    pub(super) async fn end(&mut self) -> bool {
        let mut is_good = true;
        while let Some(answer) = self.under_way.next().await {
            is_good &= answer;
        }
        is_good
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::future::{pending, ready};
    use tokio::sync::oneshot;

    const MS: Duration = Duration::from_millis(1);

    fn pause(pipeline: &Pipeline, round_trip: Duration, answer_time: Duration) -> Option<Duration> {
        pipeline.pause(|| Some(Distance { round_trip, answer_time }))
    }

    #[test]
    fn only_distant_servers_get_several_batches() {
        let mut pipeline = Pipeline::default();
        assert_eq!(pause(&pipeline, MS / 10, MS), Some(Duration::ZERO));
        pipeline.send(pending());
        assert_eq!(pipeline.pause(|| None), None, "nothing is known");
        assert_eq!(pause(&pipeline, MS / 2, MS / 2), None, "near");
        assert_eq!(pause(&pipeline, 1_000 * MS, 2_000 * MS), None, "the server is slow");
        let short = pause(&pipeline, 1_000_000 * MS, 1_100_000 * MS).unwrap();
        assert!(short > 90_000 * MS && short <= 100_000 * MS, "{short:?}");
        for _ in 1..DEPTH {
            assert!(pause(&pipeline, 1_000_000 * MS, 1_100_000 * MS).is_some());
            pipeline.send(pending());
        }
        assert_eq!(pause(&pipeline, 1_000_000 * MS, 1_100_000 * MS), None);
    }

    #[test]
    fn silent_server_gets_no_more_batches() {
        let mut pipeline = Pipeline::default();
        pipeline.send(pending());
        assert!(pause(&pipeline, 1_000_000 * MS, 1_000_000 * MS).is_some());
        let silence = 3_000_000 * MS;
        pipeline.silent_since = Timestamp::from_micros(
            pipeline.silent_since.as_micros().saturating_sub(u64::try_from(silence.as_micros()).unwrap()),
        );
        assert_eq!(pause(&pipeline, 1_000_000 * MS, 1_000_000 * MS), None);
    }

    /// The server answers the first one again after the second one was heard.
    #[test]
    fn end_hears_all_answers() {
        let (mut pipeline, (heard, second)) = (Pipeline::default(), oneshot::channel());
        pipeline.send(async move { second.await.is_ok() });
        pipeline.send(async move { heard.send(()).is_ok() });
        pipeline.send(ready(true));
        assert_eq!(pipeline.end().now_or_never(), Some(true));
        pipeline.send(ready(false));
        pipeline.send(ready(true));
        assert_eq!(pipeline.end().now_or_never(), Some(false));
    }
}
