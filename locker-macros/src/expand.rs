//! Turns an attribute and its item into code, or into an error beside the item.

mod body;
mod captures;
mod constants;
mod copies;
mod key_access;
mod layer;
mod request;

use crate::{
    attribute::Attribute,
    hygiene::hidden,
    parse::{
        applied::{Applied, take_ours},
        function::{Form, Function, is_closure},
        key_parts::Part,
        options::Options,
    },
    validate,
};
use layer::{Layer, runs_in_closure};
use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{format_ident, quote};
use syn::{Error, Expr, ItemConst, Result, parse2};

/// Returns the item with the attribute carried out. On a mistake the item stays beside the error, so that editors keep
/// working; only a closure is replaced, because an expression cannot have a second one beside it.
pub(crate) fn attribute(attribute: Attribute, args: TokenStream, item: TokenStream) -> TokenStream {
    // The uppermost attribute of this crate takes the others off the item, to expand all in the order written. The
    // compiler then never sees the others: it would report their imports as unused and accept paths that do not
    // exist. So the expansion names each of them again, with `__used`, on an empty item that expands to nothing.
    if args.to_string() == "__used" {
        return reinvoked(&args, &item);
    }
    let (stack, item) = take_ours(item);
    expand(attribute, args, &stack, item.clone()).unwrap_or_else(|error| {
        let error = compile_error(error);
        if is_closure(&item) { error } else { quote!(#item #error) }
    })
}

/// Returns nothing for the item that `request::used` writes, and an error beside any other one.
fn reinvoked(args: &TokenStream, item: &TokenStream) -> TokenStream {
    let is_empty = |item: &ItemConst| {
        item.ident == "_" && matches!(&*item.expr, Expr::Tuple(unit) if unit.elems.is_empty())
    };
    if parse2(item.clone()).is_ok_and(|item| is_empty(&item)) {
        return TokenStream::new();
    }
    let error = compile_error(Error::new_spanned(args, "`__used` is reserved for generated code: remove it"));
    quote!(#item #error)
}

/// Returns the error as code. In edition 2015 paths begin in the user's crate, which has a `::std` but no `::core`.
fn compile_error(error: Error) -> TokenStream {
    let known = |token| match token {
        TokenTree::Ident(name) if name == "core" => TokenTree::Ident(Ident::new("std", name.span())),
        token => token,
    };
    error.into_compile_error().into_iter().map(known).collect()
}

fn expand(
    attribute: Attribute,
    args: TokenStream,
    below: &[syn::Attribute],
    item: TokenStream,
) -> Result<TokenStream> {
    let mut function = Function::parse(attribute, item)?;
    let mut stack = vec![checked(Applied::called(attribute, args)?)?];
    for attribute in below {
        stack.push(checked(Applied::taken(attribute)?)?);
    }
    validate::check(&stack, &function)?;
    surround(&mut function, &stack)
}

fn checked(applied: Applied) -> Result<Applied> {
    validate::options::check(&applied)?;
    Ok(applied)
}

/// Puts the attributes around the body, the first one outermost.
fn surround(function: &mut Function, stack: &[Applied]) -> Result<TokenStream> {
    let options = || stack.iter().map(|applied| &applied.options);
    let lockers: Vec<Part> = options().filter_map(Options::locker_as_part).collect();
    let parts: Vec<&Part> = options().flat_map(Options::parts).chain(&lockers).collect();
    let access = key_access::open(function, &parts)?;
    let closure = stack.iter().any(|applied| runs_in_closure(applied, function));
    let captures = captures::captures(function, &parts, &stack[0].runtime(), closure);
    let copies = if stack.iter().any(|applied| applied.attribute == Attribute::Leader) {
        copies::copies(function, &stack[0].runtime())
    } else {
        TokenStream::new()
    };
    let layers: Vec<Layer> = stack.iter().map(|applied| Layer::new(applied, function)).collect();
    let (before, inside) = (access.before, access.inside);
    let mut body = body::innermost(function, &quote!(#captures #inside));
    let mut statements = TokenStream::new();
    for layer in layers.iter().rev() {
        statements = match layer.applied.attribute {
            Attribute::Leader => lead(layer, &copies, &body)?,
            _ => wrap(layer, &body)?,
        };
        body = quote!({ #statements });
    }
    let hint = matches!(function.form, Form::AsyncTrait(..)).then(|| layers[0].hint());
    Ok(body::replaced(function, &quote!(#hint #before #statements)))
}

/// Returns the statements and the last expression that run `body`, in braces, inside this attribute.
fn wrap(layer: &Layer, body: &TokenStream) -> Result<TokenStream> {
    let (runtime, names, asked) = (&layer.runtime, &layer.names, request::request(layer)?);
    let (request, entered, error) = (&names.request, &names.entered, &names.error);
    let (enter, run, refused) = (enter(layer), body::run(layer, body), layer.refused());
    let hold = &names.hold;
    let entered_as = match layer.applied.attribute {
        Attribute::Rate => quote!(#runtime::Ok(_) => #run,),
        Attribute::Once => {
            let skipped = layer.skipped();
            quote! {
                #runtime::Ok(#runtime::Some(#hold)) => #run,
                #runtime::Ok(#runtime::None) => #skipped,
            }
        }
        Attribute::Idempotent => {
            let done = hidden("done");
            let replayed = layer.replayed(&done);
            quote! {
                #runtime::Ok(#runtime::Began::Runs(#hold)) => #run,
                #runtime::Ok(#runtime::Began::Done(#done)) => #replayed,
            }
        }
        _ => quote!(#runtime::Ok(#hold) => #run,),
    };
    Ok(quote! {
        let #request = #asked;
        let #entered = #enter;
        match #entered {
            #entered_as
            #runtime::Err(#error) => #refused,
        }
    })
}

/// Returns the statements and the last expression that run `body` in each term until it ends. `copies` gives it its
/// parameters.
fn lead(layer: &Layer, copies: &TokenStream, body: &TokenStream) -> Result<TokenStream> {
    let (runtime, names, asked) = (&layer.runtime, &layer.names, request::request(layer)?);
    let (request, entered, error) = (&names.request, &names.entered, &names.error);
    let (hold, run) = (&names.hold, body::led(layer, copies, body));
    let refused = body::last(layer, layer.refused());
    Ok(quote! {
        let #request = #asked;
        loop {
            let #entered = #runtime::term(&#request).await;
            match #entered {
                #runtime::Ok(#hold) => #run,
                #runtime::Err(#error) => #refused,
            }
        }
    })
}

fn enter(layer: &Layer) -> TokenStream {
    let (runtime, request) = (&layer.runtime, &layer.names.request);
    let word = match layer.applied.attribute {
        Attribute::Rate => "admit",
        Attribute::Once => "begin",
        Attribute::Idempotent => "enter",
        _ if layer.options().each.is_some() => "acquire_each",
        _ => "acquire",
    };
    if layer.function.is_plain() {
        let enter = format_ident!("{word}_blocking");
        return quote!(#runtime::#enter(#request));
    }
    let enter = format_ident!("{word}");
    quote!(#runtime::#enter(#request).await)
}
