//! The function under the attribute, and items that are no functions.

use crate::{
    attribute::Attribute,
    parse::{
        key_parts::mentions,
        param::Param,
        return_type::{Returned, async_trait_output},
    },
};
use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{
    Block, Error, Expr, ExprAsync, ExprClosure, Path, Result, ReturnType, Signature, Stmt, Token, Visibility,
    parse::{ParseStream, Parser},
    spanned::Spanned,
};

/// How the body runs.
pub(crate) enum Form {
    Plain,
    Async,
    /// The body that `#[async_trait]` wrote, `Box::pin(async move { .. })`: the path, and the block's statements.
    AsyncTrait(Path, Vec<Stmt>),
}

impl Form {
    /// Returns the statements that `#[async_trait]` wrote.
    fn statements(&self) -> &[Stmt] {
        if let Self::AsyncTrait(_, statements) = self { statements } else { &[] }
    }
}

/// A function with a body.
pub(crate) struct Function {
    pub(crate) attributes: Vec<syn::Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) signature: Signature,
    pub(crate) inner: Vec<syn::Attribute>,
    /// The body without its inner attributes.
    pub(crate) body: Group,
    pub(crate) form: Form,
    pub(crate) params: Vec<Param>,
    pub(crate) returned: Returned,
}

impl Function {
    pub(crate) fn parse(attribute: Attribute, item: TokenStream) -> Result<Self> {
        (|input: ParseStream| Self::parse_item(attribute, input)).parse2(item)
    }

    fn parse_item(attribute: Attribute, input: ParseStream) -> Result<Self> {
        let attributes = input.call(syn::Attribute::parse_outer)?;
        let visibility = input.parse()?;
        let signature = signature(attribute, input)?;
        let (inner, body) = body(attribute, &signature, input)?;
        let form = form(&signature, &body);
        let returned = match (&form, &signature.output) {
            (Form::AsyncTrait(..), output) => Returned::of_type(async_trait_output(output)),
            (_, output) => Returned::of(output),
        };
        let params = Param::all(&signature, form.statements());
        Ok(Self { attributes, visibility, signature, inner, body, form, params, returned })
    }

    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.form, Form::Plain)
    }

    /// Returns the place of the return type, or of the function's name if it has none.
    pub(crate) fn output_span(&self) -> Span {
        match &self.signature.output {
            ReturnType::Default => self.signature.ident.span(),
            ReturnType::Type(_, ty) => ty.span(),
        }
    }

    pub(crate) fn has_receiver(&self) -> bool {
        self.signature.receiver().is_some()
    }

    /// Returns whether it has `#[track_caller]`, under a condition or not.
    pub(crate) fn tracks_caller(&self) -> bool {
        let word = Ident::new("track_caller", Span::call_site());
        self.attributes.iter().any(|attribute| mentions(attribute.meta.to_token_stream(), &word))
    }

    /// Returns the names that the parameters bind.
    pub(crate) fn bound_names(&self) -> Vec<Ident> {
        self.params.iter().flat_map(|param| param.bound.clone()).collect()
    }
}

fn signature(attribute: Attribute, input: ParseStream) -> Result<Signature> {
    let fork = input.fork();
    input.parse().map_err(|error| misplaced(attribute, &fork).unwrap_or(error))
}

pub(crate) fn is_closure(item: &TokenStream) -> bool {
    syn::parse2::<ExprClosure>(item.clone()).is_ok()
}

/// Returns an error that names the item that is no function.
fn misplaced(attribute: Attribute, input: ParseStream) -> Option<Error> {
    let at = input.span();
    if input.fork().parse::<ExprClosure>().is_ok() {
        return Some(Error::new(
            at,
            format!("`{attribute}` goes on a function with a body, but this is a closure"),
        ));
    }
    let mut words = Vec::new();
    while let Ok(TokenTree::Ident(word)) = input.parse() {
        words.push(word.to_string());
    }
    if words.iter().any(|word| word == "gen") && words.iter().any(|word| word == "fn") {
        return Some(Error::new(
            at,
            format!("`{attribute}` does not support `gen` functions: make it `async fn`"),
        ));
    }
    let item = words.iter().find(|word| ITEMS.contains(&word.as_str()))?;
    Some(Error::new(at, format!("`{attribute}` goes on a function with a body, but this is `{item}`")))
}

const ITEMS: [&str; 12] = [
    "struct",
    "enum",
    "union",
    "impl",
    "trait",
    "mod",
    "type",
    "use",
    "let",
    "static",
    "const",
    "macro_rules",
];

