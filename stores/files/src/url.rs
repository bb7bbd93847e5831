//! The `file://` URL.

use locker_core::{
    error::Result,
    store::url::{Form, Hosts, StoreUrl},
};
use std::{ffi::OsString, os::unix::ffi::OsStringExt, path::PathBuf};

const FORM: Form = Form {
    store: "file",
    accepted: "file:///PATH, the absolute path of a directory, with % and two digits for special bytes",
    hosts: Hosts::None,
    parameters: &[],
    logins: &[],
};

/// Returns the directory that a URL names.
pub(super) fn read(url: &str) -> Result<PathBuf> {
    let url = StoreUrl::read(url, &FORM)?;
    if url.path.contains(&0) {
        return Err(url.wrong("path", "contains a zero byte"));
    }
    let path = PathBuf::from(OsString::from_vec(url.path.clone()));
    if path.parent().is_none() {
        return Err(url.wrong("path", "is missing, or is the root directory"));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_names_a_directory() {
        for (url, path) in [
            ("file:///run/lock", "/run/lock"),
            ("FILE:///run/lock/", "/run/lock"),
            ("file:///a%20b%2fc/%C3%A4", "/a b/c/ä"),
            ("file:///a%3Fb%23c%25@d:e", "/a?b#c%@d:e"),
            ("file:////a", "/a"),
        ] {
            assert_eq!(read(url).unwrap(), PathBuf::from(path), "{url}");
        }
        assert_eq!(read("file:///%ff").unwrap().into_os_string().into_vec(), b"/\xff");
    }

    #[test]
    fn wrong_urls_are_refused_by_part() {
        for (url, part) in [
            ("file://dir", "the host"),
            ("file://localhost/dir", "the host"),
            ("file://", "the path"),
            ("file:///", "the path"),
            ("file:///dir%00", "the path"),
            ("file:///dir?sync=1", "the parameter `sync`"),
            ("file:///dir?", "the query"),
        ] {
            let error = read(url).expect_err(url);
            assert!(error.message().starts_with(&format!("{part} in the file URL")), "{url}: {error}");
        }
    }
}
