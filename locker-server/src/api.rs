//! The API that HTTP and ZeroMQ share: how calls are spelled, and how they are answered.

mod actions;
mod answer;
mod call;
mod explain;
pub(crate) mod explained;
mod listing;
pub(crate) mod name;
pub(crate) mod openapi;
mod params;
mod resource;
pub(crate) mod state;
pub(crate) mod stats;

pub(crate) use actions::{Action, ROWS};
pub(crate) use answer::{Answer, Record};
pub(crate) use call::{Call, CallKind, Method, ParsedCall, is_call, parse};
pub(crate) use listing::{Listing, each as each_parameter, key_kind};
#[cfg(feature = "_fuzz")]
pub(crate) use params::RawParams;
pub(crate) use params::{Counts, Params, Run, once};
pub(crate) use resource::Resource;
