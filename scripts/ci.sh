#!/usr/bin/env bash
# Runs what continuous integration runs: all tests, fuzzing of the server's input, the oldest compilers that are
# promised, format, lints, documentation and, if cargo-deny is installed, the rules of deny.toml for dependencies.
# Nothing may be skipped except cargo-deny: it takes minutes to compile, so only the workflow on GitHub installs it.
set -uo pipefail
cd "$(dirname "$0")/.."
export CI=true RUST_BACKTRACE=1

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=()

step() {
    printf '\n===== %s\n' "$*"
    "$@" || failed+=("$*")
}

deny() {
    if command -v cargo-deny >/dev/null; then
        cargo deny --workspace --all-features check
    else
        echo "skipped: cargo-deny is not installed (cargo install --locked cargo-deny)"
    fi
}

step scripts/test.sh > >(tee "$log") 2>&1
step scripts/fuzz-server.sh
step scripts/msrv.sh
step cargo fmt --all --check
step cargo clippy --workspace --all-targets --all-features --quiet -- -D warnings
step cargo clippy --package locker-rs --no-default-features --quiet -- -D warnings
RUSTDOCFLAGS="-D warnings" step cargo doc --workspace --no-deps --all-features --quiet
step deny

printf '\n===== result\n'
grep -h '^test result:' "$log"
tail -n 1 "$log"
if [ ${#failed[@]} -gt 0 ]; then
    printf 'failed: %s\n' "${failed[@]}"
    exit 1
fi
