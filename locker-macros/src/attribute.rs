//! The six attributes and the options that each of them takes.

use proc_macro2::Ident;
use std::fmt;
use syn::{Error, Path, Result};

/// An attribute of this crate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attribute {
    Lock,
    Rate,
    Semaphore,
    Leader,
    Once,
    Idempotent,
}

/// An option of an attribute, whatever alias it is written with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OptionName {
    Args,
    Name,
    Timeout,
    OnError,
    Locker,
    Crate,
    Lease,
    MaxRetry,
    RetryDelay,
    Renew,
    MaxHold,
    StopBefore,
    MinHold,
    Release,
    Fair,
    OnLost,
    Guard,
    Each,
    Mode,
    Size,
    Interval,
    Algorithm,
    Burst,
    Every,
    From,
    Early,
    AfterCrash,
    OnSkip,
    Keep,
    Same,
    MaxSize,
}

use OptionName as O;

const COMMON: &[OptionName] = &[O::Args, O::Name, O::Timeout, O::OnError, O::Locker, O::Crate];
const HOLDING: &[OptionName] = &[
    O::Lease,
    O::MaxRetry,
    O::RetryDelay,
    O::Renew,
    O::MaxHold,
    O::StopBefore,
    O::MinHold,
    O::Release,
    O::Fair,
    O::OnLost,
    O::Guard,
];

/// Names from other libraries, with the option that does the same here.
const SYNONYMS: &[(&str, OptionName)] = &[
    ("ttl", O::Lease),
    ("lease_time", O::Lease),
    ("duration", O::Lease),
    ("key", O::Args),
    ("keys", O::Args),
    ("wait", O::Timeout),
    ("retries", O::MaxRetry),
    ("attempts", O::MaxRetry),
    ("limit", O::Size),
    ("permits", O::Size),
    ("max", O::Size),
    ("per", O::Interval),
    ("window", O::Interval),
    ("period", O::Interval),
    ("margin", O::StopBefore),
    ("lock_delay", O::StopBefore),
    ("lock_at_least_for", O::MinHold),
    ("lock_at_most_for", O::Lease),
    ("expires", O::Keep),
    ("payload", O::Same),
];

impl OptionName {
    /// Returns the name, which is also that of the setter on the request.
    pub(crate) fn name(self) -> &'static str {
        self.names()[0]
    }

    /// Returns the name and its aliases.
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Args => &["args"],
            Self::Name => &["name"],
            Self::Timeout => &["timeout"],
            Self::OnError => &["on_error"],
            Self::Locker => &["locker"],
            Self::Crate => &["crate"],
            Self::Lease => &["lease", "expr", "expire"],
            Self::MaxRetry => &["max_retry"],
            Self::RetryDelay => &["retry_delay"],
            Self::Renew => &["renew"],
            Self::MaxHold => &["max_hold"],
            Self::StopBefore => &["stop_before"],
            Self::MinHold => &["min_hold"],
            Self::Release => &["release"],
            Self::Fair => &["fair"],
            Self::OnLost => &["on_lost"],
            Self::Guard => &["guard"],
            Self::Each => &["each"],
            Self::Mode => &["mode"],
            Self::Size => &["size"],
            Self::Interval => &["interval"],
            Self::Algorithm => &["algorithm"],
            Self::Burst => &["burst"],
            Self::Every => &["every"],
            Self::From => &["from"],
            Self::Early => &["early"],
            Self::AfterCrash => &["after_crash"],
            Self::OnSkip => &["on_skip"],
            Self::Keep => &["keep"],
            Self::Same => &["same"],
            Self::MaxSize => &["max_size"],
        }
    }
}

