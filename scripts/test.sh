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

say() { printf '\n== %s (after %d s)\n' "$*" $SECONDS; }

if [ "${1:-}" = "--help" ] || [ "${1:-}" = "-h" ]; then
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    exit 0
fi
if ! command -v cargo >/dev/null; then
    echo "cargo is missing: install Rust from https://rustup.rs and try again" >&2
    exit 1
fi

log=$(mktemp)
reason=$(mktemp)
building=$(mktemp)
interleavings=$(mktemp)
beside=$(mktemp)
programs=$(mktemp -d)
. scripts/kill-children.sh
end() {
    local process
    # No program starts from now on.
    : >"$programs/ended"
    for process in $(jobs -p); do
        kill_with_children "$process"
    done
    for process in $(cat "$programs"/*.pid 2>/dev/null); do
        kill_with_children "$process"
    done
    # Those that wait for the programs write a last file.
    until rm -rf "$log" "$reason" "$building" "$interleavings" "$beside" "$programs" 2>/dev/null; do
        sleep 0.1
    done
}
ignored=$(trap -p HUP INT QUIT)
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' HUP TERM

say "to be installed (as $(id -un))"
for setup in scripts/setup-*.sh; do
    "$setup" --plan
done | tee "$log"
[ -s "$log" ] || echo "nothing"
[ "${1:-}" != "--plan" ] || exit 0
: >"$log"

# Compiles while the programs are installed. The tests below compile what fails here again, and report it.
{
    cargo test --workspace --all-features --no-run
    cargo build --package locker-python --lib
} >"$building" 2>&1 &
build=$!

for setup in scripts/setup-*.sh; do
    say "$setup"
    # A setup script prints `export NAME=VALUE` lines for the tests, and everything else on stderr.
    status=0
    output=$("$setup" 2>"$reason") || status=$?
    cat "$reason"
    if [ $status = 0 ]; then
        eval "$output"
    elif [ "${CI:-}" = true ]; then
        echo "$setup failed, and with CI=true nothing may be skipped" >&2
        exit 1
    else
        echo "skipped: the tests that need what $setup installs: $(tail -n 1 "$reason")" | tee -a "$log"
    fi
done

say "compiling the tests"
tail -n +1 -f "$building" &
showing=$!
wait $build || true
kill $showing

# A script starts its background jobs with SIGINT and SIGQUIT ignored, nohup its command with SIGHUP ignored, and all
# children inherit that. Some tests end programs with these signals, so the tests start with the defaults. Under nohup
# they run in a session of their own, which the end of the terminal does not reach.
signals=()
defaults=()
if env --default-signal=HUP,INT,QUIT true 2>/dev/null; then
    signals=(env --default-signal=HUP,INT,QUIT)
    defaults=("${signals[@]}")
    if [[ $ignored == *HUP* ]]; then
        defaults=(setsid --wait "${signals[@]}")
    fi
elif [ -n "$ignored" ]; then
    echo "this env has no --default-signal: tests that send ignored signals will fail" >&2
fi

# The tests wait for servers and leases most of the time: other work takes the processors meanwhile, and yields to them.
if [ $# -eq 0 ]; then
    nice -n 19 scripts/interleavings.sh >"$interleavings" 2>&1 &
    exploring=$!
fi

say "tests and documentation examples"
# Most tests wait for servers and for leases: more of them at a time than there are processors.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-6}
export LOCKER_TEST_PROGRAMS=$programs LOCKER_TEST_SIGNALS="${signals[*]-}"
slots=${LOCKER_TEST_SLOTS:-2}
[ "$slots" -ge 1 ] || { echo "LOCKER_TEST_SLOTS is $slots: give at least 1" >&2 && exit 1; }
mkfifo "$programs/slots"
# A pipe that nobody has open loses what is in it.
exec 8<>"$programs/slots"
printf "%${slots}s" | tr ' ' . >&8
target=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
export "CARGO_TARGET_${target}_RUNNER=$PWD/scripts/run-test.sh"
tests=(${defaults[@]+"${defaults[@]}"} cargo test --workspace --all-features --no-fail-fast)
programs() {
    local status=0
    local some=(--lib --bins --example map --test '*' --exclude locker-python --exclude locker-forks)
    LOCKER_TEST_LONG=yes "${tests[@]}" "${some[@]}" -- "$@" || status=1
    "${tests[@]}" "${some[@]}" -- "$@" || status=1
    "${tests[@]}" --test forks -- "$@" || status=1
    return $status
}
python_tests() {
    local selected=()
    if [ $# -gt 0 ]; then
        [[ $1 =~ ^[A-Za-z0-9_]+$ ]] || return 0
        selected=(-k "$1")
    fi
    # The programs call what Python calls. Without the whole workspace, cargo would compile most libraries once more.
    cargo build --workspace --all-features --example turns --example repeats &&
        VIRTUAL_ENV=$(dirname "$(dirname "$LOCKER_TEST_PYTHON")") "$LOCKER_TEST_PYTHON" -m maturin develop --quiet \
            --manifest-path clients/python/Cargo.toml &&
        (cd clients/python && ${defaults[@]+"${defaults[@]}"} "$LOCKER_TEST_PYTHON" -m pytest -q \
            ${selected[@]+"${selected[@]}"}) || [ $? = 5 ] # 5: no test has this name
}
# What is shown when the programs have ended.
beside() {
    local status=0
    "${tests[@]}" --doc -- "$@" || status=1
    if [ -n "${LOCKER_TEST_PYTHON:-}" ]; then
        say "the Python package"
        python_tests "$@" || status=1
    fi
    return $status
}
status=0
beside "$@" >"$beside" 2>&1 &
others=$!
# Ends when the last program has closed its output. A signal interrupts only a `wait`.
(programs "$@" 2>&1 | tee -a "$log") &
wait $! || status=1
for output in "$programs"/*.output; do
    [ "$(cat "${output%.output}.status")" = 0 ] || status=1
done
wait $others || status=1
tee -a "$log" <"$beside"

if [ $# -eq 0 ]; then
    say "interleavings of the embedded store"
    wait $exploring || status=1
    tee -a "$log" <"$interleavings"
fi

say "skipped"
# The tests print it in the midst of other lines, and each of them for itself.
grep -ho 'skipped: .*' "$log" | sort | uniq -c |
    sed 's/^ *\([0-9]*\) \(.*\)/\2 (\1 times)/; s/ (1 times)$//' | grep . || echo "nothing"
if [ "${CI:-}" = true ] && grep -q 'skipped: ' "$log"; then
    echo "with CI=true nothing may be skipped" >&2
    status=1
fi

if [ $# -gt 0 ] && ! grep -Eq '^test result: .* [1-9][0-9]* (passed|failed)' "$log"; then
    echo "no test has the name $1, or only interleavings do (scripts/interleavings.sh)" >&2
    status=1
fi

say "summary"
grep -h '^test result:' "$log" | awk '
    { passed += $4; failed += $6; ignored += $8 }
    END { printf "%d passed, %d failed, %d ignored\n", passed, failed, ignored }'
exit $status
