//! The parameters of a call, from a query or a form.

mod run;

use super::{
    actions::Action,
    answer::Answer,
    name::{quoted, unescape},
    resource::Resource,
};
use locker_runtime::{Mode, primitives::counter::MAX_VALUE};
use run::checked_result;
pub(crate) use run::{Counts, Run};
use std::{borrow::Cow, time::Duration};

/// The parameters as a client sent them. As in bouncer, a call accepts and ignores parameters that it does not need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RawParams {
    pub(super) after_crash: Option<AfterCrash>,
    pub(super) amount: Option<i64>,
    pub(super) early: Option<u64>,
    pub(super) every: Option<u64>,
    pub(super) expires: Option<i64>,
    pub(super) from: Option<u64>,
    pub(super) id: Option<Box<str>>,
    pub(super) interval: Option<i64>,
    pub(super) keep: Option<u64>,
    pub(super) key: Option<Box<str>>,
    pub(super) maxwait: Option<i64>,
    pub(super) message: Option<Box<str>>,
    pub(super) mode: Option<Mode>,
    pub(super) result: Option<Box<str>>,
    pub(super) same: Option<Box<str>>,
    pub(super) size: Option<u64>,
    pub(super) value: Option<i64>,
}

/// What follows if a run ends without a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterCrash {
    Repeat,
    Refuse,
}

const NAMES: [&str; 17] = [
    "after_crash",
    "amount",
    "early",
    "every",
    "expires",
    "from",
    "id",
    "interval",
    "keep",
    "key",
    "maxwait",
    "message",
    "mode",
    "result",
    "same",
    "size",
    "value",
];

impl RawParams {
    /// Parses a query and a form. A parameter in both is given twice.
    ///
    /// # Errors
    /// 400 with the reason: an unknown parameter, a parameter given twice, an empty value, a malformed number or one
    /// beyond 2^63-1, a negative size, or text that is not properly encoded UTF-8.
    pub(crate) fn parse(query: &str, form: &str) -> Result<Self, Answer> {
        Self::parse_beside(query, form, |_, _| None)
    }

    /// Parses the parameters of a deletion, which has a `fence`, too.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub(crate) fn parse_deletion(query: &str, form: &str) -> Result<(Self, Option<u64>), Answer> {
        let mut fence = None;
        let parameters = Self::parse_beside(query, form, |name, value| {
            let set = || natural("fence", value).and_then(|number| once("fence", &mut fence, number));
            name.eq_ignore_ascii_case("fence").then(set)
        })?;
        Ok((parameters, fence))
    }

    /// `other` takes parameters that not all calls have.
    fn parse_beside(
        query: &str,
        form: &str,
        mut other: impl FnMut(&str, &str) -> Option<Result<(), Answer>>,
    ) -> Result<Self, Answer> {
        let mut parameters = Self::default();
        for pair in query.split('&').chain(form.split('&')).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (text(name)?, text(value)?);
            match other(&name, &value) {
                Some(taken) => taken?,
                None => parameters.set(&name, value)?,
            }
        }
        Ok(parameters)
    }

    fn set(&mut self, name: &str, value: Cow<'_, str>) -> Result<(), Answer> {
        let Some(name) = NAMES.into_iter().find(|known| known.eq_ignore_ascii_case(name)) else {
            let known = NAMES.join(", ");
            return Err(bad(format!("unknown parameter {}: known are {known}", quoted(name))));
        };
        if value.is_empty() && name != "message" {
            return Err(bad(format!("{name} is empty: give a value or leave it out")));
        }
        match name {
            "amount" => once(name, &mut self.amount, integer(name, &value)?),
            "value" => once(name, &mut self.value, integer(name, &value)?),
            "mode" => once(
                name,
                &mut self.mode,
                one_of(name, &value, [("read", Mode::Read), ("write", Mode::Write)])?,
            ),
            "after_crash" => {
                let values = [("repeat", AfterCrash::Repeat), ("refuse", AfterCrash::Refuse)];
                once(name, &mut self.after_crash, one_of(name, &value, values)?)
            }
            "early" => once(name, &mut self.early, natural(name, &value)?),
            "every" => once(name, &mut self.every, natural(name, &value)?),
            "from" => once(name, &mut self.from, natural(name, &value)?),
            "keep" => once(name, &mut self.keep, natural(name, &value)?),
            "result" => once(name, &mut self.result, value.into()),
            "same" => once(name, &mut self.same, value.into()),
            "expires" => once(name, &mut self.expires, integer(name, &value)?),
            "interval" => once(name, &mut self.interval, integer(name, &value)?),
            "maxwait" => once(name, &mut self.maxwait, integer(name, &value)?),
            "size" => once(name, &mut self.size, natural(name, &value)?),
            "id" => once(name, &mut self.id, value.into()),
            "key" => once(name, &mut self.key, value.into()),
            _ => once(name, &mut self.message, value.into()),
        }
    }
}

