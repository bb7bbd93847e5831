//! What the user wrote, read from tokens: the attributes with their options, and the function.

pub(crate) mod applied;
pub(crate) mod duration;
pub(crate) mod early_end;
pub(crate) mod function;
pub(crate) mod key_parts;
pub(crate) mod options;
pub(crate) mod param;
pub(crate) mod pattern;
pub(crate) mod return_type;
