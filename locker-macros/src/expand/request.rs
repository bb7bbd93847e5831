//! The block that computes the key and builds the request. It ends before the first await.

use crate::{
    attribute::{Attribute, OptionName},
    expand::{constants, layer::Layer},
    hygiene::{although_underscored, borrowed, hidden, in_brackets},
    parse::{
        function::Function,
        key_parts::Part,
        options::{Given, chosen},
    },
    validate::key_parts::value_of,
};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::{LitStr, Result, ext::IdentExt, spanned::Spanned};

/// Returns an expression that makes the request.
pub(crate) fn request(layer: &Layer) -> Result<TokenStream> {
    let runtime = &layer.runtime;
    let (identity, digest) = identity(layer);
    let (constants, locker) = (constants::define(layer), locker(layer));
    if layer.applied.attribute == Attribute::Leader {
        let (source, name, used, settings) = (hidden("locker"), name(layer), used(layer), settings(layer));
        return Ok(quote!({
            #used
            #identity
            #constants
            #locker
            #runtime::leader(#source, __LOCKER_FUNCTION, #name) #settings
        }));
    }
    let (source, key) = (hidden("locker"), hidden("key"));
    let open = format_ident!("{}_key", key_word(layer));
    let parts = hashed(layer, layer.options().key_parts(), &key)?;
    let same = hidden("same");
    let agreed = if layer.options().same.is_some() {
        let parts = hashed(layer, layer.options().same_parts(), &same)?;
        quote!(let mut #same = #runtime::same(); #parts)
    } else {
        TokenStream::new()
    };
    let finish = finish(layer);
    let used = used(layer);
    Ok(quote!({
        #used
        #identity
        #constants
        #locker
        let mut #key = #runtime::#open(#source, #digest);
        #parts
        #agreed
        #finish
    }))
}

/// Returns statements that add parts to the digest `to`.
fn hashed<'a>(layer: &Layer, parts: impl Iterator<Item = &'a Part>, to: &Ident) -> Result<TokenStream> {
    let statements = parts.map(|part| {
        let (value, allowed) = (value_of(part, layer.function)?, allowed(part, layer.function));
        let to = borrowed(quote!(mut #to));
        Ok(quote_spanned!(Span::mixed_site().located_at(part.span())=> #allowed #to.part(&#value);))
    });
    statements.collect()
}

fn name<'a>(layer: &'a Layer) -> Option<&'a LitStr> {
    layer.options().name.as_ref().map(|given| &given.value)
}

/// Returns an item that names an attribute that the uppermost one took off the function. Without it the compiler would
/// report the import of that attribute as unused, and a misspelt path to it would not be noticed. The attribute is
/// called again for this empty item, with `__used` as its only argument, and expands to nothing (`expand::attribute`).
fn used(layer: &Layer) -> Option<TokenStream> {
    layer.applied.taken_from.as_ref().map(|path| quote!(#[#path(__used)] const _: () = ();))
}

/// Returns the `static` with the function's digest, and an expression for the digest. The block hides the static from
/// the body.
fn identity(layer: &Layer) -> (TokenStream, TokenStream) {
    let (runtime, function) = (&layer.runtime, layer.function);
    let name = function.signature.ident.unraw().to_string();
    let place = place(layer);
    let (new, of) = match &layer.options().name {
        Some(Given { value, .. }) => (quote!(named(#value, #place)), quote!(digest())),
        None if function.has_receiver() => {
            (quote!(new(#runtime::module_path!(), #name, #place)), quote!(digest_of::<Self>()))
        }
        None => (quote!(new(#runtime::module_path!(), #name, #place)), quote!(digest())),
    };
    // Not `borrowed` at each use: clippy would see no static that changes there, and ask for `must_use`.
    let identity = quote! {
        static __LOCKER_IDENTITY: #runtime::Function = #runtime::Function::#new;
        static __LOCKER_FUNCTION: &#runtime::Function = &__LOCKER_IDENTITY;
    };
    (identity, quote!(__LOCKER_FUNCTION.#of))
}

/// Returns the file and the line of the function's name. Every token has the span of the name, because `line!` is the
/// line of the attribute otherwise. A path of the option `crate` keeps its own spans: it may begin with `$crate`.
fn place(layer: &Layer) -> TokenStream {
    let (runtime, at) = (&layer.runtime, layer.function.signature.ident.span());
    let place = quote!(#runtime::file!(), #runtime::line!());
    if layer.options().runtime.is_some() {
        return place;
    }
    let placed = place.into_iter().map(|mut token| {
        token.set_span(at);
        token
    });
    placed.collect()
}

fn locker(layer: &Layer) -> TokenStream {
    let (runtime, locker) = (&layer.runtime, hidden("locker"));
    let Some(given) = &layer.options().locker else { return quote!(let #locker = #runtime::global();) };
    let expr = in_brackets(&given.value);
    let mut source = hidden("source");
    source.set_span(source.span().located_at(given.value.span()));
    quote!(let #source = &#expr; let #locker = #runtime::locker(#source);)
}

/// Returns an attribute for the lints that a part would trigger although its author cannot avoid them.
fn allowed(part: &Part, function: &Function) -> Option<TokenStream> {
    let Part::Position(index, _) = part else { return None };
    although_underscored(function.params.get(*index)?.whole.as_ref()?)
}

fn finish(layer: &Layer) -> TokenStream {
    let (runtime, settings, word) = (&layer.runtime, settings(layer), format_ident!("{}", word(layer)));
    let (locker, key, one) = (hidden("locker"), hidden("key"), hidden("one"));
    let limits = limits(layer);
    let request = |key| quote!(#runtime::#word(#locker, __LOCKER_FUNCTION, #key #limits) #settings);
    let request = if layer.options().each.is_some() {
        let request = request(one.to_token_stream());
        quote!(#runtime::each(#key, |#one| #request))
    } else {
        request(quote!(#key.finish()))
    };
    if layer.options().is_released_on_expiry() { quote!(#request.release_on_expiry()) } else { request }
}

/// Returns the runtime's function for the request.
fn word(layer: &Layer) -> &'static str {
    match (layer.applied.attribute, chosen(layer.options().mode.as_ref()).as_deref()) {
        (Attribute::Lock, Some("read")) => "read",
        (Attribute::Lock, Some(_)) => "write",
        (attribute, _) => key_kind(attribute),
    }
}

/// Returns the first word of the runtime's function for the key.
fn key_word(layer: &Layer) -> &'static str {
    match layer.applied.attribute {
        _ if layer.options().each.is_some() => "each",
        Attribute::Once | Attribute::Idempotent => "once",
        attribute => key_kind(attribute),
    }
}

fn key_kind(attribute: Attribute) -> &'static str {
    match attribute {
        Attribute::Lock => "lock",
        Attribute::Rate => "rate",
        Attribute::Semaphore => "semaphore",
        Attribute::Leader => "leader",
        Attribute::Once => "once_per",
        Attribute::Idempotent => "idempotent",
    }
}

/// Returns the arguments after the key: the size of a semaphore, the quota of a rate limit.
fn limits(layer: &Layer) -> TokenStream {
    let (runtime, options) = (&layer.runtime, layer.options());
    if let Some(every) = &options.every {
        let every = constants::time(layer, OptionName::Every, &every.value);
        return quote!(, #every);
    }
    if let Some(keep) = &options.keep {
        let keep = constants::time(layer, OptionName::Keep, &keep.value);
        return quote!(, #keep);
    }
    let Some(size) = &options.size else { return TokenStream::new() };
    let size = constants::count(layer, OptionName::Size, &size.value);
    let Some(interval) = &options.interval else { return quote!(, #size) };
    let interval = constants::time(layer, OptionName::Interval, &interval.value);
    let algorithm = chosen(options.algorithm.as_ref()).unwrap_or_else(|| "token_bucket".to_owned());
    let algorithm = format_ident!("{algorithm}");
    let burst = options.burst.as_ref().map(|burst| constants::count(layer, OptionName::Burst, &burst.value));
    let burst = burst.map(|burst| quote!(.burst(#burst)));
    quote!(, #runtime::Quota::#algorithm(#size, #interval) #burst)
}

/// Returns `.lease(..).timeout(..)`, one call per option given.
fn settings(layer: &Layer) -> TokenStream {
    let (runtime, options) = (&layer.runtime, layer.options());
    let durations = [
        (OptionName::Lease, &options.lease),
        (OptionName::Timeout, &options.timeout),
        (OptionName::RetryDelay, &options.retry_delay),
        (OptionName::MaxHold, &options.max_hold),
        (OptionName::StopBefore, &options.stop_before),
        (OptionName::MinHold, &options.min_hold),
        (OptionName::From, &options.from),
        (OptionName::Early, &options.early),
    ];
    let durations = durations.into_iter().filter_map(|(name, given)| {
        let value = constants::time(layer, name, &given.as_ref()?.value);
        let setter = format_ident!("{}", name.name());
        Some(quote!(.#setter(#value)))
    });
    let switches = [(OptionName::Renew, &options.renew), (OptionName::Fair, &options.fair)];
    let switches = switches.into_iter().filter_map(|(name, given)| {
        let (setter, value) = (format_ident!("{}", name.name()), &given.as_ref()?.value);
        Some(quote!(.#setter(#value)))
    });
    let attempts = options.max_retry.as_ref();
    let attempts = attempts.map(|given| constants::count(layer, OptionName::MaxRetry, &given.value));
    let attempts = attempts.map(|attempts| quote!(.max_retry(#attempts)));
    let once = (options.is_released_on_expiry() && options.timeout.is_none())
        .then(|| quote!(.timeout(#runtime::Duration::ZERO)));
    let refuses = chosen(options.after_crash.as_ref()).as_deref() == Some("refuse");
    let refuse = refuses.then(|| quote!(.refuse_after_crash()));
    let max_size = options.max_size.as_ref();
    let max_size = max_size.map(|given| constants::count(layer, OptionName::MaxSize, &given.value));
    let max_size = max_size.map(|bytes| quote!(.max_size(#bytes)));
    let same = options.same.as_ref().map(|_| hidden("same"));
    let same = same.map(|same| quote!(.same_digest(#same.finish())));
    quote!(#(#durations)* #(#switches)* #attempts #once #refuse #max_size #same)
}
