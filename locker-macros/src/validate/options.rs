//! Options that contradict each other, miss another option, or have values out of range.

use crate::{
    attribute::Attribute,
    parse::{
        applied::Applied,
        duration::{Time, ungrouped},
        options::{Given, Options, chosen},
    },
    ranges::{EVERY, LONGEST, SHORTEST, SHORTEST_INTERVAL},
};
use humantime::format_duration;
use proc_macro2::Ident;
use std::time::Duration;
use syn::{Error, Expr, ExprLit, Lit, Result};

/// Checks the options of one attribute against each other.
pub(crate) fn check(applied: &Applied) -> Result<()> {
    let options = &applied.options;
    check_required(applied)?;
    check_durations(options)?;
    check_every(options)?;
    check_keep(options)?;
    check_each(options)?;
    check_renewal(options)?;
    check_margins(options)?;
    check_attempts(options)?;
    check_burst(options)
}

fn check_required(applied: &Applied) -> Result<()> {
    let Applied { attribute, options, at, .. } = applied;
    let lacks = |option: &str| {
        let message = format!("`{attribute}` needs `{option}`: {}", attribute.example());
        Err(Error::new(*at, message))
    };
    match attribute {
        Attribute::Rate | Attribute::Semaphore if options.size.is_none() => lacks("size"),
        Attribute::Rate if options.interval.is_none() => lacks("interval"),
        Attribute::Leader if options.name.is_none() => lacks("name"),
        Attribute::Once if options.every.is_none() => lacks("every"),
        Attribute::Idempotent if options.keep.is_none() => lacks("keep"),
        _ => Ok(()),
    }
}

fn check_durations(options: &Options) -> Result<()> {
    let limits = [
        (&options.lease, SHORTEST),
        (&options.max_hold, SHORTEST),
        (&options.retry_delay, SHORTEST),
        (&options.interval, SHORTEST_INTERVAL),
        (&options.timeout, Duration::ZERO),
        (&options.stop_before, Duration::ZERO),
        (&options.min_hold, Duration::ZERO),
        (&options.from, Duration::ZERO),
        (&options.early, Duration::ZERO),
        (&options.keep, Duration::ZERO),
    ];
    for (given, shortest) in limits {
        given.as_ref().map_or(Ok(()), |given| check_range(given, shortest))?;
    }
    match (&options.max_hold, known(options.max_hold.as_ref()), known(options.lease.as_ref())) {
        (Some(given), Some(hold), Some(lease)) if hold < lease => {
            Err(Error::new(given.value.span(), "`max_hold` must not be shorter than the lease"))
        }
        _ => Ok(()),
    }
}

fn check_every(options: &Options) -> Result<()> {
    match (&options.every, known(options.every.as_ref())) {
        (Some(given), Some(every)) if !EVERY.contains(&every) => {
            let why = format!("every {} is out of range: give 1s to 366d", format_duration(every));
            Err(Error::new(given.value.span(), why))
        }
        _ => check_early(options),
    }
}

fn check_keep(options: &Options) -> Result<()> {
    let refuses = chosen(options.after_crash.as_ref()).as_deref() == Some("refuse");
    match (&options.keep, known(options.keep.as_ref())) {
        (Some(given), Some(Duration::ZERO)) if refuses => {
            let why = "keep 0s forgets a crash at once: keep results, or run again after a crash";
            Err(Error::new(given.value.span(), why))
        }
        _ => Ok(()),
    }
}

fn check_early(options: &Options) -> Result<()> {
    match (&options.early, known(options.early.as_ref()), known(options.every.as_ref())) {
        (Some(given), Some(early), Some(every)) if early > every / 2 => {
            let (early, every) = (format_duration(early), format_duration(every));
            let why = format!("early {early} is more than half of every {every}");
            Err(Error::new(given.value.span(), why))
        }
        _ => Ok(()),
    }
}

fn known(given: Option<&Given<Time>>) -> Option<Duration> {
    given?.value.known()
}

