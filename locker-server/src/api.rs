//! The API that HTTP and ZeroMQ share: how calls are spelled, and how they are answered.

mod actions;
mod answer;
mod call;
mod listing;
pub(crate) mod name;
pub(crate) mod openapi;
mod params;
mod resource;
pub(crate) mod state;
pub(crate) mod stats;

pub(crate) use actions::{Action, ROWS};
pub(crate) use answer::Answer;
pub(crate) use call::{Call, CallKind, Method, ParsedCall, parse};
pub(crate) use listing::Listing;
pub(crate) use params::Params;
#[cfg(feature = "_fuzz")]
pub(crate) use params::RawParams;
pub(crate) use resource::Resource;
