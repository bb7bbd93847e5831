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

#[cfg(test)]
mod tests {
    use super::*;
    use quote::format_ident;
    use syn::{FnArg, parse::Parser, parse_quote};

    fn pattern(text: &str) -> Pat {
        Pat::parse_single.parse_str(text).unwrap()
    }

    fn names(idents: &[Ident]) -> String {
        idents.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }

    fn param(text: &str) -> PatType {
        match syn::parse_str(text).unwrap() {
            FnArg::Typed(param) => param,
            FnArg::Receiver(_) => unreachable!("no receiver is tested"),
        }
    }

    #[test]
    fn plain_binding_is_of_its_own_name_only() {
        let name = format_ident!("a");
        assert!(binds(&pattern("a"), &name) && binds(&pattern("mut a"), &name));
        assert!(!binds(&pattern("b"), &name) && !binds(&pattern("(a, b)"), &name));
    }

    #[test]
    fn names_are_bound_at_any_depth() {
        assert_eq!(
            names(&bindings(&pattern("(a, Some(S { b, c: d, .. }), e @ [f, ..])"), |_| true)),
            "a b d e f"
        );
        assert_eq!(names(&unconditional(&pattern("S { #[cfg(x)] a, b, c: (d, UNIT) }"))), "b d");
    }

    #[test]
    fn async_trait_takes_a_pattern_apart_by_the_name_of_its_parameter() {
        let name = format_ident!("arg");
        let taken: Stmt = parse_quote!(let (a, b) = { let arg = arg; arg };);
        assert_eq!(
            unpacked(&taken, &name).map(|pat| names(&bindings(pat, |_| true))).as_deref(),
            Some("a b")
        );
        let others: [Stmt; 4] = [
            parse_quote!(let (a, b) = { let other = other; other };),
            parse_quote!(let (a, b) = arg;),
            parse_quote!(let (a, b) = { arg; };),
            parse_quote!(arg;),
        ];
        assert!(others.iter().all(|statement| unpacked(statement, &name).is_none()));
    }

    #[test]
    fn attributes_move_with_the_binding_if_they_apply_to_it() {
        for (attribute, is_kept, is_expected) in [
            ("#[cfg(x)]", true, false),
            ("#[allow(unused)]", true, false),
            ("#[cfg_attr(x, allow(unused))]", true, false),
            ("#[cfg_attr(x, allow(unused), expect(unused))]", false, true),
            ("#[expect(unused)]", false, true),
            ("#[doc(hidden)]", false, false),
        ] {
            let mut param = param(&format!("{attribute} a: u8"));
            assert_eq!(kept(&param).count() == 1, is_kept, "{attribute}");
            assert_eq!(take_expected(&mut param).len() == 1, is_expected, "{attribute}");
            assert_eq!(param.attrs.len() == 1, !is_expected, "{attribute}");
        }
    }
}