/// Checked parameters with their defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Params {
    /// Tokens per interval, slots, callers of a round, or count-downs.
    pub(crate) size: u64,
    /// The time between two refills.
    pub(crate) interval: Duration,
    /// How long to wait. [`Duration::MAX`] means indefinitely.
    pub(crate) maxwait: Duration,
    /// The lifetime of a hold or a watchdog. `None` means that it never expires.
    pub(crate) expires: Option<Duration>,
    /// The name of a hold.
    pub(crate) key: Option<Box<str>>,
    /// The message for the waiters of an event, or the result of a run.
    pub(crate) message: Option<Box<str>>,
    /// The side of a read/write lock.
    pub(crate) mode: Mode,
    /// What to add to a counter, or to set it to.
    pub(crate) number: i64,
    /// The run that is asked for.
    pub(crate) run: Option<Box<Run>>,
}

const DEFAULT_EXPIRES: Duration = Duration::from_mins(1);

impl Params {
    pub(super) fn new(action: Action, raw: RawParams) -> Result<Self, Answer> {
        let run = (action == Action::BeginRun).then(|| Run::new(&raw).map(Box::new)).transpose()?;
        let RawParams { amount, expires, interval, key, maxwait, message, mode, result, size, value, .. } =
            raw;
        let message = if action == Action::FinishRun { checked_result(result)? } else { message };
        let (held, taken_by) = match action.row().resource {
            Resource::Once => ("run", "begin"),
            _ => ("lock", "acquire"),
        };
        if key.is_none() && action.needs_key() {
            return Err(bad(format!("key is missing: give the key that {taken_by} returned")));
        }
        if mode.is_none() && action == Action::AcquireSide {
            return Err(bad("mode is missing: give read or write".into()));
        }
        let least = |name, number: Option<i64>, unit| match (action.min(name), number) {
            (Some(min), Some(number)) if number < min && action.row().parameters.contains(&name) => {
                Err(bad(format!("{name} is {number}: give at least {min}{unit}")))
            }
            _ => Ok(number),
        };
        least("size", size.map(u64::cast_signed), "")?;
        if expires == Some(0) && action.has_end() {
            return Err(bad(format!(
                "expires is 0: a {held} always ends: give at least 1 (ms), and renew it"
            )));
        }
        let number = match action {
            Action::ResetCounter => exact("value", least("value", value, "")?.unwrap_or(0))?,
            Action::Count => exact("amount", least("amount", amount, "")?.unwrap_or(1))?,
            _ => 0,
        };
        Ok(Self {
            size: size.unwrap_or_else(|| action.default_size()),
            interval: least("interval", interval, " (ms)")?.map_or(Duration::from_secs(1), millis),
            maxwait: match maxwait.unwrap_or(-1) {
                ..0 => Duration::MAX,
                ms => millis(ms),
            },
            expires: match least("expires", expires, " (ms)")? {
                Some(..=0) => None,
                expires => Some(expires.map_or(DEFAULT_EXPIRES, millis)),
            },
            key,
            message,
            mode: mode.unwrap_or(Mode::Write),
            number,
            run,
        })
    }
}

/// Refuses numbers that counters do not represent exactly.
fn exact(name: &str, number: i64) -> Result<i64, Answer> {
    if number > MAX_VALUE {
        return Err(bad(format!("{name} is {number}: give at most {MAX_VALUE}")));
    }
    Ok(number)
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

pub(crate) fn once<T>(name: &str, field: &mut Option<T>, value: T) -> Result<(), Answer> {
    if field.replace(value).is_some() {
        return Err(bad(format!("{name} is given twice")));
    }
    Ok(())
}

fn integer(name: &str, value: &str) -> Result<i64, Answer> {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let number = if digits.bytes().all(|byte| byte.is_ascii_digit()) { value.parse().ok() } else { None };
    number.ok_or_else(|| bad(format!("{name} is {}: give an integer up to 2^63-1", quoted(value))))
}

fn natural(name: &str, value: &str) -> Result<u64, Answer> {
    let number = integer(name, value)?;
    u64::try_from(number).map_err(|_| bad(format!("{name} is {number}: give an integer from 0 to 2^63-1")))
}

fn one_of<T>(name: &str, value: &str, [one, other]: [(&str, T); 2]) -> Result<T, Answer> {
    match value {
        _ if value == one.0 => Ok(one.1),
        _ if value == other.0 => Ok(other.1),
        _ => Err(bad(format!("{name} is {}: give {} or {}", quoted(value), one.0, other.0))),
    }
}

pub(super) fn text(encoded: &str) -> Result<Cow<'_, str>, Answer> {
    let refused = || bad(format!("{} is not properly encoded UTF-8", quoted(encoded)));
    if !encoded.as_bytes().contains(&b'+') {
        return unescape(encoded).ok_or_else(refused);
    }
    let spaced = encoded.replace('+', " ");
    unescape(&spaced).map(|text| Cow::Owned(text.into_owned())).ok_or_else(refused)
}

