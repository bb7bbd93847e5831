//! The parameters of a function, `self` not counted.

use crate::{
    hygiene::hidden,
    parse::pattern::{bindings, unpacked},
};
use proc_macro2::Ident;
use syn::{FnArg, Pat, PatType, Signature, Stmt};

/// A parameter: the whole value, which a position in `args` means, and the names bound in it.
pub(crate) struct Param {
    /// The name of the whole value; a pattern in the signature has none.
    pub(crate) whole: Option<Ident>,
    /// The names that its pattern binds.
    pub(crate) bound: Vec<Ident>,
    /// The index of the statement by which `#[async_trait]` takes the pattern apart.
    pub(crate) unpacked_by: Option<usize>,
    /// Whether that statement has been moved before the first key.
    pub(crate) hoisted: bool,
}

impl Param {
    /// Returns the parameters of a function; `statements` are those of the block that `#[async_trait]` wrote.
    pub(crate) fn all(signature: &Signature, statements: &[Stmt]) -> Vec<Self> {
        typed(signature).map(|param| Self::new(&param.pat, statements)).collect()
    }

    fn new(pat: &Pat, statements: &[Stmt]) -> Self {
        let whole = if let Pat::Ident(pat) = pat { Some(pat.ident.clone()) } else { None };
        let unpacking = whole.as_ref().and_then(|name| {
            statements.iter().enumerate().find_map(|(at, statement)| Some((at, unpacked(statement, name)?)))
        });
        let (unpacked_by, pat) = unpacking.map_or((None, pat), |(at, pat)| (Some(at), pat));
        Self { whole, bound: bindings(pat, |_| true), unpacked_by, hoisted: false }
    }

    pub(crate) fn is_pattern(&self) -> bool {
        self.whole.is_none() || self.unpacked_by.is_some()
    }
}

/// Returns the generated name for the whole value of a pattern.
pub(crate) fn renamed(index: usize) -> Ident {
    hidden(&format!("parameter_{index}"))
}

pub(crate) fn typed(signature: &Signature) -> impl Iterator<Item = &PatType> {
    signature
        .inputs
        .iter()
        .filter_map(|input| if let FnArg::Typed(param) = input { Some(param) } else { None })
}

pub(crate) fn typed_mut(signature: &mut Signature) -> impl Iterator<Item = &mut PatType> {
    signature
        .inputs
        .iter_mut()
        .filter_map(|input| if let FnArg::Typed(param) = input { Some(param) } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::ToTokens;
    use syn::parse_quote;

    #[test]
    fn parameters_are_counted_without_self() {
        let mut signature: Signature = parse_quote!(fn f(&self, a: u8, (b, c): (u8, u8), _: u8));
        let params = Param::all(&signature, &[]);
        let bound = params.iter().map(|param| param.bound.len()).collect::<Vec<_>>();
        let whole = params.iter().map(|param| param.whole.is_some()).collect::<Vec<_>>();
        assert_eq!((bound, whole), (vec![1, 2, 0], vec![true, false, false]));
        let patterns = params.iter().map(Param::is_pattern).collect::<Vec<_>>();
        assert_eq!(patterns, [false, true, true]);
        typed_mut(&mut signature).for_each(|param| param.ty = parse_quote!(u16));
        let changed = typed(&signature).map(|param| param.ty.to_token_stream().to_string());
        assert_eq!(changed.collect::<Vec<_>>(), ["u16", "u16", "u16"]);
    }

    #[test]
    fn a_pattern_under_async_trait_has_a_name_and_the_names_that_it_binds() {
        let signature: Signature = parse_quote!(fn f(first: u8, arg1: (u8, u8)));
        let taken = [parse_quote!(let first = first;), parse_quote!(let (b, c) = { let arg1 = arg1; arg1 };)];
        let params = Param::all(&signature, &taken);
        assert_eq!((params[0].unpacked_by, params[1].unpacked_by), (None, Some(1)));
        assert_eq!(params[1].bound.len(), 2);
        assert!(!params[0].is_pattern() && params[1].is_pattern() && params[1].whole.is_some());
    }
}
