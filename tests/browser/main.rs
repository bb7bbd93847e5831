//! The page at `/` in a real browser.

mod accessible;
mod broken;
mod large;
mod picture;
mod served;
#[expect(dead_code, reason = "some is for the tests of calls")]
#[path = "../server/support.rs"]
mod server;
mod stub;
mod support;
mod views;
