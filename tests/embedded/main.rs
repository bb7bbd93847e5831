//! Tests of the embedded store, of cancel safety and of settings.

mod alone;
mod blocking;
mod cancel_safety;
mod crowds;
mod descriptions;
mod election;
mod global;
mod ids;
mod lease;
mod misuse;
