//! What is particular to the embedded store, and to futures dropped half-way.

mod blocking;
mod cancel_safety;
mod crowds;
mod global;
mod ids;
mod lease;
mod misuse;