fn check_margins(options: &Options) -> Result<()> {
    let Options { stop_before, min_hold, max_hold, lease, .. } = options;
    if let (Some(given), Some(margin), Some(lease)) =
        (stop_before, known(stop_before.as_ref()), known(lease.as_ref()))
        && margin > lease / 2
    {
        let (margin, lease) = (format_duration(margin), format_duration(lease));
        let why = format!("stop_before {margin} is more than half of the lease {lease}");
        return Err(Error::new(given.value.span(), why));
    }
    let Some(given) = min_hold else { return Ok(()) };
    if options.is_released_on_expiry() {
        return given.refuse(
            "`min_hold` has no effect beside `release = \"on_expiry\"`: the hold ends with its lease: remove one",
        );
    }
    match (known(min_hold.as_ref()), known(max_hold.as_ref())) {
        (Some(least), Some(most)) if least > most => {
            Err(Error::new(given.value.span(), "`min_hold` must not be longer than `max_hold`"))
        }
        _ => Ok(()),
    }
}

fn check_range(given: &Given<Time>, shortest: Duration) -> Result<()> {
    let Some(known) = given.value.known() else { return Ok(()) };
    let limit = if known < shortest {
        if known.is_zero() { "longer than zero".to_owned() } else { format!("at least {shortest:?}") }
    } else if known > LONGEST {
        "at most 10 years".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::new(given.value.span(), format!("`{}` must be {limit}", given.option)))
}

fn check_each(options: &Options) -> Result<()> {
    let Some(each) = &options.each else { return Ok(()) };
    if each.value.0.is_empty() {
        return each.refuse("`each` takes one lock per part: name at least one, such as `each(from, to)`");
    }
    if let Some(args) = &options.args {
        return args
            .refuse("`args` makes one lock of all parts, `each` one lock per part: remove one of them");
    }
    match &options.guard {
        Some(guard) => {
            guard.refuse("`guard` binds the guard of one lock, but `each` takes several: remove one of them")
        }
        None => Ok(()),
    }
}

fn check_renewal(options: &Options) -> Result<()> {
    match (&options.renew, &options.max_hold) {
        (Some(renew), Some(max_hold)) if !renew.value.value => max_hold
            .refuse("`max_hold` limits the renewal, but `renew = false` switches it off: remove one of them"),
        _ => Ok(()),
    }
}

/// Refuses options on repeated attempts beside a `timeout` of zero, which allows one attempt only.
fn check_attempts(options: &Options) -> Result<()> {
    let (mut max_retry, retry_delay) = (options.max_retry.as_ref(), options.retry_delay.as_ref());
    let why = match &options.timeout {
        Some(timeout) if timeout.value.known().is_some_and(|timeout| timeout.is_zero()) => {
            "a `timeout` of 0 allows one attempt: remove this option, or set a longer `timeout`"
        }
        None if options.is_released_on_expiry() => {
            max_retry = max_retry.filter(|max_retry| !is_one(&max_retry.value));
            "with `release = \"on_expiry\"` the default `timeout` is 0, which allows one attempt: set a `timeout`"
        }
        _ => return Ok(()),
    };
    match (max_retry, retry_delay) {
        (Some(max_retry), _) => max_retry.refuse(why),
        (None, Some(retry_delay)) => retry_delay.refuse(why),
        (None, None) => Ok(()),
    }
}

fn is_one(count: &Expr) -> bool {
    matches!(ungrouped(count), Expr::Lit(ExprLit { lit: Lit::Int(int), .. }) if int.base10_digits() == "1")
}

fn check_burst(options: &Options) -> Result<()> {
    match &options.burst {
        Some(burst) if chosen(options.algorithm.as_ref()).as_deref() != Some("gcra") => {
            burst.refuse("`burst` needs `algorithm = \"gcra\"`")
        }
        _ => Ok(()),
    }
}

/// Refuses options that only async functions can carry out.
pub(crate) fn check_plain_function(options: &Options) -> Result<()> {
    match &options.on_lost {
        Some(on_lost) if on_lost.value.value() == "cancel" => {
            let message =
                "a plain function cannot be cancelled: make it `async fn`, or use \"continue\" or \"error\"";
            Err(Error::new(on_lost.value.span(), message))
        }
        _ => Ok(()),
    }
}

/// Refuses a `guard` that would hide a parameter.
pub(crate) fn check_guard(options: &Options, bound: &[Ident]) -> Result<()> {
    match &options.guard {
        Some(guard) if bound.contains(&guard.value) => {
            let message =
                format!("`{}` is already a parameter: choose another name for the guard", guard.value);
            Err(Error::new(guard.value.span(), message))
        }
        _ => Ok(()),
    }
}
