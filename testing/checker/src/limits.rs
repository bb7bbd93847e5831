//! The law of the admissions by a limiter.
//!
//! A caller is admitted between `asked` and `entered`. A call with both within one stretch of time was therefore
//! admitted within it, and there are no more of those than the limit allows in a stretch of that length.

use std::time::Duration;

/// One admitted call, in nanoseconds of the machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    pub asked: u64,
    pub entered: u64,
    pub tokens: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// `size` in each interval.
    Window { size: u64, interval: Duration },
    /// One after the other, and at most `burst` without a pause.
    Paced { burst: u64, every: Duration },
}

/// What a store may admit besides.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slack {
    /// Whether the server may lose the last admissions by a restart: a limiter may start anew once in a stretch.
    pub starts_anew: bool,
    /// How much the clock of the store may gain.
    pub gains: Duration,
}

/// The longest stretch that is checked.
const STRETCH: u64 = 2_000_000_000;

impl Limit {
    /// Returns the most tokens that can be taken within a stretch of this many nanoseconds, both ends included.
    fn most(self, stretch: u64) -> u64 {
        let whole = |part: Duration| stretch / u64::try_from(part.as_nanos()).unwrap_or(u64::MAX);
        match self {
            // The end of one interval, some whole ones, and the start of another.
            Self::Window { size, interval } => size * (whole(interval) + 2),
            Self::Paced { burst, every } => burst + whole(every),
        }
    }

    /// Returns the tokens of a limiter that starts anew.
    fn whole(self) -> u64 {
        match self {
            Self::Window { size, .. } => size,
            Self::Paced { burst, .. } => burst,
        }
    }

    /// Returns a message for the shortest stretch after each call in which too many were admitted.
    pub fn broken(self, admitted: &[Admitted], slack: Slack) -> Vec<String> {
        let mut admitted = admitted.to_vec();
        admitted.sort_by_key(|one| one.asked);
        (0..admitted.len()).filter_map(|first| self.broken_from(&admitted[first..], slack)).collect()
    }

    fn broken_from(self, admitted: &[Admitted], slack: Slack) -> Option<String> {
        let more = if slack.starts_anew { self.whole() } else { 0 };
        let gained = u64::try_from(slack.gains.as_nanos()).unwrap_or(u64::MAX);
        let from = admitted.first()?.asked;
        let mut later: Vec<&Admitted> = admitted
            .iter()
            .take_while(|one| one.asked <= from + STRETCH)
            .filter(|one| one.entered <= from + STRETCH)
            .collect();
        later.sort_by_key(|one| one.entered);
        let mut tokens = 0;
        later.into_iter().find_map(|one| {
            tokens += one.tokens;
            let (stretch, most) = (one.entered - from, self.most(one.entered - from + gained) + more);
            (tokens > most).then(|| {
                format!(
                    "over the limit: {tokens} instead of {most} within {stretch} ns from {from}: {self:?}"
                )
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const TWO_A_SECOND: Limit = Limit::Window { size: 2, interval: Duration::from_secs(1) };
    const PACED: Limit = Limit::Paced { burst: 2, every: Duration::from_secs(1) };

    const ANEW: Slack = Slack { starts_anew: true, gains: Duration::ZERO };

    fn at(moments: &[u64]) -> Vec<Admitted> {
        let one = |&moment| Admitted { asked: moment, entered: moment + 1, tokens: 1 };
        moments.iter().map(one).collect()
    }

    #[test]
    fn window_admits_twice_its_size_at_a_boundary() {
        assert_eq!(TWO_A_SECOND.broken(&at(&[1, 2, 3, 4]), Slack::default()), [""; 0]);
        assert_eq!(TWO_A_SECOND.broken(&at(&[5, 4, 3, 2, 1]), Slack::default()).len(), 1);
        assert_eq!(TWO_A_SECOND.broken(&at(&[1, 2, 3, 4, SECOND + 1]), Slack::default()), [""; 0]);
    }

    #[test]
    fn pacing_admits_a_burst_and_then_singles() {
        assert_eq!(PACED.broken(&at(&[1, 2, SECOND + 1]), Slack::default()), [""; 0]);
        assert_eq!(PACED.broken(&at(&[1, 2, SECOND - 1]), Slack::default()).len(), 1);
        assert_eq!(PACED.broken(&at(&[1, 2, 3, 4]), ANEW), [""; 0]);
        assert_eq!(PACED.broken(&at(&[1, 2, 3, 4, 5]), ANEW).len(), 1);
    }

    #[test]
    fn clock_may_gain() {
        let gains = |gains| Slack { gains, ..Slack::default() };
        let early = at(&[1, 2, SECOND / 2, SECOND / 2 + 1]);
        assert_eq!(PACED.broken(&early[..3], gains(Duration::from_millis(600))), [""; 0]);
        assert_eq!(PACED.broken(&early, gains(Duration::from_millis(600))).len(), 1);
    }

    #[test]
    fn all_tokens_of_a_call_count() {
        let admitted = Admitted { asked: 1, entered: 2, tokens: 3 };
        assert_eq!(PACED.broken(&[admitted], Slack::default()).len(), 1);
    }

    #[test]
    fn early_request_may_be_admitted_early() {
        let waited = Admitted { asked: 0, entered: 3 * SECOND, tokens: 1 };
        let mut admitted = at(&[3 * SECOND - 2, 3 * SECOND - 1]);
        admitted.push(waited);
        assert_eq!(PACED.broken(&admitted, Slack::default()), [""; 0]);
    }
}
