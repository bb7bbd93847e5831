//! The three attributes and what each of them takes.

use proc_macro2::Ident;
use std::fmt;
use syn::{Error, Path, Result};

/// Which attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Lock,
    Rate,
    Semaphore,
}

const ALL: [Kind; 3] = [Kind::Lock, Kind::Rate, Kind::Semaphore];

const COMMON: &[&str] = &["args", "name", "timeout", "on_error", "locker", "crate"];
const HOLDING: &[&str] = &[
    "lease",
    "expr",
    "expire",
    "max_retry",
    "retry_delay",
    "renew",
    "max_hold",
    "release",
    "fair",
    "on_lost",
    "guard",
];

/// What others call them.
const SYNONYMS: &[(&str, &str)] = &[
    ("ttl", "lease"),
    ("lease_time", "lease"),
    ("expires", "expire"),
    ("expiration", "expire"),
    ("duration", "lease"),
    ("key", "args"),
    ("keys", "args"),
    ("wait", "timeout"),
    ("retries", "max_retry"),
    ("attempts", "max_retry"),
    ("limit", "size"),
    ("permits", "size"),
    ("max", "size"),
    ("per", "interval"),
    ("window", "interval"),
    ("period", "interval"),
];

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock_on_argument",
            Self::Rate => "rate_limit",
            Self::Semaphore => "limit_concurrency",
        }
    }

    /// What the runtime calls it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Rate => "rate",
            Self::Semaphore => "semaphore",
        }
    }

    /// An attribute of this crate, written bare or behind the library's name.
    pub(crate) fn of_path(path: &Path, library: &str) -> Option<Self> {
        let (last, before) =
            path.segments.iter().collect::<Vec<_>>().split_last().map(|(l, b)| (*l, b.to_vec()))?;
        let ours = match before[..] {
            [] => true,
            [only] => only.ident == library || only.ident == "locker",
            _ => false,
        };
        ALL.into_iter().find(|kind| ours && last.ident == kind.name())
    }

    /// How long the first options of this attribute usually look.
    pub(crate) fn example(self) -> &'static str {
        match self {
            Self::Lock => "`expr = 10, args(0, 1)`",
            Self::Rate => "`size = 5, interval = \"800ms\", args(0)`",
            Self::Semaphore => "`size = 10, expr = 60, args(0)`",
        }
    }

    /// The option of that name, aliases resolved.
    pub(crate) fn option(self, name: &Ident) -> Result<&'static str> {
        let text = name.to_string();
        match self.options().find(|option| *option == text) {
            Some("expr" | "expire") => Ok("lease"),
            Some(option) => Ok(option),
            None => Err(Error::new(name.span(), self.unknown(&text))),
        }
    }

    /// A name that stands alone and is no option was meant to be a part of the key.
    pub(crate) fn refuse_part(self, name: &Ident) -> Result<()> {
        if self.option(name).is_ok() {
            return Ok(());
        }
        let message = format!("`{self}` has no option `{name}`; did you mean `args({name})`?");
        Err(Error::new(name.span(), message))
    }

    fn options(self) -> impl Iterator<Item = &'static str> {
        let own: [&[&str]; 2] = match self {
            Self::Lock => [HOLDING, &["each", "mode"]],
            Self::Rate => [&["size", "interval", "algorithm", "burst"], &[]],
            Self::Semaphore => [HOLDING, &["size"]],
        };
        COMMON.iter().chain(own[0]).chain(own[1]).copied()
    }

    fn unknown(self, name: &str) -> String {
        let others = ALL.into_iter().filter(|kind| kind.options().any(|option| option == name));
        let others = others.map(|kind| format!("`{kind}`")).collect::<Vec<_>>();
        if !others.is_empty() {
            return format!("`{name}` is an option of {}, not of `{self}`", others.join(" and "));
        }
        if let Some(near) = self.meant_by(name) {
            return format!("`{self}` has no option `{name}`; did you mean `{near}`?");
        }
        let all = self.options().collect::<Vec<_>>().join("`, `");
        format!("`{self}` has no option `{name}`; it has `{all}`")
    }

    fn meant_by(self, name: &str) -> Option<&'static str> {
        let synonym = SYNONYMS.iter().find(|(other, _)| *other == name).map(|(_, own)| *own);
        let near = self.options().max_by(|a, b| likeness(a, name).total_cmp(&likeness(b, name)));
        let near = near.filter(|near| likeness(near, name) > 0.7);
        synonym.filter(|own| self.options().any(|option| option == *own)).or(near)
    }
}

pub(crate) fn likeness(a: &str, b: &str) -> f64 {
    strsim::jaro_winkler(a, b)
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
