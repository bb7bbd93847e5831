//! Two attributes on one function that get into each other's way: of one kind and key, so that every call would meet
//! itself, or with guards of one name.

use crate::{function::Function, kind::Kind, layer::Layer};
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Error, Result, spanned::Spanned};

/// Refuses them where they are surely the same.
pub(crate) fn refuse_same_key(layers: &[Layer], function: &Function) -> Result<()> {
    for (at, layer) in layers.iter().enumerate() {
        let keys = keys(layer, function);
        let is_same = |above: &&Layer| {
            above.kind == layer.kind
                && scope(above).is_some_and(|scope| Some(scope) == self::scope(layer))
                && self::keys(above, function).iter().any(|key| keys.contains(key))
        };
        if let (Some(_), Some(path)) = (layers[..at].iter().find(is_same), &layer.taken_from) {
            return Err(Error::new(path.span(), message(layer.kind)));
        }
    }
    Ok(())
}

/// Refuses a guard that would hide that of an attribute above.
pub(crate) fn refuse_same_guard(layers: &[Layer]) -> Result<()> {
    for (at, layer) in layers.iter().enumerate() {
        let Some(guard) = &layer.options.guard else { continue };
        let hides =
            |above: &Layer| above.options.guard.as_ref().is_some_and(|other| other.value == guard.value);
        if layers[..at].iter().any(hides) {
            let message = format!(
                "`{}` is the guard of an attribute above already: give this one another name",
                guard.value
            );
            return Err(Error::new(guard.value.span(), message));
        }
    }
    Ok(())
}

fn message(kind: Kind) -> String {
    let what = match kind {
        Kind::Lock => "every call would stand in its own way",
        Kind::Rate => "every call would count twice",
        Kind::Semaphore => "every call would take two permits, and two calls could wait for each other",
    };
    format!("the `{kind}` above has the same key, so {what}: give one of them another `name` or other `args`")
}

/// The name, in which `.` and `::` mean the same, and the locker; nothing for a locker that may be another each time.
fn scope(layer: &Layer) -> Option<(Option<String>, Option<String>)> {
    let name = layer.options.name.as_ref().map(|given| given.value.value().replace("::", "."));
    match &layer.options.locker {
        Some(given) => Some((name, Some(steady(&given.value.to_token_stream())?))),
        None => Some((name, None)),
    }
}

/// The keys whose parts have the same value whenever they are looked at.
fn keys(layer: &Layer, function: &Function) -> Vec<Vec<String>> {
    let parts = layer.parts().map(|part| steady(&function.value_of(part).ok()?));
    match &layer.options.each {
        Some(_) => parts.flatten().map(|part| vec![part]).collect(),
        None => parts.collect::<Option<_>>().into_iter().collect(),
    }
}

/// The text of an expression that calls nothing.
fn steady(expr: &TokenStream) -> Option<String> {
    let calls = expr.clone().into_iter().any(|token| matches!(token, TokenTree::Group(_)));
    (!calls).then(|| expr.to_string())
}

#[cfg(test)]
mod tests {
    use crate::{expand::attribute, kind::Kind};

    fn is_refused(above: &str, below: &str) -> bool {
        let item = format!("#[lock_on_argument({below})] fn f(a: u8, b: u8) -> Result<u8, E> {{ Ok(a) }}");
        let expanded = attribute(Kind::Lock, above.parse().unwrap(), item.parse().unwrap()).to_string();
        expanded.contains("above has the same key")
    }

    #[test]
    fn one_key_twice_is_refused() {
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
    fn what_may_be_another_key_is_not_refused() {
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
