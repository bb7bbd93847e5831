#!/usr/bin/env bash
# Runs what continuous integration runs at every push: all tests, the oldest compiler that the library promises, format,
# lints, documentation and, if cargo-deny is installed, the rules of deny.toml for dependencies. Nothing may be skipped
# except cargo-deny: it takes minutes to compile, so only the workflow on GitHub installs it.
#
#   scripts/ci.sh             what a push must pass
#   scripts/ci.sh --weekly    and what takes longer: each store without the others, the oldest compiler of the server,
#                             all laws on all stores, ten times the comparisons of Lua with the step, fuzzing, seeded
#                             faults, schemathesis, five minutes of torture of each store, and the tests of Redis on
#                             several versions; some two hours
set -uo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in
"" | --weekly) ;;
*)
    sed -n '2,12s/^# \{0,1\}//p' "$0"
    [ "$1" = --help ] || [ "$1" = -h ]
    exit
    ;;
esac
# Nothing is compiled twice here, so what incremental compilation would keep is of no use.
export CI=true RUST_BACKTRACE=1 CARGO_INCREMENTAL=0

log=$(mktemp)
checked=$(mktemp)
oldest=$(mktemp)
results=$(mktemp)
. scripts/kill-children.sh
end() {
    local process
    for process in $(jobs -p); do
        kill_with_children "$process"
    done
    rm -f "$log" "$checked" "$oldest" "$results"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' HUP TERM

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
    # Has a folder of its own.
    step scripts/msrv.sh library >"$oldest" 2>&1 &
    step cargo fmt --all --check
    step cargo fmt --manifest-path fuzz/Cargo.toml --check
    step cargo clippy --workspace --all-targets --all-features --quiet -- -D warnings
    step cargo clippy --package locker-rs --no-default-features --quiet -- -D warnings
    step cargo clippy --package locker-core --package locker-cas --quiet -- -D warnings
    RUSTDOCFLAGS="-D warnings" step cargo doc --workspace --no-deps --all-features --quiet
    step deny
    wait
    cat "$oldest"
}

weekly() {
    # Each store without the others; all of them together are checked above.
    for store in redis postgres postgres-tls etcd etcd-tls mysql mysql-tls zookeeper zookeeper-tls files; do
        step cargo clippy --package locker-runtime --no-default-features --features $store --quiet -- -D warnings
    done
    step cargo clippy --package locker-server --no-default-features --features files --quiet -- -D warnings
    step scripts/msrv.sh server
    step cargo test --quiet --package locker-tests --all-features --test behaviour -- --ignored
    LOCKER_TEST_TIMES=10 step cargo test --quiet --package locker-redis --all-features --lib -- differential
    step scripts/fuzz.sh all 60
    step scripts/seeded-bugs.sh
    step cargo run --release --quiet -p locker-sim -- --seeds 10000
    step scripts/schemathesis.sh
    for store in redis postgres etcd mysql zookeeper files; do
        step cargo run --quiet --release --package locker-torture -- --seconds 300 --store $store
    done
    for topology in sentinel cluster; do
        step cargo run --quiet --release --package locker-torture -- --seconds 300 --topology $topology
    done
    step cargo run --quiet --release --package locker-torture -- --seconds 300 --kinds nested
    step scripts/matrix.sh
}

# The tests wait for servers and leases most of the time. The other checks run meanwhile, yield to them, and compile
# into a folder of their own: cargo lets one command at a time use a folder.
(
    export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}/checks
    renice -n 19 "${BASHPID:-$(exec sh -c 'echo $PPID')}" >/dev/null
    checks
) >"$checked" 2>&1 &
checking=$!
# A signal interrupts only a `wait`.
(step scripts/test.sh 2>&1 | tee "$log") &
wait $!
printf '\n===== the other checks\n'
wait $checking || echo "failed    0 s  the other checks were ended" >>"$results"
cat "$checked"
[ "${1:-}" != --weekly ] || weekly

printf '\n===== time of each step\n'
cat "$results"
printf '\n===== result\n'
grep -h '^test result:' "$log"
tail -n 1 "$log"
! grep '^failed' "$results"
