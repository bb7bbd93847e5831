//! The rules for names.

use percent_encoding::percent_decode_str;
use std::borrow::Cow;

/// The longest name, in bytes.
pub(super) const MAX_LENGTH: usize = 200;

/// The name of the server's own rate limiter. Clients cannot use it, because it has a slash.
pub(crate) const TIME_SLOTS: &str = "zeromq/time-slots";

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

/// Parses the key of an attribute's lock in a path segment.
///
/// # Errors
/// The reason unless it is a printable key that ends in two md5 digests with `:lock|` between them. The rest belongs to
/// other kinds of data, which a lock must not touch.
pub(super) fn parse_key(segment: &str) -> Result<String, String> {
    let refused = |reason: &str| {
        Err(format!("{reason}: the key of a lock_on_argument attribute is PREFIX, md5, `:lock|`, md5"))
    };
    let Some(key) = unescape(segment) else { return refused("the key is not properly encoded UTF-8") };
    if key.len() > MAX_LENGTH {
        return refused(&format!("the key has {} bytes", key.len()));
    }
    if !is_lock_of_attribute(&key) || !is_printable(&key) {
        return refused(&format!("no such key: {}", quoted(&key)));
    }
    Ok(key.into_owned())
}

fn is_lock_of_attribute(key: &str) -> bool {
    const MD5: usize = 32;
    let is_md5 = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let digests = key.rsplit_once(":lock|").filter(|(_, arguments)| arguments.len() == MD5);
    digests.is_some_and(|(function, arguments)| {
        let at = function.len().checked_sub(MD5);
        let function = at.and_then(|at| function.get(at..));
        is_md5(arguments) && function.is_some_and(is_md5)
    })
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
    fn only_locks_of_attributes_have_keys() {
        let md5 = "e7d1e70120eddf339445617f6b481243";
        let key = format!("{md5}:lock|{md5}");
        assert_eq!(parse_key(&format!("{md5}%3Alock%7C{md5}")).as_ref(), Ok(&key));
        assert_eq!(parse_key(&format!("app%2F{key}")), Ok(format!("app/{key}")));
        for other in [
            "",
            "lock:a",
            ":lock|",
            &format!("{md5}:sem|{md5}"),
            &format!("{md5}:lock|"),
            &format!("{md5}:lock|{md5}0"),
            &format!("{}:lock|{md5}", &md5[1..]),
            &format!("ü{}:lock|{md5}", &md5[1..]),
            &format!("{}:lock|{md5}", md5.to_uppercase()),
            &format!("%0A{key}"),
            &format!("{}{key}", "p".repeat(MAX_LENGTH)),
            "%FF",
        ] {
            let reason = parse_key(other).expect_err(other);
            assert!(!reason.contains('\n'), "{reason}");
        }
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
