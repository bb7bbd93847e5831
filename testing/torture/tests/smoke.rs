//! A minute of torture: `cargo run -p locker-torture -- --seconds 600` is the longer one.

use std::process::Command;

#[test]
fn a_minute_of_torture_breaks_no_promise() {
    let seconds = std::env::var("LOCKER_TORTURE_SECONDS").unwrap_or_else(|_| "60".into());
    let torture =
        Command::new(env!("CARGO_BIN_EXE_locker-torture")).args(["--seconds", &seconds]).output().unwrap();
    let (output, errors) =
        (String::from_utf8_lossy(&torture.stdout), String::from_utf8_lossy(&torture.stderr));
    println!("{output}{errors}");
    assert!(torture.status.success(), "{output}{errors}");
}
