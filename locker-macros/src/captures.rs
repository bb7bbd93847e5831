//! What the block around the body takes along. By itself it takes what the body mentions, parts of values too, in
//! that order, and what it leaves is dropped after the release. So it mentions all arguments, the last one first: they
//! are dropped as every function drops its own, when the body ends, which is before the release.

use crate::{
    function::{Form, Function},
    layer::Layer,
    params::{although_underscored, typed, typed_mut},
    parts::{Part, mentions},
    patterns::{kept, take_expected, unconditional},
};
use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{Attribute, PatType, ReceiverKind};

impl Function {
    /// Stands at the head of the body.
    pub(crate) fn captures(&mut self, layers: &[Layer], parts: &[&Part]) -> TokenStream {
        let runtime = &layers[0].runtime;
        match self.form {
            Form::Plain if !layers.iter().any(|layer| layer.runs_in_closure(self)) => TokenStream::new(),
            Form::AsyncTrait(..) => {
                self.hoisted().rev().map(|name| self.captured(name, parts, &[], runtime)).collect()
            }
            Form::Plain | Form::Async => {
                let expected = self.take_expected(parts);
                let mut captures = self.captured_params(&expected, parts, runtime);
                captures.extend(self.captured_receiver(runtime));
                captures
            }
        }
    }

    fn captured_params(
        &self,
        expected: &[Vec<Attribute>],
        parts: &[&Part],
        runtime: &TokenStream,
    ) -> TokenStream {
        let mut statements = Vec::new();
        for (param, expected) in typed(&self.signature).zip(expected) {
            for name in unconditional(&param.pat) {
                let (kept, captured) = (kept(param), self.captured(&name, parts, expected, runtime));
                statements.push(quote!(#(#kept)* #captured));
            }
        }
        statements.into_iter().rev().collect()
    }

    fn captured(
        &self,
        name: &Ident,
        parts: &[&Part],
        expected: &[Attribute],
        runtime: &TokenStream,
    ) -> TokenStream {
        if self.is_unused(name, parts) {
            return quote!(#(#expected)* let #name = #name;);
        }
        let allowed = although_underscored(name);
        quote!(#allowed #runtime::capture(&#name);)
    }

    /// Off each parameter what is expected of it, where something of it will be bound anew.
    fn take_expected(&mut self, parts: &[&Part]) -> Vec<Vec<Attribute>> {
        let is_unused =
            |param: &PatType| unconditional(&param.pat).iter().any(|name| self.is_unused(name, parts));
        let anew = typed(&self.signature).map(is_unused).collect::<Vec<_>>();
        let params = typed_mut(&mut self.signature).zip(anew);
        params.map(|(param, anew)| if anew { take_expected(param) } else { Vec::new() }).collect()
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

fn is_inert(attribute: &Attribute) -> bool {
    let inert = ["allow", "cfg", "cold", "deny", "deprecated", "doc", "expect", "inline", "must_use", "warn"];
    inert.iter().any(|name| attribute.path().is_ident(name))
}
