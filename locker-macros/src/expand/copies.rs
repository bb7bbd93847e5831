//! Statements that give each term of a leader its own copies of the parameters.

use crate::{
    hygiene::{although_underscored, located},
    parse::{
        function::Function,
        param::{Param, typed, typed_mut},
        pattern::{is_upper, kept, unconditional},
    },
};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::visit_mut::{self, VisitMut};

/// Returns a statement for each name that the parameters bind. Takes `mut` off the signature: the copies have it.
pub(crate) fn copies(function: &mut Function, runtime: &TokenStream) -> TokenStream {
    let mut changed = Mutable(Vec::new());
    typed_mut(&mut function.signature).for_each(|param| changed.visit_pat_mut(&mut param.pat));
    let hoisted: Vec<bool> = function.params.iter().map(|param| param.hoisted).collect();
    let copy = |name: &Ident| {
        let mutable = changed.0.contains(name).then(|| quote!(mut));
        let (allowed, copied) = (although_underscored(name), copied(name, runtime));
        quote!(#allowed let #mutable #name = #copied;)
    };
    let of_signature = typed(&function.signature).zip(hoisted).filter(|(_, hoisted)| !hoisted);
    let of_signature = of_signature.flat_map(|(param, _)| {
        let names = unconditional(&param.pat).into_iter();
        names.map(|name| {
            let (kept, copy) = (kept(param), copy(&name));
            quote!(#(#kept)* #copy)
        })
    });
    let hoisted = function.params.iter().filter(|param| param.hoisted);
    let of_body = hoisted.flat_map(|param: &Param| &param.bound).filter(|name| !is_upper(name));
    of_signature.chain(of_body.map(copy)).collect()
}

/// Returns a copy of a parameter. An error about it points at the parameter.
fn copied(name: &Ident, runtime: &TokenStream) -> TokenStream {
    let argument = quote_spanned!(Span::mixed_site().located_at(name.span())=> (&#name));
    let copy = located(name.span(), quote!(#runtime::copy));
    quote!(#copy #argument)
}

/// Finds the names that are bound as `mut`, and takes that off them.
struct Mutable(Vec<Ident>);

impl VisitMut for Mutable {
    fn visit_pat_ident_mut(&mut self, pat: &mut syn::PatIdent) {
        if pat.by_ref.is_none() && pat.mutability.take().is_some() {
            self.0.push(pat.ident.clone());
        }
        visit_mut::visit_pat_ident_mut(self, pat);
    }
}
