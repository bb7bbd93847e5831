#!/usr/bin/env bash
# Says what the tests need and is missing, installs it, runs all tests, and reports what was skipped and why.
#
#   scripts/test.sh              everything
#   scripts/test.sh NAME         only tests whose name contains NAME
#   scripts/test.sh --plan       only says what would be installed
#
# Installs Debian packages with apt-get if it runs as root, and Python packages into `target/python`, never into the
# system's Python. With CI=true nothing may be skipped: a tool that cannot be installed is then an error.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }

if [ "${1:-}" = "--help" ] || [ "${1:-}" = "-h" ]; then
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    exit 0
fi
if ! command -v cargo >/dev/null; then
    echo "cargo is missing: install Rust from https://rustup.rs and try again" >&2
    exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT

say "to be installed (as $(id -un))"
for setup in scripts/setup-*.sh; do
    "$setup" --plan
done | tee "$log"
[ -s "$log" ] || echo "nothing"
[ "${1:-}" != "--plan" ] || exit 0
: >"$log"

for setup in scripts/setup-*.sh; do
    say "$setup"
    # A setup script prints `export NAME=VALUE` lines for the tests, and everything else on stderr.
    if output=$("$setup"); then
        eval "$output"
    elif [ "${CI:-}" = true ]; then
        echo "$setup failed, and with CI=true nothing may be skipped" >&2
        exit 1
    else
        echo "skipped: the tests that need what $setup installs" | tee -a "$log"
    fi
done

# A script starts its background jobs with SIGINT and SIGQUIT ignored, nohup its command with SIGHUP ignored, and all
# children inherit that. Some tests end programs with these signals, so the tests start with the defaults. Under nohup
# they run in a session of their own, which the end of the terminal does not reach.
defaults=()
if env --default-signal=HUP,INT,QUIT true 2>/dev/null; then
    defaults=(env --default-signal=HUP,INT,QUIT)
    if [ -n "$(trap -p HUP)" ]; then
        defaults=(setsid --wait "${defaults[@]}")
    fi
elif [ -n "$(trap -p HUP INT QUIT)" ]; then
    echo "this env has no --default-signal: tests that send ignored signals will fail" >&2
fi

say "tests and documentation examples"
status=0
${defaults[@]+"${defaults[@]}"} cargo test --workspace --all-features --no-fail-fast -- "$@" 2>&1 | tee -a "$log" || status=1

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
