//! Every mistake has an error message at its token.

#[test]
fn mistakes_are_refused_with_a_reason() {
    trybuild::TestCases::new().compile_fail("attributes/refused/*.rs");
}

/// Mistakes that only the compiler can see. Their wording differs between compiler versions.
#[rustversion::attr(not(stable(1.95)), ignore = "worded for Rust 1.95")]
#[test]
fn compiler_errors_point_at_the_mistake() {
    trybuild::TestCases::new().compile_fail("attributes/refused/by_the_compiler/*.rs");
}
