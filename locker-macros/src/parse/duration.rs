//! Durations as options take them: a number of seconds, a text, or a constant.

use proc_macro2::Span;
use std::time::Duration;
use syn::{
    Error, Expr, Lit, Result, UnOp,
    parse::{Parse, ParseStream},
    spanned::Spanned,
};

/// A duration: known to the macro, or an expression that the compiler evaluates.
pub(crate) enum Time {
    Known(Duration, Span),
    Constant(Box<Expr>),
}

impl Time {
    pub(crate) fn known(&self) -> Option<Duration> {
        match self {
            Self::Known(duration, _) => Some(*duration),
            Self::Constant(_) => None,
        }
    }

    pub(crate) fn span(&self) -> Span {
        match self {
            Self::Known(_, span) => *span,
            Self::Constant(expr) => expr.span(),
        }
    }
}

impl Parse for Time {
    fn parse(input: ParseStream) -> Result<Self> {
        let expr: Expr = input.parse()?;
        match ungrouped(&expr) {
            Expr::Lit(literal) => Ok(Self::Known(of_literal(&literal.lit)?, literal.span())),
            Expr::Unary(unary) if matches!(unary.op, UnOp::Neg(_)) => {
                Err(Error::new(expr.span(), "a duration cannot be negative"))
            }
            Expr::Binary(binary) if is_number(&binary.left) && is_number(&binary.right) => {
                Err(Error::new(expr.span(), format!("{A_DURATION}, such as `Duration::from_secs(60 * 5)`")))
            }
            Expr::Path(path) if path.path.is_ident("None") => Err(Error::new(expr.span(), A_DURATION)),
            _ => Ok(Self::Constant(Box::new(expr))),
        }
    }
}

const A_DURATION: &str =
    "a duration is a number of seconds, a text such as \"10s\", or a constant of type `Duration`";

/// Returns whether the expression is a number or a calculation with numbers only.
fn is_number(expr: &Expr) -> bool {
    match expr {
        Expr::Lit(literal) => matches!(literal.lit, Lit::Int(_) | Lit::Float(_)),
        Expr::Binary(binary) => is_number(&binary.left) && is_number(&binary.right),
        Expr::Paren(inner) => is_number(&inner.expr),
        Expr::Group(inner) => is_number(&inner.expr),
        _ => false,
    }
}

/// Returns the expression without the invisible brackets that `macro_rules!` puts around its arguments.
pub(crate) fn ungrouped(expr: &Expr) -> &Expr {
    match expr {
        Expr::Group(group) => ungrouped(&group.expr),
        other => other,
    }
}

fn of_literal(literal: &Lit) -> Result<Duration> {
    let refuse = |why: &str| Err(Error::new(literal.span(), why));
    match literal {
        Lit::Int(int) if !int.suffix().is_empty() => refuse(&unit_outside(int.base10_digits(), int.suffix())),
        Lit::Float(float) if !float.suffix().is_empty() => {
            refuse(&unit_outside(float.base10_digits(), float.suffix()))
        }
        Lit::Int(int) => int.base10_parse().map(Duration::from_secs),
        Lit::Float(float) => Duration::try_from_secs_f64(float.base10_parse()?)
            .or_else(|error| refuse(&format!("not a duration: {error}"))),
        // humantime 2.4 panics at some sums right above the longest duration (its issue 66): 12 digits or more for the
        // years, and 4 for a second beside them.
        Lit::Str(text) if text.value().bytes().filter(u8::is_ascii_digit).count() > 15 => {
            refuse("not a duration: it has more than 15 digits")
        }
        Lit::Str(text) => humantime::parse_duration(&text.value()).or_else(|error| {
            refuse(&format!("not a duration: {error}; write it like \"10s\", \"500ms\" or \"1m 30s\""))
        }),
        _ => refuse(A_DURATION),
    }
}

fn unit_outside(digits: &str, suffix: &str) -> String {
    format!("a number of seconds has no suffix: write {digits}, or a text such as \"{digits}{suffix}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proc_macro2::{Delimiter, Group};
    use quote::quote;
    use syn::{parse_str, parse2};

    fn known(text: &str) -> Duration {
        parse_str::<Time>(text).unwrap().known().unwrap()
    }

    fn error(text: &str) -> String {
        parse_str::<Time>(text).err().unwrap().to_string()
    }

    #[test]
    fn number_is_seconds() {
        assert_eq!(known("10"), Duration::from_secs(10));
        assert_eq!(known("0.5"), Duration::from_millis(500));
        assert_eq!(known("1_000"), Duration::from_secs(1000));
    }

    #[test]
    fn text_is_humantime() {
        assert_eq!(known("\"800ms\""), Duration::from_millis(800));
        assert_eq!(known("\"1m 30s\""), Duration::from_secs(90));
    }

    #[test]
    fn text_with_too_many_digits_is_refused() {
        assert_eq!(known("\"100000000000000ns\""), Duration::from_secs(100_000));
        assert!(error("\"18446744073709551615s 1000ms\"").contains("more than 15 digits"));
    }

    #[test]
    fn expression_is_left_to_the_compiler() {
        assert!(matches!(parse_str("Duration::from_secs(3)").unwrap(), Time::Constant(_)));
        for text in ["crate::LEASE", "LEASE * 2", "2 * LEASE", "(1 + LEASE) * 2", "*LEASE", "!LEASE"] {
            assert!(matches!(parse_str(text).unwrap(), Time::Constant(_)), "{text}");
        }
    }

    #[test]
    fn calculation_with_numbers_is_refused() {
        for text in ["60 * 5", "1.5 * 60", "60 * 5 * 2", "2 * (60 + 5)"] {
            assert!(error(text).contains("such as `Duration::from_secs(60 * 5)`"), "{text}");
        }
        // As `macro_rules!` passes its arguments on.
        let sixty = Group::new(Delimiter::None, quote!(60));
        let times = parse2::<Time>(quote!(#sixty * #sixty)).err().unwrap().to_string();
        assert!(times.contains("such as `Duration::from_secs(60 * 5)`"));
        assert_eq!(parse2::<Time>(quote!(#sixty)).unwrap().known(), Some(Duration::from_secs(60)));
    }

    #[test]
    fn impossible_durations_are_refused() {
        assert!(error("-1").contains("negative"));
        assert!(error("10s").contains("\"10s\""));
        assert!(error("1.5s").contains("\"1.5s\""));
        assert!(error("1e300").contains("not a duration"));
        assert!(error("\"ten\"").contains("not a duration"));
        assert!(error("true").contains("number of seconds"));
    }
}
