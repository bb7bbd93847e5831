//! The attributes of locker.

mod args;
mod constants;
mod contradictions;
mod duration;
mod expand;
mod function;
mod kind;
mod layer;
mod params;
mod parts;
mod request;
mod returns;
mod run;
mod runtime_path;

use kind::Kind;
use proc_macro::TokenStream;

/// Runs the function only while it holds the lock on its arguments.
#[proc_macro_attribute]
pub fn lock_on_argument(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::attribute(Kind::Lock, args.into(), item.into()).into()
}

/// Lets the function run only so many times per interval and arguments.
#[proc_macro_attribute]
pub fn rate_limit(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::attribute(Kind::Rate, args.into(), item.into()).into()
}

/// Lets only so many calls of the function run at once per arguments.
#[proc_macro_attribute]
pub fn limit_concurrency(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::attribute(Kind::Semaphore, args.into(), item.into()).into()
}
