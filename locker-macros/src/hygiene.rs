//! Names, spans and brackets of generated code that do not interfere with the user's.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::{Expr, spanned::Spanned};

/// Returns a generated name that cannot meet one of the user's. Hygiene separates variables only: a pattern named like
/// a unit struct, constant or static in scope means that item.
pub(crate) fn hidden(name: &str) -> Ident {
    format_ident!("__locker_{name}", span = Span::mixed_site())
}

/// Returns the receiver for a call of a method that borrows. A trait in scope that is implemented for every type may
/// have a method of the same name by value, which would win over one that has yet to borrow.
pub(crate) fn borrowed(place: impl ToTokens) -> TokenStream {
    quote!((&#place))
}

/// Returns the tokens with the span of `place`, so that errors point there.
pub(crate) fn located(place: Span, tokens: TokenStream) -> TokenStream {
    let placed = tokens.into_iter().map(|mut token| {
        token.set_span(token.span().located_at(place));
        token
    });
    placed.collect()
}

/// Returns the expression, in brackets if a `&` before it would otherwise bind to a part of it only.
pub(crate) fn in_brackets(expr: &Expr) -> TokenStream {
    use Expr as E;
    match expr {
        E::Path(_)
        | E::Field(_)
        | E::MethodCall(_)
        | E::Call(_)
        | E::Index(_)
        | E::Macro(_)
        | E::Reference(_)
        | E::Paren(_)
        | E::Tuple(_)
        | E::Block(_)
        | E::Lit(_)
        | E::Await(_)
        | E::Try(_)
        | E::Unary(_) => expr.to_token_stream(),
        E::Group(group) => in_brackets(&group.expr),
        _ => {
            // Brackets from here to there would make lints point at the whole attribute.
            let mut brackets = Group::new(Delimiter::Parenthesis, expr.to_token_stream());
            brackets.set_span(Span::mixed_site().located_at(expr.span()));
            brackets.to_token_stream()
        }
    }
}

/// Returns an attribute that lets generated code use a name with an underscore.
pub(crate) fn although_underscored(name: &Ident) -> Option<TokenStream> {
    name.to_string().starts_with('_').then(|| quote!(#[allow(clippy::used_underscore_binding)]))
}
