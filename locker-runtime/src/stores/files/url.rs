//! The `file://` URL.

use locker_core::error::{Error, ErrorKind, Result};
use std::{ffi::OsString, os::unix::ffi::OsStringExt, path::PathBuf};

const ACCEPTED: &str =
    "accepted is file:///PATH, the absolute path of a directory, with % and two digits for special bytes";

/// Returns the directory that a URL names.
pub(super) fn read(url: &str) -> Result<PathBuf> {
    let rest = url.split_once("://").filter(|(scheme, _)| scheme.eq_ignore_ascii_case("file"));
    let Some((_, rest)) = rest else {
        return Err(misused(&format!("`{url}` is not a file URL")));
    };
    if let Some((_, fragment)) = rest.split_once('#') {
        return Err(misused(&format!(
            "the file URL has a fragment (#{fragment}); write %23 for a # in a path"
        )));
    }
    if let Some((_, parameters)) = rest.split_once('?') {
        let name = parameters.split(['=', '&']).next().unwrap_or_default();
        return Err(misused(&format!(
            "the file URL has the unknown parameter `{name}`; write %3F for a ? in a path"
        )));
    }
    let Some(at) = rest.find('/') else {
        return Err(misused(&format!("the path in `{url}` is not absolute: three slashes begin it")));
    };
    let (host, path) = rest.split_at(at);
    if !host.is_empty() {
        let message =
            format!("the file URL names the host `{host}`, but takes none: three slashes begin its path");
        return Err(misused(&message));
    }
    let path =
        decoded(path).ok_or_else(|| misused(&format!("`{url}` has a % without two hexadecimal digits")))?;
    if path.contains(&0) {
        return Err(misused(&format!("the path in `{url}` contains a zero byte")));
    }
    let path = PathBuf::from(OsString::from_vec(path));
    if path.parent().is_none() {
        return Err(misused("the file URL names the root directory"));
    }
    Ok(path)
}

/// Replaces `%` and two digits by the byte that they name.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let (mut out, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        out.push(if byte == b'%' { digit(rest.next()?)? << 4 | digit(rest.next()?)? } else { byte });
    }
    Some(out)
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

fn misused(what: &str) -> Error {
    Error::new(ErrorKind::Misused, format!("{what}; {ACCEPTED}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_decoded() {
        for (url, path) in [
            ("file:///run/lock", "/run/lock"),
            ("FILE:///run/lock/", "/run/lock"),
            ("file:///a%20b%2fc/%C3%A4", "/a b/c/ä"),
            ("file:///a%3Fb%23c%25", "/a?b#c%"),
            ("file:////a", "/a"),
        ] {
            assert_eq!(read(url).unwrap(), PathBuf::from(path), "{url}");
        }
    }

    #[test]
    fn other_urls_are_refused_by_what_is_wrong() {
        for (url, named) in [
            ("file://dir", "three slashes"),
            ("file://", "three slashes"),
            ("file://dir/sub", "host `dir`"),
            ("file://localhost/dir", "host `localhost`"),
            ("file:///dir?sync=1", "parameter `sync`"),
            ("file:///dir?", "parameter ``"),
            ("file:///dir#x", "fragment (#x)"),
            ("file:///dir%2", "hexadecimal"),
            ("file:///dir%zz", "hexadecimal"),
            ("file:///dir%00", "zero byte"),
            ("file:///", "root directory"),
            ("file:/dir", "not a file URL"),
        ] {
            let error = read(url).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Misused, "{url}");
            assert!(
                error.message().contains(named) && error.message().contains("accepted is"),
                "{url}: {error}"
            );
        }
    }
}
