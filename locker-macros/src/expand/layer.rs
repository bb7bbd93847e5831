//! One attribute around the body, and the tokens that all its generated parts share.

use crate::{
    attribute::Attribute,
    hygiene::hidden,
    parse::{
        applied::Applied,
        early_end::may_end_early,
        function::Function,
        options::{Options, chosen},
    },
};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;

/// An attribute, its function, and the names that its generated code uses.
pub(crate) struct Layer<'a> {
    pub(crate) applied: &'a Applied,
    pub(crate) function: &'a Function,
    pub(crate) runtime: TokenStream,
    pub(crate) names: Names,
}

/// The variables that several parts of the generated code use.
pub(crate) struct Names {
    pub(crate) request: Ident,
    pub(crate) entered: Ident,
    pub(crate) hold: Ident,
    pub(crate) error: Ident,
    pub(crate) value: Ident,
}

impl<'a> Layer<'a> {
    pub(crate) fn new(applied: &'a Applied, function: &'a Function) -> Self {
        let names = Names {
            request: hidden("request"),
            entered: hidden("entered"),
            hold: hidden("hold"),
            error: hidden("error"),
            value: hidden("value"),
        };
        Self { applied, function, runtime: applied.runtime(), names }
    }

    pub(crate) fn options(&self) -> &'a Options {
        &self.applied.options
    }

    /// Returns the expression for the return value if the lock is not acquired or is lost.
    pub(crate) fn refused(&self) -> TokenStream {
        let (runtime, error) = (&self.runtime, &self.names.error);
        if let Some(on_error) = &self.options().on_error {
            let path = &on_error.value;
            return quote_spanned!(path.span()=> #path(#error));
        }
        let returned = self.function.returned.tokens(runtime);
        let at = Span::mixed_site().located_at(self.function.output_span());
        quote_spanned!(at=> <#returned as #runtime::Outcome>::refused(#error))
    }

    /// Returns the expression for the return value if the call is skipped.
    pub(crate) fn skipped(&self) -> TokenStream {
        let runtime = &self.runtime;
        if let Some(on_skip) = &self.options().on_skip {
            let path = &on_skip.value;
            return quote_spanned!(path.span()=> #runtime::Ok(#path()));
        }
        let returned = self.function.returned.tokens(runtime);
        let at = Span::mixed_site().located_at(self.function.output_span());
        quote_spanned!(at=> <#returned as #runtime::Skipped>::skipped())
    }

    /// Returns the return type, as what is kept of it.
    pub(crate) fn kept(&self) -> TokenStream {
        let (runtime, returned) = (&self.runtime, self.function.returned.tokens(&self.runtime));
        let at = Span::mixed_site().located_at(self.function.output_span());
        quote_spanned!(at=> <#returned as #runtime::Kept>)
    }

    /// Returns the expression for the return value if another run has succeeded, of which `done` is.
    pub(crate) fn replayed(&self, done: &Ident) -> TokenStream {
        let (runtime, kept, refused) = (&self.runtime, self.kept(), self.refused());
        let (value, error) = (&self.names.value, &self.names.error);
        quote!(match #kept::replayed(&#done) {
            #runtime::Ok(#value) => #value,
            #runtime::Err(#error) => #refused,
        })
    }

    /// Returns a statement that fixes the type of an async block, as the signature does for an async function.
    pub(crate) fn hint(&self) -> TokenStream {
        let (runtime, returned) = (&self.runtime, self.function.returned.tokens(&self.runtime));
        quote!(if false { return #runtime::never::<#returned>(); })
    }
}

/// Returns whether the result of a plain body is replaced if the hold turns out lost. A function that never returns has
/// no result.
pub(crate) fn is_checked(applied: &Applied, function: &Function) -> bool {
    let continues = chosen(applied.options.on_lost.as_ref()).as_deref() == Some("continue");
    let holds = applied.attribute != Attribute::Rate && !applied.attribute.is_run();
    holds && !continues && function.is_plain() && !function.returned.is_never()
}

/// Returns whether a closure keeps `return` and `?` of a plain body from skipping the check after it. A closure hides
/// the caller's location from the body, so the body of a `#[track_caller]` function stays in place unless it may return
/// early.
pub(crate) fn runs_in_closure(applied: &Applied, function: &Function) -> bool {
    let is_run = applied.attribute.is_run() && function.is_plain();
    is_run
        || is_checked(applied, function)
            && (!function.tracks_caller() || may_end_early(function.body.stream()))
}
