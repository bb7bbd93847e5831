//! Mistakes have their error messages in this edition, too.

extern crate trybuild;

#[test]
fn mistakes_are_refused_with_a_reason() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
