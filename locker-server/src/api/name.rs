//! The rules for names.

use percent_encoding::percent_decode_str;
use std::borrow::Cow;

/// The longest name, in bytes.
pub(super) const MAX_LENGTH: usize = 200;

/// Decodes percent-encoding. Returns `None` if the text is not properly encoded UTF-8.
pub(super) fn unescape(text: &str) -> Option<Cow<'_, str>> {
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

/// Parses the name in a path segment.
///
/// # Errors
/// The reason unless the name is 1 to 200 bytes of printable UTF-8 without `/`.
pub(super) fn parse(segment: &str) -> Result<String, String> {
    let refused = |reason: &str| {
        Err(format!("{reason}: a name is 1 to {MAX_LENGTH} bytes of printable UTF-8 without /"))
    };
    let Some(name) = unescape(segment) else { return refused("the name is not properly encoded UTF-8") };
    if name.len() > MAX_LENGTH {
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

/// Checks the part of the rules that also applies to names of locks, which are never in a path.
///
/// # Errors
/// The reason if the name is empty or not printable.
pub(crate) fn check(name: &str) -> Result<(), String> {
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

/// Returns a client's text in quotes, escaped and cut short, for a log line or a one-line reason.
pub(crate) fn quoted(text: &str) -> String {
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
    fn printable_names_are_accepted() {
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
        assert!(parse(&"n".repeat(MAX_LENGTH)).is_ok());
    }

    #[test]
    fn other_names_are_refused() {
        let too_long = "n".repeat(MAX_LENGTH + 1);
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
            let reason = parse(segment).expect_err(segment);
            assert!(!reason.contains('\n'), "{reason}");
        }
    }
}
