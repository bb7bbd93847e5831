//! Values that the compiler evaluates: checked there.

use crate::{
    duration::{Time, ungrouped},
    function::Function,
    layer::Layer,
    parts::mentions,
};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::{Expr, GenericParam, Lit, spanned::Spanned};

impl Layer {
    /// The tokens of a `Duration`.
    pub(crate) fn time(&self, time: &Time) -> TokenStream {
        let runtime = &self.runtime;
        match time {
            Time::Known(duration, _) => {
                let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
                quote!(#runtime::Duration::new(#seconds, #nanos))
            }
            Time::Constant(expr) => quote_spanned!(expr.span()=> const { #expr }),
        }
    }

    /// The tokens of a number.
    pub(crate) fn count(count: &Expr) -> TokenStream {
        if is_literal(count) { count.to_token_stream() } else { quote!(const { #count }) }
    }

    /// Items and statements that fail to compile on a constant that cannot be meant.
    pub(crate) fn checks(&self, function: &Function) -> TokenStream {
        let options = &self.options;
        let times = [&options.lease, &options.max_hold, &options.interval].into_iter().flatten();
        let times = times.filter(|given| given.value.known().is_none());
        let times =
            times.map(|given| self.constant_check(function, "longer_than_zero", &[self.time(&given.value)]));
        let attempts = options.max_retry.as_ref().filter(|given| !is_literal(&given.value));
        let attempts = attempts
            .map(|given| self.constant_check(function, "max_retry", &[given.value.to_token_stream()]));
        let sizes =
            [&options.size, &options.burst].into_iter().flatten().filter(|given| !is_literal(&given.value));
        let sizes =
            sizes.map(|given| self.constant_check(function, "size", &[given.value.to_token_stream()]));
        let checks = times.chain(attempts).chain(sizes).collect::<TokenStream>();
        let hold = self.check_hold(function);
        quote!(#checks #hold)
    }

    fn check_hold(&self, function: &Function) -> Option<TokenStream> {
        let (lease, hold) = (self.options.lease.as_ref()?, self.options.max_hold.as_ref()?);
        let values = [self.time(&hold.value), self.time(&lease.value)];
        lease
            .value
            .known()
            .and(hold.value.known())
            .is_none()
            .then(|| self.constant_check(function, "max_hold", &values))
    }

    /// An item where possible, for `cargo check` evaluates items but not blocks.
    fn constant_check(&self, function: &Function, what: &str, values: &[TokenStream]) -> TokenStream {
        let (runtime, check) = (&self.runtime, format_ident!("check_{what}"));
        let check = at(values, quote!(#runtime::#check(#(#values),*)));
        if function.outer_names().any(|name| values.iter().any(|value| mentions(value.clone(), &name))) {
            return quote!(const { #check };);
        }
        quote!(const _: () = #check;)
    }
}

/// The tokens, placed where the first value is, so that an error points there.
fn at(values: &[TokenStream], tokens: TokenStream) -> TokenStream {
    let place = values.first().map_or_else(Span::call_site, Spanned::span);
    let placed = tokens.into_iter().map(|mut token| {
        token.set_span(token.span().located_at(place));
        token
    });
    placed.collect()
}

fn is_literal(expr: &Expr) -> bool {
    matches!(ungrouped(expr), Expr::Lit(literal) if matches!(literal.lit, Lit::Int(_)))
}

impl Function {
    /// What an item inside the function cannot name.
    fn outer_names(&self) -> impl Iterator<Item = Ident> {
        let generics = self.signature.generics.params.iter().filter_map(|param| match param {
            GenericParam::Type(param) => Some(param.ident.clone()),
            GenericParam::Const(param) => Some(param.ident.clone()),
            GenericParam::Lifetime(_) => None,
        });
        generics.chain([format_ident!("Self")])
    }
}
