//! The law of the admissions by a limiter.
//!
//! A caller is admitted between `asked` and `entered`. A call with both within one stretch of time was therefore
//! admitted within it, and there are no more of those than the limit allows in a stretch of that length.

use crate::{
    format::{Outcome, Quota},
    history::Called,
    verdict::Problem,
};

/// One admitted call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    line: usize,
    asked: u64,
    entered: u64,
    tokens: u64,
}

impl Admitted {
    /// Returns what a call was admitted for, if it was.
    pub(crate) fn of(called: &Called) -> Option<Self> {
        let call = &called.it;
        let entered = call.ended.filter(|_| call.outcome == Outcome::Admitted)?;
        Some(Self { line: called.line, asked: call.asked, entered, tokens: call.tokens })
    }
}

/// What a store may admit besides.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slack {
    /// Whether the server may lose the last admissions by a restart: a limiter may start anew once in a stretch.
    pub(crate) starts_anew: bool,
    /// How much the clock of the store may gain.
    pub(crate) gains: u64,
}

/// The shortest bound of the stretches that are checked. Longer are those of four intervals.
const STRETCH: u64 = 2_000_000_000;

impl Quota {
    /// Returns `true` if any time can be measured by it.
    pub(crate) fn is_possible(self) -> bool {
        self.interval() > 0
    }

    fn interval(self) -> u64 {
        match self {
            Self::FixedWindow { interval, .. }
            | Self::TokenBucket { interval, .. }
            | Self::Gcra { interval, .. } => interval,
        }
    }

    /// Returns the most tokens that can be taken within a stretch of this many nanoseconds, both ends included.
    fn most(self, stretch: u64) -> u64 {
        match self {
            // The end of one interval, some whole ones, and the start of another.
            Self::FixedWindow { size, interval } | Self::TokenBucket { size, interval } => {
                size.saturating_mul((stretch / interval).saturating_add(2))
            }
            Self::Gcra { size, interval, burst } => {
                let paced = u128::from(stretch) * u128::from(size) / u128::from(interval);
                burst.saturating_add(u64::try_from(paced).unwrap_or(u64::MAX))
            }
        }
    }

    /// Returns the tokens of a limiter that starts anew.
    fn whole(self) -> u64 {
        match self {
            Self::FixedWindow { size, .. } | Self::TokenBucket { size, .. } => size,
            Self::Gcra { burst, .. } => burst,
        }
    }

    /// Returns the shortest stretch after each call in which too many were admitted.
    pub(crate) fn broken(self, admitted: &[Admitted], slack: Slack) -> Vec<Problem> {
        let mut admitted = admitted.to_vec();
        admitted.sort_by_key(|one| one.asked);
        (0..admitted.len()).filter_map(|first| self.broken_from(&admitted[first..], slack)).collect()
    }

    fn broken_from(self, admitted: &[Admitted], slack: Slack) -> Option<Problem> {
        let more = if slack.starts_anew { self.whole() } else { 0 };
        let from = admitted.first()?.asked;
        let till = from.saturating_add(STRETCH.max(self.interval().saturating_mul(4)));
        let mut later: Vec<&Admitted> =
            admitted.iter().take_while(|one| one.asked <= till).filter(|one| one.entered <= till).collect();
        later.sort_by_key(|one| one.entered);
        let mut tokens: u64 = 0;
        let (at, most) = later.iter().enumerate().find_map(|(at, one)| {
            tokens = tokens.saturating_add(one.tokens);
            let stretch = (one.entered - from).saturating_add(slack.gains);
            let most = self.most(stretch).saturating_add(more);
            (tokens > most).then_some((at, most))
        })?;
        let stretch = later[at].entered - from;
        let text =
            format!("over the limit: {tokens} instead of {most} tokens within {stretch} ns from {from}");
        Some(Problem::new(later[..=at].iter().rev().take(Problem::NAMED).map(|one| one.line), text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const TWO_A_SECOND: Quota = Quota::FixedWindow { size: 2, interval: SECOND };
    const PACED: Quota = Quota::Gcra { size: 1, interval: SECOND, burst: 2 };

    const ANEW: Slack = Slack { starts_anew: true, gains: 0 };

    fn at(moments: &[u64]) -> Vec<Admitted> {
        let one = |&moment| Admitted { line: 1, asked: moment, entered: moment + 1, tokens: 1 };
        moments.iter().map(one).collect()
    }

    #[test]
    fn window_admits_twice_its_size_at_a_boundary() {
        assert_eq!(TWO_A_SECOND.broken(&at(&[1, 2, 3, 4]), Slack::default()), []);
        assert_eq!(TWO_A_SECOND.broken(&at(&[5, 4, 3, 2, 1]), Slack::default()).len(), 1);
        assert_eq!(TWO_A_SECOND.broken(&at(&[1, 2, 3, 4, SECOND + 1]), Slack::default()), []);
    }

    #[test]
    fn pacing_admits_a_burst_and_then_singles() {
        assert_eq!(PACED.broken(&at(&[1, 2, SECOND + 1]), Slack::default()), []);
        assert_eq!(PACED.broken(&at(&[1, 2, SECOND - 1]), Slack::default()).len(), 1);
        assert_eq!(PACED.broken(&at(&[1, 2, 3, 4]), ANEW), []);
        assert_eq!(PACED.broken(&at(&[1, 2, 3, 4, 5]), ANEW).len(), 1);
    }

    #[test]
    fn clock_may_gain() {
        let gains = |gains| Slack { gains, ..Slack::default() };
        let early = at(&[1, 2, SECOND / 2, SECOND / 2 + 1]);
        assert_eq!(PACED.broken(&early[..3], gains(600_000_000)), []);
        assert_eq!(PACED.broken(&early, gains(600_000_000)).len(), 1);
        let finest = Quota::FixedWindow { size: 1, interval: 1 };
        assert_eq!(finest.broken(&early, gains(u64::MAX)), []);
    }

    #[test]
    fn all_tokens_of_a_call_count() {
        let admitted = Admitted { line: 1, asked: 1, entered: 2, tokens: 3 };
        assert_eq!(PACED.broken(&[admitted], Slack::default()).len(), 1);
    }

    #[test]
    fn early_request_may_be_admitted_early() {
        let waited = Admitted { line: 1, asked: 0, entered: 3 * SECOND, tokens: 1 };
        let mut admitted = at(&[3 * SECOND - 2, 3 * SECOND - 1]);
        admitted.push(waited);
        assert_eq!(PACED.broken(&admitted, Slack::default()), []);
    }
}
