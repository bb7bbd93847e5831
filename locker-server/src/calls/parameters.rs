//! The parameters of a call, from a query or a form.

use super::{
    Answer,
    name::{quoted, unescape},
};
use std::borrow::Cow;

/// Everything that may be given, as bouncer has it: what a call does not need is accepted and ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// Milliseconds until a hold or a watchdog runs out.
    pub expires: Option<i64>,
    /// For the log.
    pub id: Option<Box<str>>,
    /// Milliseconds between two refills.
    pub interval: Option<i64>,
    /// Names a hold.
    pub key: Option<Box<str>>,
    /// Milliseconds to wait; negative: for ever.
    pub maxwait: Option<i64>,
    /// What waiters of an event are told.
    pub message: Option<Box<str>>,
    /// Tokens or slots.
    pub size: Option<u64>,
}

/// The names, for reasons and the OpenAPI document.
pub const NAMES: [&str; 7] = ["expires", "id", "interval", "key", "maxwait", "message", "size"];

impl Parameters {
    /// Parses a query and a form; what is given in both is given twice.
    ///
    /// # Errors
    /// 400 with the reason: an unknown parameter, one given twice, an empty value, a number that is none or beyond
    /// 2^63-1, a negative size, or text that is not properly encoded UTF-8.
    pub fn parse(query: &str, form: &str) -> Result<Self, Answer> {
        let mut parameters = Self::default();
        for pair in query.split('&').chain(form.split('&')).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            parameters.take(&text(name)?, text(value)?)?;
        }
        Ok(parameters)
    }

    fn take(&mut self, name: &str, value: Cow<'_, str>) -> Result<(), Answer> {
        let Some(name) = NAMES.into_iter().find(|known| known.eq_ignore_ascii_case(name)) else {
            let known = NAMES.join(", ");
            return Err(bad(format!("unknown parameter {}: known are {known}", quoted(name))));
        };
        if value.is_empty() && name != "message" {
            return Err(bad(format!("{name} is empty: give a value or leave it out")));
        }
        match name {
            "expires" => once(name, &mut self.expires, integer(name, &value)?),
            "interval" => once(name, &mut self.interval, integer(name, &value)?),
            "maxwait" => once(name, &mut self.maxwait, integer(name, &value)?),
            "size" => once(name, &mut self.size, size(&value)?),
            "id" => once(name, &mut self.id, value.into()),
            "key" => once(name, &mut self.key, value.into()),
            _ => once(name, &mut self.message, value.into()),
        }
    }
}

fn once<T>(name: &str, place: &mut Option<T>, value: T) -> Result<(), Answer> {
    if place.replace(value).is_some() {
        return Err(bad(format!("{name} is given twice")));
    }
    Ok(())
}

fn integer(name: &str, value: &str) -> Result<i64, Answer> {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let number = if digits.bytes().all(|byte| byte.is_ascii_digit()) { value.parse().ok() } else { None };
    number.ok_or_else(|| bad(format!("{name} is {}: give an integer up to 2^63-1", quoted(value))))
}

fn size(value: &str) -> Result<u64, Answer> {
    let size = integer("size", value)?;
    u64::try_from(size).map_err(|_| bad(format!("size is {size}: give an integer from 0 to 2^63-1")))
}

fn text(encoded: &str) -> Result<Cow<'_, str>, Answer> {
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

    fn parse(query: &str) -> Result<Parameters, Answer> {
        Parameters::parse(query, "")
    }

    #[test]
    fn takes_names_in_any_case_and_skips_empty_pairs() {
        let all = parse("&&SIZE=3&Interval=50&mAxWaIt=-7&expires=0&key=a+b%2B&message=&id=x&").unwrap();
        let expected = Parameters {
            expires: Some(0),
            id: Some("x".into()),
            interval: Some(50),
            key: Some("a b+".into()),
            maxwait: Some(-7),
            message: Some(Box::default()),
            size: Some(3),
        };
        assert_eq!(all, expected);
        assert_eq!(parse("").unwrap(), Parameters::default());
        assert_eq!(parse("size=9223372036854775807").unwrap().size, Some(i64::MAX as u64));
        assert_eq!(parse("%73ize=1").unwrap().size, Some(1));
        assert_eq!(Parameters::parse("size=2", "maxwait=0").unwrap().maxwait, Some(0));
    }

    #[test]
    fn refuses_with_a_reason_on_one_line() {
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
        ] {
            let answer = parse(query).expect_err(query);
            assert_eq!(answer.status, 400);
            assert!(!answer.body.is_empty() && !answer.body.contains('\n'), "{query}: {}", answer.body);
        }
        assert_eq!(Parameters::parse("size=1", "size=1").unwrap_err().body, "size is given twice");
    }

    proptest! {
        #[test]
        fn never_panics_and_refuses_only_with_400(query in ".{0,80}", form in ".{0,40}") {
            if let Err(answer) = Parameters::parse(&query, &form) {
                prop_assert_eq!(answer.status, 400);
                prop_assert!(!answer.body.contains('\n'));
            }
        }

        #[test]
        fn reads_back_what_was_written(size in 0..=i64::MAX, maxwait: i64, key in ".{1,40}", message in ".{0,40}") {
            let encode = |text: &str| percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string();
            let query = format!("size={size}&maxwait={maxwait}&key={}&message={}", encode(&key), encode(&message));
            let read = parse(&query).unwrap();
            prop_assert_eq!(read.size, Some(size.unsigned_abs()));
            prop_assert_eq!(read.maxwait, Some(maxwait));
            prop_assert_eq!(read.key.as_deref(), Some(&*key));
            prop_assert_eq!(read.message.as_deref(), Some(&*message));
        }
    }
}
