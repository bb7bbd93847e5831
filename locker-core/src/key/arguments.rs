//! The second part of an attribute's key: the digest of the arguments.

use super::{FunctionDigest, Key, build, hex, text};
use md5::{Digest, Md5};
use std::fmt::{self, Display, Write};

/// The format in which arguments are written into a key. All processes that share locks must use the same format.
///
/// In both formats the arguments are joined by `:` and hashed with MD5. Arguments without `:` and `\` have the same key
/// in both formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyFormat {
    /// Writes `\` as `\\` and `:` as `\:` inside an argument, so that `("a:b", "c")` and `("a", "b:c")` are different
    /// locks. The default.
    #[default]
    Escaped,
    /// Writes arguments unchanged, as the Python decorator does. Use it to share locks with the decorator on any
    /// argument; `("a:b", "c")` and `("a", "b:c")` are then one lock.
    Python,
}

/// A value that can be part of a key. Every type that implements [`Display`] implements it; the key contains the text
/// that `Display` writes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a lock key: implement Display or pass a field such as `args(order.id)`",
    label = "cannot be part of a lock key",
    note = "a key is made of what `Display` writes"
)]
pub trait KeyPart: Display {}

#[diagnostic::do_not_recommend]
impl<T: Display + ?Sized> KeyPart for T {}

/// The builder of an attribute's key: the prefix, `md5(function)`, the kind and `md5(arguments)`.
pub struct KeyBuilder<'a> {
    prefix: &'a str,
    function: &'a FunctionDigest,
    kind: &'static str,
    arguments: ArgumentsDigest,
}

/// The digest of arguments, as a key contains it.
pub struct ArgumentsDigest {
    md5: Md5,
    format: KeyFormat,
    first: bool,
}

impl<'a> KeyBuilder<'a> {
    /// Begins the key of a call of `function`.
    pub fn new(prefix: &'a str, format: KeyFormat, function: &'a FunctionDigest, kind: &'static str) -> Self {
        Self { prefix, function, kind, arguments: ArgumentsDigest::new(format) }
    }

    /// Adds the next argument.
    pub fn part<T: KeyPart + ?Sized>(&mut self, part: &T) {
        self.arguments.part(part);
    }

    /// Returns the key.
    #[must_use]
    pub fn finish(self) -> Key {
        let arguments = hex(&self.arguments.md5.finalize());
        build(|buffer| buffer.extend([self.prefix, self.function.as_str(), self.kind, text(&arguments)]))
    }
}

impl fmt::Debug for KeyBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyBuilder").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl ArgumentsDigest {
    /// Begins without an argument.
    #[must_use]
    pub fn new(format: KeyFormat) -> Self {
        Self { md5: Md5::new(), format, first: true }
    }

    /// Adds the next argument.
    pub fn part<T: KeyPart + ?Sized>(&mut self, part: &T) {
        if !self.first {
            self.md5.update(":");
        }
        self.first = false;
        // The writer below never fails. If `Display` itself fails, the key contains the text up to the failure.
        let _ = write!(self, "{part}");
    }

    /// Returns the digest.
    #[must_use]
    pub fn finish(self) -> u128 {
        u128::from_be_bytes(self.md5.finalize().into())
    }
}

impl fmt::Debug for ArgumentsDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArgumentsDigest").finish_non_exhaustive()
    }
}

impl Write for ArgumentsDigest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.format == KeyFormat::Python {
            self.md5.update(text);
            return Ok(());
        }
        for run in text.split_inclusive([':', '\\']) {
            match run.as_bytes().split_last() {
                Some((special @ (b':' | b'\\'), plain)) => {
                    self.md5.update(plain);
                    self.md5.update([b'\\', *special]);
                }
                _ => self.md5.update(run),
            }
        }
        Ok(())
    }
}

impl Key {
    /// Returns the key of `#[lock_on_argument(name = "..", args(..))]` for these arguments.
    #[doc(hidden)]
    pub fn on(prefix: &str, format: KeyFormat, name: &str, parts: &[&dyn KeyPart]) -> Self {
        let function = FunctionDigest::of(&[name]);
        let mut key = KeyBuilder::new(prefix, format, &function, ":lock|");
        for part in parts {
            key.part(*part);
        }
        key.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(format: KeyFormat, parts: &[&dyn KeyPart]) -> String {
        Key::on("", format, "bank.withdraw", parts).to_string()
    }

    // python3 -c "from hashlib import md5; h = lambda s: md5(s.encode()).hexdigest();
    // print(h('bank:withdraw') + ':lock|' + h(':'.join(str(a) for a in (6222, 100))))", and so on.
    const PYTHON: [(&[&dyn KeyPart], &str); 4] = [
        (&[&6222, &100], "e7d1e70120eddf339445617f6b481243:lock|3733c69536a04d53d3607351a4d1c8c1"),
        (&[], "e7d1e70120eddf339445617f6b481243:lock|d41d8cd98f00b204e9800998ecf8427e"),
        (&[&"a:b", &"c"], "e7d1e70120eddf339445617f6b481243:lock|02cc8f08398a4f3113b554e8105ebe4c"),
        (&[&"größe", &-1], "e7d1e70120eddf339445617f6b481243:lock|cc0a24ec24ae4bd86415eaf2a033f9df"),
    ];

    #[test]
    fn python_format_matches_the_python_decorator() {
        for (parts, expected) in PYTHON {
            assert_eq!(key(KeyFormat::Python, parts), expected);
        }
    }

    #[test]
    fn only_colons_and_backslashes_are_escaped() {
        for (parts, expected) in PYTHON {
            let plain = parts.iter().all(|part| !part.to_string().contains([':', '\\']));
            assert_eq!(key(KeyFormat::Escaped, parts) == expected, plain);
        }
        let escaped = key(KeyFormat::Escaped, &[&"a:b", &r"c\"]);
        assert_eq!(escaped, key(KeyFormat::Python, &[&r"a\:b", &r"c\\"]));
    }

    #[test]
    fn prefix_precedes_the_key_unchanged() {
        let parts: &[&dyn KeyPart] = &[&1];
        let bare = key(KeyFormat::Escaped, parts);
        for prefix in ["app/", &"x".repeat(500)] {
            let prefixed = Key::on(prefix, KeyFormat::Escaped, "bank.withdraw", parts);
            assert_eq!(prefixed.as_str(), format!("{prefix}{bare}"));
        }
    }

    fn parts() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec(r"[a:\\]{0,4}", 1..5)
    }

    proptest! {
        #[test]
        fn escaped_keys_are_unique_per_arguments(a in parts(), b in parts()) {
            let of = |parts: &[String]| {
                key(KeyFormat::Escaped, &parts.iter().map(|part| part as &dyn KeyPart).collect::<Vec<_>>())
            };
            prop_assert_eq!(of(&a) == of(&b), a == b);
        }

        #[test]
        fn chunks_of_display_do_not_change_the_key(head in r"[a:\\é]{0,6}", tail in r"[a:\\é]{0,6}") {
            struct InTwo<'a>(&'a str, &'a str);
            impl Display for InTwo<'_> {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(self.0)?;
                    f.write_str(self.1)
                }
            }
            let (whole, in_two) = (format!("{head}{tail}"), InTwo(&head, &tail));
            prop_assert_eq!(key(KeyFormat::Escaped, &[&whole]), key(KeyFormat::Escaped, &[&in_two]));
        }
    }
}
