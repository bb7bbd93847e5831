//! A mistake has its message in this edition, too.

extern crate trybuild;

#[test]
fn mistakes_are_refused_with_their_reason() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
