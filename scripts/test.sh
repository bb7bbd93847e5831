#!/usr/bin/env bash
# Installs what the tests need and is missing, runs all tests, and says what was skipped and why.
#
#   scripts/test.sh              everything
#   scripts/test.sh NAME         only tests whose name contains NAME
#
# With CI=true nothing may be skipped: what cannot be installed is then an error.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }

if [ "${1:-}" = "--help" ] || [ "${1:-}" = "-h" ]; then
    sed -n '2,7s/^# \{0,1\}//p' "$0"
    exit 0
fi
if ! command -v cargo >/dev/null; then
    echo "cargo is missing: install Rust from https://rustup.rs and try again" >&2
    exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT

for setup in scripts/setup-*.sh; do
    [ -e "$setup" ] || continue
    say "$setup"
    # A setup script prints `export NAME=VALUE` lines for the tests, and everything else on stderr.
    if output=$("$setup"); then
        eval "$output"
    elif [ "${CI:-}" = true ]; then
        echo "$setup failed, and with CI=true nothing may be skipped" >&2
        exit 1
    else
        echo "skipped: what $setup would have installed" | tee -a "$log"
    fi
done

say "tests and documentation examples"
status=0
cargo test --workspace --all-features --no-fail-fast -- "$@" 2>&1 | tee -a "$log" || status=1

if [ $# -eq 0 ]; then
    say "interleavings of the embedded store"
    scripts/interleavings.sh 2>&1 | tee -a "$log" || status=1
fi

say "skipped"
grep -h '^skipped:' "$log" || echo "nothing"
if [ "${CI:-}" = true ] && grep -q '^skipped:' "$log"; then
    echo "with CI=true nothing may be skipped" >&2
    status=1
fi

say "summary"
grep -h '^test result:' "$log" | awk '
    { passed += $4; failed += $6; ignored += $8 }
    END { printf "%d passed, %d failed, %d skipped\n", passed, failed, ignored }'
exit $status
