//! The options of an attribute: names, types and duplicates.

use crate::{
    attribute::{Attribute, OptionName},
    parse::{
        duration::{Time, ungrouped},
        key_parts::{Part, Parts},
    },
    ranges::{MAX_SIZE, MOST},
};
use proc_macro2::{Ident, Span, TokenStream};
use syn::{
    Error, Expr, ExprPath, Lit, LitBool, LitStr, Path, Result, Token,
    ext::IdentExt,
    parse::{ParseStream, Parser},
};

/// A value with the option's name as it was written, for messages.
pub(crate) struct Given<T> {
    pub(crate) option: Ident,
    pub(crate) value: T,
}

impl<T> Given<T> {
    /// Returns an error at the option's name.
    pub(crate) fn refuse(&self, why: &str) -> Result<()> {
        Err(Error::new(self.option.span(), why))
    }
}

/// The options between the parentheses of one attribute.
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
    pub(crate) stop_before: Option<Given<Time>>,
    pub(crate) min_hold: Option<Given<Time>>,
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
    pub(crate) every: Option<Given<Time>>,
    pub(crate) from: Option<Given<Time>>,
    pub(crate) early: Option<Given<Time>>,
    pub(crate) after_crash: Option<Given<LitStr>>,
    pub(crate) on_skip: Option<Given<ExprPath>>,
    pub(crate) keep: Option<Given<Time>>,
    pub(crate) same: Option<Given<Parts>>,
    pub(crate) max_size: Option<Given<Expr>>,
}

impl Options {
    pub(crate) fn parse(attribute: Attribute, tokens: TokenStream) -> Result<Self> {
        (|input: ParseStream| Self::parse_all(attribute, input)).parse2(tokens)
    }

    fn parse_all(attribute: Attribute, input: ParseStream) -> Result<Self> {
        let mut options = Self::default();
        if attribute == Attribute::Once && input.peek(Lit) {
            let option = Ident::new(OptionName::Every.name(), input.span());
            options.every = Some(Given { option, value: input.parse()? });
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        while !input.is_empty() {
            let option = option_name(attribute, input)?;
            if input.is_empty() || input.peek(Token![,]) {
                attribute.refuse_part(&option)?;
            }
            options.set(attribute.option(&option)?, option, input)?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }

    /// Reads the value of the option `name`, which is written as `option`.
    fn set(&mut self, name: OptionName, option: Ident, input: ParseStream) -> Result<()> {
        use OptionName as O;
        match name {
            O::Lease => set_once(&mut self.lease, option, input, value),
            O::Args => set_once(&mut self.args, option, input, Parts::parse),
            O::Each => set_once(&mut self.each, option, input, Parts::parse),
            O::Name => set_once(&mut self.name, option, input, text),
            O::Timeout => set_once(&mut self.timeout, option, input, value),
            O::MaxRetry => set_once(&mut self.max_retry, option, input, count_to(u32::MAX.into())),
            O::RetryDelay => set_once(&mut self.retry_delay, option, input, value),
            O::Renew => set_once(&mut self.renew, option, input, switch),
            O::MaxHold => set_once(&mut self.max_hold, option, input, value),
            O::StopBefore => set_once(&mut self.stop_before, option, input, value),
            O::MinHold => set_once(&mut self.min_hold, option, input, value),
            O::Release => set_once(&mut self.release, option, input, choice_of(&["on_return", "on_expiry"])),
            O::Fair => set_once(&mut self.fair, option, input, switch),
            O::OnError => set_once(&mut self.on_error, option, input, handler),
            O::OnLost => {
                set_once(&mut self.on_lost, option, input, choice_of(&["cancel", "continue", "error"]))
            }
            O::Guard => set_once(&mut self.guard, option, input, binding),
            O::Locker => set_once(&mut self.locker, option, input, value),
            O::Crate => set_once(&mut self.runtime, option, input, library),
            O::Mode => set_once(&mut self.mode, option, input, choice_of(&["read", "write"])),
            O::Size => set_once(&mut self.size, option, input, count_to(MOST)),
            O::Interval => set_once(&mut self.interval, option, input, value),
            O::Algorithm => {
                let algorithms = choice_of(&["token_bucket", "fixed_window", "gcra"]);
                set_once(&mut self.algorithm, option, input, algorithms)
            }
            O::Burst => set_once(&mut self.burst, option, input, count_to(MOST)),
            O::Every => set_once(&mut self.every, option, input, value),
            O::From => set_once(&mut self.from, option, input, value),
            O::Early => set_once(&mut self.early, option, input, value),
            O::AfterCrash => set_once(&mut self.after_crash, option, input, choice_of(&["refuse", "repeat"])),
            O::OnSkip => set_once(&mut self.on_skip, option, input, maker),
            O::Keep => set_once(&mut self.keep, option, input, value),
            O::Same => set_once(&mut self.same, option, input, Parts::parse),
            O::MaxSize => set_once(&mut self.max_size, option, input, count_to(MAX_SIZE)),
        }
    }

    /// Returns the parts of the key, or of the keys of `each`.
    pub(crate) fn key_parts(&self) -> impl Iterator<Item = &Part> {
        [&self.args, &self.each].into_iter().flatten().flat_map(|given| &given.value.0)
    }

    /// Returns what calls with one key must have in common.
    pub(crate) fn same_parts(&self) -> impl Iterator<Item = &Part> {
        self.same.iter().flat_map(|given| &given.value.0)
    }

    /// Returns all parts, which use the parameters in the same ways.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.key_parts().chain(self.same_parts())
    }

    /// Returns `locker = ..` as a part of a key, since it may use the parameters in the same ways.
    pub(crate) fn locker_as_part(&self) -> Option<Part> {
        self.locker.as_ref().map(|given| Part::Value(given.value.clone()))
    }

    pub(crate) fn is_released_on_expiry(&self) -> bool {
        chosen(self.release.as_ref()).as_deref() == Some("on_expiry")
    }
}

/// Returns the text of a choice.
pub(crate) fn chosen(option: Option<&Given<LitStr>>) -> Option<String> {
    option.map(|given| given.value.value())
}

fn option_name(attribute: Attribute, input: ParseStream) -> Result<Ident> {
    let how =
        format!("options of `{attribute}` are written with their names, such as {}", attribute.example());
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
        let message = if first.option == option {
            format!("`{option}` is given twice: remove one")
        } else {
            format!("`{option}` is another name for `{}`, which is already given: remove one", first.option)
        };
        return Err(Error::new(option.span(), message));
    }
    let value = parse(&option, input)?;
    *slot = Some(Given { option, value });
    Ok(())
}

