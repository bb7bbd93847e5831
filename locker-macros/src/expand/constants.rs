//! Constants that the compiler evaluates once and checks against the range of their option.

use crate::{
    attribute::OptionName,
    expand::layer::Layer,
    hygiene::{hidden, located},
    parse::{duration::Time, function::Function, key_parts::mentions, options::Options},
    validate::constants::{Constant, Range, constants, is_literal},
};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::{Expr, GenericParam, spanned::Spanned};

/// Names the runtime's check of each range. A misspelt function would fail in users' crates only, so a test names each,
/// too.
macro_rules! checks {
    ($($range:ident: $ty:ident => $check:ident,)*) => {
        /// Returns the type of a value in this range, and the runtime's function that checks it.
        fn check(range: Range) -> (Ident, Ident) {
            match range {
                $(Range::$range => (format_ident!("{}", stringify!($ty)), format_ident!("{}", stringify!($check))),)*
            }
        }

        #[cfg(test)]
        mod tests {
            use locker::__private::*;

            /// A misspelt function does not compile here.
            #[test]
            fn checks_exist_in_the_runtime() {
                $(let _: fn($ty) -> $ty = $check;)*
                let _: [fn(Duration, Duration); 3] = [check_max_hold, check_stop_before, check_min_hold];
            }
        }
    };
}

checks! {
    Time: Duration => checked_time,
    Timeout: Duration => checked_timeout,
    Margin: Duration => checked_margin,
    Interval: Duration => checked_interval,
    Every: Duration => checked_every,
    Size: u64 => checked_size,
    MaxRetry: u32 => checked_max_retry,
    MaxSize: usize => checked_max_size,
}

/// Returns items and statements that define the constants and fail to compile if one is out of range. `cargo check`
/// evaluates items but not blocks, so items are used if possible. A method may belong to a generic type or trait, and
/// an item cannot name its parameters.
pub(crate) fn define(layer: &Layer) -> TokenStream {
    let (runtime, function) = (&layer.runtime, layer.function);
    let (items, inside): (Vec<_>, Vec<_>) =
        constants(layer.options()).partition(|constant| is_item(constant, function));
    let define = |constant: &Constant, keyword: TokenStream| {
        let (ty, check) = check(constant.range);
        let (name, value) = (ident(constant, function), constant.value);
        let value = located(value.span(), quote!(#runtime::#check(const { #value })));
        quote!(#keyword #name: #runtime::#ty = #value;)
    };
    let checks = check_pairs(layer).chain(check_timeout(layer)).collect::<Vec<_>>();
    if inside.is_empty() {
        let items = items.iter().map(|constant| define(constant, quote!(const)));
        return quote!(#(#items)* #(const _: () = #checks;)*);
    }
    let names = inside.iter().map(|constant| ident(constant, function)).collect::<Vec<_>>();
    let items = items.iter().map(|constant| define(constant, quote!(const)));
    let inside = inside.iter().map(|constant| define(constant, quote!(let)));
    quote!(#(#items)* let (#(#names,)*) = const { #(#inside)* #(#checks;)* (#(#names,)*) };)
}

/// Returns the tokens of a `Duration`.
pub(crate) fn time(layer: &Layer, name: OptionName, time: &Time) -> TokenStream {
    let runtime = &layer.runtime;
    match time {
        Time::Known(duration, _) => {
            let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
            quote!(#runtime::Duration::new(#seconds, #nanos))
        }
        Time::Constant(_) => constant(layer, name),
    }
}

/// Returns the tokens of a number.
pub(crate) fn count(layer: &Layer, name: OptionName, count: &Expr) -> TokenStream {
    if is_literal(count) { count.to_token_stream() } else { constant(layer, name) }
}

fn constant(layer: &Layer, name: OptionName) -> TokenStream {
    let constant = constants(layer.options()).find(|constant| constant.name == name);
    constant.map(|constant| ident(&constant, layer.function)).to_token_stream()
}

fn ident(constant: &Constant, function: &Function) -> Ident {
    let name = constant.name.name();
    if is_item(constant, function) {
        Ident::new(&format!("__LOCKER_{}", name.to_uppercase()), Span::mixed_site())
    } else {
        hidden(name)
    }
}

/// Returns whether an item can hold the constant.
fn is_item(constant: &Constant, function: &Function) -> bool {
    let value = constant.value;
    !function.has_receiver() && !outer_names(function).any(|name| mentions(value.to_token_stream(), &name))
}

/// Returns the names that an item inside the function cannot use.
fn outer_names(function: &Function) -> impl Iterator<Item = Ident> {
    let generics = function.signature.generics.params.iter().filter_map(|param| match param {
        GenericParam::Type(param) => Some(param.ident.clone()),
        GenericParam::Const(param) => Some(param.ident.clone()),
        GenericParam::Lifetime(_) => None,
    });
    generics.chain([format_ident!("Self")])
}

/// Returns the checks of two times against each other, of which only the compiler knows one.
fn check_pairs<'a>(layer: &'a Layer) -> impl Iterator<Item = TokenStream> + 'a {
    let Options { lease, max_hold, stop_before, min_hold, .. } = layer.options();
    let (lease, max_hold) = ((OptionName::Lease, lease), (OptionName::MaxHold, max_hold));
    let (stop_before, min_hold) = ((OptionName::StopBefore, stop_before), (OptionName::MinHold, min_hold));
    let pairs = [
        ("check_max_hold", max_hold, lease),
        ("check_stop_before", stop_before, lease),
        ("check_min_hold", min_hold, max_hold),
    ];
    pairs.into_iter().filter_map(|(check, (name, given), (other_name, other))| {
        let (given, other) = (&given.as_ref()?.value, &other.as_ref()?.value);
        if given.known().and(other.known()).is_some() {
            return None;
        }
        let (runtime, check) = (&layer.runtime, format_ident!("{check}"));
        let (value, other) = (time(layer, name, given), time(layer, other_name, other));
        Some(located(given.span(), quote!(#runtime::#check(#value, #other))))
    })
}

/// Returns the check of a constant `timeout` beside options on repeated attempts.
fn check_timeout(layer: &Layer) -> Option<TokenStream> {
    let (runtime, options) = (&layer.runtime, layer.options());
    let timeout = &options.timeout.as_ref()?.value;
    let is_known = timeout.known().is_some();
    let repeats = options.max_retry.is_some() || options.retry_delay.is_some();
    if is_known || !repeats {
        return None;
    }
    let value = time(layer, OptionName::Timeout, timeout);
    Some(located(timeout.span(), quote!(#runtime::check_timeout(#value))))
}
