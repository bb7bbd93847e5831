//! The body while the lock is held: in place in plain functions, as an awaited block in async ones.

use crate::{
    attribute::Attribute,
    expand::layer::{Layer, is_checked, runs_in_closure},
    hygiene::{borrowed, hidden},
    parse::{
        function::{Form, Function},
        options::chosen,
    },
};
use proc_macro2::{Delimiter, Group, Span, TokenStream};
use quote::{ToTokens, quote};
use syn::{ReturnType, spanned::Spanned};

/// Returns the body that the attributes are put around, in braces. The braces are marked as generated, because inside
/// another block the compiler would report those of a one-line body as unused.
pub(crate) fn innermost(function: &Function, inside: &TokenStream) -> TokenStream {
    let mut body = function.body.clone();
    if let Form::AsyncTrait(_, statements) = &function.form {
        body = Group::new(Delimiter::Brace, quote!(#(#statements)*));
    }
    body.set_span(Span::mixed_site().located_at(function.body.span()));
    if inside.is_empty() { body.to_token_stream() } else { quote!({ #inside #body }) }
}

/// Returns the function with these statements in place of its own.
pub(crate) fn replaced(function: &Function, statements: &TokenStream) -> TokenStream {
    let Function { attributes, visibility, signature, inner, .. } = function;
    let statements = match &function.form {
        Form::AsyncTrait(pin, _) => quote!(#pin(async move { #statements })),
        Form::Plain | Form::Async => statements.clone(),
    };
    let mut body = Group::new(Delimiter::Brace, quote!(#(#inner)* #statements));
    body.set_span(function.body.span());
    quote!(#(#attributes)* #visibility #signature #body)
}

/// Returns the expression that runs `body` once the lock is held, and releases it.
pub(crate) fn run(layer: &Layer, body: &TokenStream) -> TokenStream {
    let (options, function) = (layer.options(), layer.function);
    let on_lost = chosen(options.on_lost.as_ref());
    match (layer.applied.attribute, function.is_plain(), on_lost.as_deref()) {
        (Attribute::Rate, ..) => body.clone(),
        (Attribute::Once | Attribute::Idempotent, true, _) => plain_run(layer, body),
        (Attribute::Once | Attribute::Idempotent, false, _) => async_run(layer, body),
        (_, true, _) if is_checked(layer.applied, function) => plain_checked(layer, body),
        (_, true, _) => plain(layer, body),
        (_, false, Some("error")) => async_checked(layer, body),
        (_, false, Some("continue")) => async_continued(layer, body),
        (_, false, _) => async_cancelled(layer, body),
    }
}

/// Runs the body in place. The drop of the hold releases, after the temporaries of the body. The `if` keeps the
/// compiler from reporting unreachable code after a body that always panics.
fn plain(layer: &Layer, body: &TokenStream) -> TokenStream {
    let (runtime, guard, value) = (&layer.runtime, guard(layer), &layer.names.value);
    match layer.function.returned.annotation(runtime) {
        None => quote!({ #guard #body }),
        Some(returned) => quote!({
            #guard
            let #value: #returned = if false { #runtime::never() } else #body;
            #value
        }),
    }
}

/// Runs the body and replaces its result if the hold turns out lost at the release.
fn plain_checked(layer: &Layer, body: &TokenStream) -> TokenStream {
    let (runtime, guard, names) = (&layer.runtime, guard(layer), &layer.names);
    let (value, hold, error) = (&names.value, &names.hold, &names.error);
    let (returned, refused) = (layer.function.returned.tokens(runtime), layer.refused());
    let run = if runs_in_closure(layer.applied, layer.function) {
        quote!(let #value = #runtime::call(move || -> #returned #body);)
    } else {
        quote!(let #value: #returned = if false { #runtime::never() } else #body;)
    };
    quote!({
        #guard
        #run
        match #hold.leave_checked() {
            #runtime::Ok(()) => #value,
            #runtime::Err(#error) => #refused,
        }
    })
}

fn async_continued(layer: &Layer, body: &TokenStream) -> TokenStream {
    let (runtime, guard, names) = (&layer.runtime, guard(layer), &layer.names);
    let (value, hold) = (&names.value, &names.hold);
    let (block, end) = (block(layer, body), end(layer));
    quote!({
        #guard
        let #value = {
            let #value = #runtime::pin!(#block);
            #runtime::run(&#hold, #value).await
        };
        #runtime::leave(#hold).await;
        #end
    })
}

fn async_checked(layer: &Layer, body: &TokenStream) -> TokenStream {
    let (runtime, guard, names) = (&layer.runtime, guard(layer), &layer.names);
    let (value, hold, error) = (&names.value, &names.hold, &names.error);
    let (block, end, refused) = (block(layer, body), end(layer), layer.refused());
    quote!({
        #guard
        let #value = {
            let #value = #runtime::pin!(#block);
            #runtime::run(&#hold, #value).await
        };
        match #runtime::leave_checked(#hold).await {
            #runtime::Ok(()) => #end,
            #runtime::Err(#error) => #refused,
        }
    })
}

fn async_cancelled(layer: &Layer, body: &TokenStream) -> TokenStream {
    let (runtime, guard, names) = (&layer.runtime, guard(layer), &layer.names);
    let (value, hold, error, outcome) = (&names.value, &names.hold, &names.error, hidden("outcome"));
    let (block, end, refused) = (block(layer, body), end(layer), layer.refused());
    quote!({
        #guard
        let #outcome = {
            let #value = #runtime::pin!(#block);
            #runtime::cancel_on_lost(&#hold, #value).await
        };
        match #outcome {
            #runtime::Ok(#value) => {
                #runtime::leave(#hold).await;
                #end
            }
            #runtime::Err(#error) => {
                #runtime::drop(#hold);
                #refused
            }
        }
    })
}

/// Runs the body in a closure, and says whether it has succeeded.
fn plain_run(layer: &Layer, body: &TokenStream) -> TokenStream {
    let (runtime, guard, names) = (&layer.runtime, guard(layer), &layer.names);
    let (value, hold, error, result) = (&names.value, &names.hold, &names.error, hidden("result"));
    let (returned, refused, success) =
        (layer.function.returned.tokens(runtime), layer.refused(), success(layer));
    quote!({
        #guard
        let #value = #runtime::call(move || -> #returned #body);
        #success
        match #hold.end_with(#result) {
            #runtime::Ok(()) => #value,
            #runtime::Err(#error) => #refused,
        }
    })
}

/// Returns the statement that makes of the value of the body what the record keeps, or `None`.
fn success(layer: &Layer) -> TokenStream {
    let (runtime, value, result) = (&layer.runtime, &layer.names.value, hidden("result"));
    if layer.applied.attribute == Attribute::Idempotent {
        let (kept, hold) = (layer.kept(), &layer.names.hold);
        return quote!(let #result = #kept::kept(&#value, &#hold););
    }
    quote!(let #result = #runtime::Ended(&#value).success();)
}

/// Runs the body unless the run is lost, and says whether it has succeeded.
fn async_run(layer: &Layer, body: &TokenStream) -> TokenStream {
    let (runtime, guard, names) = (&layer.runtime, guard(layer), &layer.names);
    let (value, hold, error, outcome) = (&names.value, &names.hold, &names.error, hidden("outcome"));
    let (block, end, refused) = (block(layer, body), end(layer), layer.refused());
    let (success, result) = (success(layer), hidden("result"));
    quote!({
        #guard
        let #outcome = {
            let #value = #runtime::pin!(#block);
            #runtime::cancel_on_lost(&#hold, #value).await
        };
        match #outcome {
            #runtime::Ok(#value) => {
                #success
                #runtime::end_with(#hold, #result).await;
                #end
            }
            #runtime::Err(#error) => {
                #runtime::drop(#hold);
                #refused
            }
        }
    })
}

/// Runs the body for one term, and ends the loop around it unless the term was lost.
pub(crate) fn led(layer: &Layer, copies: &TokenStream, body: &TokenStream) -> TokenStream {
    let (runtime, guard, names) = (&layer.runtime, guard(layer), &layer.names);
    let (value, hold, outcome) = (&names.value, &names.hold, hidden("outcome"));
    let (block, end) = (block(layer, body), last(layer, end(layer)));
    quote!({
        #guard
        let #outcome = {
            let #value = #runtime::pin!({ #copies #block });
            #runtime::cancel_on_lost(&#hold, #value).await
        };
        match #outcome {
            #runtime::Ok(#value) => {
                #runtime::leave(#hold).await;
                #end
            }
            #runtime::Err(_) => #runtime::drop(#hold),
        }
    })
}

/// Returns an expression that ends the loop around it with a value. A value of type `!` never comes.
pub(crate) fn last(layer: &Layer, value: TokenStream) -> TokenStream {
    if layer.function.returned.is_never() { value } else { quote!(break #value) }
}

/// Returns the body as a future with a fixed output type.
fn block(layer: &Layer, body: &TokenStream) -> TokenStream {
    let hint = layer.hint();
    quote!(async move { #hint #body })
}

fn guard(layer: &Layer) -> Option<TokenStream> {
    let (name, hold) = (&layer.options().guard.as_ref()?.value, borrowed(&layer.names.hold));
    Some(quote!(let #name = #hold.guard();))
}

/// Returns the value after the body; `!` is carried as `Infallible`. It has the span of the return type, because the
/// borrow checker points there if the value must not be returned.
fn end(layer: &Layer) -> TokenStream {
    let (mut value, function) = (layer.names.value.clone(), layer.function);
    if let ReturnType::Type(_, returned) = &function.signature.output {
        value.set_span(value.span().located_at(returned.span()));
    }
    if function.returned.is_never() { quote!(match #value {}) } else { quote!(#value) }
}
