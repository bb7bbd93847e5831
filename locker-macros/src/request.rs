//! The block that computes the key and builds the request; it ends before anything is awaited.

use crate::{
    contradictions::chosen,
    duration::Time,
    function::{Function, hidden},
    kind::Kind,
    layer::Layer,
    params::in_brackets,
    parts::mentions,
};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Expr, Result, ext::IdentExt, spanned::Spanned};

impl Layer {
    /// An expression of type `LockRequest`, `Requests` or `Admission`.
    pub(crate) fn request(&self, function: &Function) -> Result<TokenStream> {
        let runtime = &self.runtime;
        let (checks, settings) = (self.checks(function), self.settings(function));
        let (identity, digest) = self.identity(function);
        let locker = self.locker();
        let parts = self.parts(function)?;
        let (key, of_key) = (hidden("key"), hidden("of_key"));
        let start = Ident::new(self.kind_word(), Span::call_site());
        let (open, finish) = match &self.options.each {
            Some(_) => (quote!(each_key), quote!(#runtime::each(#key, |#of_key| #of_key #settings))),
            None => (quote!(key), quote!(#runtime::one(#key) #settings)),
        };
        let _ = (&start, &open, &finish);
        Ok(quote!({
            #checks
            #identity
            #locker
            let mut #key = #open;
            #parts
            #finish
        }))
    }
}
