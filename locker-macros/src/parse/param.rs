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
