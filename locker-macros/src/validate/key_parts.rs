//! Key parts that mean no parameter, or one that another part means already.

use crate::{
    attribute::likeness,
    hygiene::in_brackets,
    parse::{function::Function, key_parts::Part, param::renamed, pattern::is_upper},
};
use proc_macro2::{Ident, Span, TokenStream};
use quote::ToTokens;
use syn::{Error, Result};

/// Refuses a parameter that is given by its position and by its name.
pub(crate) fn check(parts: &[&Part], function: &Function) -> Result<()> {
    for (at, part) in parts.iter().enumerate() {
        let same = parts[..at].iter().find_map(|before| same(before, part, function));
        if let Some((index, name)) = same {
            let message = format!("`{name}` is given twice, by name and as position {index}: remove one");
            return Err(Error::new(part.span(), message));
        }
    }
    Ok(())
}

/// Returns the position and the name of the parameter that both parts mean.
fn same<'a>(one: &'a Part, other: &'a Part, function: &Function) -> Option<(usize, &'a Ident)> {
    match (one, other) {
        (Part::Position(index, _), Part::Name(name)) | (Part::Name(name), Part::Position(index, _)) => {
            let param = function.params.get(*index).filter(|param| !param.is_pattern())?;
            (param.whole.as_ref() == Some(name)).then_some((*index, name))
        }
        _ => None,
    }
}

/// Returns the value of a part as an expression, or an error if the function has no such parameter.
pub(crate) fn value_of(part: &Part, function: &Function) -> Result<TokenStream> {
    match part {
        Part::Position(index, at) => {
            let param = function.params.get(*index).ok_or_else(|| out_of_range(*index, *at, function))?;
            let mut name = param.whole.clone().unwrap_or_else(|| renamed(*index));
            name.set_span(name.span().located_at(*at));
            Ok(name.to_token_stream())
        }
        Part::Name(name) if name == "self" && function.has_receiver() => Ok(name.to_token_stream()),
        Part::Name(name) if function.bound_names().contains(name) || may_be_constant(name, function) => {
            Ok(name.to_token_stream())
        }
        Part::Name(name) => Err(unknown(name, function)),
        Part::Value(expr) => Ok(in_brackets(expr)),
    }
}

/// Returns whether the name may be a constant of the function, of what is around it, or of the module.
fn may_be_constant(name: &Ident, function: &Function) -> bool {
    let own = function.signature.generics.const_params().any(|param| param.ident == *name);
    own || is_upper(name)
}

fn out_of_range(index: usize, at: Span, function: &Function) -> Error {
    let name = &function.signature.ident;
    let message = match function.params.len() {
        0 => format!("`{name}` has no parameters, so there is no position {index}"),
        1 => format!("`{name}` has one parameter, so the only position is 0"),
        count => format!("`{name}` has {count} parameters, so positions go from 0 to {}", count - 1),
    };
    Error::new(at, format!("{message} (`self` is not counted)"))
}

fn unknown(name: &Ident, function: &Function) -> Error {
    let names = function.bound_names().iter().map(ToString::to_string).collect::<Vec<_>>();
    let text = name.to_string();
    let near = names.iter().max_by(|a, b| likeness(a, &text).total_cmp(&likeness(b, &text)));
    let hint = match near.filter(|near| likeness(near, &text) > 0.7) {
        Some(near) => format!("did you mean `{near}`?"),
        None if names.is_empty() => "none of its parameters has a name".to_owned(),
        None => format!("its parameters are `{}`", names.join("`, `")),
    };
    Error::new(name.span(), format!("`{}` has no parameter `{name}`; {hint}", function.signature.ident))
}
