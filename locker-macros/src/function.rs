//! The function under the attribute: what it is made of, and what cannot be locked.

use crate::{
    kind::Kind,
    params::Param,
    returns::{Returned, async_trait_output, refuse_lazy},
};
use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::{
    Attribute, Block, Error, Expr, ExprAsync, ExprClosure, Path, Result, ReturnType, Signature, Stmt, Token,
    Visibility,
    parse::{ParseStream, Parser},
    spanned::Spanned,
};

/// How the body is run.
pub(crate) enum Form {
    Plain,
    Async,
    /// `Box::pin(async move { .. })` as `#[async_trait]` leaves it: the path, and the block's statements.
    AsyncTrait(Path, Vec<Stmt>),
}

/// A function with a body.
pub(crate) struct Function {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) signature: Signature,
    pub(crate) inner: Vec<Attribute>,
    /// The body without its inner attributes.
    pub(crate) body: Group,
    pub(crate) form: Form,
    pub(crate) params: Vec<Param>,
    pub(crate) returned: Returned,
}

impl Function {
    pub(crate) fn parse(kind: Kind, item: TokenStream) -> Result<Self> {
        (|input: ParseStream| Self::parse_item(kind, input)).parse2(item)
    }

    fn parse_item(kind: Kind, input: ParseStream) -> Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        let signature = signature(kind, input)?;
        let (inner, body) = body(kind, &signature, input)?;
        let form = form(&signature, &body);
        let returned = match (&form, &signature.output) {
            (Form::AsyncTrait(..), output) => Returned::of_type(async_trait_output(output)),
            (_, output) => Returned::of(output),
        };
        let params = Param::all(&signature, &form);
        Ok(Self { attributes, visibility, signature, inner, body, form, params, returned })
    }

    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.form, Form::Plain)
    }

    /// Where the type of the value is written, else the function's name.
    pub(crate) fn output_span(&self) -> Span {
        match &self.signature.output {
            ReturnType::Default => self.signature.ident.span(),
            ReturnType::Type(_, ty) => ty.span(),
        }
    }

    pub(crate) fn has_receiver(&self) -> bool {
        self.signature.receiver().is_some()
    }

    /// Refuses what no attribute of this crate can stand on.
    pub(crate) fn check(&self, kind: Kind) -> Result<()> {
        if let Some(constness) = &self.signature.constness {
            return Err(Error::new(constness.span(), format!("`{kind}` waits, which a `const fn` cannot")));
        }
        if let Some(variadic) = &self.signature.variadic {
            return Err(Error::new(variadic.span(), format!("`{kind}` does not go on variadic functions")));
        }
        if self.is_plain() { refuse_lazy(kind, &self.signature.output) } else { Ok(()) }
    }

    /// The body the attributes are put around, in braces. These are marked as generated, for inside another block
    /// the compiler would call those of a body on one line unused.
    pub(crate) fn innermost(&self, inside: &TokenStream) -> TokenStream {
        let mut body = self.body.clone();
        if let Form::AsyncTrait(_, statements) = &self.form {
            body = Group::new(Delimiter::Brace, quote!(#(#statements)*));
        }
        body.set_span(Span::mixed_site().located_at(self.body.span()));
        if inside.is_empty() { body.to_token_stream() } else { quote!({ #inside #body }) }
    }

    /// The function with these statements in place of its own.
    pub(crate) fn with_statements(&self, statements: &TokenStream) -> TokenStream {
        let Self { attributes, visibility, signature, inner, .. } = self;
        let statements = match &self.form {
            Form::AsyncTrait(pin, _) => quote!(#pin(async move { #statements })),
            Form::Plain | Form::Async => statements.clone(),
        };
        let mut body = Group::new(Delimiter::Brace, quote!(#(#inner)* #statements));
        body.set_span(self.body.span());
        quote!(#(#attributes)* #visibility #signature #body)
    }
}

fn signature(kind: Kind, input: ParseStream) -> Result<Signature> {
    let fork = input.fork();
    input.parse().map_err(|error| misplaced(kind, &fork).unwrap_or(error))
}

pub(crate) fn is_closure(item: &TokenStream) -> bool {
    syn::parse2::<ExprClosure>(item.clone()).is_ok()
}

/// Names the item that is no function.
fn misplaced(kind: Kind, input: ParseStream) -> Option<Error> {
    let at = input.span();
    if input.fork().parse::<ExprClosure>().is_ok() {
        return Some(Error::new(
            at,
            format!("`{kind}` goes on a function with a body, and this is a closure"),
        ));
    }
    let mut words = Vec::new();
    while let Ok(TokenTree::Ident(word)) = input.parse() {
        words.push(word.to_string());
    }
    if words.iter().any(|word| word == "gen") && words.iter().any(|word| word == "fn") {
        return Some(Error::new(at, format!("`{kind}` does not go on `gen` functions: make it `async fn`")));
    }
    let item = words.iter().find(|word| ITEMS.contains(&word.as_str()))?;
    Some(Error::new(at, format!("`{kind}` goes on a function with a body, and this is `{item}`")))
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

fn body(kind: Kind, signature: &Signature, input: ParseStream) -> Result<(Vec<Attribute>, Group)> {
    if input.peek(Token![;]) {
        let message = format!("`{kind}` needs a body: put it on the functions that implement this one");
        return Err(Error::new(signature.ident.span(), message));
    }
    let braces = braces(input.parse()?)?;
    let split = |input: ParseStream| Ok((input.call(Attribute::parse_inner)?, input.parse::<TokenStream>()?));
    let (inner, rest) = split.parse2(braces.stream())?;
    let mut body = Group::new(Delimiter::Brace, rest);
    body.set_span(braces.span());
    Ok((inner, body))
}

/// The body, out of the invisible brackets that `macro_rules!` puts around what it passes on.
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

/// A generated name that cannot meet one of the user's: hygiene keeps it from variables only, and a pattern that is
/// called as a unit struct, constant or static in scope means that.
pub(crate) fn hidden(name: &str) -> Ident {
    format_ident!("__locker_{name}", span = Span::mixed_site())
}

/// What a method that borrows is called on: the methods of a trait in scope that everything has, by value, come before
/// those that have yet to borrow.
pub(crate) fn borrowed(place: impl ToTokens) -> TokenStream {
    quote!((&#place))
}
