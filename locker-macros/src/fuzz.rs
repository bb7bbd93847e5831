//! Random tokens as arguments and as items make an error or code, never a panic.

use crate::{attribute::Attribute, expand};
use proc_macro2::TokenStream;
use proptest::prelude::*;
use std::collections::BTreeSet;

const WORDS: &[&str] = &[
    "=",
    "=",
    "=",
    "=",
    ",",
    ",",
    ",",
    ",",
    "0",
    "1",
    "10",
    "0.5",
    "1e999",
    "99999999999999999999999",
    "0u8",
    "10s",
    "-",
    "-1",
    "\"10s\"",
    "\"\"",
    "\"cancel\"",
    "\"gcra\"",
    "\"on_expiry\"",
    "b\"x\"",
    "'a'",
    "'a",
    "true",
    "a",
    "b",
    "self",
    "Self",
    "r#type",
    "r#crate",
    "_",
    "..",
    "::",
    ".",
    "&",
    "|",
    "#",
    "!",
    "?",
    ";",
    "<",
    ">",
    "if",
    "move",
    "async",
    "await",
    "const",
    "fn",
    "path::to",
    "a.b",
    "&a.b",
    "Duration::ZERO",
    "(a, b)",
    "[a]",
    "{ a }",
];

const ITEMS: &[&str] = &[
    "fn f(a: u8, (b, c): (u8, u8)) -> Result<u8, E> { Ok(a) }",
    "async fn f(&self, a: u8, _: u8) -> Result<u8, E> { Ok(a) }",
    "fn f<'async_trait>(a: u8) -> Pin<Box<dyn Future<Output = Result<u8, E>> + 'async_trait>> \
     where 'static: 'async_trait { Box::pin(async move { let a = a; Ok(a) }) }",
    "fn f() -> ! { loop {} }",
    "#[lock_on_argument] #[inline] pub(crate) async unsafe fn f(mut a: u8) {}",
    "#[rate_limit(size = 1, interval = 1)] fn f(a: impl Display) -> impl Display { a }",
    "const unsafe extern \"C\" fn f(a: u8, ...) -> u8 { a }",
    "fn f(&self);",
    "fn f() -> Result<u8, E> { incomplete. }",
    "gen fn f() {}",
    "struct S;",
    "|a| a",
    "",
];

/// Returns every name that an option of any attribute may be written with.
fn option_names() -> Vec<&'static str> {
    let names: BTreeSet<_> = Attribute::ALL.into_iter().flat_map(Attribute::option_names).collect();
    names.into_iter().collect()
}

fn soup() -> impl Strategy<Value = String> {
    let words = [&option_names(), WORDS].concat();
    let word = prop::sample::select(words).prop_map(str::to_owned);
    let words = word.prop_recursive(3, 24, 8, |inner| {
        let brackets = prop::sample::select(&[("(", ")"), ("[", "]"), ("{", "}")][..]);
        (brackets, prop::collection::vec(inner, 0..8))
            .prop_map(|((open, close), words)| format!("{open}{}{close}", words.join(" ")))
    });
    prop::collection::vec(words, 0..12).prop_map(|words| words.join(" "))
}

/// Returns options with valid names and separators, and random values.
fn options() -> impl Strategy<Value = String> {
    let name = prop::sample::select(option_names());
    let option = (name, soup(), any::<bool>()).prop_map(|(name, value, brackets)| {
        if brackets { format!("{name}({value})") } else { format!("{name} = {value}") }
    });
    prop::collection::vec(option, 0..4).prop_map(|options| options.join(", "))
}

fn expand(attribute: Attribute, args: &str, item: &str) -> Option<TokenStream> {
    let (args, item) = (args.parse().ok()?, item.parse().ok()?);
    Some(expand::attribute(attribute, args, item))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn random_arguments_never_panic(
        attribute in prop::sample::select(&Attribute::ALL[..]),
        args in prop_oneof![soup(), options()],
        item in prop::sample::select(ITEMS),
    ) {
        expand(attribute, &args, item);
    }

    #[test]
    fn random_items_never_panic(attribute in prop::sample::select(&Attribute::ALL[..]), item in soup()) {
        expand(attribute, "size = 1, interval = 1", &item);
        expand(attribute, "", &format!("fn f(a: u8) {item} {{}}"));
    }
}

#[test]
fn item_stays_beside_the_error() {
    for item in ITEMS {
        let expanded = expand(Attribute::Lock, "nonsense", item).unwrap().to_string();
        let bare =
            item.replace("#[lock_on_argument] ", "").replace("#[rate_limit(size = 1, interval = 1)] ", "");
        let tokens = bare.parse::<TokenStream>().unwrap().to_string();
        // An expression is replaced, because two expressions cannot take its place.
        let is_expression = bare.starts_with('|');
        assert!(expanded.starts_with(&tokens) != is_expression, "{expanded}");
        assert!(expanded.contains("compile_error"), "{expanded}");
    }
}
