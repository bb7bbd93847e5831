//! What a function returns, as far as its tokens tell.

use crate::kind::Kind;
use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{
    Error, GenericArgument, ParenthesizedGenericArguments, PathArguments, Result, ReturnType, Type,
    TypeParamBound, TypeTraitObject,
    spanned::Spanned,
    visit::{self, Visit},
    visit_mut::{self, VisitMut},
};

/// The type of the value, or why none can be written down.
pub(crate) enum Returned {
    Nothing,
    Never,
    /// With every `impl Trait` as `_`; whether there was one.
    Value {
        erased: Box<Type>,
        opaque: bool,
    },
}

impl Returned {
    pub(crate) fn of(output: &ReturnType) -> Self {
        match output {
            ReturnType::Default => Self::Nothing,
            ReturnType::Type(_, ty) => Self::of_type(Some(ty)),
        }
    }

    pub(crate) fn of_type(ty: Option<&Type>) -> Self {
        match ty.map(ungrouped) {
            None => Self::Nothing,
            Some(Type::Tuple(unit)) if unit.elems.is_empty() => Self::Nothing,
            Some(Type::Never(_)) => Self::Never,
            Some(ty) => Self::value(ty),
        }
    }

    fn value(ty: &Type) -> Self {
        let mut erase = Erase(false);
        let mut erased = ty.clone();
        erase.visit_type_mut(&mut erased);
        Self::Value { erased: Box::new(erased), opaque: erase.0 }
    }

    /// The type as it may stand inside the body; `Infallible` stands in for `!`, which cannot.
    pub(crate) fn tokens(&self, runtime: &TokenStream) -> TokenStream {
        match self {
            Self::Nothing => quote!(()),
            Self::Never => quote!(#runtime::Infallible),
            Self::Value { erased, .. } => erased.to_token_stream(),
        }
    }

    pub(crate) fn is_never(&self) -> bool {
        matches!(self, Self::Never)
    }

    /// The type of a `let` that holds the value, where one can be written without weakening inference.
    pub(crate) fn annotation(&self, runtime: &TokenStream) -> Option<TokenStream> {
        match self {
            Self::Never | Self::Value { opaque: true, .. } => None,
            _ => Some(self.tokens(runtime)),
        }
    }

    /// Whether the value may be a `Result`; the compiler decides.
    pub(crate) fn may_be_result(&self) -> bool {
        matches!(self, Self::Value { erased, .. } if !matches!(**erased, Type::Infer(_)))
    }
}

fn ungrouped(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => ungrouped(&group.elem),
        Type::Paren(paren) => ungrouped(&paren.elem),
        other => other,
    }
}

struct Erase(bool);

impl VisitMut for Erase {
    fn visit_type_mut(&mut self, ty: &mut Type) {
        if let Type::ImplTrait(_) = ty {
            self.0 = true;
            *ty = syn::parse_quote_spanned!(ty.span()=> _);
        } else {
            visit_mut::visit_type_mut(self, ty);
        }
    }
}

/// `R` of `Pin<Box<dyn Future<Output = R> + 'async_trait>>`.
pub(crate) fn async_trait_output(output: &ReturnType) -> Option<&Type> {
    let ReturnType::Type(_, pin) = output else { return None };
    let Type::TraitObject(TypeTraitObject { bounds, .. }) = argument(argument(pin, "Pin")?, "Box")? else {
        return None;
    };
    let marked =
        |bound: &TypeParamBound| matches!(bound, TypeParamBound::Lifetime(l) if l.ident == "async_trait");
    bounds.iter().any(marked).then_some(())?;
    bounds.iter().find_map(future_output)
}

fn argument<'a>(ty: &'a Type, of: &str) -> Option<&'a Type> {
    let Type::Path(path) = ungrouped(ty) else { return None };
    let segment = path.path.segments.last().filter(|segment| segment.ident == of)?;
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else { return None };
    match arguments.args.first()? {
        GenericArgument::Type(ty) => Some(ungrouped(ty)),
        _ => None,
    }
}

fn future_output(bound: &TypeParamBound) -> Option<&Type> {
    let TypeParamBound::Trait(bound) = bound else { return None };
    let segment = bound.path.segments.last().filter(|segment| segment.ident == "Future")?;
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else { return None };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::AssocType(output) if output.ident == "Output" => Some(&output.ty),
        _ => None,
    })
}

/// Refuses plain functions whose work starts after they have returned.
pub(crate) fn refuse_lazy(kind: Kind, output: &ReturnType) -> Result<()> {
    let mut lazy = Lazy { kind, found: None };
    lazy.visit_return_type(output);
    lazy.found.map_or(Ok(()), Err)
}

const FUTURES: [&str; 4] = ["Future", "IntoFuture", "TryFuture", "FusedFuture"];
const STREAMS: [&str; 4] = ["Stream", "TryStream", "FusedStream", "AsyncIterator"];
const ITERATORS: [&str; 4] = ["Iterator", "DoubleEndedIterator", "ExactSizeIterator", "FusedIterator"];

struct Lazy {
    kind: Kind,
    found: Option<Error>,
}

impl Lazy {
    fn found(&mut self, name: &dyn ToTokens, what: &str) {
        let end = if self.kind == Kind::Rate { "its turn would come" } else { "the lock would end" };
        // An async function that only hands out a stream would be as lazy.
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
            lazy if ITERATORS.contains(&lazy) && self.kind != Kind::Rate => self.found(bound, lazy),
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

    /// What a returned closure returns is its own affair.
    fn visit_parenthesized_generic_arguments(&mut self, _: &'ast ParenthesizedGenericArguments) {}
}
