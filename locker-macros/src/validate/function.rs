//! Functions that cannot have an attribute.

use crate::{
    attribute::Attribute,
    parse::{function::Function, options::Options, param::typed},
};
use proc_macro2::Span;
use quote::ToTokens;
use syn::{
    Error, GenericArgument, ParenthesizedGenericArguments, PathArguments, ReceiverKind, Result, ReturnType,
    Type, TypeParamBound,
    spanned::Spanned,
    visit::{self, Visit},
};

/// Refuses functions that cannot have an attribute of this crate.
pub(crate) fn check(function: &Function, attribute: Attribute) -> Result<()> {
    if let Some(constness) = &function.signature.constness {
        return Err(Error::new(
            constness.span(),
            format!("`{attribute}` waits, which a `const fn` cannot: remove `const`"),
        ));
    }
    if let Some(variadic) = &function.signature.variadic {
        return Err(Error::new(
            variadic.span(),
            format!("`{attribute}` does not support variadic functions"),
        ));
    }
    if function.is_plain() { refuse_lazy(attribute, &function.signature.output) } else { Ok(()) }
}

/// Refuses a key that is the same for all calls, unless it is said: every caller would get the result of the first one.
pub(crate) fn check_key(function: &Function, options: &Options, at: Span) -> Result<()> {
    if options.args.is_some() || function.params.is_empty() && !function.has_receiver() {
        return Ok(());
    }
    let why = "`idempotent` without `args` gives all calls one result: name what tells requests apart, or write \
               `args()`";
    Err(Error::new(at, why))
}

/// Refuses a reference as the result: it is read from what was kept.
pub(crate) fn check_kept(function: &Function) -> Result<()> {
    let ReturnType::Type(_, returned) = &function.signature.output else { return Ok(()) };
    let Type::Path(path) = &**returned else { return Ok(()) };
    let arguments = path.path.segments.last().map(|last| &last.arguments);
    let Some(PathArguments::AngleBracketed(arguments)) = arguments else { return Ok(()) };
    match arguments.args.first() {
        Some(GenericArgument::Type(Type::Reference(reference))) => {
            let why = "`idempotent` keeps the result: return an owned type, such as `String`";
            Err(Error::new_spanned(reference, why))
        }
        _ => Ok(()),
    }
}

/// Refuses functions whose body cannot run again for each term.
pub(crate) fn check_leader(function: &Function, at: Span) -> Result<()> {
    if function.is_plain() {
        let why = "`leader` needs an async function: a plain one cannot be stopped when the lease is lost";
        return Err(Error::new(at, why));
    }
    let mutable = typed(&function.signature).find_map(|param| match &*param.ty {
        Type::Reference(reference) if reference.mutability.is_some() => Some(reference),
        _ => None,
    });
    if let Some(reference) = mutable {
        let why = "`leader` runs the body again in each term, and cannot give it a `&mut` twice: take an \
                   `Arc<Mutex<_>>`";
        return Err(Error::new_spanned(reference, why));
    }
    match function.signature.receiver() {
        Some(receiver) if !matches!(receiver.kind, ReceiverKind::Reference(.., None)) => {
            let why = "`leader` runs the body again in each term, which takes `self` only by `&self`";
            Err(Error::new_spanned(receiver, why))
        }
        _ => Ok(()),
    }
}

/// Refuses a return type that cannot carry the lock's error.
pub(crate) fn check_returned(function: &Function, options: &Options) -> Result<()> {
    if options.on_error.is_some() || function.returned.may_be_result() {
        return Ok(());
    }
    let message = format!(
        "`{}` must return `Result<_, E>` with `E: From<locker::Error>`, or set `on_error`: acquiring can fail",
        function.signature.ident
    );
    Err(Error::new(function.output_span(), message))
}

/// Refuses plain functions that return before their work starts.
fn refuse_lazy(attribute: Attribute, output: &ReturnType) -> Result<()> {
    let mut lazy = Lazy { attribute, found: None };
    lazy.visit_return_type(output);
    lazy.found.map_or(Ok(()), Err)
}

const FUTURES: [&str; 4] = ["Future", "IntoFuture", "TryFuture", "FusedFuture"];
const STREAMS: [&str; 4] = ["Stream", "TryStream", "FusedStream", "AsyncIterator"];
const ITERATORS: [&str; 4] = ["Iterator", "DoubleEndedIterator", "ExactSizeIterator", "FusedIterator"];

struct Lazy {
    attribute: Attribute,
    found: Option<Error>,
}

impl Lazy {
    fn found(&mut self, name: &dyn ToTokens, what: &str) {
        let end = if self.attribute == Attribute::Rate {
            "the call would be admitted"
        } else {
            "the lock would end"
        };
        // An async function that returns a stream would be as lazy.
        let collect = if what.contains("Future") { "" } else { " and collect the items in its body" };
        let message =
            format!("{end} before the work of the returned `{what}` starts: make it `async fn`{collect}");
        self.found.get_or_insert_with(|| Error::new_spanned(name, message));
    }
}

impl<'ast> Visit<'ast> for Lazy {
    fn visit_type_param_bound(&mut self, bound: &'ast TypeParamBound) {
        let TypeParamBound::Trait(bound) = bound else { return };
        let name = bound.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        match &*name {
            lazy if FUTURES.contains(&lazy) || STREAMS.contains(&lazy) => self.found(bound, lazy),
            lazy if ITERATORS.contains(&lazy) && self.attribute != Attribute::Rate => self.found(bound, lazy),
            _ => visit::visit_trait_bound(self, bound),
        }
    }

    fn visit_type_path(&mut self, path: &'ast syn::TypePath) {
        let name = path.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        match &*name {
            "BoxFuture" | "LocalBoxFuture" | "BoxStream" | "LocalBoxStream" => self.found(path, &name),
            _ => visit::visit_type_path(self, path),
        }
    }

    /// Does not look into a returned closure.
    fn visit_parenthesized_generic_arguments(&mut self, _: &'ast ParenthesizedGenericArguments) {}
}
