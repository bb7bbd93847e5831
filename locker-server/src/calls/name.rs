//! The rules for names.

use super::Answer;
use percent_encoding::percent_decode_str;
use std::borrow::Cow;

/// The longest name, in bytes.
pub const LONGEST: usize = 200;

/// Undoes percent-encoding, refusing what is not properly encoded UTF-8. `None`: it is not.
#[must_use]
pub fn unescape(text: &str) -> Option<Cow<'_, str>> {
    if !text.as_bytes().contains(&b'%') {
        return Some(Cow::Borrowed(text));
    }
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|&byte| byte == b'%') {
        let [high, low, ..] = rest[at + 1..] else { return None };
        if !(high.is_ascii_hexdigit() && low.is_ascii_hexdigit()) {
            return None;
        }
        rest = &rest[at + 3..];
    }
    percent_decode_str(text).decode_utf8().ok()
}

/// The name in a path segment.
///
/// # Errors
/// 400 unless it is 1 to 200 bytes of printable UTF-8 without `/`.
pub fn parse(segment: &str) -> Result<String, Answer> {
    let refused = |reason: &str| {
        Err(Answer::bad_request(format!(
            "{reason}: a name is 1 to {LONGEST} bytes of printable UTF-8 without /"
        )))
    };
    let Some(name) = unescape(segment) else { return refused("the name is not properly encoded UTF-8") };
    if name.len() > LONGEST {
        return refused(&format!("the name has {} bytes", name.len()));
    }
    if name.contains('/') {
        return refused("the name contains /");
    }
    match check(&name) {
        Ok(()) => Ok(name.into_owned()),
        Err(reason) => refused(&reason),
    }
}

/// What holds for names of locks, too, which stand in no path.
///
/// # Errors
/// The reason, unless it is printable and not empty.
pub fn check(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("the name is empty".into());
    }
    if !is_printable(name) {
        return Err(format!("the name {} is not printable", quoted(name)));
    }
    Ok(())
}

fn is_printable(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~')) || {
        let plain = |c: &char| !matches!(c, '"' | '\'' | '\\');
        let text: String = text.chars().filter(plain).collect();
        text.escape_debug().eq(text.chars())
    }
}

/// Text of a client's making, fit for a log or a one-line reason: in quotes, escaped, cut short.
#[must_use]
pub fn quoted(text: &str) -> String {
    const SHOWN: usize = 80;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_can_be_printed() {
        for (segment, name) in [
            ("myapp", "myapp"),
            ("a%20b", "a b"),
            ("a+b", "a+b"),
            ("%E2%82%AC", "€"),
            ("ünïcödé", "ünïcödé"),
            ("e%CC%81", "e\u{301}"),
            ("quote%22%27%5C%C3%A9", "quote\"'\\é"),
            ("%25", "%"),
        ] {
            assert_eq!(parse(segment).as_deref(), Ok(name));
        }
        assert!(parse(&"n".repeat(LONGEST)).is_ok());
    }

    #[test]
    fn refuses_what_cannot() {
        let too_long = "n".repeat(LONGEST + 1);
        for segment in [
            "",
            "a%2Fb",
            "a%00",
            "%0A",
            "%7F",
            "%C2%85",
            "%E2%80%AE",
            "%E2%80%A8",
            "%FF",
            "%",
            "%4",
            "%zz",
            &too_long,
        ] {
            let answer = parse(segment).unwrap_err();
            assert_eq!(answer.status, 400, "{segment}");
            assert!(!answer.body.contains('\n'));
        }
    }
}
