//! Statements that make the block around the body own every argument.
//!
//! A block captures the arguments that the body mentions, some of them in part, in that order; the others are dropped
//! after the release. These statements mention all arguments, the last one first: they are then dropped in a function's
//! own order when the body ends, which is before the release.

use crate::{
    hygiene::although_underscored,
    parse::{
        function::{Form, Function},
        key_parts::{Part, mentions},
        param::{typed, typed_mut},
        pattern::{kept, take_expected, unconditional},
    },
};
use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{Attribute, PatType, ReceiverKind};

/// Returns statements for the head of the body. `closure` says whether a plain body runs in a closure.
pub(crate) fn captures(
    function: &mut Function,
    parts: &[&Part],
    runtime: &TokenStream,
    closure: bool,
) -> TokenStream {
    match function.form {
        Form::Plain if !closure => TokenStream::new(),
        Form::AsyncTrait(..) => {
            let captures = Captures { function, parts, runtime };
            captures.of_hoisted()
        }
        Form::Plain | Form::Async => {
            let expected = take_all_expected(function, parts);
            let captures = Captures { function, parts, runtime };
            let params = captures.of_params(&expected);
            let receiver = captures.of_receiver();
            quote!(#params #receiver)
        }
    }
}

/// Takes off each parameter the lints that are expected of it, if one of its names will be bound again.
fn take_all_expected(function: &mut Function, parts: &[&Part]) -> Vec<Vec<Attribute>> {
    let is_rebound =
        |param: &PatType| unconditional(&param.pat).iter().any(|name| is_unused(function, parts, name));
    let rebound = typed(&function.signature).map(is_rebound).collect::<Vec<_>>();
    let params = typed_mut(&mut function.signature).zip(rebound);
    params.map(|(param, rebound)| if rebound { take_expected(param) } else { Vec::new() }).collect()
}

/// Returns whether the compiler should report the name as unused, which a mention would prevent. Whether the attributes
/// below use the name cannot be known, so any that could do so counts as a use.
fn is_unused(function: &Function, parts: &[&Part], name: &Ident) -> bool {
    !name.to_string().starts_with('_')
        && !mentions(function.body.stream(), name)
        && !parts.iter().any(|part| part.mentions(name) || is_at(function, part, name))
        && function.attributes.iter().all(is_inert)
}

/// Returns whether the part is the position of this parameter.
fn is_at(function: &Function, part: &Part, name: &Ident) -> bool {
    let Part::Position(at, _) = part else { return false };
    function.params.get(*at).is_some_and(|param| param.whole.as_ref() == Some(name))
}

fn is_inert(attribute: &Attribute) -> bool {
    let inert = ["allow", "cfg", "cold", "deny", "deprecated", "doc", "expect", "inline", "must_use", "warn"];
    inert.iter().any(|name| attribute.path().is_ident(name))
}

struct Captures<'a> {
    function: &'a Function,
    parts: &'a [&'a Part],
    runtime: &'a TokenStream,
}

impl Captures<'_> {
    /// Returns captures of the names that were bound before the first key instead of in the body.
    fn of_hoisted(&self) -> TokenStream {
        let hoisted =
            self.function.params.iter().filter(|param| param.hoisted).flat_map(|param| &param.bound);
        hoisted.rev().map(|name| self.capture(name, &[])).collect()
    }

    fn of_params(&self, expected: &[Vec<Attribute>]) -> TokenStream {
        let mut statements = Vec::new();
        for (param, expected) in typed(&self.function.signature).zip(expected) {
            for name in unconditional(&param.pat) {
                let (kept, capture) = (kept(param), self.capture(&name, expected));
                statements.push(quote!(#(#kept)* #capture));
            }
        }
        statements.into_iter().rev().collect()
    }

    /// Returns nothing for a receiver by reference, which has nothing to drop.
    fn of_receiver(&self) -> Option<TokenStream> {
        let (receiver, runtime) = (self.function.signature.receiver()?, self.runtime);
        let this = &receiver.self_token;
        (!matches!(receiver.kind, ReceiverKind::Reference(..))).then(|| quote!(#runtime::capture(&#this);))
    }

    fn capture(&self, name: &Ident, expected: &[Attribute]) -> TokenStream {
        if is_unused(self.function, self.parts, name) {
            return quote!(#(#expected)* let #name = #name;);
        }
        let (allowed, runtime) = (although_underscored(name), self.runtime);
        quote!(#allowed #runtime::capture(&#name);)
    }
}