fn equals(option: &Ident, input: ParseStream) -> Result<()> {
    let at = if input.is_empty() { option.span() } else { input.span() };
    match input.parse::<Token![=]>() {
        Ok(_) if input.is_empty() => Err(Error::new(at, format!("`{option} =` lacks a value"))),
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
    let what = "a text in quotes such as \"bank.withdraw\", not a constant";
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

fn handler(option: &Ident, input: ParseStream) -> Result<ExprPath> {
    function(option, input, "a path to a function `fn(locker::Error) -> ReturnType`")
}

fn maker(option: &Ident, input: ParseStream) -> Result<ExprPath> {
    function(option, input, "a path to a function without arguments, which gives the value in `Ok`")
}

fn function(option: &Ident, input: ParseStream, what: &str) -> Result<ExprPath> {
    equals(option, input)?;
    let path: Expr = input.parse()?;
    match ungrouped(&path) {
        Expr::Path(path) => Ok(path.clone()),
        closure @ Expr::Closure(_) => {
            Err(Error::new_spanned(closure, format!("`{option}` takes {what}, not a closure")))
        }
        other => Err(Error::new_spanned(other, format!("`{option}` takes {what}"))),
    }
}

fn library(option: &Ident, input: ParseStream) -> Result<Path> {
    equals(option, input)?;
    let at = input.span();
    Path::parse_mod_style(input)
        .or_else(|_| expected(option, at, "the path of the library, such as `crate = ::locker`"))
}

/// Returns a parser of one of these texts.
fn choice_of(choices: &'static [&str]) -> impl FnOnce(&Ident, ParseStream) -> Result<LitStr> {
    move |option, input| {
        equals(option, input)?;
        let at = input.span();
        let what = choices.iter().map(|choice| format!("\"{choice}\"")).collect::<Vec<_>>();
        let what = format!("one of {}", what.join(", "));
        let text: LitStr = input.parse().or_else(|_| expected(option, at, &what))?;
        if choices.contains(&text.value().as_str()) { Ok(text) } else { expected(option, at, &what) }
    }
}

/// Returns a parser of a number from 1 to `most`, or of a constant that the compiler evaluates.
fn count_to(most: u64) -> impl FnOnce(&Ident, ParseStream) -> Result<Expr> {
    move |option, input| {
        equals(option, input)?;
        let at = input.span();
        let expr: Expr = input.parse()?;
        let number = "a whole number from 1, without suffix, or a constant";
        match ungrouped(&expr) {
            Expr::Lit(literal) => match &literal.lit {
                syn::Lit::Int(int) if int.suffix().is_empty() => match int.base10_parse::<u64>() {
                    Ok(0) => expected(option, at, number),
                    Ok(n) if n <= most => Ok(expr),
                    _ => expected(option, at, &format!("a number up to {most}")),
                },
                _ => expected(option, at, number),
            },
            Expr::Unary(_) => expected(option, at, number),
            _ => Ok(expr),
        }
    }
}
