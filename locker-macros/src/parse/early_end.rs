//! Bodies that can end before their last expression.

use proc_macro2::{TokenStream, TokenTree};

/// The macros of the standard library that contain no `return` or `?` but those of their arguments.
const TRANSPARENT: [&str; 19] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "dbg",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "eprintln",
    "format",
    "format_args",
    "matches",
    "panic",
    "println",
    "todo",
    "unimplemented",
    "unreachable",
    "vec",
    "write",
    "writeln",
];

/// Returns whether the body may have a `return` or a `?`, be it in a macro of which only the name is known. `false` is
/// certain; a `return` of an inner closure or function counts, too.
pub(crate) fn may_end_early(body: TokenStream) -> bool {
    let mut before = (None, None);
    body.into_iter().any(|token| {
        let may = match &token {
            TokenTree::Ident(word) => word == "return",
            TokenTree::Punct(mark) => mark.as_char() == '?',
            TokenTree::Group(group) => is_unknown_macro(&before) || may_end_early(group.stream()),
            TokenTree::Literal(_) => false,
        };
        before = (before.1.take(), Some(token));
        may
    })
}

/// Returns whether the two tokens before a group are the name and the `!` of a macro that may hide a `return`.
fn is_unknown_macro(before: &(Option<TokenTree>, Option<TokenTree>)) -> bool {
    match before {
        (Some(TokenTree::Ident(name)), Some(TokenTree::Punct(mark))) if mark.as_char() == '!' => {
            !TRANSPARENT.iter().any(|known| name == known)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_end_is_noticed() {
        for (body, may) in [
            ("Ok(Location::caller().line())", false),
            ("if !a { b() }", false),
            ("let n = (1, 2); a & (b); Ok(n)", false),
            ("assert!(a != b && !c, \"{a}\"); std::panic!()", false),
            ("let n = text.parse()?; Ok(n)", true),
            ("if a { return Ok(1); } Ok(2)", true),
            ("loop { match a { _ => { f(b?) } } }", true),
            ("vec![a?]", true),
            ("anyhow::bail!(\"no\")", true),
        ] {
            assert_eq!(may_end_early(body.parse().unwrap()), may, "{body}");
        }
    }
}
