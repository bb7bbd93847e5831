//! The names that patterns bind, and the attributes of parameters.

use proc_macro2::Ident;
use syn::{
    Attribute, Expr, FieldPat, Meta, Pat, PatType, Path, Stmt, Token,
    ext::IdentExt,
    punctuated::Punctuated,
    visit::{self, Visit},
};

/// Returns whether the pattern is a plain binding of this name.
pub(crate) fn binds(pat: &Pat, name: &Ident) -> bool {
    matches!(pat, Pat::Ident(pat) if pat.ident == *name)
}

/// Returns the pattern of `let PATTERN = { let name = name; name };`.
pub(crate) fn unpacked<'a>(statement: &'a Stmt, name: &Ident) -> Option<&'a Pat> {
    let Stmt::Local(local) = statement else { return None };
    let Expr::Block(init) = &*local.init.as_ref()?.expr else { return None };
    match init.block.stmts.last()? {
        Stmt::Expr(Expr::Path(path), None) if path.path.is_ident(name) => Some(&local.pat),
        _ => None,
    }
}

/// Returns the names that the pattern binds, in those of its fields that `in_field` accepts.
pub(crate) fn bindings(pat: &Pat, in_field: fn(&FieldPat) -> bool) -> Vec<Ident> {
    struct Bindings(Vec<Ident>, fn(&FieldPat) -> bool);
    impl<'ast> Visit<'ast> for Bindings {
        fn visit_pat_ident(&mut self, pat: &'ast syn::PatIdent) {
            self.0.push(pat.ident.clone());
            visit::visit_pat_ident(self, pat);
        }

        fn visit_field_pat(&mut self, field: &'ast FieldPat) {
            if (self.1)(field) {
                visit::visit_field_pat(self, field);
            }
        }
    }
    let mut bindings = Bindings(Vec::new(), in_field);
    bindings.visit_pat(pat);
    bindings.0
}

/// Returns the names that the pattern binds under every `cfg`, without unit structs.
pub(crate) fn unconditional(pat: &Pat) -> Vec<Ident> {
    let mut names = bindings(pat, |field| field.attrs.is_empty());
    names.retain(|name| !is_upper(name));
    names
}

/// Returns whether the name is written like a constant, const parameter or unit struct.
pub(crate) fn is_upper(name: &Ident) -> bool {
    name.unraw().to_string().starts_with(char::is_uppercase)
}

/// Returns the attributes that a binding keeps when it moves out of the signature.
pub(crate) fn kept(param: &PatType) -> impl Iterator<Item = &Attribute> {
    let is_kept = |path: &Path| path.is_ident("cfg") || path.is_ident("allow");
    param.attrs.iter().filter(move |attribute| paths(attribute).iter().all(is_kept))
}

/// Takes the `expect` attributes off a parameter. They apply to its bindings and must move with them.
pub(crate) fn take_expected(param: &mut PatType) -> Vec<Attribute> {
    let is_expected = |path: &Path| path.is_ident("expect");
    param.attrs.extract_if(.., |attribute| paths(attribute).iter().any(is_expected)).collect()
}

/// Returns the path of the attribute, or those that a `cfg_attr` stands for.
fn paths(attribute: &Attribute) -> Vec<Path> {
    let conditional = Punctuated::<Meta, Token![,]>::parse_terminated;
    match attribute.parse_args_with(conditional) {
        Ok(metas) if attribute.path().is_ident("cfg_attr") => {
            metas.iter().skip(1).map(|meta| meta.path().clone()).collect()
        }
        _ => vec![attribute.path().clone()],
    }
}
