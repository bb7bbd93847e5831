//! The first part of an attribute's key: the digest of the function.

use super::{Hex, hex, text};
use md5::{Digest, Md5};
use once_cell::race::OnceBox;
use std::{
    any::type_name,
    sync::atomic::{AtomicU64, Ordering},
};

/// The MD5 digest of a function's path, as keys contain it.
#[derive(Debug)]
pub struct FunctionDigest {
    hex: Hex,
    /// What operators read: the name, the file and the line. `None` for a digest that was made from a name alone.
    description: Option<String>,
    /// The lockers that have heard of the function, one bit each.
    heard: AtomicU64,
}

/// A function with an attribute. It is a `static` beside the function and caches the digest.
#[derive(Debug)]
pub struct Function {
    module: &'static str,
    name: &'static str,
    file: &'static str,
    line: u32,
    digests: OnceBox<Cached>,
    path: OnceBox<String>,
}

/// One digest per `Self`: a `static` in a trait's default method is shared by all implementors.
#[derive(Debug)]
struct Cached {
    receiver: &'static str,
    digest: FunctionDigest,
    next: OnceBox<Cached>,
}

impl Function {
    /// Creates the function `name` in `module`, the path of which `module_path!()` writes, at a line of a file.
    #[must_use]
    pub const fn new(module: &'static str, name: &'static str, file: &'static str, line: u32) -> Self {
        Self { module, name, file, line, digests: OnceBox::new(), path: OnceBox::new() }
    }

    /// Creates a function with the full name `name`, independent of its path, as in `name = "bank.withdraw"`.
    #[must_use]
    pub const fn named(name: &'static str, file: &'static str, line: u32) -> Self {
        Self::new("", name, file, line)
    }

    /// Returns module and name, such as `bank::api::withdraw`, or the name given: for errors and events.
    pub fn path(&'static self) -> &'static str {
        if self.module.is_empty() {
            return self.name;
        }
        self.path.get_or_init(|| Box::new(format!("{}::{}", self.module, self.name)))
    }

    /// Returns the file and the line, if there is a file.
    #[must_use]
    pub fn place(&self) -> Option<String> {
        (!self.file.is_empty()).then(|| format!("{}:{}", self.file, self.line))
    }

    /// Returns the digest of a function without a receiver.
    pub fn digest(&self) -> &FunctionDigest {
        self.cached("")
    }

    /// Returns the digest of a method of `T`.
    pub fn digest_of<T: ?Sized>(&self) -> &FunctionDigest {
        self.cached(type_name::<T>())
    }

    fn cached(&self, receiver: &'static str) -> &FunctionDigest {
        let mut slot = &self.digests;
        loop {
            let cached = slot.get_or_init(|| Box::new(self.compute(receiver)));
            if cached.receiver == receiver {
                return &cached.digest;
            }
            slot = &cached.next;
        }
    }

    fn compute(&self, receiver: &'static str) -> Cached {
        let paths = [self.module, type_segment(receiver), self.name];
        let digest = FunctionDigest::described(&paths, self.file, self.line);
        Cached { receiver, digest, next: OnceBox::new() }
    }
}

impl FunctionDigest {
    /// Returns the digest of these paths without the empty ones: `bank::api`, `Account` and `close` are hashed as
    /// `bank:api:Account:close`.
    pub(crate) fn of(paths: &[&str]) -> Self {
        let mut md5 = Md5::new();
        let mut first = true;
        for segment in paths.iter().filter(|path| !path.is_empty()).flat_map(|path| segments(path)) {
            if !first {
                md5.update(":");
            }
            first = false;
            md5.update(segment);
        }
        Self { hex: hex(&md5.finalize()), description: None, heard: AtomicU64::new(0) }
    }

    /// Returns the digest of these paths, which operators read with a line of a file beside it.
    #[must_use]
    pub fn described(paths: &[&str], file: &str, line: u32) -> Self {
        let description = format!("{}\n{file}\n{line}", joined(paths));
        Self { description: Some(description), ..Self::of(paths) }
    }

    /// Returns the digest in hexadecimal digits.
    pub fn as_str(&self) -> &str {
        text(&self.hex)
    }

    /// Returns the name, the file and the line, each on a line of its own.
    pub fn description(&self) -> Option<String> {
        self.description.clone()
    }

    /// Returns whether the locker with this bit has heard of the function.
    pub fn is_marked(&self, bit: u64) -> bool {
        self.heard.load(Ordering::Relaxed) & bit != 0
    }

