//! The two forms of the keys of this library, told from the keys of other programs.

use super::Key;

/// The kinds that keys have between the prefix and the name.
const KINDS: [&str; 11] = [
    "lock",
    "rwlock",
    "semaphore",
    "leader",
    "once",
    "rate",
    "event",
    "watchdog",
    "barrier",
    "latch",
    "counter",
];

/// The parts between the two digests in the keys of attributes.
const PARTS: [&str; 4] = ["lock", "semaphore", "rate", "once"];

/// The digest of no arguments.
const NOTHING: &str = "d41d8cd98f00b204e9800998ecf8427e";

/// The meaning of a key: a primitive with a kind and a name, or an annotated function with its arguments.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Named {
    /// The primitive that `Locker::lock` and the methods beside it name.
    #[non_exhaustive]
    Kind {
        /// The kind, one of [`Named::KINDS`].
        kind: &'static str,
        /// The name, or its MD5 digest if a key cannot spell it.
        name: String,
    },
    /// The lock, the semaphore, the rate limit or the record of an annotated function. `Locker::lock_on` and the Python
    /// decorator make keys of this form, too.
    #[non_exhaustive]
    Function {
        /// The MD5 digest of the function's path, or of `name = ".."`, in 32 hexadecimal digits.
        digest: String,
        /// The kind of the primitive: `lock` (also in read or write mode), `semaphore`, `rate` or `once`.
        part: &'static str,
        /// The MD5 digest of the arguments, or `None` if the key has no arguments. The arguments themselves are not
        /// stored.
        arguments: Option<String>,
    },
}

impl Named {
    /// The kinds of primitives with names.
    pub const KINDS: &'static [&'static str] = &KINDS;

    /// Reads a key below `prefix`. Returns `None` if the key is not of this library.
    #[must_use]
    pub fn of(prefix: &str, key: &Key) -> Option<Self> {
        let (head, tail) = key.as_str().strip_prefix(prefix)?.split_once(':')?;
        if let Some(kind) = KINDS.into_iter().find(|kind| *kind == head) {
            return Some(Self::Kind { kind, name: tail.to_owned() });
        }
        let (part, arguments) = tail.split_once('|')?;
        let part = PARTS.into_iter().find(|known| *known == part)?;
        let arguments = (arguments != NOTHING).then(|| arguments.to_owned());
        let is_ours = is_digest(head) && arguments.as_deref().is_none_or(is_digest);
        is_ours.then(|| Self::Function { digest: head.to_owned(), part, arguments })
    }

    /// Returns the kind of a name, or the part of a function's key.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Kind { kind, .. } => kind,
            Self::Function { part, .. } => part,
        }
    }
}

fn is_digest(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyFormat;

    fn of(prefix: &str, text: &str) -> Option<Named> {
        Named::of(prefix, &Key::new(text))
    }

    #[test]
    fn named_reads_the_keys_that_are_made_here() {
        let named = Named::of("app/", &Key::named("app/", "rate", "a:b|c"));
        assert_eq!(named, Some(Named::Kind { kind: "rate", name: "a:b|c".into() }));
        for (parts, has_arguments) in [(&[&1 as &dyn crate::key::KeyPart][..], true), (&[], false)] {
            let key = Key::on("app/", KeyFormat::Escaped, "bank.withdraw", parts);
            let Some(Named::Function { digest, part, arguments }) = Named::of("app/", &key) else {
                panic!("{key}")
            };
            assert!(key.as_str().starts_with(&format!("app/{digest}:lock|")), "{key}");
            assert_eq!((part, arguments.is_some()), ("lock", has_arguments));
        }
    }

    #[test]
    fn keys_of_other_programs_name_nothing() {
        let md5 = "0123456789abcdef0123456789abcdef";
        for text in [
            "a",
            "session:7",
            "lock",
            &format!("{md5}:lock"),
            &format!("{md5}:lock|"),
            &format!("{md5}:lock|{md5}0"),
            &format!("{md5}:lock|{}", md5.to_uppercase()),
            &format!("{md5}:list|{md5}"),
            &format!("x{}:lock|{md5}", &md5[1..]),
        ] {
            assert_eq!(of("", text), None, "{text}");
        }
        assert_eq!(of("app/", "lock:a"), None);
        assert_eq!(of("app/", "other/lock:a"), None);
    }
}
