//! The errors of `tests/attributes/refused/`, without the compiler: so a change of the macros is tested in seconds.
//!
//! `tests/attributes/refused.rs` asks the compiler for them.

#[path = "../../tests/attributes/announced.rs"]
mod announced;

use crate::{attribute::Attribute, expand};
use announced::{Refusal, announced, differences};
use proc_macro2::{Delimiter, LineColumn, Span, TokenStream, TokenTree};
use std::{fs, path::Path};
use syn::{ItemFn, parse2};

/// Files whose errors the compiler finds, at least some: in the types, constants and lifetimes of the code that an
/// attribute becomes.
const WITH_ERRORS_OF_THE_COMPILER: &[&str] = &[
    "attempts_of_a_zero_behind_a_constant",
    "body_of_another_type",
    "borrowed_for_too_short",
    "constants_out_of_range",
    "error_without_from",
    "idempotent_without_a_result_to_keep",
    "lease_of_another_type",
    "leader_with_a_parameter_of_one_use",
    "lease_that_is_no_constant",
    "locker_is_no_locker",
    "margins_behind_constants",
    "max_hold_constant_below_the_lease",
    "no_attempts_behind_a_constant",
    "not_a_result",
    "on_error_of_another_type",
    "once_without_a_value_for_skipped_calls",
    "part_without_display",
    "size_of_another_type",
    "size_of_zero_behind_a_constant",
    "unused_parameter",
    "zero_lease_behind_a_constant",
];

/// Returns name and text of each file in a folder of the attributes' tests.
fn files(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/attributes").join(folder);
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    paths.map(|path| (name(&path), fs::read_to_string(&path).unwrap())).collect()
}

/// Returns the errors of all attributes in these tokens, however deep.
fn errors(tokens: &TokenStream) -> Vec<(LineColumn, String)> {
    let (mut found, mut rest) = (Vec::new(), tokens.clone().into_iter().collect::<Vec<_>>());
    let mut before = Span::call_site().start();
    rest.reverse();
    while let Some(token) = rest.pop() {
        if matches!(&token, TokenTree::Ident(name) if name == "macro_rules") {
            // An exclamation mark, a name and the rules, in which a name may be `$name`.
            rest.truncate(rest.len() - 3);
        }
        let TokenTree::Group(group) = &token else {
            before = token.span().start();
            continue;
        };
        if let Some((attribute, args)) = called(&group.stream()) {
            let item = item(&mut rest);
            let errors = compile_errors(expand::attribute(attribute, args, item));
            // In the compiler the call site is the attribute, from its `#` on.
            let call_site = |place| if place == Span::call_site().start() { before } else { place };
            found.extend(errors.into_iter().map(|(place, text)| (call_site(place), text)));
        } else {
            found.extend(errors(&group.stream()));
        }
    }
    found
}

/// Returns an attribute of this crate and its arguments.
fn called(inside: &TokenStream) -> Option<(Attribute, TokenStream)> {
    let function = parse2::<ItemFn>(
        [
            quote::quote!(#[#inside]),
            quote::quote!(
                fn f() {}
            ),
        ]
        .into_iter()
        .collect(),
    );
    let meta = &function.ok()?.attrs.pop()?.meta;
    let attribute = Attribute::of_path(meta.path(), "locker")?;
    let args = meta.require_list().map(|list| list.tokens.clone()).unwrap_or_default();
    Some((attribute, args))
}

/// Takes the tokens of the item that an attribute stands on.
fn item(rest: &mut Vec<TokenTree>) -> TokenStream {
    let mut item = Vec::new();
    while let Some(token) = rest.pop() {
        let ends = matches!(&token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
        let closure = matches!(item.first(), Some(TokenTree::Punct(first)) if first.as_char() == '|');
        let semicolon = matches!(&token, TokenTree::Punct(mark) if mark.as_char() == ';');
        if !(semicolon && closure) {
            item.push(token);
        }
        if ends || semicolon {
            break;
        }
    }
    item.into_iter().collect()
}

/// Returns place and text of each `compile_error!` in code.
fn compile_errors(code: TokenStream) -> Vec<(LineColumn, String)> {
    let (mut found, mut place) = (Vec::new(), None);
    for token in code {
        match token {
            TokenTree::Ident(name) if name == "compile_error" => place = Some(name.span().start()),
            TokenTree::Group(group) => match place.take() {
                Some(place) => {
                    let text: syn::LitStr = parse2(group.stream()).unwrap();
                    found.push((place, text.value()));
                }
                None => found.extend(compile_errors(group.stream())),
            },
            _ => {}
        }
    }
    found
}

fn refused(text: &str) -> Vec<Refusal> {
    let place = |(place, message): (LineColumn, String)| Refusal {
        line: place.line.try_into().unwrap(),
        token: text.lines().nth(place.line - 1).unwrap().chars().skip(place.column).collect(),
        text: message,
    };
    errors(&text.parse().unwrap()).into_iter().map(place).collect()
}

#[test]
fn mistakes_are_refused_at_their_token() {
    let mut wrong = Vec::new();
    for (file, text) in files("refused") {
        let (missing, others) = differences(announced(&text), refused(&text));
        if WITH_ERRORS_OF_THE_COMPILER.contains(&file.as_str()) {
            assert!(!missing.is_empty(), "{file}: the compiler is not needed");
        } else {
            wrong.extend(missing.iter().map(|one| format!("{file}: no error is {one:?}")));
        }
        wrong.extend(others.iter().map(|one| format!("{file}: another error is {one:?}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn accepted_functions_make_no_error() {
    for (file, text) in files("accepted") {
        let refused = refused(&text);
        assert!(refused.is_empty(), "{file}: {refused:?}");
    }
}