fn body(
    attribute: Attribute,
    signature: &Signature,
    input: ParseStream,
) -> Result<(Vec<syn::Attribute>, Group)> {
    if input.peek(Token![;]) {
        let message =
            format!("`{attribute}` needs a function with a body: put it on the implementations of this one");
        return Err(Error::new(signature.ident.span(), message));
    }
    let braces = braces(input.parse()?)?;
    let split =
        |input: ParseStream| Ok((input.call(syn::Attribute::parse_inner)?, input.parse::<TokenStream>()?));
    let (inner, rest) = split.parse2(braces.stream())?;
    let mut body = Group::new(Delimiter::Brace, rest);
    body.set_span(braces.span());
    Ok((inner, body))
}

/// Returns the body without the invisible brackets that `macro_rules!` puts around its arguments.
fn braces(body: TokenTree) -> Result<Group> {
    match body {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Ok(group),
        TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
            braces(syn::parse2(group.stream())?)
        }
        other => Err(Error::new(other.span(), "expected the body of the function")),
    }
}

fn form(signature: &Signature, body: &Group) -> Form {
    if signature.asyncness.is_some() {
        return Form::Async;
    }
    async_trait(signature, body).map_or(Form::Plain, |(pin, statements)| Form::AsyncTrait(pin, statements))
}

fn async_trait(signature: &Signature, body: &Group) -> Option<(Path, Vec<Stmt>)> {
    async_trait_output(&signature.output)?;
    let block = syn::parse2::<Block>(body.to_token_stream()).ok()?;
    let [Stmt::Expr(Expr::Call(call), None)] = &block.stmts[..] else { return None };
    let (Expr::Path(pin), 1) = (&*call.func, call.args.len()) else { return None };
    match call.args.first()? {
        Expr::Async(ExprAsync { block, .. }) => Some((pin.path.clone(), block.stmts.clone())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Attribute, Form, Function};
    use proc_macro2::{Delimiter, Group, TokenStream};
    use quote::quote;

    fn parse(item: TokenStream) -> super::Result<Function> {
        Function::parse(Attribute::Lock, item)
    }

    #[test]
    fn what_is_no_function_is_named() {
        for (item, words) in [
            ("gen fn f() {}", "does not support `gen` functions"),
            ("async gen fn f() {}", "does not support `gen` functions"),
            ("fn (a: u8) {}", "expected identifier"),
            ("type gen = u8;", "but this is `type`"),
            ("pub(crate) struct S;", "but this is `struct`"),
        ] {
            let error = parse(item.parse().unwrap()).err().unwrap();
            assert!(error.to_string().contains(words), "{item}: {error}");
        }
    }

    #[test]
    fn track_caller_is_seen_under_a_condition_too() {
        for (attribute, tracks) in [
            ("#[track_caller]", true),
            ("#[cfg_attr(test, track_caller)]", true),
            ("#[inline]", false),
            ("", false),
        ] {
            let item = format!("{attribute} fn f() {{}}").parse().unwrap();
            let function = parse(item).unwrap();
            assert_eq!(function.tracks_caller(), tracks, "{attribute}");
        }
    }

    /// As `macro_rules!` passes on what it has matched.
    #[test]
    fn body_may_stand_in_invisible_brackets() {
        let body = Group::new(Delimiter::None, quote!({ Ok(a) }));
        let function = parse(quote!(fn f(a: u8) -> Done #body)).unwrap();
        assert_eq!(function.body.stream().to_string(), quote!(Ok(a)).to_string());
        for item in [quote!(fn f(a: u8) (Ok(a))), quote!(fn f(a: u8) ({ Ok(a) }))] {
            assert!(parse(item).is_err());
        }
    }

    #[test]
    fn body_of_async_trait_is_known_by_its_block() {
        let function = |body: TokenStream| {
            let output = quote!(
                ::core::pin::Pin<Box<dyn ::core::future::Future<Output = Done> + Send + 'async_trait>>
            );
            parse(quote!(fn f<'async_trait>(a: u8) -> #output { #body })).unwrap()
        };
        let block = function(quote!(Box::pin(async move {
            let a = a;
            Ok(a)
        })));
        assert!(matches!(&block.form, Form::AsyncTrait(..)) && block.form.statements().len() == 2);
        assert!(block.bound_names().iter().any(|name| name == "a"));
        for body in [quote!(Box::pin(g(a))), quote!(g(a)), quote!(Box::pin(async move {}, a))] {
            let plain = function(body);
            assert!(plain.is_plain() && plain.form.statements().is_empty());
        }
    }
}
