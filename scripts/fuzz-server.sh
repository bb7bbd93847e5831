#!/usr/bin/env bash
# Feeds mutated queries and ZeroMQ messages to what reads them, 60 seconds in all; ends with an error at the first
# finding,
# whose seed repeats it: target/debug/examples/fuzz <target> <seconds> <seed>.
#
#   scripts/fuzz-server.sh [seconds]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
cargo build --quiet -p locker-server --example fuzz
fuzz=${CARGO_TARGET_DIR:-target}/debug/examples/fuzz
"$fuzz" query $((seconds / 2))
"$fuzz" frames $((seconds - seconds / 2))
