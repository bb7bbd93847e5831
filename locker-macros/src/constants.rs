//! Values that the compiler evaluates, each of them once, and checked there.

use crate::{
    args::{Given, Options},
    duration::{Time, ungrouped},
    function::{Function, hidden},
    layer::Layer,
    parts::mentions,
};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::{Error, Expr, ExprPath, GenericParam, Lit, Result, spanned::Spanned, visit::Visit};

/// An option whose value is not known here.
struct Constant<'a> {
    /// The option's name as it is written, and in full.
    option: &'a Ident,
    name: &'static str,
    value: &'a Expr,
    ty: &'static str,
    /// What the runtime calls the limits.
    limits: &'static str,
}

impl Options {
    fn constants(&self) -> impl Iterator<Item = Constant<'_>> {
        let times = [
            ("lease", "time", &self.lease),
            ("max_hold", "time", &self.max_hold),
            ("retry_delay", "time", &self.retry_delay),
            ("timeout", "timeout", &self.timeout),
            ("interval", "interval", &self.interval),
        ];
        let times = times.into_iter().filter_map(|(name, limits, given)| {
            let Given { option, value: Time::Constant(value) } = given.as_ref()? else { return None };
            Some(Constant { option, name, value, ty: "Duration", limits })
        });
        let counts = [
            ("size", "size", "u64", &self.size),
            ("burst", "size", "u64", &self.burst),
            ("max_retry", "max_retry", "u32", &self.max_retry),
        ];
        let counts = counts.into_iter().filter_map(|(name, limits, ty, given)| {
            let Given { option, value } = given.as_ref()?;
            (!is_literal(value)).then_some(Constant { option, name, value, ty, limits })
        });
        times.chain(counts)
    }

    /// Refuses parameters where a constant belongs.
    pub(crate) fn check_constants(&self, function: &Function) -> Result<()> {
        self.constants().try_for_each(|constant| {
            let Some(name) = function.used_in(constant.value) else { return Ok(()) };
            let message = format!(
                "`{}` takes a constant, and `{name}` is a parameter, known only when `{}` is called",
                constant.option, function.signature.ident
            );
            Err(Error::new(name.span(), message))
        })
    }
}

impl Constant<'_> {
    /// Whether an item can hold it.
    fn is_item(&self, function: &Function) -> bool {
        !function.outer_names().any(|name| mentions(self.value.to_token_stream(), &name))
    }

    fn ident(&self, function: &Function) -> Ident {
        if function.has_receiver() || !self.is_item(function) {
            return hidden(self.name);
        }
        Ident::new(&format!("__LOCKER_{}", self.name.to_uppercase()), Span::mixed_site())
    }

    fn checked(&self, runtime: &TokenStream) -> TokenStream {
        let (value, check) = (self.value, format_ident!("checked_{}", self.limits));
        at(self.value, quote!(#runtime::#check(const { #value })))
    }
}

impl Layer {
    /// The tokens of a `Duration`.
    pub(crate) fn time(&self, function: &Function, name: &str, time: &Time) -> TokenStream {
        let runtime = &self.runtime;
        match time {
            Time::Known(duration, _) => {
                let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
                quote!(#runtime::Duration::new(#seconds, #nanos))
            }
            Time::Constant(_) => self.constant(function, name),
        }
    }

    /// The tokens of a number.
    pub(crate) fn count(&self, function: &Function, name: &str, count: &Expr) -> TokenStream {
        if is_literal(count) { count.to_token_stream() } else { self.constant(function, name) }
    }

    fn constant(&self, function: &Function, name: &str) -> TokenStream {
        let mut constants = self.options.constants();
        let ident = constants.find(|constant| constant.name == name).map(|constant| constant.ident(function));
        ident.to_token_stream()
    }

    /// Items and statements that name the constants, and fail to compile on one that cannot be meant. An item where
    /// possible, for `cargo check` evaluates items but not blocks; a method may belong to something generic, whose
    /// parameters an item cannot name.
    pub(crate) fn constants(&self, function: &Function) -> TokenStream {
        let runtime = &self.runtime;
        let (items, inside): (Vec<_>, Vec<_>) = self
            .options
            .constants()
            .partition(|constant| !function.has_receiver() && constant.is_item(function));
        let define = |constant: &Constant, keyword: TokenStream| {
            let (name, ty) = (constant.ident(function), format_ident!("{}", constant.ty));
            let value = constant.checked(runtime);
            quote!(#keyword #name: #runtime::#ty = #value;)
        };
        let hold = self.check_hold(function);
        if inside.is_empty() {
            let items = items.iter().map(|constant| define(constant, quote!(const)));
            let hold = hold.map(|check| quote!(const _: () = #check;));
            return quote!(#(#items)* #hold);
        }
        let names = inside.iter().map(|constant| constant.ident(function)).collect::<Vec<_>>();
        let items = items.iter().map(|constant| define(constant, quote!(const)));
        let inside = inside.iter().map(|constant| define(constant, quote!(let)));
        quote!(#(#items)* let (#(#names,)*) = const { #(#inside)* #hold; (#(#names,)*) };)
    }

    fn check_hold(&self, function: &Function) -> Option<TokenStream> {
        let (lease, hold) = (&self.options.lease.as_ref()?.value, &self.options.max_hold.as_ref()?.value);
        if lease.known().and(hold.known()).is_some() {
            return None;
        }
        let runtime = &self.runtime;
        let (lease_value, hold_value) =
            (self.time(function, "lease", lease), self.time(function, "max_hold", hold));
        let check = quote!(#runtime::check_max_hold(#hold_value, #lease_value));
        Some(located(hold.span(), check))
    }
}

/// The tokens, placed where the value is, so that an error points there.
fn at(value: &Expr, tokens: TokenStream) -> TokenStream {
    located(value.span(), tokens)
}

fn located(place: Span, tokens: TokenStream) -> TokenStream {
    let placed = tokens.into_iter().map(|mut token| {
        token.set_span(token.span().located_at(place));
        token
    });
    placed.collect()
}

fn is_literal(expr: &Expr) -> bool {
    matches!(ungrouped(expr), Expr::Lit(literal) if matches!(literal.lit, Lit::Int(_)))
}

impl Function {
    /// What an item inside the function cannot name.
    fn outer_names(&self) -> impl Iterator<Item = Ident> {
        let generics = self.signature.generics.params.iter().filter_map(|param| match param {
            GenericParam::Type(param) => Some(param.ident.clone()),
            GenericParam::Const(param) => Some(param.ident.clone()),
            GenericParam::Lifetime(_) => None,
        });
        generics.chain([format_ident!("Self")])
    }

    /// The first parameter that the expression names, outside of blocks, which may have variables of their own.
    fn used_in(&self, expr: &Expr) -> Option<Ident> {
        let mut used = Used { names: self.names(), found: None };
        used.names.extend(self.signature.receiver().map(|_| format_ident!("self")));
        used.visit_expr(expr);
        used.found
    }
}

struct Used {
    names: Vec<Ident>,
    found: Option<Ident>,
}

impl<'ast> Visit<'ast> for Used {
    fn visit_expr_path(&mut self, path: &'ast ExprPath) {
        let name = path.path.get_ident().filter(|name| path.qself.is_none() && self.names.contains(name));
        self.found = self.found.take().or_else(|| name.cloned());
    }

    fn visit_expr_closure(&mut self, _: &'ast syn::ExprClosure) {}

    fn visit_block(&mut self, _: &'ast syn::Block) {}

    fn visit_expr_match(&mut self, expr: &'ast syn::ExprMatch) {
        self.visit_expr(&expr.expr);
    }
}
