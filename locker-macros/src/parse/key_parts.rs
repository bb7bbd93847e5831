//! The parts of a key: `args(0, account, order.id)`.

use crate::parse::duration::ungrouped;
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use std::mem::replace;
use syn::{
    BinOp, Error, Expr, Lit, Result, Token, UnOp, ext::IdentExt, parenthesized, parse::ParseStream,
    punctuated::Punctuated, spanned::Spanned, token,
};

/// One part of a key.
pub(crate) enum Part {
    /// A parameter by its position, `self` not counted.
    Position(usize, Span),
    /// A parameter, or a binding of its pattern, by name.
    Name(Ident),
    /// Any other expression over the parameters.
    Value(Expr),
}

/// The parts of a key in the order written.
pub(crate) struct Parts(pub(crate) Vec<Part>);

impl Parts {
    pub(crate) fn parse(option: &Ident, input: ParseStream) -> Result<Self> {
        if !input.peek(token::Paren) {
            let at = if input.is_empty() { option.span() } else { input.span() };
            let message = format!("`{option}` takes its parts in parentheses: `{option}(0, account)`");
            return Err(Error::new(at, message));
        }
        let parts;
        parenthesized!(parts in input);
        let parts = Punctuated::<Expr, Token![,]>::parse_terminated(&parts)?;
        let parts = Self(parts.into_iter().map(Part::new).collect::<Result<_>>()?);
        parts.refuse_duplicates()?;
        Ok(parts)
    }

    fn refuse_duplicates(&self) -> Result<()> {
        for (at, part) in self.0.iter().enumerate() {
            if self.0[..at].iter().any(|before| before.text() == part.text()) {
                let what = if let Part::Position(..) = part { "position " } else { "" };
                let message = format!("{what}`{}` is given twice: remove one", part.text());
                return Err(Error::new(part.span(), message));
            }
        }
        Ok(())
    }
}

impl Part {
    fn new(expr: Expr) -> Result<Self> {
        match ungrouped(&expr) {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Int(int) if int.suffix().is_empty() => {
                    Ok(Self::Position(int.base10_parse()?, int.span()))
                }
                Lit::Str(text) => refuse(
                    &expr,
                    &format!("a part of a key cannot be a text: write `{}` without quotes", text.value()),
                ),
                _ => refuse(&expr, NOT_A_PART),
            },
            Expr::Unary(unary) if matches!(unary.op, UnOp::Neg(_)) && matches!(*unary.expr, Expr::Lit(_)) => {
                refuse(&expr, "positions start at 0 and do not count `self`")
            }
            Expr::Path(path) => Ok(match path.path.get_ident() {
                Some(name) if path.qself.is_none() && path.attrs.is_empty() => Self::Name(name.clone()),
                _ => Self::Value(expr),
            }),
            Expr::Binary(binary) if is_assignment(binary.op) => refuse(&expr, NOT_A_PART),
            Expr::Assign(_) | Expr::Infer(_) | Expr::Range(_) | Expr::Verbatim(_) => {
                refuse(&expr, NOT_A_PART)
            }
            _ => Ok(Self::Value(expr)),
        }
    }

    pub(crate) fn span(&self) -> Span {
        match self {
            Self::Position(_, span) => *span,
            Self::Name(name) => name.span(),
            Self::Value(expr) => expr.span(),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Position(index, _) => index.to_string(),
            Self::Name(name) => name.unraw().to_string(),
            Self::Value(expr) => expr.to_token_stream().to_string(),
        }
    }

    /// Returns whether the part, taken as an expression, uses a binding of that name.
    pub(crate) fn mentions(&self, name: &Ident) -> bool {
        match self {
            Self::Position(..) => false,
            Self::Name(own) => own == name,
            Self::Value(expr) => mentions(expr.to_token_stream(), name),
        }
    }
}

/// Returns whether the tokens use a binding of that name.
pub(crate) fn mentions(tokens: TokenStream, name: &Ident) -> bool {
    let (mut after_mark, mut dots) = (false, 0);
    tokens.into_iter().any(|token| {
        let in_macro = replace(&mut after_mark, is(&token, '!'));
        let more_dots = if is(&token, '.') { dots + 1 } else { 0 };
        let dots = replace(&mut dots, more_dots);
        match token {
            // One dot precedes a field or a method, two the end of a range.
            TokenTree::Ident(ident) => ident == *name && dots != 1,
            TokenTree::Group(group) => {
                mentions(group.stream(), name) || in_macro && formats(group.stream(), name)
            }
            _ => false,
        }
    })
}

fn is(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == mark)
}

/// Returns whether a text among the arguments of a macro has the name in braces, as in `format!("{id}")`.
fn formats(tokens: TokenStream, name: &Ident) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Literal(literal) => braced(&literal.to_string()).any(|word| name.unraw() == word),
        TokenTree::Group(group) => formats(group.stream(), name),
        _ => false,
    })
}

/// Returns the words in braces: names and format specifications.
fn braced(text: &str) -> impl Iterator<Item = &str> {
    let inside = text.split('{').skip(1).filter_map(|after| after.split('}').next());
    inside.flat_map(|format| format.split(|letter: char| letter != '_' && !letter.is_alphanumeric()))
}

fn is_assignment(op: BinOp) -> bool {
    use BinOp as B;
    matches!(
        op,
        B::AddAssign(_)
            | B::SubAssign(_)
            | B::MulAssign(_)
            | B::DivAssign(_)
            | B::RemAssign(_)
            | B::BitXorAssign(_)
            | B::BitAndAssign(_)
            | B::BitOrAssign(_)
            | B::ShlAssign(_)
            | B::ShrAssign(_)
    )
}

const NOT_A_PART: &str =
    "a part of a key is a position, the name of a parameter, or an expression over the parameters";

fn refuse(expr: &Expr, why: &str) -> Result<Part> {
    Err(Error::new_spanned(expr, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::format_ident;

    #[test]
    fn uses_of_a_binding_are_found() {
        for (tokens, uses) in [
            ("id", true),
            ("order", false),
            ("id.number", true),
            ("order.id", false),
            ("order.line.id", false),
            ("0..id", true),
            ("0..=id", true),
            ("f(id)", true),
            ("f(order.id)", false),
            ("[order, id][0]", true),
            ("format!(\"{id}\")", true),
            ("format!(\"{id:?} {order}\")", true),
            ("format!(\"{order:id$}\")", true),
            ("format!(\"{}\", f(\"{id}\"))", true),
            ("format!(\"id {order}\")", false),
            ("format!(\"{order_id} {id2}\")", false),
            ("format!(\"{order}\") + f(\"{id}\")", false),
            ("f(\"{id}\")", false),
            ("!f(\"{id}\")", false),
        ] {
            assert_eq!(mentions(tokens.parse().unwrap(), &format_ident!("id")), uses, "{tokens}");
        }
        assert!(mentions("format!(\"{order_id}\")".parse().unwrap(), &format_ident!("order_id")));
        assert!(mentions("format!(\"{type}\")".parse().unwrap(), &format_ident!("r#type")));
    }

    #[test]
    fn a_part_mentions_what_it_names() {
        let id = format_ident!("id");
        for (part, mentions) in [
            (Part::Position(0, id.span()), false),
            (Part::Name(format_ident!("id")), true),
            (Part::Name(format_ident!("order")), false),
            (Part::Value(syn::parse_quote!(id + 1)), true),
            (Part::Value(syn::parse_quote!(order.id)), false),
        ] {
            assert_eq!(part.mentions(&id), mentions, "{}", part.text());
        }
    }
}
