//! Two attributes on one function that conflict: they lock the same key, so that every call would wait for itself, or
//! their guards have the same name.

use crate::{
    attribute::Attribute,
    parse::{applied::Applied, function::Function},
    validate::key_parts::value_of,
};
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Error, Result, spanned::Spanned};

/// Refuses attributes that provably have the same key.
pub(crate) fn refuse_same_key(stack: &[Applied], function: &Function) -> Result<()> {
    for (at, applied) in stack.iter().enumerate() {
        let keys = keys(applied, function);
        let is_same = |above: &&Applied| {
            is_of_one_kind(above.attribute, applied.attribute)
                && scope(above).is_some_and(|scope| Some(scope) == self::scope(applied))
                && self::keys(above, function).iter().any(|key| keys.contains(key))
        };
        if let (Some(_), Some(path)) = (stack[..at].iter().find(is_same), &applied.taken_from) {
            return Err(Error::new(path.span(), message(applied.attribute)));
        }
    }
    Ok(())
}

/// Returns whether keys of these attributes are of one kind.
fn is_of_one_kind(one: Attribute, other: Attribute) -> bool {
    one == other || one.is_run() && other.is_run()
}

/// Refuses a guard that would hide the guard of an attribute above.
pub(crate) fn refuse_same_guard(stack: &[Applied]) -> Result<()> {
    for (at, applied) in stack.iter().enumerate() {
        let Some(guard) = &applied.options.guard else { continue };
        let hides =
            |above: &Applied| above.options.guard.as_ref().is_some_and(|other| other.value == guard.value);
        if stack[..at].iter().any(hides) {
            let message = format!(
                "`{}` is already the guard of an attribute above: choose another name for this one",
                guard.value
            );
            return Err(Error::new(guard.value.span(), message));
        }
    }
    Ok(())
}

fn message(attribute: Attribute) -> String {
    let what = match attribute {
        Attribute::Lock | Attribute::Leader | Attribute::Once | Attribute::Idempotent => {
            "every call would wait for itself"
        }
        Attribute::Rate => "every call would count twice",
        Attribute::Semaphore => "every call would take two permits, and two calls could wait for each other",
    };
    format!(
        "the `{attribute}` above has the same key, so {what}: give one of them another `name` or other `args`"
    )
}

/// Returns the name, in which `.` and `::` mean the same, and the locker; nothing if the locker may be another one at
/// each call.
fn scope(applied: &Applied) -> Option<(Option<String>, Option<String>)> {
    let options = &applied.options;
    let name = options.name.as_ref().map(|given| given.value.value().replace("::", "."));
    match &options.locker {
        Some(given) => Some((name, Some(steady(&given.value.to_token_stream())?))),
        None => Some((name, None)),
    }
}

/// Returns the texts of the keys, without keys that may be another one each time they are computed.
fn keys(applied: &Applied, function: &Function) -> Vec<Vec<String>> {
    let parts = applied.options.key_parts().map(|part| steady(&value_of(part, function).ok()?));
    match &applied.options.each {
        Some(_) => parts.flatten().map(|part| vec![part]).collect(),
        None => parts.collect::<Option<_>>().into_iter().collect(),
    }
}

/// Returns the text of an expression that calls nothing.
fn steady(expr: &TokenStream) -> Option<String> {
    let calls = expr.clone().into_iter().any(|token| matches!(token, TokenTree::Group(_)));
    (!calls).then(|| expr.to_string())
}

#[cfg(test)]
mod tests {
    use crate::{attribute::Attribute, expand::attribute};

    fn is_refused(above: &str, below: &str) -> bool {
        let item = format!("#[lock_on_argument({below})] fn f(a: u8, b: u8) -> Result<u8, E> {{ Ok(a) }}");
        let expanded = attribute(Attribute::Lock, above.parse().unwrap(), item.parse().unwrap()).to_string();
        expanded.contains("above has the same key")
    }

    #[test]
    fn same_key_twice_is_refused() {
        for (above, below) in [
            ("", ""),
            ("args(a)", "args(0), fair = false"),
            ("name = \"a.b\", args(a.x)", "name = \"a::b\", args(a.x)"),
            ("each(a, b)", "args(b)"),
            ("locker = L, mode = \"read\"", "locker = L, mode = \"write\""),
        ] {
            assert!(is_refused(above, below), "{above} / {below}");
        }
    }

    #[test]
    fn keys_that_may_differ_are_accepted() {
        for (above, below) in [
            ("args(a)", "args(b)"),
            ("args(a, b)", "args(b, a)"),
            ("args(a)", ""),
            ("name = \"a\"", "name = \"b\""),
            ("name = \"a\"", ""),
            ("each(a, b)", "args(a, b)"),
            ("locker = L", "locker = M"),
            ("locker = L", ""),
            ("locker = new()", "locker = new()"),
            ("args(next())", "args(next())"),
        ] {
            assert!(!is_refused(above, below), "{above} / {below}");
        }
    }
}
