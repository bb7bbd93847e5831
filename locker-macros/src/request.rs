//! The block that computes the key and builds the request; it ends before anything is awaited.

use crate::{
    args::Given,
    contradictions::chosen,
    function::{Function, borrowed, hidden},
    kind::Kind,
    layer::Layer,
    params::in_brackets,
};
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::{Result, ext::IdentExt, spanned::Spanned};

impl Layer {
    /// An expression whose value is the request. Names the attribute that was taken along, so that its import counts
    /// as used.
    pub(crate) fn request(&self, function: &Function) -> Result<TokenStream> {
        let runtime = &self.runtime;
        let (identity, digest) = self.identity(function);
        let (constants, locker) = (self.constants(function), self.locker());
        let (source, key) = (hidden("locker"), hidden("key"));
        let open = format_ident!("{}_key", self.key_word());
        let parts = self.parts().map(|part| {
            let (value, allowed) = (function.value_of(part)?, function.allowed(part));
            let key = borrowed(quote!(mut #key));
            Ok(quote_spanned!(Span::mixed_site().located_at(part.span())=> #allowed #key.part(&#value);))
        });
        let parts = parts.collect::<Result<TokenStream>>()?;
        let finish = self.finish(function);
        let used = self.taken_from.as_ref().map(|path| quote!(#[#path(__used)] const _: () = ();));
        Ok(quote!({
            #used
            #identity
            #constants
            #locker
            let mut #key = #runtime::#open(#source, #digest);
            #parts
            #finish
        }))
    }

    /// The `static` with the function's digest, and how to get at that. The block keeps it out of the body's sight.
    fn identity(&self, function: &Function) -> (TokenStream, TokenStream) {
        let runtime = &self.runtime;
        let name = function.signature.ident.unraw().to_string();
        let (new, of) = match &self.options.name {
            Some(Given { value, .. }) => (quote!(named(#value)), quote!(digest())),
            None if function.has_receiver() => {
                (quote!(new(#runtime::module_path!(), #name)), quote!(digest_of::<Self>()))
            }
            None => (quote!(new(#runtime::module_path!(), #name)), quote!(digest())),
        };
        // Not `borrowed` where it is used: clippy would see no static that changes there, and ask for `must_use`.
        let identity = quote! {
            static __LOCKER_IDENTITY: #runtime::Function = #runtime::Function::#new;
            static __LOCKER_FUNCTION: &#runtime::Function = &__LOCKER_IDENTITY;
        };
        (identity, quote!(__LOCKER_FUNCTION.#of))
    }

    fn locker(&self) -> TokenStream {
        let (runtime, locker) = (&self.runtime, hidden("locker"));
        let Some(given) = &self.options.locker else { return quote!(let #locker = #runtime::global();) };
        let expr = in_brackets(&given.value);
        let mut source = hidden("source");
        source.set_span(source.span().located_at(given.value.span()));
        quote!(let #source = &#expr; let #locker = #runtime::locker(#source);)
    }

    fn finish(&self, function: &Function) -> TokenStream {
        let (runtime, settings, word) =
            (&self.runtime, self.settings(function), format_ident!("{}", self.word()));
        let (locker, key, one) = (hidden("locker"), hidden("key"), hidden("one"));
        let more = self.more(function);
        let request = |key| quote!(#runtime::#word(#locker, __LOCKER_FUNCTION, #key #more) #settings);
        let request = if self.options.each.is_some() {
            let request = request(one.to_token_stream());
            quote!(#runtime::each(#key, |#one| #request))
        } else {
            request(quote!(#key.finish()))
        };
        if self.on_expiry() { quote!(#request.release_on_expiry()) } else { request }
    }

    /// What the runtime calls the request.
    fn word(&self) -> &'static str {
        match (self.kind, chosen(self.options.mode.as_ref()).as_deref()) {
            (Kind::Lock, Some("read")) => "read",
            (Kind::Lock, Some(_)) => "write",
            _ => self.kind.word(),
        }
    }

    /// What the runtime calls the key.
    fn key_word(&self) -> &'static str {
        if self.options.each.is_some() { "each" } else { self.kind.word() }
    }

    /// What a semaphore and a rate limit are made with, beyond the key.
    fn more(&self, function: &Function) -> TokenStream {
        let (runtime, options) = (&self.runtime, &self.options);
        let Some(size) = &options.size else { return TokenStream::new() };
        let size = self.count(function, "size", &size.value);
        let Some(interval) = &options.interval else { return quote!(, #size) };
        let interval = self.time(function, "interval", &interval.value);
        let algorithm = chosen(options.algorithm.as_ref()).unwrap_or_else(|| "token_bucket".to_owned());
        let algorithm = format_ident!("{algorithm}");
        let burst = options.burst.as_ref().map(|burst| self.count(function, "burst", &burst.value));
        let burst = burst.map(|burst| quote!(.burst(#burst)));
        quote!(, #runtime::Quota::#algorithm(#size, #interval) #burst)
    }

    /// `.lease(..).timeout(..)`, one call per option given.
    fn settings(&self, function: &Function) -> TokenStream {
        let (runtime, options) = (&self.runtime, &self.options);
        let durations = [
            ("lease", &options.lease),
            ("timeout", &options.timeout),
            ("retry_delay", &options.retry_delay),
            ("max_hold", &options.max_hold),
        ];
        let durations = durations.into_iter().filter_map(|(name, given)| {
            let value = self.time(function, name, &given.as_ref()?.value);
            let name = format_ident!("{name}");
            Some(quote!(.#name(#value)))
        });
        let switches = [("renew", &options.renew), ("fair", &options.fair)];
        let switches = switches.into_iter().filter_map(|(name, given)| {
            let (name, value) = (format_ident!("{name}"), &given.as_ref()?.value);
            Some(quote!(.#name(#value)))
        });
        let attempts =
            options.max_retry.as_ref().map(|given| self.count(function, "max_retry", &given.value));
        let attempts = attempts.map(|attempts| quote!(.max_retry(#attempts)));
        let once = (self.on_expiry() && options.timeout.is_none())
            .then(|| quote!(.timeout(#runtime::Duration::ZERO)));
        quote!(#(#durations)* #(#switches)* #attempts #once)
    }
}