fn bad(reason: String) -> Answer {
    Answer::bad_request(reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(query: &str) -> Result<RawParams, Answer> {
        RawParams::parse(query, "")
    }

    #[test]
    fn names_are_case_insensitive() {
        let all = "&&SIZE=3&Interval=50&mAxWaIt=-7&expires=0&key=a+b%2B&message=&id=x&Amount=-2&MODE=read&value=-0&\
            every=1&FROM=2&early=3&Keep=0&same=a&after_crash=refuse&RESULT=%7B%7D";
        let all = parse(all).unwrap();
        let expected = RawParams {
            after_crash: Some(AfterCrash::Refuse),
            early: Some(3),
            every: Some(1),
            from: Some(2),
            keep: Some(0),
            result: Some("{}".into()),
            same: Some("a".into()),
            amount: Some(-2),
            expires: Some(0),
            id: Some("x".into()),
            interval: Some(50),
            key: Some("a b+".into()),
            maxwait: Some(-7),
            message: Some(Box::default()),
            mode: Some(Mode::Read),
            size: Some(3),
            value: Some(0),
        };
        assert_eq!(all, expected);
        assert_eq!(parse("").unwrap(), RawParams::default());
        assert_eq!(parse("size=9223372036854775807").unwrap().size, Some(i64::MAX as u64));
        assert_eq!(parse("%73ize=1").unwrap().size, Some(1));
        assert_eq!(RawParams::parse("size=2", "maxwait=0").unwrap().maxwait, Some(0));
    }

    #[test]
    fn wrong_queries_are_400_with_a_reason() {
        for query in [
            "size=",
            "size",
            "=1",
            "=",
            "sizes=1",
            "size=1&size=1",
            "size=1&SIZE=2",
            "size=-1",
            "size=1.5",
            "size=a",
            "size=+1",
            "size=%2B1",
            "size=9223372036854775808",
            "size=18446744073709551615",
            "interval=1e3",
            "maxwait=-9223372036854775809",
            "expires=%",
            "expires=%4",
            "expires=%zz",
            "key=%FF",
            "%FF=1",
            "key=",
            "token=secret",
            "size=--1",
            "size=-",
            "size= 1",
            "size=1%0A",
            "id=",
            "size=1;maxwait=0",
            "mode=Read",
            "mode=",
            "amount=1.0",
            "value=",
            "keep=-1",
            "every=1s",
            "after_crash=again",
            "result=",
            "same=",
        ] {
            let answer = parse(query).expect_err(query);
            assert_eq!(answer.status, 400);
            assert!(!answer.body.is_empty() && !answer.body.contains('\n'), "{query}: {}", answer.body);
        }
        assert_eq!(RawParams::parse("size=1", "size=1").unwrap_err().body, "size is given twice");
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_400(query in ".{0,80}", form in ".{0,40}") {
            if let Err(answer) = RawParams::parse(&query, &form) {
                prop_assert_eq!(answer.status, 400);
                prop_assert!(!answer.body.contains('\n'));
            }
        }

        #[test]
        fn written_parameters_are_read_back(size in 0..=i64::MAX, maxwait: i64, amount: i64, value: i64, key in ".{1,40}", message in ".{0,40}") {
            let encode = |text: &str| percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string();
            let query = format!("size={size}&maxwait={maxwait}&amount={amount}&value={value}&key={}&message={}", encode(&key), encode(&message));
            let read = parse(&query).unwrap();
            prop_assert_eq!(read.size, Some(size.unsigned_abs()));
            prop_assert_eq!((read.maxwait, read.amount, read.value), (Some(maxwait), Some(amount), Some(value)));
            prop_assert_eq!(read.key.as_deref(), Some(&*key));
            prop_assert_eq!(read.message.as_deref(), Some(&*message));
        }
    }
}
