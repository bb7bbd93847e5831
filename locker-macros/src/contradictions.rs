//! Options that are valid alone but not together, or not with these values.

use crate::{
    args::{Given, Options},
    duration::{Time, ungrouped},
    kind::Kind,
    limits::{LONGEST, SHORTEST, SHORTEST_INTERVAL},
};
use proc_macro2::{Ident, Span};
use std::time::Duration;
use syn::{Error, Expr, ExprLit, Lit, LitStr, Result};

impl<T> Given<T> {
    fn refuse(&self, why: &str) -> Result<()> {
        Err(Error::new(self.option.span(), why))
    }
}

impl Given<Time> {
    fn check_limits(&self, shortest: Duration) -> Result<()> {
        let Some(known) = self.value.known() else { return Ok(()) };
        let limit = if known < shortest {
            if known.is_zero() { "longer than zero".to_owned() } else { format!("at least {shortest:?}") }
        } else if known > LONGEST {
            "at most 10 years".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::new(self.value.span(), format!("`{}` must be {limit}", self.option)))
    }
}

/// The text of a choice.
pub(crate) fn chosen(option: Option<&Given<LitStr>>) -> Option<String> {
    option.map(|given| given.value.value())
}

fn is_one(count: &Expr) -> bool {
    matches!(ungrouped(count), Expr::Lit(ExprLit { lit: Lit::Int(int), .. }) if int.base10_digits() == "1")
}

impl Options {
    pub(crate) fn check(&self, kind: Kind, at: Span) -> Result<()> {
        self.check_required(kind, at)?;
        self.check_durations()?;
        self.check_each()?;
        self.check_renewal()?;
        self.check_attempts()?;
        self.check_burst()
    }

    fn check_required(&self, kind: Kind, at: Span) -> Result<()> {
        let lacks = |option: &str| {
            let message = format!("`{kind}` needs `{option}`: {}", kind.example());
            Err(Error::new(at, message))
        };
        match kind {
            Kind::Rate | Kind::Semaphore if self.size.is_none() => lacks("size"),
            Kind::Rate if self.interval.is_none() => lacks("interval"),
            _ => Ok(()),
        }
    }

    fn check_durations(&self) -> Result<()> {
        let limits = [
            (&self.lease, SHORTEST),
            (&self.max_hold, SHORTEST),
            (&self.retry_delay, SHORTEST),
            (&self.interval, SHORTEST_INTERVAL),
            (&self.timeout, Duration::ZERO),
        ];
        for (given, shortest) in limits {
            given.as_ref().map_or(Ok(()), |given| given.check_limits(shortest))?;
        }
        let known = |given: &Option<Given<Time>>| given.as_ref()?.value.known();
        match (&self.max_hold, known(&self.max_hold), known(&self.lease)) {
            (Some(given), Some(hold), Some(lease)) if hold < lease => {
                Err(Error::new(given.value.span(), "`max_hold` must not be shorter than the lease"))
            }
            _ => Ok(()),
        }
    }

    fn check_each(&self) -> Result<()> {
        let Some(each) = &self.each else { return Ok(()) };
        if each.value.0.is_empty() {
            return each.refuse("`each` locks every one of its parts: name at least one, `each(from, to)`");
        }
        if let Some(args) = &self.args {
            return args
                .refuse("`args` is one lock on all its parts, `each` one lock per part: use one of them");
        }
        match &self.guard {
            Some(guard) => guard.refuse("`guard` binds the guard of one lock, and `each` takes several"),
            None => Ok(()),
        }
    }

    fn check_renewal(&self) -> Result<()> {
        match (&self.renew, &self.max_hold) {
            (Some(renew), Some(max_hold)) if !renew.value.value => {
                max_hold.refuse("`max_hold` bounds the renewal, and `renew = false` switches it off")
            }
            _ => Ok(()),
        }
    }

    /// Refuses to count attempts where nobody sees that there is one.
    fn check_attempts(&self) -> Result<()> {
        let on_expiry = chosen(self.release.as_ref()).as_deref() == Some("on_expiry");
        if !on_expiry || self.timeout.is_some() {
            return Ok(());
        }
        let why =
            "the default `timeout` with `release = \"on_expiry\"` is 0, which tries once: give a `timeout`";
        match (&self.max_retry, &self.retry_delay) {
            (Some(max_retry), _) if !is_one(&max_retry.value) => max_retry.refuse(why),
            (_, Some(retry_delay)) => retry_delay.refuse(why),
            _ => Ok(()),
        }
    }

    fn check_burst(&self) -> Result<()> {
        match &self.burst {
            Some(burst) if chosen(self.algorithm.as_ref()).as_deref() != Some("gcra") => {
                burst.refuse("`burst` belongs to `algorithm = \"gcra\"`")
            }
            _ => Ok(()),
        }
    }

    /// Refuses what only async functions can do.
    pub(crate) fn check_plain_function(&self) -> Result<()> {
        match &self.on_lost {
            Some(on_lost) if on_lost.value.value() == "cancel" => {
                let message = "a plain function cannot be cancelled: make it `async fn`, or use \"continue\" or \"error\"";
                Err(Error::new(on_lost.value.span(), message))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a `guard` that would hide a parameter.
    pub(crate) fn check_guard(&self, bound: &[Ident]) -> Result<()> {
        match &self.guard {
            Some(guard) if bound.contains(&guard.value) => {
                let message =
                    format!("`{}` is already a parameter: give the guard another name", guard.value);
                Err(Error::new(guard.value.span(), message))
            }
            _ => Ok(()),
        }
    }
}
