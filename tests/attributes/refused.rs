//! Every mistake has its message, at the token where it was made.

#[test]
fn mistakes_are_refused_with_their_reason() {
    trybuild::TestCases::new().compile_fail("attributes/refused/*.rs");
}

/// What only the compiler can see, it words itself, a little differently in each version.
#[rustversion::attr(not(stable(1.95)), ignore = "worded for Rust 1.95")]
#[test]
fn mistakes_that_the_compiler_sees_are_refused_with_their_reason() {
    trybuild::TestCases::new().compile_fail("attributes/refused/by_the_compiler/*.rs");
}
