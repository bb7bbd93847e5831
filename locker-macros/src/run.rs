//! The body while something is held: in place in plain functions, as an awaited block in async ones.

use crate::{
    function::{Function, borrowed, hidden},
    layer::{Layer, names},
};
use proc_macro2::TokenStream;
use quote::quote;
use syn::{ReturnType, spanned::Spanned};

impl Layer {
    /// Never ends before the result is there; the drop of the hold releases, after the body's temporaries. A body that
    /// always panics leaves nothing unreachable.
    pub(crate) fn run_plain(&self, function: &Function, body: &TokenStream) -> TokenStream {
        let (guard, value) = (self.guard(), hidden("value"));
        let runtime = &self.runtime;
        match function.returned.annotation(runtime) {
            None => quote!({ #guard #body }),
            Some(returned) => quote!({
                #guard
                let #value: #returned = if false { #runtime::never() } else #body;
                #value
            }),
        }
    }

    pub(crate) fn run_plain_checked(&self, function: &Function, body: &TokenStream) -> TokenStream {
        let (runtime, guard, value) = (&self.runtime, self.guard(), hidden("value"));
        let (_, _, hold, error) = names();
        let (returned, refused) = (function.returned.tokens(runtime), self.refused(function));
        quote!({
            #guard
            let #value = #runtime::call(move || -> #returned #body);
            match #hold.leave_checked() {
                #runtime::Ok(()) => #value,
                #runtime::Err(#error) => #refused,
            }
        })
    }

    pub(crate) fn run_async(&self, function: &Function, body: &TokenStream) -> TokenStream {
        let (runtime, guard, value, hold) = (&self.runtime, self.guard(), hidden("value"), names().2);
        let (block, end) = (self.block(function, body), end(function));
        quote!({
            #guard
            let #value = #block.await;
            #runtime::leave(#hold).await;
            #end
        })
    }

    pub(crate) fn run_async_checked(&self, function: &Function, body: &TokenStream) -> TokenStream {
        let (runtime, guard, value) = (&self.runtime, self.guard(), hidden("value"));
        let (_, _, hold, error) = names();
        let (block, end, refused) = (self.block(function, body), end(function), self.refused(function));
        quote!({
            #guard
            let #value = #block.await;
            match #runtime::leave_checked(#hold).await {
                #runtime::Ok(()) => #end,
                #runtime::Err(#error) => #refused,
            }
        })
    }

    pub(crate) fn run_async_cancelled(&self, function: &Function, body: &TokenStream) -> TokenStream {
        let (runtime, guard, value, outcome) =
            (&self.runtime, self.guard(), hidden("value"), hidden("outcome"));
        let (_, _, hold, error) = names();
        let (block, end, refused) = (self.block(function, body), end(function), self.refused(function));
        quote!({
            #guard
            let #outcome = {
                let #value = #runtime::pin!(#block);
                #runtime::cancel_on_lost(&#hold, #value).await
            };
            match #outcome {
                #runtime::Ok(#value) => {
                    #runtime::leave(#hold).await;
                    #end
                }
                #runtime::Err(#error) => {
                    #runtime::drop(#hold);
                    #refused
                }
            }
        })
    }

    /// The body as a future that knows what it returns.
    fn block(&self, function: &Function, body: &TokenStream) -> TokenStream {
        let hint = self.hint(function);
        quote!(async move { #hint #body })
    }

    /// Tells an async block its type, as the signature tells an async function.
    pub(crate) fn hint(&self, function: &Function) -> TokenStream {
        let (runtime, returned) = (&self.runtime, function.returned.tokens(&self.runtime));
        quote!(if false { return #runtime::never::<#returned>(); })
    }

    fn guard(&self) -> Option<TokenStream> {
        let (name, hold) = (&self.options.guard.as_ref()?.value, borrowed(names().2));
        Some(quote!(let #name = #hold.guard();))
    }
}

/// The value after the body; `!` went through it as `Infallible`. It stands at the type it is returned as: there the
/// borrow checker points when it must not be.
fn end(function: &Function) -> TokenStream {
    let mut value = hidden("value");
    if let ReturnType::Type(_, returned) = &function.signature.output {
        value.set_span(value.span().located_at(returned.span()));
    }
    if function.returned.is_never() { quote!(match #value {}) } else { quote!(#value) }
}
