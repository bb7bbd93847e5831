#!/usr/bin/env bash
# Fuzzes the server's parsers with mutated queries and ZeroMQ messages, for 60 seconds in total. Ends with an error at
# the first finding. Its seed repeats the run: target/debug/examples/fuzz <target> <seconds> <seed>.
#
#   scripts/fuzz-server.sh [seconds]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
cargo build --quiet -p locker-server --example fuzz
fuzz=${CARGO_TARGET_DIR:-target}/debug/examples/fuzz
"$fuzz" query $((seconds / 2))
"$fuzz" frames $((seconds - seconds / 2))
