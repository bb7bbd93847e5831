//! The options of calls, which come as keyword arguments.

use crate::{
    errors::{misused, raised},
    guard::{Guard, Guards},
    key::Function,
    seconds::Seconds,
    text::text,
};
use locker_runtime::{
    Election, LockRequest, LockerBuilder, OnceKeep, OncePer,
    private::bindings::{Holding, check_keep},
};
use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyBool, PyDict, PyString},
};
use std::time::Duration;

/// Sets how a lock, a term or a run is held.
macro_rules! held_as {
    ($asked:expr, $holds:expr) => {{
        let (mut asked, holds) = ($asked, $holds);
        if let Some(renew) = holds.renew {
            asked = asked.renew(renew);
        }
        if let Some(max_hold) = holds.max_hold {
            asked = asked.max_hold(max_hold);
        }
        if let Some(margin) = holds.stop_before {
            asked = asked.stop_before(margin);
        }
        if let Some(min_hold) = holds.min_hold {
            asked = asked.min_hold(min_hold);
        }
        if let Some(fair) = holds.fair {
            asked = asked.fair(fair);
        }
        asked
    }};
}

/// Sets how a call runs or waits for a run.
macro_rules! run_as {
    ($call:expr, $run:expr, $defaults:expr) => {{
        let RunOptions { lease, timeout, refuses_after_crash, holds } = $run;
        let mut call = held_as!($call, holds.or($defaults));
        if let Some(lease) = lease {
            call = call.lease(lease);
        }
        if let Some(timeout) = timeout {
            call = call.timeout(timeout);
        }
        if refuses_after_crash { call.refuse_after_crash() } else { call }
    }};
}

/// How a hold is waited for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) lease: Option<Duration>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) max_retry: Option<u32>,
    pub(crate) retry_delay: Option<Duration>,
}

/// How a hold is held.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Holds {
    pub(crate) renew: Option<bool>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) stop_before: Option<Duration>,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) fair: Option<bool>,
    pub(crate) on_expiry: Option<bool>,
}

/// The options of one call.
#[derive(Default)]
pub(crate) struct HoldOptions<'py> {
    pub(crate) waiting: Waiting,
    pub(crate) holds: Holds,
    pub(crate) function: Option<Bound<'py, Function>>,
    pub(crate) try_once: bool,
    pub(crate) around: Vec<Holding>,
}

impl<'py> HoldOptions<'py> {
    pub(crate) fn read(options: Option<&Bound<'py, PyDict>>) -> PyResult<Self> {
        let mut read = Self::default();
        for (name, value) in options.into_iter().flatten() {
            let name = name.cast_into::<PyString>()?;
            let name = &*name.to_cow()?;
            if read.waiting.set(name, &value)? || read.holds.set(name, &value)? || value.is_none() {
                continue;
            }
            match name {
                "function" => read.function = Some(value.cast_into()?),
                "try_once" => read.try_once = value.extract()?,
                "inside" => read.around = around(&value)?,
                _ => return Err(unexpected(name)),
            }
        }
        Ok(read)
    }

    /// Returns the request with these options, and with those of the locker where a call has none.
    pub(crate) fn request(&self, mut request: LockRequest, defaults: Holds) -> LockRequest {
        let Waiting { lease, timeout, max_retry, retry_delay } = self.waiting;
        let holds = self.holds.or(defaults);
        if let Some(lease) = lease {
            request = request.lease(lease);
        }
        // As with the attributes: a call within the lease of the last call gets `TimedOut` at once.
        if let Some(timeout) = timeout.or(holds.on_expiry.unwrap_or(false).then_some(Duration::ZERO)) {
            request = request.timeout(timeout);
        }
        if let Some(attempts) = max_retry {
            request = request.max_retry(attempts);
        }
        if let Some(delay) = retry_delay {
            request = request.retry_delay(delay);
        }
        request = held_as!(request, holds);
        if holds.on_expiry == Some(true) { request.release_on_expiry() } else { request }
    }
}

/// The options of an election.
#[derive(Clone, Debug, Default)]
pub(crate) struct ElectionOptions {
    lease: Option<Duration>,
    holds: Holds,
    note: Option<String>,
}

impl ElectionOptions {
    pub(crate) fn read(options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut read = Self::default();
        for (name, value) in options.into_iter().flatten() {
            let name = name.cast_into::<PyString>()?;
            let name = &*name.to_cow()?;
            match name {
                "lease" => read.lease = time(name, &value)?,
                "note" if value.is_none() => {}
                "note" => read.note = Some(text(name, &value)?),
                "release" => return Err(unexpected(name)),
                _ if read.holds.set(name, &value)? => {}
                _ => return Err(unexpected(name)),
            }
        }
        Ok(read)
    }

