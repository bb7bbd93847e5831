#!/usr/bin/env bash
# Fuzzes what the crates read from stores, servers and clients, guided by coverage. Ends with an error at the first
# finding, and says how to repeat it. The input of a finding belongs into fuzz/corpus/TARGET, with a test that has a
# name, once it is mended: `cargo test` reads that folder through the same functions.
#
# Installs a nightly compiler and cargo-fuzz if they are missing. What the fuzzer collects is kept in the build folder,
# in fuzz/corpus, and the next run begins with it.
#
#   scripts/fuzz.sh                       each target for a minute
#   scripts/fuzz.sh TARGET [SECONDS]      one target, or `all`
#   scripts/fuzz.sh --list                the names of the targets
set -euo pipefail
cd "$(dirname "$0")/.."
targets=$(basename -s .rs fuzz/targets/*)
case "${1:-all}" in
--help | -h)
    sed -n '2,11s/^# \{0,1\}//p' "$0"
    exit
    ;;
--list)
    echo "$targets"
    exit
    ;;
all) ;;
*)
    if ! grep -qx -- "$1" <<<"$targets"; then
        echo "there is no target $1: give one of" $targets "or all" >&2
        exit 1
    fi
    targets=$1
    ;;
esac
seconds=${2:-60}

folder=$(realpath -m "${CARGO_TARGET_DIR:-target}")/fuzz
export PATH=$folder/tools/bin:$PATH
if ! rustup run nightly rustc --version >/dev/null 2>&1; then
    rustup toolchain install nightly --profile minimal --no-self-update
fi
if ! cargo fuzz --version >/dev/null 2>&1; then
    cargo install --quiet --locked cargo-fuzz --root "$folder/tools" --target-dir "$folder/tools/target"
fi

# The dependencies have the versions of the workspace.
cp Cargo.lock fuzz/Cargo.lock
# No crate of ours has unsafe code, so there is nothing for a sanitizer to find.
fuzz=(cargo +nightly fuzz)
options=(--sanitizer none --target-dir "$folder/build")
"${fuzz[@]}" build "${options[@]}"
for target in $targets; do
    mkdir -p "$folder/corpus/$target"
    "${fuzz[@]}" run "${options[@]}" "$target" "$folder/corpus/$target" "fuzz/corpus/$target" -- \
        -max_total_time="$seconds" -max_len=16384 -timeout=10 -dict=fuzz/words.dict -print_final_stats=1
done
