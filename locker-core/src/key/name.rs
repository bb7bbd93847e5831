//! Keys of named primitives.

use super::{Key, build, hex, text};
use md5::{Digest, Md5};

const LONGEST: usize = 200;

impl Key {
    /// Creates the key of the primitive `name`: `prefix`, `kind` (`lock`, `semaphore`, `rate` ..), `:` and the name.
    ///
    /// A name that is longer than 200 bytes or contains braces or control characters is replaced by its MD5 digest.
    #[doc(hidden)]
    #[must_use]
    pub fn named(prefix: &str, kind: &str, name: &str) -> Self {
        if name.len() > LONGEST || !is_plain(name) {
            return Self::named(prefix, kind, text(&hex(&Md5::digest(name))));
        }
        build(|buffer| {
            buffer.push_str(prefix);
            buffer.push_str(kind);
            buffer.push(':');
            buffer.push_str(name);
        })
    }
}

impl Key {
    /// Returns the MD5 digest of the text, in hexadecimal digits.
    #[doc(hidden)]
    #[must_use]
    pub fn digest(&self) -> String {
        text(&hex(&Md5::digest(self.as_str()))).to_owned()
    }
}

/// The ASCII characters except braces and control characters.
const PLAIN: [bool; 256] = {
    let (mut plain, mut byte) = ([false; 256], b' ');
    while byte <= b'~' {
        plain[byte as usize] = byte != b'{' && byte != b'}';
        byte += 1;
    }
    plain
};

/// Returns `true` if `name` has neither braces nor control characters. ASCII names are checked byte by byte.
fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| PLAIN[usize::from(byte)])
        || name.chars().all(|letter| !matches!(letter, '{' | '}') && !letter.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_name_is_kept() {
        assert_eq!(Key::named("app/", "lock", "größe").as_str(), "app/lock:größe");
        let longest = "x".repeat(LONGEST);
        assert_eq!(Key::named("", "rate", &longest).as_str(), format!("rate:{longest}"));
    }

    #[test]
    fn unusual_name_is_replaced_by_its_md5() {
        // python3 -c "import hashlib; print(hashlib.md5(b'x' * 201).hexdigest())", then b'a{b}', b'a\nb' and
        // b'a\xc2\x85'
        for (name, md5) in [
            ("x".repeat(201).as_str(), "3ea01af1716230e4a1484e78b3199f61"),
            ("a{b}", "731eca2082f7b35876f319b1f36c7774"),
            ("a\nb", "8cdeb44417f3c26826595d5820cf5700"),
            ("a\u{85}", "008ba868cb0589a59a1ee436be93b0de"),
        ] {
            assert_eq!(Key::named("p:", "lock", name).as_str(), format!("p:lock:{md5}"));
        }
    }
}
