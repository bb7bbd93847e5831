//! Mistakes that only show when options are compared with each other, with the function or with other attributes.

pub(crate) mod constants;
pub(crate) mod function;
pub(crate) mod key_parts;
pub(crate) mod options;
mod overlap;

use crate::{
    attribute::Attribute,
    parse::{applied::Applied, function::Function},
};
use syn::Result;

/// Checks the attributes against the function and against each other.
pub(crate) fn check(stack: &[Applied], function: &Function) -> Result<()> {
    stack.iter().try_for_each(|applied| check_one(applied, function))?;
    overlap::refuse_same_key(stack, function)?;
    overlap::refuse_same_guard(stack)
}

fn check_one(applied: &Applied, function: &Function) -> Result<()> {
    let options = &applied.options;
    function::check(function, applied.attribute)?;
    if applied.attribute == Attribute::Leader {
        function::check_leader(function, applied.at)?;
    }
    if applied.attribute == Attribute::Idempotent {
        function::check_key(function, options, applied.at)?;
        function::check_kept(function)?;
    }
    options::check_guard(options, &function.bound_names())?;
    constants::check(options, function)?;
    key_parts::check(&options.parts().collect::<Vec<_>>(), function)?;
    if function.is_plain() {
        options::check_plain_function(options)?;
    }
    function::check_returned(function, options)
}
