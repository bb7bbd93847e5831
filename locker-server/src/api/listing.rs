//! The parameters of a list.

use super::{
    answer::Answer,
    name::quoted,
    params::{once, text},
    resource::Resource,
};
use locker_runtime::{Filter, Named};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// The most entries of one answer to a list with a limit.
pub(super) const MOST: usize = 1_000;

const NAMES: [&str; 5] = ["prefix", "kind", "after", "limit", "id"];

/// Which keys to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    prefix: Option<Box<str>>,
    kind: Option<Box<str>>,
    pub(crate) after: Option<Box<str>>,
    pub(crate) limit: Option<usize>,
    pub(super) id: Option<Box<str>>,
}

impl Listing {
    /// Parses a query and a form.
    ///
    /// # Errors
    /// 400 with the reason: an unknown parameter or kind, one given twice, an empty value, or a limit out of range.
    pub(super) fn parse(query: &str, form: &str) -> Result<Self, Answer> {
        let mut listing = Self::default();
        each(query, form, &NAMES, |name, value| listing.set(name, value))?;
        Ok(listing)
    }

    fn set(&mut self, name: &'static str, value: &str) -> Result<(), Answer> {
        match name {
            "prefix" => once(name, &mut self.prefix, value.into()),
            "kind" => once(name, &mut self.kind, key_kind(value)?.into()),
            "after" => once(name, &mut self.after, value.into()),
            "limit" => once(name, &mut self.limit, limit(value)?),
            _ => once(name, &mut self.id, value.into()),
        }
    }

    pub(crate) fn filter(&self) -> Filter {
        let filter = Filter::default().name_prefix(self.prefix.as_deref().unwrap_or_default());
        self.kind.iter().fold(filter, |filter, kind| filter.kind(&**kind))
    }

    /// Returns the path of the page after the key `after`.
    pub(crate) fn next(&self, after: &str) -> String {
        let encoded = |value: &str| utf8_percent_encode(value, NON_ALPHANUMERIC).to_string();
        let mut path = format!("/v1?after={}", encoded(after));
        for (name, value) in [("prefix", &self.prefix), ("kind", &self.kind)] {
            path.extend(value.iter().map(|value| format!("&{name}={}", encoded(value))));
        }
        path.extend(self.limit.map(|limit| format!("&limit={limit}")));
        path
    }
}

/// Calls `set` with each parameter of a query and a form. Upper and lower case of names are alike.
pub(crate) fn each(
    query: &str,
    form: &str,
    names: &[&'static str],
    mut set: impl FnMut(&'static str, &str) -> Result<(), Answer>,
) -> Result<(), Answer> {
    for pair in query.split('&').chain(form.split('&')).filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (text(name)?, text(value)?);
        let Some(name) = names.iter().find(|known| known.eq_ignore_ascii_case(&name)) else {
            let known = names.join(", ");
            return Err(bad(format!("unknown parameter {}: known are {known}", quoted(&name))));
        };
        if value.is_empty() {
            return Err(bad(format!("{name} is empty: give a value or leave it out")));
        }
        set(name, &value)?;
    }
    Ok(())
}

/// Returns the kind in keys. Paths spell one of them otherwise.
pub(crate) fn key_kind(kind: &str) -> Result<&str, Answer> {
    let of_path = Resource::ALL.into_iter().find(|resource| resource.segment() == kind);
    let in_keys: &str = if let Some(resource) = of_path { resource.key_kind() } else { kind };
    if Named::KINDS.contains(&in_keys) {
        return Ok(in_keys);
    }
    let known = Named::KINDS.join(", ");
    Err(bad(format!("kind is {}: known are {known} and tokenbucket", quoted(kind))))
}

fn limit(value: &str) -> Result<usize, Answer> {
    let limit = value.parse().ok().filter(|limit| (1..=MOST).contains(limit));
    limit.ok_or_else(|| bad(format!("limit is {}: give 1 to {MOST}", quoted(value))))
}

fn bad(reason: String) -> Answer {
    Answer::bad_request(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_lists_are_400_with_a_reason() {
        for (query, named) in [
            ("limit=0", "limit is `0`"),
            ("limit=1001", "limit is `1001`"),
            ("limit=-1", "limit"),
            ("limit=", "limit is empty"),
            ("kind=look", "kind is `look`"),
            ("kind=lock/by-key", "kind is `lock/by-key`"),
            ("size=1", "unknown parameter `size`"),
            ("kind=lock&kind=lock", "kind is given twice"),
            ("after=%FF", "UTF-8"),
        ] {
            let answer = Listing::parse(query, "").expect_err(query);
            let body = answer.body.replace('"', "`");
            assert!(answer.status == 400 && body.contains(named), "{query}: {body}");
        }
    }

    #[test]
    fn next_page_is_asked_for_alike() {
        let first = Listing::parse("prefix=a+b%26&Kind=tokenbucket&limit=7", "").unwrap();
        let next = first.next("rate:a b&|ö");
        let next = Listing::parse(next.strip_prefix("/v1?").unwrap(), "").unwrap();
        assert_eq!(next.after.as_deref(), Some("rate:a b&|ö"));
        assert_eq!(Listing { after: None, ..next }, first);
    }
}
