//! What the fuzz target calls. A broken law is a panic.

use super::{builder::LockerBuilder, locker::Locker, stores};
use locker_core::error::{ErrorKind, Result};

/// In place of a password.
const SECRET: &str = ":sekret@";

/// Checks the URL of a store, as far as that is possible without opening the store.
///
/// # Panics
/// If a law is broken.
pub fn store_url(bytes: &[u8]) {
    let Ok(url) = str::from_utf8(bytes) else { return };
    let checked = check(url);
    shows_no_password(url, &format!("{:?} {}", builder(url), stores::without_login(url)));
    if let Err(error) = &checked {
        assert_eq!(error.kind(), ErrorKind::Misused, "{error}");
        shows_no_password(url, &format!("{error} {error:?}"));
    }
    let is_valid = checked.is_ok();
    if let Some((scheme, rest)) = url.split_once("://") {
        let other = format!("{}://{rest}", scheme.to_ascii_uppercase());
        assert_eq!(check(&other).is_ok(), is_valid, "schemes ignore case");
    }
    if is_valid {
        with_options(url);
    }
}

fn builder(url: &str) -> LockerBuilder {
    Locker::builder().url(url)
}

fn check(url: &str) -> Result<()> {
    builder(url).check_unopened()
}

/// A text about a URL does not show what is in place of its password.
fn shows_no_password(url: &str, text: &str) {
    if url.contains(SECRET) && url.matches("sekret").count() == 1 {
        assert!(!text.contains("sekret"), "{text}");
    }
}

/// Options beside a valid URL make another valid one, or are refused.
fn with_options(url: &str) {
    let (name, value) = ("allow_eviction", "no");
    let Ok(with_option) = stores::with_parameter(url, name, value) else { return };
    assert!(check(&with_option).is_ok(), "{with_option}");
    assert_eq!(stores::with_parameter(&with_option, name, value).ok(), Some(with_option));
}

#[cfg(test)]
mod tests {
    use locker_harness::corpus;

    #[test]
    fn corpus_of_urls_keeps_the_laws() {
        corpus("store_url", super::store_url);
    }
}