    /// Returns the election with these options, and with those of the locker where it has none.
    pub(crate) fn election(&self, election: Election, defaults: Holds) -> Election {
        let Self { lease, holds, note } = self.clone();
        // As in Rust: a locker without a margin leaves it to the election.
        let stop_before = defaults.stop_before.filter(|margin| !margin.is_zero());
        let mut election = held_as!(election, holds.or(Holds { stop_before, ..defaults }));
        if let Some(lease) = lease {
            election = election.lease(lease);
        }
        match note {
            Some(note) => election.note(note),
            None => election,
        }
    }
}

/// The options that all runs have.
#[derive(Clone, Copy, Debug, Default)]
struct RunOptions {
    lease: Option<Duration>,
    timeout: Option<Duration>,
    refuses_after_crash: bool,
    holds: Holds,
}

impl RunOptions {
    /// Reads options. What is none of all runs is for `own`, which returns whether it is an option.
    fn read(
        options: Option<&Bound<'_, PyDict>>,
        mut own: impl FnMut(&str, &Bound<'_, PyAny>) -> PyResult<bool>,
    ) -> PyResult<Self> {
        let mut read = Self::default();
        for (name, value) in options.into_iter().flatten() {
            let name = name.cast_into::<PyString>()?;
            let name = &*name.to_cow()?;
            match name {
                "lease" => read.lease = time(name, &value)?,
                "timeout" => read.timeout = time(name, &value)?,
                "after_crash" => read.refuses_after_crash = after_crash(&value)?,
                "release" => return Err(unexpected(name)),
                _ if read.holds.set(name, &value)? || own(name, &value)? => {}
                _ => return Err(unexpected(name)),
            }
        }
        Ok(read)
    }
}

/// The options of a call that runs once per slot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SlotOptions {
    pub(crate) from: Option<Duration>,
    pub(crate) early: Option<Duration>,
    run: RunOptions,
}

