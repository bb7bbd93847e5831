#!/usr/bin/env bash
# Measures the server with wrk, beside a bare axum route that answers an empty 204: throughput of token buckets and of
# semaphore pairs (acquire and release) at 1, 16 and 64 connections, with 0 and 1,000 calls waiting; then what a
# waiting call costs.
#
#   scripts/bench-server.sh [rounds] [seconds per measurement]
#
# Every round measures all of them one after the other; the ratios are medians over the rounds, so that a busy machine
# disturbs them little.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5} seconds=${2:-2}
scripts/setup-server-tests.sh >/dev/null
cargo build --quiet --release -p locker-server --bin locker --example bare
built=${CARGO_TARGET_DIR:-target}/release
work=$(mktemp -d)
started=()
finish() {
    for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
    rm -rf "$work"
}
trap finish EXIT
ulimit -n "$(ulimit -Hn)"

cat >"$work/pairs.lua" <<'LUA'
-- Each connection of a thread takes its turn, so that a release often comes on another one than its acquire.
local id = tostring({}):match("0x%x+")
local n = 0
function request()
    n = n + 1
    local key = "&key=" .. id .. "-" .. math.floor((n - 1) / 2)
    if n % 2 == 1 then return wrk.format("POST", "/v1/semaphore/bench/acquire?size=1000000000" .. key) end
    return wrk.format("POST", "/v1/semaphore/bench/release?" .. key)
end
LUA

"$built/examples/bare" 127.0.0.1:0 >"$work/bare" &
started+=($!)
"$built/locker" serve --http 127.0.0.1:0 --zmq off --max-waits 100000 --max-waits-per-name 100000 >"$work/line" 2>"$work/log" &
server=$!
started+=("$server")
until [ -s "$work/bare" ] && [ -s "$work/line" ]; do sleep 0.05; done
bare=$(cat "$work/bare")
locker=$(grep -o 'http://[^,]*' "$work/line")

measure() { # requests per second; further arguments are wrk's
    wrk -t1 -d"${seconds}s" "$@" | awk '/Requests\/sec/ { print $2 }'
}
median() { sort -n | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }
waiters() { # starts so many waiting calls
    coproc CROWD { python3 scripts/waiters.py "${locker#http://}" "$1"; }
    read -r waiting <&"${CROWD[0]}"
}
leave() {
    local pid=$CROWD_PID
    eval "exec ${CROWD[1]}>&-"
    wait "$pid" || true
}
resident() { awk '/VmRSS/ { print $2 }' "/proc/$server/status"; }
ticks() { awk '{ print $14 + $15 }' "/proc/$server/stat"; }

echo "$(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg); medians of $rounds rounds of $seconds s; 1.00 is the bare route beside it"
echo "waiting  connections  token bucket  semaphore pair"
for crowd in 0 1000; do
    [ "$crowd" = 0 ] || waiters "$crowd"
    for connections in 1 16 64; do
        : >"$work/bucket"; : >"$work/pair"
        for _ in $(seq "$rounds"); do
            base=$(measure -c$connections "$bare/v1/tokenbucket/bench/acquire?size=1000000000")
            bucket=$(measure -c$connections "$locker/v1/tokenbucket/bench/acquire?size=1000000000")
            basepair=$(measure -c$connections -s "$work/pairs.lua" "$bare")
            pair=$(measure -c$connections -s "$work/pairs.lua" "$locker")
            awk "BEGIN { print $bucket / $base }" >>"$work/bucket"
            awk "BEGIN { print $pair / $basepair }" >>"$work/pair"
        done
        printf '%7d  %11d  %12.2f  %14.2f\n' "$crowd" "$connections" "$(median <"$work/bucket")" "$(median <"$work/pair")"
    done
    [ "$crowd" = 0 ] || leave
done

echo
echo "calls waiting  bytes each  share of a core"
for crowd in 1000 10000 50000; do
    before=$(resident)
    waiters "$crowd"
    sleep 1
    after=$(resident) from=$(ticks)
    sleep 5
    to=$(ticks)
    awk "BEGIN { printf \"%13d  %10d  %14.2f%%\n\", $waiting, ($after - $before) * 1024 / $waiting, ($to - $from) / $(getconf CLK_TCK) / 5 * 100 }"
    leave
    sleep 1
done
