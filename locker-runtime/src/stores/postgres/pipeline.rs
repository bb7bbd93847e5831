//! The batches that one connection has sent and the server has not answered.
//!
//! Near the server there is one: what comes meanwhile shares the next statement, and its commit. Across a network that
//! would leave the server idle for most of a round trip, so the next batch is sent as soon as the server is done with
//! the one before, by what it has needed lately.

use super::shared::Shared;
use crate::{background, clock::Timestamp, settings::COMMAND_TIMEOUT};
use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// How long one statement may take. The callers' own limits are shorter.
pub(super) const STATEMENT_LIMIT: Duration = COMMAND_TIMEOUT.saturating_mul(3);

/// A shorter round trip is not worth more statements and commits.
const FAR: Duration = Duration::from_millis(1);

/// The maximum of batches under way.
const DEPTH: usize = 8;

/// The latest time of a batch counts as much as this many before it.
const SMOOTHING: u32 = 4;

/// A batch under way. Its result is whether the connection is still good.
pub(super) type Work = BoxFuture<'static, bool>;

/// What became of a batch.
pub(super) enum Answer {
    Came {
        is_good: bool,
    },
    /// There is none within the [`STATEMENT_LIMIT`].
    Hangs(Work),
}

/// The batches under way.
pub(super) struct Pipeline {
    shared: Arc<Shared>,
    under_way: FuturesUnordered<BoxFuture<'static, (Answer, Duration)>>,
    last_sent: Timestamp,
    /// The smoothed time from a batch to its answer.
    answer_time: Option<Duration>,
}

impl Pipeline {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let (under_way, last_sent) = (FuturesUnordered::new(), Timestamp::now());
        Self { shared, under_way, last_sent, answer_time: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Returns how long to wait with the next batch. `None`: until the next answer.
    pub(super) fn pause(&self) -> Option<Duration> {
        if self.is_empty() {
            return Some(Duration::ZERO);
        }
        let round_trip = self.shared.round_trip();
        let at_server = self.answer_time?.saturating_sub(round_trip);
        // A pool of connections may give the connection to others after the first answer.
        let is_pooled = !self.shared.named.load(Ordering::Acquire);
        if is_pooled || round_trip < FAR || at_server > round_trip / 2 || self.under_way.len() >= DEPTH {
            return None;
        }
        Some((self.last_sent + at_server).since(Timestamp::now()))
    }

    /// Sends a batch.
    pub(super) fn send(&mut self, work: impl Future<Output = bool> + Send + 'static) {
        let sent = Timestamp::now();
        self.last_sent = sent;
        let mut work: Work = Box::pin(work);
        self.under_way.push(Box::pin(async move {
            let answer = tokio::select! {
                biased;
                is_good = &mut work => Answer::Came { is_good },
                () = background::sleep(STATEMENT_LIMIT) => Answer::Hangs(work),
            };
            (answer, Timestamp::now().since(sent))
        }));
    }

    /// Waits for the next answer.
    ///
    /// # Panics
    /// If nothing is under way.
    pub(super) async fn answer(&mut self) -> Answer {
        let (answer, took) = self.under_way.next().await.expect("something is under way");
        let before = self.answer_time.unwrap_or(took);
        self.answer_time = Some((before * SMOOTHING + took) / (SMOOTHING + 1));
        answer
    }

    /// Leaves what is under way to the background: the answers may still come.
    pub(super) fn leave(mut self) {
        if !self.is_empty() {
            background::spawn(async move { while self.under_way.next().await.is_some() {} });
        }
    }
}