impl Attribute {
    pub(crate) const ALL: [Self; 6] =
        [Self::Lock, Self::Rate, Self::Semaphore, Self::Leader, Self::Once, Self::Idempotent];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock_on_argument",
            Self::Rate => "rate_limit",
            Self::Semaphore => "limit_concurrency",
            Self::Leader => "leader",
            Self::Once => "once_per",
            Self::Idempotent => "idempotent",
        }
    }

    /// Returns whether a call of it is a run of a record.
    pub(crate) fn is_run(self) -> bool {
        matches!(self, Self::Once | Self::Idempotent)
    }

    /// Returns the attribute that a path names, written bare or behind the library's name.
    pub(crate) fn of_path(path: &Path, library: &str) -> Option<Self> {
        let (last, before) =
            path.segments.iter().collect::<Vec<_>>().split_last().map(|(l, b)| (*l, b.to_vec()))?;
        let ours = match before[..] {
            [] => true,
            [only] => only.ident == library || only.ident == "locker",
            _ => false,
        };
        Self::ALL.into_iter().find(|attribute| ours && last.ident == attribute.name())
    }

    /// Returns typical first options, for messages.
    pub(crate) fn example(self) -> &'static str {
        match self {
            Self::Lock => "`expr = 10, args(0, 1)`",
            Self::Rate => "`size = 5, interval = \"800ms\", args(0)`",
            Self::Semaphore => "`size = 10, expr = 60, args(0)`",
            Self::Leader => "`name = \"reaper\", lease = \"15s\"`",
            Self::Once => "`\"1d\", args(0)`",
            Self::Idempotent => "`keep = \"24h\", args(request_id)`",
        }
    }

    /// Returns the option with this name or alias.
    pub(crate) fn option(self, name: &Ident) -> Result<OptionName> {
        let text = name.to_string();
        let option = self.options().find(|option| option.names().contains(&text.as_str()));
        option.ok_or_else(|| Error::new(name.span(), self.unknown(&text)))
    }

    /// Refuses a name without a value that is no option: it was meant as a part of the key.
    pub(crate) fn refuse_part(self, name: &Ident) -> Result<()> {
        if self.option(name).is_ok() {
            return Ok(());
        }
        if self == Self::Leader {
            return self.option(name).map(drop);
        }
        let message = format!("`{self}` has no option `{name}`; did you mean `args({name})`?");
        Err(Error::new(name.span(), message))
    }

    /// Returns every name that an option of this attribute may be written with.
    pub(crate) fn option_names(self) -> impl Iterator<Item = &'static str> {
        self.options().flat_map(OptionName::names).copied()
    }

    fn options(self) -> impl Iterator<Item = OptionName> {
        let own: [&[OptionName]; 2] = match self {
            Self::Lock => [HOLDING, &[O::Each, O::Mode]],
            Self::Rate => [&[O::Size, O::Interval, O::Algorithm, O::Burst], &[]],
            Self::Semaphore => [HOLDING, &[O::Size]],
            Self::Leader => [HOLDING, &[]],
            Self::Once => [HOLDING, &[O::Every, O::From, O::Early, O::AfterCrash, O::OnSkip]],
            Self::Idempotent => [HOLDING, &[O::Keep, O::Same, O::MaxSize, O::AfterCrash]],
        };
        let all = COMMON.iter().chain(own[0]).chain(own[1]).copied();
        all.filter(move |option| self.why_not(*option).is_none())
    }

    /// Returns why it cannot have an option that others have.
    fn why_not(self, option: OptionName) -> Option<&'static str> {
        match (self, option) {
            (Self::Leader, O::Timeout | O::MaxRetry | O::RetryDelay) => {
                Some("`leader` waits until it is elected")
            }
            (Self::Leader, O::Args | O::Each | O::Mode) => Some("one function leads at a time per `name`"),
            (Self::Leader, O::Release | O::OnLost) => {
                Some("the term ends with the body, and the body with the term")
            }
            (Self::Once | Self::Idempotent, O::MaxRetry | O::RetryDelay) => {
                Some("a call waits for the run of another one, up to `timeout`")
            }
            (Self::Once, O::Each | O::Mode) => Some("one call runs per slot and `args`"),
            (Self::Idempotent, O::Each | O::Mode) => {
                Some("one call runs per `args`, and the others get its result")
            }
            (Self::Once | Self::Idempotent, O::Release | O::OnLost) => {
                Some("the run ends with the body, and counts if it succeeds")
            }
            _ => None,
        }
    }

    fn unknown(self, name: &str) -> String {
        let other = Self::ALL.into_iter().flat_map(Self::options).find(|other| other.names().contains(&name));
        if let Some(why) = other.and_then(|other| self.why_not(other)) {
            return format!("{why}: remove `{name}`");
        }
        if self == Self::Leader && name == "note" {
            return format!(
                "`{self}` has no option `note`: an attribute has the note of its locker, `LockerBuilder::note`"
            );
        }
        let others = Self::ALL.into_iter().filter(|other| other.option_names().any(|option| option == name));
        let others = others.map(|other| format!("`{other}`")).collect::<Vec<_>>();
        if let Some((last, before)) = others.split_last() {
            let others =
                if before.is_empty() { last.clone() } else { format!("{} and {last}", before.join(", ")) };
            return format!("`{name}` is an option of {others}, not of `{self}`");
        }
        if let Some(near) = self.meant_by(name) {
            return format!("`{self}` has no option `{name}`; did you mean `{near}`?");
        }
        let all = self.option_names().collect::<Vec<_>>().join("`, `");
        format!("`{self}` has no option `{name}`; its options are `{all}`")
    }

    fn meant_by(self, name: &str) -> Option<&'static str> {
        let synonym = SYNONYMS.iter().find(|(other, _)| *other == name).map(|(_, own)| *own);
        let synonym = synonym.filter(|own| self.options().any(|option| option == *own));
        let near = self.option_names().max_by(|a, b| likeness(a, name).total_cmp(&likeness(b, name)));
        synonym.map(OptionName::name).or(near.filter(|near| likeness(near, name) > 0.7))
    }
}

/// Returns how alike two names are, from 0 to 1.
pub(crate) fn likeness(a: &str, b: &str) -> f64 {
    strsim::jaro_winkler(a, b)
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Attribute;
    use proc_macro2::{Ident, Span};

    fn of_path(path: &str, library: &str) -> Option<Attribute> {
        Attribute::of_path(&syn::parse_str(path).unwrap(), library)
    }

    #[test]
    fn an_attribute_is_ours_bare_or_behind_the_name_of_the_library() {
        for path in ["rate_limit", "locker::rate_limit", "renamed::rate_limit"] {
            assert_eq!(of_path(path, "renamed"), Some(Attribute::Rate), "{path}");
        }
        for path in ["limit", "other::rate_limit", "locker::other::rate_limit", "rate_limit::locker"] {
            assert_eq!(of_path(path, "renamed"), None, "{path}");
        }
    }

    #[test]
    fn a_name_from_another_library_is_answered_with_an_option_of_this_attribute() {
        let error = |attribute: Attribute, name: &str| {
            attribute.option(&Ident::new(name, Span::call_site())).unwrap_err().to_string()
        };
        let meant = "`lock_on_argument` has no option `wait`; did you mean `timeout`?";
        assert_eq!(error(Attribute::Lock, "wait"), meant);
        assert!(error(Attribute::Rate, "window").ends_with("did you mean `interval`?"));
        // A rate limit has no lease, and a lock no size.
        assert!(error(Attribute::Rate, "ttl").contains("its options are `args`"));
        assert!(error(Attribute::Lock, "limit").contains("its options are `args`"));
    }
}
