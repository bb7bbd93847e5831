//! What must be true of whom a limiter let through.
//!
//! A caller's turn comes some time between `asked` and `entered`. So whoever asked and entered within one stretch of time
//! had the turn within it, and of those there are no more than the limit allows in a stretch so long.

use std::time::Duration;

/// One call that was let through, in nanoseconds of the machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub(crate) asked: u64,
    pub(crate) entered: u64,
    pub(crate) tokens: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// `size` in each interval.
    Window { size: u64, interval: Duration },
    /// One after the other, `burst` at most without a pause.
    Paced { burst: u64, every: Duration },
}

/// The longest stretch that is looked at.
const STRETCH: u64 = 2_000_000_000;

impl Limit {
    /// The most that can have its turn within a stretch of so many nanoseconds, both ends included.
    fn most(self, stretch: u64) -> u64 {
        let whole = |part: Duration| stretch / u64::try_from(part.as_nanos()).unwrap_or(u64::MAX);
        match self {
            // The end of an interval, some whole ones, the start of another.
            Self::Window { size, interval } => size * (whole(interval) + 2),
            Self::Paced { burst, every } => burst + whole(every),
        }
    }

    /// Every shortest stretch in which there were too many.
    pub(crate) fn broken(self, admitted: &[Admitted]) -> Vec<String> {
        let mut admitted = admitted.to_vec();
        admitted.sort_by_key(|one| one.asked);
        (0..admitted.len()).filter_map(|first| self.broken_from(&admitted[first..])).collect()
    }

    fn broken_from(self, admitted: &[Admitted]) -> Option<String> {
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
            let (stretch, most) = (one.entered - from, self.most(one.entered - from));
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

    fn at(moments: &[u64]) -> Vec<Admitted> {
        let one = |&moment| Admitted { asked: moment, entered: moment + 1, tokens: 1 };
        moments.iter().map(one).collect()
    }

    #[test]
    fn twice_the_size_around_the_start_of_an_interval_is_fine_and_more_is_not() {
        assert_eq!(TWO_A_SECOND.broken(&at(&[1, 2, 3, 4])), [""; 0]);
        assert_eq!(TWO_A_SECOND.broken(&at(&[5, 4, 3, 2, 1])).len(), 1);
        assert_eq!(TWO_A_SECOND.broken(&at(&[1, 2, 3, 4, SECOND + 1])), [""; 0]);
    }

    #[test]
    fn a_burst_and_then_one_by_one_is_fine_and_one_too_early_is_not() {
        assert_eq!(PACED.broken(&at(&[1, 2, SECOND + 1])), [""; 0]);
        assert_eq!(PACED.broken(&at(&[1, 2, SECOND - 1])).len(), 1);
    }

    #[test]
    fn all_tokens_of_a_call_count() {
        let admitted = Admitted { asked: 1, entered: 2, tokens: 3 };
        assert_eq!(PACED.broken(&[admitted]).len(), 1);
    }

    #[test]
    fn who_asked_long_before_may_have_had_the_turn_then() {
        let waited = Admitted { asked: 0, entered: 3 * SECOND, tokens: 1 };
        let mut admitted = at(&[3 * SECOND - 2, 3 * SECOND - 1]);
        admitted.push(waited);
        assert_eq!(PACED.broken(&admitted), [""; 0]);
    }
}