impl SlotOptions {
    pub(crate) fn read(options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let (mut from, mut early) = (None, None);
        let run = RunOptions::read(options, |name, value| {
            match name {
                "from_" => from = time(name, value)?,
                "early" => early = time(name, value)?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(Self { from, early, run })
    }

    /// Returns the call with these options, but for those of its slots, and with those of the locker where it has none.
    pub(crate) fn call(self, call: OncePer, defaults: Holds) -> OncePer {
        run_as!(call, self.run, defaults)
    }
}

/// The options of an idempotent call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeepOptions {
    max_size: Option<usize>,
    run: RunOptions,
}

impl KeepOptions {
    pub(crate) fn read(options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut max_size = None;
        let run = RunOptions::read(options, |name, value| {
            if name == "max_size" {
                max_size = number(name, value, "a number of bytes from 1 to 524288")?;
            }
            Ok(name == "max_size")
        })?;
        Ok(Self { max_size, run })
    }

    /// Checks the options beside this `keep`, as the call itself does.
    pub(crate) fn check(&self, py: Python<'_>, keep: Duration) -> PyResult<()> {
        check_keep(keep, self.max_size, self.run.refuses_after_crash).map_err(|error| raised(py, &error))
    }

    /// Returns the call with these options, and with those of the locker where it has none.
    pub(crate) fn call(self, call: OnceKeep, defaults: Holds) -> OnceKeep {
        let call = run_as!(call, self.run, defaults);
        match self.max_size {
            Some(bytes) => call.max_size(bytes),
            None => call,
        }
    }
}

impl Waiting {
    /// Sets an option. Returns `false` if it is none of these.
    pub(crate) fn set(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        match name {
            "lease" => self.lease = time(name, value)?,
            "timeout" => self.timeout = time(name, value)?,
            "max_retry" => self.max_retry = count(name, value)?,
            "retry_delay" => self.retry_delay = time(name, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(crate) fn build(self, mut builder: LockerBuilder) -> LockerBuilder {
        if let Some(lease) = self.lease {
            builder = builder.lease(lease);
        }
        if let Some(timeout) = self.timeout {
            builder = builder.timeout(timeout);
        }
        if let Some(attempts) = self.max_retry {
            builder = builder.max_retry(attempts);
        }
        if let Some(delay) = self.retry_delay {
            builder = builder.retry_delay(delay);
        }
        builder
    }
}

impl Holds {
    /// Sets an option. Returns `false` if it is none of these.
    pub(crate) fn set(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        match name {
            "renew" => self.renew = truth(name, value)?,
            "max_hold" => self.max_hold = time(name, value)?,
            "stop_before" => self.stop_before = time(name, value)?,
            "min_hold" => self.min_hold = time(name, value)?,
            "fair" => self.fair = truth(name, value)?,
            "release" => self.on_expiry = on_expiry(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn or(self, defaults: Self) -> Self {
        // A call without renewals does not contradict a locker with a longest hold.
        let max_hold = if self.renew == Some(false) { None } else { defaults.max_hold };
        Self {
            renew: self.renew.or(defaults.renew),
            max_hold: self.max_hold.or(max_hold),
            stop_before: self.stop_before.or(defaults.stop_before),
            min_hold: self.min_hold.or(defaults.min_hold),
            fair: self.fair.or(defaults.fair),
            on_expiry: self.on_expiry.or(defaults.on_expiry),
        }
    }
}

/// Reads an option that may be absent, and names it in an error.
pub(crate) fn option<'py, T>(name: &str, value: &Bound<'py, PyAny>, what: &str) -> PyResult<Option<T>>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    if value.is_none() {
        return Ok(None);
    }
    let refused = || misused(value.py(), format!("{name}={value:?}: give {what}"));
    value.extract::<T>().map(Some).map_err(|_| refused())
}

pub(crate) fn time(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    let what = "seconds, a text such as \"800ms\" or \"1m 30s\", or a timedelta, and nothing negative";
    let Some(Seconds(time)) = option::<Seconds>(name, value, what)? else { return Ok(None) };
    let most = match name {
        "timeout" if time == Duration::MAX => return Ok(Some(time)),
        "timeout" => "10 years, or math.inf to wait for ever",
        "every" => "366d",
        _ => "10 years",
    };
    if time > LONGEST {
        let shown = value.repr().map_or_else(|_| String::new(), |shown| format!("={shown}"));
        let shown = if shown.len() > 40 { "" } else { &shown };
        return Err(misused(value.py(), format!("{name}{shown} is too long: give at most {most}")));
    }
    Ok(Some(time))
}

/// What the runtime accepts.
const LONGEST: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// Reads the option of a handle that waits.
pub(crate) fn timeout(value: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    time("timeout", value)
}

/// Reads the time of a rate limit.
pub(crate) fn per(value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let per = given("per", value)?;
    if per < Duration::from_micros(1) {
        return Err(misused(value.py(), format!("per={value:?} is too short: give at least 1µs")));
    }
    Ok(per)
}

/// Reads a time that has to be given.
pub(crate) fn given(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    time(name, value)?.ok_or_else(|| misused(value.py(), format!("{name}=None: give seconds")))
}

pub(crate) fn count(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
    number(name, value, "a number from 1 to 4294967295")
}

/// Reads a number that may be absent, which no truth is.
fn number<'py, T>(name: &str, value: &Bound<'py, PyAny>, what: &str) -> PyResult<Option<T>>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    if value.is_instance_of::<PyBool>() {
        return Err(misused(value.py(), format!("{name}={value:?}: give {what}")));
    }
    option(name, value, what)
}

pub(crate) fn truth(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
    option(name, value, "True or False")
}

fn after_crash(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    match option::<String>("after_crash", value, AFTER_CRASH)?.as_deref() {
        None | Some("repeat") => Ok(false),
        Some("refuse") => Ok(true),
        Some(other) => Err(misused(value.py(), format!("after_crash={other:?}: give {AFTER_CRASH}"))),
    }
}

const AFTER_CRASH: &str = "\"repeat\" or \"refuse\"";

fn on_expiry(value: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
    match option::<String>("release", value, RELEASE)?.as_deref() {
        None => Ok(None),
        Some("on_return") => Ok(Some(false)),
        Some("on_expiry") => Ok(Some(true)),
        Some(other) => Err(misused(value.py(), format!("release={other:?}: give {RELEASE}"))),
    }
}

const RELEASE: &str = "\"on_return\" or \"on_expiry\"";

pub(crate) fn around(guards: &Bound<'_, PyAny>) -> PyResult<Vec<Holding>> {
    let mut around = Vec::new();
    for guard in guards.try_iter()? {
        let guard = guard?;
        match guard.cast::<Guards>() {
            Ok(guards) => around.extend(guards.get().all.iter().map(|guard| guard.get().holding.clone())),
            Err(_) => around.push(guard.cast::<Guard>()?.get().holding.clone()),
        }
    }
    Ok(around)
}

pub(crate) fn unexpected(name: &str) -> PyErr {
    PyTypeError::new_err(format!("got an unexpected keyword argument '{name}'"))
}
