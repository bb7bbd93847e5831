#!/usr/bin/env bash
# Measures the server with wrk, beside a bare axum route that answers an empty 204: throughput of token buckets and of
# semaphore pairs (acquire and release) at 1, 16 and 64 connections, with 0 and 1,000 calls waiting; then what a
# waiting call costs.
#
#   scripts/bench-server.sh [rounds] [seconds per measurement]
#
# Every round measures all of them one after the other; the ratios are medians over the rounds. Beside the requests per
# second stand the requests per second of the server's own processor time: on a busy machine the former say how much
# of it the server was given, the latter what a request costs.
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
-- A release comes long after its acquire, on whichever connection: the answer to that has come by then, also where a
-- thread of the server had to stand still for some milliseconds.
local id = tostring({}):match("0x%x+")
local taken, given, asked = 0, 0, false
function request()
    if not asked then
        -- wrk asks once before it starts, and does not send that.
        asked = true
        return wrk.format("GET", "/healthz")
    end
    if taken - given <= 8192 then
        taken = taken + 1
        return wrk.format("POST", "/v1/semaphore/bench/acquire?size=1000000000&key=" .. id .. "-" .. taken)
    end
    given = given + 1
    return wrk.format("POST", "/v1/semaphore/bench/release?key=" .. id .. "-" .. given)
end
LUA

"$built/examples/bare" 127.0.0.1:0 >"$work/bare" &
beside=$!
started+=("$beside")
until [ -s "$work/bare" ]; do sleep 0.05; done
bare=$(cat "$work/bare")

serve() { # a fresh server
    : >"$work/line"
    "$built/locker" serve --http 127.0.0.1:0 --zmq off --max-waits 100000 >"$work/line" 2>"$work/log" &
    server=$!
    started+=("$server")
    until [ -s "$work/line" ]; do sleep 0.05; done
    locker=$(grep -o 'http://[^,]*' "$work/line")
}
serve

measure() { # of the server with this pid: requests per second, and per second of its processor time
    local pid=$1 from
    shift
    from=$(ticks "$pid")
    wrk -t1 -d"${seconds}s" "$@" |
        awk '/requests in/ { n = $1 } /Requests\/sec/ { r = $2 } /Non-2xx/ { bad = $NF } END { print r, n, bad + 0 }' >"$work/now"
    read -r _ _ refused <"$work/now"
    [ "$refused" = 0 ] || echo "$refused answers were not 2xx: $*" >&2
    awk -v t=$(($(ticks "$pid") - from)) '{ print $1, $2 / t }' "$work/now"
}
ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }
median() { cut -d' ' -f"$1" | sort -n | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }
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

echo "$(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg); medians of $rounds rounds of $seconds s; 1.00 is the bare route beside it"
echo "                      token bucket     semaphore pair"
echo "waiting  connections  per s   per CPU  per s   per CPU"
for crowd in 0 1000; do
    [ "$crowd" = 0 ] || waiters "$crowd"
    for connections in 1 16 64; do
        : >"$work/bucket"; : >"$work/pair"
        for _ in $(seq "$rounds"); do
            base=$(measure "$beside" -c$connections "$bare/v1/tokenbucket/bench/acquire?size=1000000000")
            bucket=$(measure "$server" -c$connections "$locker/v1/tokenbucket/bench/acquire?size=1000000000")
            basepair=$(measure "$beside" -c$connections -s "$work/pairs.lua" "$bare")
            pair=$(measure "$server" -c$connections -s "$work/pairs.lua" "$locker")
            echo "$bucket $base" | awk '{ print $1 / $3, $2 / $4 }' >>"$work/bucket"
            echo "$pair $basepair" | awk '{ print $1 / $3, $2 / $4 }' >>"$work/pair"
        done
        printf '%7d  %11d  %5.2f  %8.2f  %5.2f  %8.2f\n' "$crowd" "$connections" \
            "$(median 1 <"$work/bucket")" "$(median 2 <"$work/bucket")" "$(median 1 <"$work/pair")" "$(median 2 <"$work/pair")"
    done
    [ "$crowd" = 0 ] || leave
done

echo
echo "calls waiting  bytes each  share of a core"
for crowd in 1000 10000 50000; do
    serve
    # What the first connections leave behind is no cost of those that come later.
    waiters 100
    leave
    before=$(resident)
    waiters "$crowd"
    sleep 1
    after=$(resident) from=$(ticks "$server")
    sleep 5
    to=$(ticks "$server")
    awk "BEGIN { printf \"%13d  %10d  %14.2f%%\n\", $waiting, ($after - $before) * 1024 / $waiting, ($to - $from) / $(getconf CLK_TCK) / 5 * 100 }"
    leave
done
