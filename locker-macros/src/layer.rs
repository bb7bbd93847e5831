//! One attribute around a body: how it is entered, run and left.

use crate::{
    args::Options,
    contradictions::chosen,
    function::{Function, hidden},
    kind::Kind,
    parts::Part,
    runtime_path::runtime_path,
};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::{Error, Path, Result, spanned::Spanned};

/// `request`, `entered`, `hold`, `error` as generated code calls them.
pub(crate) fn names() -> (Ident, Ident, Ident, Ident) {
    (hidden("request"), hidden("entered"), hidden("hold"), hidden("error"))
}

/// An attribute and its options.
pub(crate) struct Layer {
    pub(crate) kind: Kind,
    pub(crate) options: Options,
    pub(crate) runtime: TokenStream,
    /// The path of an attribute that another one has taken along.
    pub(crate) taken_from: Option<Path>,
}

impl Layer {
    pub(crate) fn parse(kind: Kind, tokens: TokenStream, at: Span) -> Result<Self> {
        let options = Options::parse(kind, tokens, at)?;
        let runtime = runtime_path(options.runtime.as_ref().map(|given| &given.value));
        Ok(Self { kind, options, runtime, taken_from: None })
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = &Part> {
        [&self.options.args, &self.options.each].into_iter().flatten().flat_map(|given| &given.value.0)
    }

    /// `locker = ..` may use the parameters as a part of the key may.
    pub(crate) fn locker_as_part(&self) -> Option<Part> {
        self.options.locker.as_ref().map(|given| Part::Value(given.value.clone()))
    }

    pub(crate) fn on_expiry(&self) -> bool {
        chosen(self.options.release.as_ref()).as_deref() == Some("on_expiry")
    }

    pub(crate) fn check(&self, function: &Function) -> Result<()> {
        function.check(self.kind)?;
        self.options.check_guard(&function.names())?;
        self.options.check_constants(function)?;
        function.check_parts(&self.parts().collect::<Vec<_>>())?;
        if function.is_plain() {
            self.options.check_plain_function()?;
        }
        if self.options.on_error.is_some() || function.returned.may_be_result() {
            return Ok(());
        }
        let message = format!(
            "`{}` must be able to say that it was not let in: return `Result<_, E>` with \
             `E: From<locker::Error>`, or add `on_error = path`",
            function.signature.ident
        );
        Err(Error::new(function.output_span(), message))
    }

    /// `body` in braces, run inside this attribute: statements and a last expression.
    pub(crate) fn wrap(&self, function: &Function, body: &TokenStream) -> Result<TokenStream> {
        let request = self.request(function)?;
        let (asked, entered, hold, error) = names();
        let (runtime, enter) = (&self.runtime, self.enter(function));
        let hold = if self.kind == Kind::Rate { quote!(_) } else { quote!(#hold) };
        let run = self.run(function, body);
        let refused = self.refused(function);
        Ok(quote! {
            let #asked = #request;
            let #entered = #enter;
            match #entered {
                #runtime::Ok(#hold) => #run,
                #runtime::Err(#error) => #refused,
            }
        })
    }

    fn enter(&self, function: &Function) -> TokenStream {
        let (runtime, (asked, ..)) = (&self.runtime, names());
        let word = match self.kind {
            Kind::Rate => "admit",
            _ if self.options.each.is_some() => "acquire_each",
            _ => "acquire",
        };
        if function.is_plain() {
            let enter = format_ident!("{word}_blocking");
            return quote!(#runtime::#enter(#asked));
        }
        let enter = format_ident!("{word}");
        quote!(#runtime::#enter(#asked).await)
    }

    /// What the function returns instead of running its body.
    pub(crate) fn refused(&self, function: &Function) -> TokenStream {
        let (runtime, error) = (&self.runtime, names().3);
        if let Some(on_error) = &self.options.on_error {
            let path = &on_error.value;
            return quote_spanned!(path.span()=> #path(#error));
        }
        let returned = function.returned.tokens(runtime);
        let at = Span::mixed_site().located_at(function.output_span());
        quote_spanned!(at=> <#returned as #runtime::Outcome>::refused(#error))
    }

    /// Whether a closure keeps `return` and `?` of a plain body from what comes after it.
    pub(crate) fn runs_in_closure(&self, function: &Function) -> bool {
        let error = chosen(self.options.on_lost.as_ref()).as_deref() == Some("error");
        error && function.is_plain() && !function.returned.is_never()
    }

    fn run(&self, function: &Function, body: &TokenStream) -> TokenStream {
        let on_lost = chosen(self.options.on_lost.as_ref());
        match (self.kind, function.is_plain(), on_lost.as_deref()) {
            (Kind::Rate, ..) => body.clone(),
            (_, true, _) if self.runs_in_closure(function) => self.run_plain_checked(function, body),
            (_, true, _) => self.run_plain(function, body),
            (_, false, Some("error")) => self.run_async_checked(function, body),
            (_, false, Some("continue")) => self.run_async(function, body),
            (_, false, _) => self.run_async_cancelled(function, body),
        }
    }
}
