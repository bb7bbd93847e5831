//! The second half of a key: which arguments.

use super::{FunctionDigest, Key, build, hex, text};
use md5::{Digest, Md5};
use std::fmt::{self, Display, Write};

/// How arguments are written into a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyFormat {
    /// `\` becomes `\\` and `:` becomes `\:` inside an argument, so that `("a:b", "c")` and `("a", "b:c")` are
    /// different locks. Arguments without these characters give the same key in both formats.
    #[default]
    Escaped,
    /// Arguments as they are: for sharing locks with the Python decorator on any argument.
    Python,
}

/// What can be part of a key: every type that is [`Display`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a lock key: implement Display or pass a field such as `args(order.id)`",
    label = "cannot be part of a lock key",
    note = "a key is made of what `Display` writes"
)]
pub trait KeyPart: Display {}

#[diagnostic::do_not_recommend]
impl<T: Display + ?Sized> KeyPart for T {}

/// A key in the making: `md5(function) + kind + md5(arguments)` behind the prefix.
pub struct KeyBuilder<'a> {
    prefix: &'a str,
    function: &'a FunctionDigest,
    kind: &'static str,
    arguments: Arguments,
}

struct Arguments {
    md5: Md5,
    format: KeyFormat,
    first: bool,
}

impl<'a> KeyBuilder<'a> {
    pub(crate) fn new(
        prefix: &'a str,
        format: KeyFormat,
        function: &'a FunctionDigest,
        kind: &'static str,
    ) -> Self {
        Self { prefix, function, kind, arguments: Arguments { md5: Md5::new(), format, first: true } }
    }

    /// Adds the next argument.
    pub fn part<T: KeyPart + ?Sized>(&mut self, part: &T) {
        self.arguments.push(part);
    }

    /// The key.
    #[must_use]
    pub fn finish(self) -> Key {
        let arguments = hex(&self.arguments.md5.finalize());
        build(|room| room.extend([self.prefix, text(&self.function.0), self.kind, text(&arguments)]))
    }
}

impl fmt::Debug for KeyBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyBuilder").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Arguments {
    fn push<T: Display + ?Sized>(&mut self, part: &T) {
        if !self.first {
            self.md5.update(":");
        }
        self.first = false;
        // A `Display` that fails has written what it has; the writer below never fails.
        let _ = write!(self, "{part}");
    }
}

impl Write for Arguments {
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
    /// The key that `#[lock_on_argument(name = "..", args(..))]` gives these arguments.
    pub(crate) fn on(prefix: &str, format: KeyFormat, name: &str, parts: &[&dyn KeyPart]) -> Self {
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
    fn python_format_gives_the_keys_of_the_python_formula() {
        for (parts, expected) in PYTHON {
            assert_eq!(key(KeyFormat::Python, parts), expected);
        }
    }

    #[test]
    fn escaped_format_differs_only_where_an_argument_has_a_colon_or_backslash() {
        for (parts, expected) in PYTHON {
            let plain = parts.iter().all(|part| !part.to_string().contains([':', '\\']));
            assert_eq!(key(KeyFormat::Escaped, parts) == expected, plain);
        }
        let escaped = key(KeyFormat::Escaped, &[&"a:b", &r"c\"]);
        assert_eq!(escaped, key(KeyFormat::Python, &[&r"a\:b", &r"c\\"]));
    }

    #[test]
    fn prefix_stands_before_the_key_as_written() {
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
        fn escaped_keys_are_equal_only_for_equal_arguments(a in parts(), b in parts()) {
            let of = |parts: &[String]| {
                key(KeyFormat::Escaped, &parts.iter().map(|part| part as &dyn KeyPart).collect::<Vec<_>>())
            };
            prop_assert_eq!(of(&a) == of(&b), a == b);
        }

        #[test]
        fn how_a_part_writes_itself_does_not_matter(head in r"[a:\\é]{0,6}", tail in r"[a:\\é]{0,6}") {
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
