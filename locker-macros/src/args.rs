//! The options of an attribute: names, types, duplicates and contradictions.

use crate::{
    duration::{Time, ungrouped},
    kind::Kind,
    limits::MOST,
    parts::Parts,
};
use proc_macro2::{Ident, Span};
use syn::{
    Error, Expr, ExprPath, LitBool, LitStr, Path, Result, Token,
    ext::IdentExt,
    parse::{ParseStream, Parser},
};

/// A value and the option's name as it was written, for messages.
pub(crate) struct Given<T> {
    pub(crate) option: Ident,
    pub(crate) value: T,
}

/// What stood between the brackets.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) lease: Option<Given<Time>>,
    pub(crate) args: Option<Given<Parts>>,
    pub(crate) each: Option<Given<Parts>>,
    pub(crate) name: Option<Given<LitStr>>,
    pub(crate) timeout: Option<Given<Time>>,
    pub(crate) max_retry: Option<Given<Expr>>,
    pub(crate) retry_delay: Option<Given<Time>>,
    pub(crate) renew: Option<Given<LitBool>>,
    pub(crate) max_hold: Option<Given<Time>>,
    pub(crate) release: Option<Given<LitStr>>,
    pub(crate) fair: Option<Given<LitBool>>,
    pub(crate) on_error: Option<Given<ExprPath>>,
    pub(crate) on_lost: Option<Given<LitStr>>,
    pub(crate) guard: Option<Given<Ident>>,
    pub(crate) locker: Option<Given<Expr>>,
    pub(crate) runtime: Option<Given<Path>>,
    pub(crate) mode: Option<Given<LitStr>>,
    pub(crate) size: Option<Given<Expr>>,
    pub(crate) interval: Option<Given<Time>>,
    pub(crate) algorithm: Option<Given<LitStr>>,
    pub(crate) burst: Option<Given<Expr>>,
}

impl Options {
    /// `at` is where the attribute stands.
    pub(crate) fn parse(kind: Kind, tokens: proc_macro2::TokenStream, at: Span) -> Result<Self> {
        let options = (|input: ParseStream| Self::parse_all(kind, input)).parse2(tokens)?;
        options.check(kind, at)?;
        Ok(options)
    }

