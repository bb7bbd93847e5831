//! Moves parameters to where the keys can see them.

use crate::parse::{
    function::{Form, Function},
    key_parts::Part,
    param::{renamed, typed_mut},
    pattern::{binds, kept, take_expected},
};
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::{Error, Item, Pat, Result, Stmt, parse_quote};

/// Statements through which the parts of the keys reach the parameters.
#[derive(Default)]
pub(crate) struct Access {
    /// The statements before the first key.
    pub(crate) before: TokenStream,
    /// The statements at the head of the body.
    pub(crate) inside: TokenStream,
}

/// Names the whole values and moves the bindings that `parts` mention, so that the keys can see them.
pub(crate) fn open(function: &mut Function, parts: &[&Part]) -> Result<Access> {
    let mut access = Access::default();
    for index in 0..function.params.len() {
        let param = &function.params[index];
        let whole = parts.iter().find(|part| matches!(part, Part::Position(at, _) if *at == index));
        let named = param.bound.iter().any(|name| parts.iter().any(|part| part.mentions(name)));
        match (param.is_pattern(), param.unpacked_by, whole, named) {
            (true, _, Some(whole), true) => return Err(both(index, whole.span())),
            (true, None, Some(_), false) => access.inside.extend(rename(function, index)),
            (true, Some(statement), None, true) => {
                access.before.extend(hoist(function, index, statement));
            }
            (false, _, whole, named) if named || whole.is_some() => touch(function, index),
            _ => {}
        }
    }
    Ok(access)
}

/// Turns `(a, b): T` into `mut name: T` in the signature and returns `let (a, b) = name;` for the body. The parts that
/// the pattern does not bind live as long as without the attribute.
fn rename(function: &mut Function, index: usize) -> Option<TokenStream> {
    let param = typed_mut(&mut function.signature).nth(index)?;
    let name = renamed(index);
    // `mut` for a `ref mut` in the pattern; the name begins with an underscore, so no lint asks whether it is needed.
    let pat = std::mem::replace(&mut *param.pat, parse_quote!(mut #name));
    let pat = (!matches!(pat, Pat::Wild(_))).then_some(pat)?;
    let (expected, kept) = (take_expected(param), kept(param));
    Some(quote!(#(#expected)* #(#kept)* let #pat = #name;))
}

/// Takes the statement that unpacks a pattern out of the body of `#[async_trait]`.
fn hoist(function: &mut Function, index: usize, statement: usize) -> Option<TokenStream> {
    let Form::AsyncTrait(_, statements) = &mut function.form else { return None };
    let hoisted = statements[statement].to_token_stream();
    statements[statement] = verbatim(TokenStream::new());
    function.params[index].hoisted = true;
    Some(hoisted)
}

/// Mentions the name after `let name = name;` of `#[async_trait]`, so that a name that only the key uses does not count
/// as unused.
fn touch(function: &mut Function, index: usize) {
    let Form::AsyncTrait(_, statements) = &mut function.form else { return };
    let Some(name) = &function.params[index].whole else { return };
    let binds = |statement: &&mut Stmt| matches!(statement, Stmt::Local(local) if binds(&local.pat, name));
    if let Some(statement) = statements.iter_mut().find(binds) {
        *statement = verbatim(quote!(#statement let _ = &#name;));
    }
}

fn verbatim(tokens: TokenStream) -> Stmt {
    Stmt::Item(Item::Verbatim(tokens))
}

fn both(index: usize, at: Span) -> Error {
    let message = format!(
        "position {index} is the whole value of a pattern, and its bindings are parts of a key too: use the position \
         or the names"
    );
    Error::new(at, message)
}
