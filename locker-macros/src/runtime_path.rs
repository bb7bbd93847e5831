//! The path by which generated code names the runtime.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::Path;

/// Returns `crate = path` if it is given, else the name that the user's manifest gives to the package, else `::locker`.
pub(crate) fn runtime_path(given: Option<&Path>) -> TokenStream {
    if let Some(path) = given {
        return quote!(#path::__private);
    }
    let name = Ident::new(&library_name(), Span::call_site());
    quote!(::#name::__private)
}

/// Returns the name of the library in the user's crate.
pub(crate) fn library_name() -> String {
    match crate_name("locker-rs") {
        // The un-renamed package is reported as `locker_rs`, but its library is `locker`.
        Ok(FoundCrate::Name(name)) if name != "locker_rs" => name,
        _ => "locker".to_owned(),
    }
}