    fn parse_all(kind: Kind, input: ParseStream) -> Result<Self> {
        let mut options = Self::default();
        while !input.is_empty() {
            let option = option_name(kind, input)?;
            if input.is_empty() || input.peek(Token![,]) {
                kind.refuse_part(&option)?;
            }
            options.set(kind, option, input)?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }

    fn set(&mut self, kind: Kind, option: Ident, input: ParseStream) -> Result<()> {
        match kind.option(&option)? {
            "lease" => set_once(&mut self.lease, option, input, value),
            "args" => set_once(&mut self.args, option, input, Parts::parse),
            "each" => set_once(&mut self.each, option, input, Parts::parse),
            "name" => set_once(&mut self.name, option, input, text),
            "timeout" => set_once(&mut self.timeout, option, input, value),
            "max_retry" => set_once(&mut self.max_retry, option, input, |option, input| {
                count(option, input, u32::MAX.into())
            }),
            "retry_delay" => set_once(&mut self.retry_delay, option, input, value),
            "renew" => set_once(&mut self.renew, option, input, switch),
            "max_hold" => set_once(&mut self.max_hold, option, input, value),
            "release" => set_once(&mut self.release, option, input, |option, input| {
                choice(option, input, &["on_return", "on_expiry"])
            }),
            "fair" => set_once(&mut self.fair, option, input, switch),
            "on_error" => set_once(&mut self.on_error, option, input, function),
            "on_lost" => set_once(&mut self.on_lost, option, input, |option, input| {
                choice(option, input, &["cancel", "continue", "error"])
            }),
            "guard" => set_once(&mut self.guard, option, input, binding),
            "locker" => set_once(&mut self.locker, option, input, value),
            "crate" => set_once(&mut self.runtime, option, input, library),
            "mode" => set_once(&mut self.mode, option, input, |option, input| {
                choice(option, input, &["read", "write"])
            }),
            "size" => set_once(&mut self.size, option, input, |option, input| count(option, input, MOST)),
            "interval" => set_once(&mut self.interval, option, input, value),
            "algorithm" => set_once(&mut self.algorithm, option, input, |option, input| {
                choice(option, input, &["token_bucket", "fixed_window", "gcra"])
            }),
            _ => set_once(&mut self.burst, option, input, |option, input| count(option, input, MOST)),
        }
    }
}

fn option_name(kind: Kind, input: ParseStream) -> Result<Ident> {
    let how = format!("options of `{kind}` are named, such as {}", kind.example());
    let option = Ident::parse_any(input).map_err(|error| Error::new(error.span(), how))?;
    Ok(Ident::new(&option.unraw().to_string(), option.span()))
}

fn set_once<T>(
    slot: &mut Option<Given<T>>,
    option: Ident,
    input: ParseStream,
    parse: impl FnOnce(&Ident, ParseStream) -> Result<T>,
) -> Result<()> {
    if let Some(first) = slot {
        let same = if first.option == option { String::new() } else { format!(", as `{}`", first.option) };
        return Err(Error::new(option.span(), format!("`{option}` is given twice{same}")));
    }
    let value = parse(&option, input)?;
    *slot = Some(Given { option, value });
    Ok(())
}

fn equals(option: &Ident, input: ParseStream) -> Result<()> {
    let at = if input.is_empty() { option.span() } else { input.span() };
    match input.parse::<Token![=]>() {
        Ok(_) if input.is_empty() => Err(Error::new(at, format!("`{option} =` lacks its value"))),
        Ok(_) => Ok(()),
        Err(_) => Err(Error::new(at, format!("`{option}` takes a value: `{option} = ..`"))),
    }
}

fn value<T: syn::parse::Parse>(option: &Ident, input: ParseStream) -> Result<T> {
    equals(option, input)?;
    input.parse()
}

fn expected<T>(option: &Ident, at: Span, what: &str) -> Result<T> {
    Err(Error::new(at, format!("`{option}` takes {what}")))
}

fn switch(option: &Ident, input: ParseStream) -> Result<LitBool> {
    equals(option, input)?;
    let at = input.span();
    input.parse().or_else(|_| expected(option, at, "`true` or `false`"))
}

fn text(option: &Ident, input: ParseStream) -> Result<LitStr> {
    equals(option, input)?;
    let at = input.span();
    let what = "a text in quotes such as \"bank.withdraw\", no constant";
    let text: LitStr = input.parse().or_else(|_| expected(option, at, what))?;
    if text.value().is_empty() {
        return expected(option, at, "a text that is not empty");
    }
    Ok(text)
}

fn binding(option: &Ident, input: ParseStream) -> Result<Ident> {
    equals(option, input)?;
    let at = input.span();
    input.parse().or_else(|_| expected(option, at, "a name for the guard, such as `guard = lease`"))
}

fn function(option: &Ident, input: ParseStream) -> Result<ExprPath> {
    equals(option, input)?;
    let path: Expr = input.parse()?;
    match ungrouped(&path) {
        Expr::Path(path) => Ok(path.clone()),
        closure @ Expr::Closure(_) => {
            Err(Error::new_spanned(closure, format!("`{option}` takes {ON_ERROR}, not a closure")))
        }
        other => Err(Error::new_spanned(other, format!("`{option}` takes {ON_ERROR}"))),
    }
}

fn library(option: &Ident, input: ParseStream) -> Result<Path> {
    equals(option, input)?;
    let at = input.span();
    Path::parse_mod_style(input).or_else(|_| expected(option, at, "the path of the library `locker`"))
}

const ON_ERROR: &str = "a path to a function `fn(locker::Error) -> ReturnType`";

fn choice(option: &Ident, input: ParseStream, choices: &[&str]) -> Result<LitStr> {
    equals(option, input)?;
    let at = input.span();
    let what = choices.iter().map(|choice| format!("\"{choice}\"")).collect::<Vec<_>>();
    let what = format!("one of {}", what.join(", "));
    let text: LitStr = input.parse().or_else(|_| expected(option, at, &what))?;
    if choices.contains(&text.value().as_str()) { Ok(text) } else { expected(option, at, &what) }
}

/// A number from 1 to `most`, or a constant that the compiler evaluates.
fn count(option: &Ident, input: ParseStream, most: u64) -> Result<Expr> {
    equals(option, input)?;
    let at = input.span();
    let expr: Expr = input.parse()?;
    let number = "a whole number from 1, without suffix, or a constant";
    match ungrouped(&expr) {
        Expr::Lit(literal) => match &literal.lit {
            syn::Lit::Int(int) if int.suffix().is_empty() => match int.base10_parse::<u64>() {
                Ok(0) => expected(option, at, number),
                Ok(n) if n <= most => Ok(expr),
                _ => expected(option, at, &format!("at most {most}")),
            },
            _ => expected(option, at, number),
        },
        Expr::Unary(_) => expected(option, at, number),
        _ => Ok(expr),
    }
}
