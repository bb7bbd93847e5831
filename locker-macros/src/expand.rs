//! An attribute and its item become code, or an error beside the item.

use crate::{
    function::{Form, Function, is_closure},
    kind::Kind,
    layer::Layer,
    parts::Part,
    runtime_path::library_name,
    same_key::{refuse_same_guard, refuse_same_key},
};
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::quote;
use syn::{
    Attribute, Error, Expr, ItemConst, Meta, Result,
    parse::{ParseStream, Parser},
    parse2,
    spanned::Spanned,
};

/// The item as the attribute `kind` with `args` leaves it; with `__used`, by which an attribute that another one took
/// along is named once more, nothing. On a mistake the item stays, so that editors keep working; but beside a closure
/// nothing can stand.
pub(crate) fn attribute(kind: Kind, args: TokenStream, item: TokenStream) -> TokenStream {
    if args.to_string() == "__used" {
        return named_again(&args, &item);
    }
    let (stack, item) = take_ours(item);
    expand(kind, args, stack, item.clone()).unwrap_or_else(|error| {
        let error = told(error);
        if is_closure(&item) { error } else { quote!(#item #error) }
    })
}

/// Nothing, of the item that the expansion made to name an attribute once more; nobody else's item may disappear.
fn named_again(args: &TokenStream, item: &TokenStream) -> TokenStream {
    let is_empty = |item: &ItemConst| {
        item.ident == "_" && matches!(&*item.expr, Expr::Tuple(unit) if unit.elems.is_empty())
    };
    if parse2(item.clone()).is_ok_and(|item| is_empty(&item)) {
        return TokenStream::new();
    }
    let error = told(Error::new_spanned(args, "`__used` is for what these attributes expand to"));
    quote!(#item #error)
}

/// The error as code. In edition 2015 paths begin in the user's crate, where there is `::std` but no `::core`.
fn told(error: Error) -> TokenStream {
    let known = |token| match token {
        TokenTree::Ident(name) if name == "core" => TokenTree::Ident(Ident::new("std", name.span())),
        token => token,
    };
    error.into_compile_error().into_iter().map(known).collect()
}

fn expand(kind: Kind, args: TokenStream, stack: Vec<Attribute>, item: TokenStream) -> Result<TokenStream> {
    let mut function = Function::parse(kind, item)?;
    let mut layers = vec![Layer::parse(kind, args, Span::call_site())?];
    for attribute in stack {
        layers.push(of_attribute(&attribute)?);
    }
    layers.iter().try_for_each(|layer| layer.check(&function))?;
    refuse_same_key(&layers, &function)?;
    refuse_same_guard(&layers)?;
    surround(&mut function, &layers)
}

/// Puts the layers around the body, the first one outermost.
fn surround(function: &mut Function, layers: &[Layer]) -> Result<TokenStream> {
    let lockers: Vec<Part> = layers.iter().filter_map(Layer::locker_as_part).collect();
    let parts: Vec<&Part> = layers.iter().flat_map(Layer::parts).chain(&lockers).collect();
    let access = function.open(&parts)?;
    let (captures, inside) = (function.captures(layers, &parts), access.inside);
    let mut body = function.innermost(&quote!(#captures #inside));
    let mut statements = TokenStream::new();
    for layer in layers.iter().rev() {
        statements = layer.wrap(function, &body)?;
        body = quote!({ #statements });
    }
    let (before, outermost) = (access.before, &layers[0]);
    let hint = matches!(function.form, Form::AsyncTrait(..)).then(|| outermost.hint(function));
    Ok(function.with_statements(&quote!(#hint #before #statements)))
}

/// Takes the attributes of this crate off the item: the first one expands them all, in the order written.
fn take_ours(item: TokenStream) -> (Vec<Attribute>, TokenStream) {
    let library = library_name();
    let split = |input: ParseStream| {
        let attributes = input.call(Attribute::parse_outer)?;
        let (ours, others): (Vec<_>, Vec<_>) =
            attributes.into_iter().partition(|attribute| Kind::of_path(attribute.path(), &library).is_some());
        let rest: TokenStream = input.parse()?;
        Ok((ours, quote!(#(#others)* #rest)))
    };
    split.parse2(item.clone()).unwrap_or((Vec::new(), item))
}

fn of_attribute(attribute: &Attribute) -> Result<Layer> {
    let Some(kind) = Kind::of_path(attribute.path(), &library_name()) else {
        return Err(Error::new_spanned(attribute, "not an attribute of this crate"));
    };
    let tokens = match &attribute.meta {
        Meta::List(list) => list.tokens.clone(),
        Meta::Path(_) => TokenStream::new(),
        Meta::NameValue(value) => {
            let message =
                format!("options stand in parentheses: `#[{kind}({})]`", kind.example().trim_matches('`'));
            return Err(Error::new_spanned(value, message));
        }
    };
    Ok(Layer {
        taken_from: Some(attribute.path().clone()),
        ..Layer::parse(kind, tokens, attribute.path().span())?
    })
}
