#!/usr/bin/env bash
# Compiles the library with the oldest compiler that Cargo.toml promises, which rustup installs where it is missing.
# (The server promises the one that its ZeroMQ library needs.)
set -euo pipefail
cd "$(dirname "$0")/.."

oldest=$(sed -n '/^\[workspace.package\]/,/^\[/s/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
if ! rustup run "$oldest" rustc --version 2>/dev/null \
    && ! rustup toolchain install "$oldest" --profile minimal --no-self-update; then
    echo "skipped: the check with Rust $oldest, which needs rustup and its servers"
    exit 0
fi
cargo "+$oldest" check --target-dir "${CARGO_TARGET_DIR:-target}/oldest" --all-features --quiet \
    --package locker-rs --package locker-runtime --package locker-macros
echo "the library compiles with Rust $oldest"