    /// Marks that the locker with this bit has heard of the function.
    pub fn mark(&self, bit: u64) {
        self.heard.fetch_or(bit, Ordering::Relaxed);
    }
}

/// Joins paths by `.`, as operators write the name of a function.
fn joined(paths: &[&str]) -> String {
    let segments = paths.iter().filter(|path| !path.is_empty()).flat_map(|path| segments(path));
    segments.collect::<Vec<_>>().join(".")
}

/// Splits a path at `.` and `::` and removes `r#` from raw identifiers.
fn segments(path: &str) -> impl Iterator<Item = &str> {
    let segments = path.split("::").flat_map(|part| part.split('.'));
    segments.map(|segment| segment.strip_prefix("r#").unwrap_or(segment))
}

/// Returns the bare name of a type: `Account` of `bank::Account<bank::Eur>`. It is independent of generic arguments.
fn type_segment(name: &str) -> &str {
    let name = without_generics(name.strip_prefix("dyn ").map_or(name, |bounds| before(bounds, " + ")));
    let last = name.rsplit("::").next().unwrap_or(name);
    last.trim_matches(|c: char| !c.is_alphanumeric() && c != '_')
}

fn before<'a>(text: &'a str, end: &str) -> &'a str {
    text.split(end).next().unwrap_or(text)
}

/// Returns the name without one trailing `<..>`, which may contain `->` and nested brackets.
fn without_generics(name: &str) -> &str {
    let mut depth = 0_u32;
    for (at, c) in name.char_indices().rev() {
        match c {
            '>' if !name[..at].ends_with('-') => depth += 1,
            '<' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return if c == '<' { &name[..at] } else { name };
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fmt::Debug, marker::PhantomData};

    struct Account;
    struct Ledger<T: ?Sized>(PhantomData<T>);
    trait Close {
        fn digest(&self) -> String {
            static FUNCTION: Function = Function::new("bank", "close", "bank.rs", 7);
            text(FUNCTION.digest_of::<Self>())
        }
    }
    impl Close for Account {}
    impl<T: ?Sized> Close for Ledger<T> {}

    fn text(digest: &FunctionDigest) -> String {
        digest.as_str().to_owned()
    }

    // python3 -c "import hashlib; print(hashlib.md5(b'bank:api:withdraw').hexdigest())"
    const WITHDRAW: &str = "ecd283d2bca37a43399613c65a5a037d";

    #[test]
    fn path_and_name_match_the_python_decorator() {
        assert_eq!(text(Function::new("bank::api", "withdraw", "", 0).digest()), WITHDRAW);
        assert_eq!(text(Function::named("bank.api.withdraw", "", 0).digest()), WITHDRAW);
        assert_eq!(text(Function::named("bank::api::withdraw", "", 0).digest()), WITHDRAW);
        assert_eq!(text(&FunctionDigest::of(&["bank.api.withdraw"])), WITHDRAW);
        assert_eq!(text(Function::new("bank::r#api", "r#withdraw", "", 0).digest()), WITHDRAW);
    }

    #[test]
    fn path_is_the_name_given_or_that_of_the_item() {
        static OF_ITEM: Function = Function::new("bank::api", "withdraw", "", 0);
        static NAMED: Function = Function::named("bank.withdraw", "", 0);
        assert_eq!(
            [OF_ITEM.path(), OF_ITEM.path(), NAMED.path()],
            ["bank::api::withdraw"; 2].into_iter().chain(["bank.withdraw"]).collect::<Vec<_>>()[..]
        );
    }

    #[test]
    fn implementors_of_a_trait_differ_in_digest() {
        let digests = [Account.digest(), Ledger::<u8>(PhantomData).digest(), Account.digest()];
        assert_eq!(digests[0], text(&FunctionDigest::of(&["bank.Account.close"])));
        assert_eq!(digests[1], text(&FunctionDigest::of(&["bank.Ledger.close"])));
        assert_eq!(digests[2], digests[0]);
    }

    #[test]
    fn generic_arguments_do_not_change_the_digest() {
        let bytes = Ledger::<fn(u8) -> Vec<Account>>(PhantomData).digest();
        assert_eq!(bytes, Ledger::<dyn Debug>(PhantomData).digest());
    }

    #[test]
    fn description_has_name_file_and_line() {
        static CLOSE: Function = Function::new("bank::r#api", "close", "src/bank.rs", 12);
        assert_eq!(CLOSE.digest().description().unwrap(), "bank.api.close\nsrc/bank.rs\n12");
        let of_account = CLOSE.digest_of::<Account>().description().unwrap();
        assert_eq!(of_account, "bank.api.Account.close\nsrc/bank.rs\n12");
        assert_eq!(FunctionDigest::of(&["bank"]).description(), None);
        assert_eq!(CLOSE.place().as_deref(), Some("src/bank.rs:12"));
    }

    #[test]
    fn type_segment_is_the_bare_name() {
        struct Local;
        impl Close for Local {}
        for (name, segment) in [
            (type_name::<Account>(), "Account"),
            (type_name::<Local>(), "Local"),
            (type_name::<Ledger<Ledger<fn() -> Account>>>(), "Ledger"),
            (type_name::<&mut Account>(), "Account"),
            (type_name::<[Account]>(), "Account"),
            (type_name::<dyn Debug + Send>(), "Debug"),
            (type_name::<str>(), "str"),
            ("", ""),
        ] {
            assert_eq!(type_segment(name), segment, "{name}");
        }
    }
}
