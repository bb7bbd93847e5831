#!/usr/bin/env bash
# Checks the embedded store's queue, cancel, drop and expiry under many thread interleavings (shuttle).
set -euo pipefail
cd "$(dirname "$0")/.."
RUSTFLAGS="${RUSTFLAGS:-} --cfg shuttle -D dead_code" CARGO_TARGET_DIR=target/shuttle \
    cargo test --quiet --release -p locker-core --test interleavings -- "$@"
