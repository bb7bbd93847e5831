//! Options with values that only the compiler can evaluate.

use crate::{
    attribute::OptionName,
    parse::{
        duration::{Time, ungrouped},
        function::Function,
        options::{Given, Options},
    },
};
use proc_macro2::Ident;
use quote::format_ident;
use syn::{Block, Error, Expr, ExprClosure, ExprMatch, ExprPath, Lit, Result, visit::Visit};

/// An option with an expression that only the compiler can evaluate.
pub(crate) struct Constant<'a> {
    /// The option's name as it is written.
    pub(crate) written: &'a Ident,
    pub(crate) name: OptionName,
    pub(crate) value: &'a Expr,
    pub(crate) range: Range,
}

/// Which range the value must be in. The runtime has a function for each.
#[derive(Clone, Copy)]
pub(crate) enum Range {
    Time,
    Timeout,
    Margin,
    Interval,
    Every,
    Size,
    MaxRetry,
    MaxSize,
}

/// Returns the options of which only the compiler knows the values.
pub(crate) fn constants(options: &Options) -> impl Iterator<Item = Constant<'_>> {
    let times = [
        (OptionName::Lease, Range::Time, &options.lease),
        (OptionName::MaxHold, Range::Time, &options.max_hold),
        (OptionName::RetryDelay, Range::Time, &options.retry_delay),
        (OptionName::Timeout, Range::Timeout, &options.timeout),
        (OptionName::StopBefore, Range::Margin, &options.stop_before),
        (OptionName::MinHold, Range::Margin, &options.min_hold),
        (OptionName::Interval, Range::Interval, &options.interval),
        (OptionName::Every, Range::Every, &options.every),
        (OptionName::From, Range::Margin, &options.from),
        (OptionName::Early, Range::Margin, &options.early),
        (OptionName::Keep, Range::Margin, &options.keep),
    ];
    let times = times.into_iter().filter_map(|(name, range, given)| {
        let Given { option: written, value: Time::Constant(value) } = given.as_ref()? else { return None };
        Some(Constant { written, name, value, range })
    });
    let counts = [
        (OptionName::Size, Range::Size, &options.size),
        (OptionName::Burst, Range::Size, &options.burst),
        (OptionName::MaxRetry, Range::MaxRetry, &options.max_retry),
        (OptionName::MaxSize, Range::MaxSize, &options.max_size),
    ];
    let counts = counts.into_iter().filter_map(|(name, range, given)| {
        let Given { option: written, value } = given.as_ref()?;
        (!is_literal(value)).then_some(Constant { written, name, value, range })
    });
    times.chain(counts)
}

pub(crate) fn is_literal(expr: &Expr) -> bool {
    matches!(ungrouped(expr), Expr::Lit(literal) if matches!(literal.lit, Lit::Int(_)))
}

/// Refuses a parameter if the option takes a constant.
pub(crate) fn check(options: &Options, function: &Function) -> Result<()> {
    constants(options).try_for_each(|constant| {
        let Some(name) = used_in(constant.value, function) else { return Ok(()) };
        let message = format!(
            "`{}` takes a constant, but `{name}` is a parameter of `{}`: use a literal or a `const`",
            constant.written, function.signature.ident
        );
        Err(Error::new(name.span(), message))
    })
}

/// Returns the first parameter that the expression names. Blocks are not searched: they may have variables of their
/// own.
fn used_in(expr: &Expr, function: &Function) -> Option<Ident> {
    let mut used = Used { names: function.bound_names(), found: None };
    used.names.extend(function.signature.receiver().map(|_| format_ident!("self")));
    used.visit_expr(expr);
    used.found
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

    fn visit_expr_closure(&mut self, _: &'ast ExprClosure) {}

    fn visit_block(&mut self, _: &'ast Block) {}

    fn visit_expr_match(&mut self, expr: &'ast ExprMatch) {
        self.visit_expr(&expr.expr);
    }
}
