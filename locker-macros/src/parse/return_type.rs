//! The return type of a function, as far as its tokens show it.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{
    GenericArgument, PathArguments, ReturnType, Type, TypeParamBound, TypeTraitObject,
    spanned::Spanned,
    visit_mut::{self, VisitMut},
};

/// The type of the returned value, if it can be written inside the body.
pub(crate) enum Returned {
    Nothing,
    Never,
    /// The type with `_` for every `impl Trait`, and whether it has any.
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

    /// Returns the type as it may be written inside the body, with `Infallible` for `!`.
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

    /// Returns the type for a `let` of the value, if it does not weaken inference.
    pub(crate) fn annotation(&self, runtime: &TokenStream) -> Option<TokenStream> {
        match self {
            Self::Never | Self::Value { opaque: true, .. } => None,
            _ => Some(self.tokens(runtime)),
        }
    }

    /// Returns whether the value may be a `Result`; the compiler decides.
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

/// Returns `R` of `Pin<Box<dyn Future<Output = R> + 'async_trait>>`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use quote::format_ident;

    fn returned(output: &str) -> Returned {
        Returned::of(&syn::parse_str(output).unwrap())
    }

    fn text(tokens: Option<TokenStream>) -> Option<String> {
        tokens.map(|tokens| tokens.to_string().replace(' ', ""))
    }

    #[test]
    fn a_value_is_annotated_if_its_type_can_be_written() {
        let runtime = format_ident!("runtime").to_token_stream();
        for (output, tokens, annotation, may_be_result) in [
            ("", "()", Some("()"), false),
            ("-> ()", "()", Some("()"), false),
            ("-> (())", "()", Some("()"), false),
            ("-> !", "runtime::Infallible", None, false),
            ("-> Result<u8, E>", "Result<u8,E>", Some("Result<u8,E>"), true),
            ("-> (u8, u8)", "(u8,u8)", Some("(u8,u8)"), true),
            ("-> impl Display", "_", None, false),
            ("-> Result<impl Display, E>", "Result<_,E>", None, true),
        ] {
            let returned = returned(output);
            assert_eq!(text(Some(returned.tokens(&runtime))).as_deref(), Some(tokens), "{output}");
            assert_eq!(text(returned.annotation(&runtime)).as_deref(), annotation, "{output}");
            assert_eq!(returned.may_be_result(), may_be_result, "{output}");
            assert_eq!(returned.is_never(), output == "-> !", "{output}");
        }
    }

    #[test]
    fn output_of_async_trait_is_that_of_its_future() {
        for (output, found) in [
            ("-> Pin<Box<dyn Future<Output = u8> + Send + 'async_trait>>", Some("u8")),
            (
                "-> ::core::pin::Pin<Box<dyn ::core::future::Future<Output = (u8, u8)> + 'async_trait>>",
                Some("(u8,u8)"),
            ),
            ("-> Pin<Box<dyn Future<Output = u8> + Send + 'life>>", None),
            ("-> Pin<Box<dyn Stream<Output = u8> + 'async_trait>>", None),
            ("-> Pin<Arc<dyn Future<Output = u8> + 'async_trait>>", None),
            ("-> Box<Box<dyn Future<Output = u8> + 'async_trait>>", None),
            ("-> Pin<Box<dyn Future<Item = u8> + 'async_trait>>", None),
            ("-> u8", None),
            ("", None),
        ] {
            let output_type = syn::parse_str(output).unwrap();
            let seen = async_trait_output(&output_type).map(ToTokens::to_token_stream);
            assert_eq!(text(seen).as_deref(), found, "{output}");
        }
    }
}
