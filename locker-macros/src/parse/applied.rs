//! The attributes of this crate that a function has.

use crate::{
    attribute::Attribute,
    parse::options::Options,
    runtime_path::{library_name, runtime_path},
};
use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{
    Error, Meta, Path, Result,
    parse::{ParseStream, Parser},
    spanned::Spanned,
};

/// One attribute with its options.
pub(crate) struct Applied {
    pub(crate) attribute: Attribute,
    pub(crate) options: Options,
    /// The place of the attribute.
    pub(crate) at: Span,
    /// The path of an attribute below, which the uppermost one expands as well.
    pub(crate) taken_from: Option<Path>,
}

impl Applied {
    /// Parses the attribute that the compiler called.
    pub(crate) fn called(attribute: Attribute, options: TokenStream) -> Result<Self> {
        let options = Options::parse(attribute, options)?;
        Ok(Self { attribute, options, at: Span::call_site(), taken_from: None })
    }

    /// Parses an attribute that was taken off the item.
    pub(crate) fn taken(attribute: &syn::Attribute) -> Result<Self> {
        let path = attribute.path();
        let Some(which) = Attribute::of_path(path, &library_name()) else {
            return Err(Error::new_spanned(attribute, "not an attribute of `locker`"));
        };
        let options = match &attribute.meta {
            Meta::List(list) => list.tokens.clone(),
            Meta::Path(_) => TokenStream::new(),
            Meta::NameValue(value) => {
                let example = which.example().trim_matches('`');
                let message = format!("options stand in parentheses: `#[{which}({example})]`");
                return Err(Error::new_spanned(value, message));
            }
        };
        let options = Options::parse(which, options)?;
        Ok(Self { attribute: which, options, at: path.span(), taken_from: Some(path.clone()) })
    }

    /// Returns the path of the runtime, for generated code.
    pub(crate) fn runtime(&self) -> TokenStream {
        runtime_path(self.options.runtime.as_ref().map(|given| &given.value))
    }
}

/// Takes the attributes of this crate off the item, in the order written.
pub(crate) fn take_ours(item: TokenStream) -> (Vec<syn::Attribute>, TokenStream) {
    let library = library_name();
    let split = |input: ParseStream| {
        let attributes = input.call(syn::Attribute::parse_outer)?;
        let (ours, others): (Vec<_>, Vec<_>) =
            attributes.into_iter().partition(|one| Attribute::of_path(one.path(), &library).is_some());
        let rest: TokenStream = input.parse()?;
        Ok((ours, quote!(#(#others)* #rest)))
    };
    split.parse2(item.clone()).unwrap_or((Vec::new(), item))
}
