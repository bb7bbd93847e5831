#!/usr/bin/env bash
# Runs what continuous integration runs: all tests, fuzzing of the server's input, the oldest compilers that are
# promised, format, lints, documentation and, if cargo-deny is installed, the rules of deny.toml for dependencies.
# Nothing may be skipped except cargo-deny: it takes minutes to compile, so only the workflow on GitHub installs it.
set -uo pipefail
cd "$(dirname "$0")/.."
# Nothing is compiled twice here, so what incremental compilation would keep is of no use.
export CI=true RUST_BACKTRACE=1 CARGO_INCREMENTAL=0

log=$(mktemp)
checked=$(mktemp)
results=$(mktemp)
trap 'kill $(jobs -p) 2>/dev/null; rm -f "$log" "$checked" "$results"' EXIT

step() {
    local start=$SECONDS result=ok
    printf '\n===== %s\n' "$*"
    "$@" || result=failed
    printf '%-6s %4d s  %s\n' $result $((SECONDS - start)) "$*" >>"$results"
}

deny() {
    if command -v cargo-deny >/dev/null; then
        cargo deny --workspace --all-features check
    else
        echo "skipped: cargo-deny is not installed (cargo install --locked cargo-deny)"
    fi
}

checks() {
    step scripts/msrv.sh
    step cargo fmt --all --check
    step cargo clippy --workspace --all-targets --all-features --quiet -- -D warnings
    step cargo clippy --package locker-rs --no-default-features --quiet -- -D warnings
    step cargo clippy --package locker-core --package locker-cas --quiet -- -D warnings
    # Each store without the others; all of them together are checked above.
    for store in redis postgres postgres-tls etcd etcd-tls files; do
        step cargo clippy --package locker-runtime --no-default-features --features $store --quiet -- -D warnings
    done
    step cargo clippy --package locker-server --no-default-features --features files --quiet -- -D warnings
    RUSTDOCFLAGS="-D warnings" step cargo doc --workspace --no-deps --all-features --quiet
    step deny
    step scripts/fuzz-server.sh
}

# The tests wait for servers and leases most of the time. The other checks run meanwhile, and yield to them.
(
    renice -n 19 $BASHPID >/dev/null
    checks
) >"$checked" 2>&1 &
step scripts/test.sh > >(tee "$log") 2>&1
printf '\n===== the other checks\n'
wait
cat "$checked"

printf '\n===== time of each step\n'
cat "$results"
printf '\n===== result\n'
grep -h '^test result:' "$log"
tail -n 1 "$log"
! grep '^failed' "$results"
