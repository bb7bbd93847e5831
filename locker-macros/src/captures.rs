//! What the block around the body takes along. By itself it takes what the body mentions, parts of values too, in
//! that order, and what it leaves is dropped after the release. So it mentions all arguments, the last one first: they
//! are dropped as every function drops its own, when the body ends, which is before the release.

use crate::{
    function::{Form, Function},
    layer::Layer,
    params::{although_underscored, typed},
    parts::{Part, mentions},
    patterns::{kept, unconditional},
};
use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{Attribute, ReceiverKind};

impl Function {
    /// Stands at the head of the body.
    pub(crate) fn captures(&self, layers: &[Layer], parts: &[&Part]) -> TokenStream {
        let runtime = &layers[0].runtime;
        let capture = |name: &Ident| {
            if self.is_unused(name, parts) { quote!(let #name = #name;) } else { capture(runtime, name) }
        };
        match self.form {
            Form::Plain if !layers.iter().any(|layer| layer.runs_in_closure(self)) => TokenStream::new(),
            Form::AsyncTrait(..) => self.hoisted().rev().map(capture).collect(),
            Form::Plain | Form::Async => {
                self.captured_params(capture).chain(self.captured_receiver(runtime)).collect()
            }
        }
    }

    fn captured_params(&self, capture: impl Fn(&Ident) -> TokenStream) -> impl Iterator<Item = TokenStream> {
        let params = typed(&self.signature).collect::<Vec<_>>();
        params.into_iter().rev().map(move |param| {
            let names = unconditional(&param.pat);
            let captures = names.iter().rev().map(|name| {
                let (kept, capture) = (kept(param), capture(name));
                quote!(#(#kept)* #capture)
            });
            captures.collect()
        })
    }

    /// A receiver by reference has nothing to drop.
    fn captured_receiver(&self, runtime: &TokenStream) -> Option<TokenStream> {
        let receiver = self.signature.receiver()?;
        let this = &receiver.self_token;
        (!matches!(receiver.kind, ReceiverKind::Reference(..))).then(|| quote!(#runtime::capture(&#this);))
    }

    /// Whether the compiler should say so, which a mention would keep it from. What the attributes below use, it is
    /// too late to know.
    fn is_unused(&self, name: &Ident, parts: &[&Part]) -> bool {
        !name.to_string().starts_with('_')
            && !mentions(self.body.stream(), name)
            && !parts.iter().any(|part| part.mentions(name) || self.is_at(part, name))
            && self.attributes.iter().all(is_inert)
    }
}

fn capture(runtime: &TokenStream, name: &Ident) -> TokenStream {
    let allowed = although_underscored(name);
    quote!(#allowed #runtime::capture(&#name);)
}

fn is_inert(attribute: &Attribute) -> bool {
    let inert = ["allow", "cfg", "cold", "deny", "deprecated", "doc", "expect", "inline", "must_use", "warn"];
    inert.iter().any(|name| attribute.path().is_ident(name))
}
