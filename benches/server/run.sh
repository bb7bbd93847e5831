#!/usr/bin/env bash
# Measures the server with wrk against the baseline, an axum route that answers an empty 204: the throughput of token
# buckets and of semaphore pairs (acquire and release) at 1, 16 and 64 connections, with 0 and 1,000 waiting calls; then
# the memory and CPU time of a waiting call.
#
#   benches/server/run.sh [rounds] [seconds per measurement]
#
# Each round runs all measurements; the ratios are medians over the rounds. "per s" are requests per second, "per CPU"
# are requests per second of the server's own CPU time. On a busy machine "per s" also depends on the other load, while
# "per CPU" is the cost of a request.
set -euo pipefail
cd "$(dirname "$0")/../.."
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
-- A release follows long after its acquire, on any connection: the acquire has been answered by then, even if a
-- thread of the server was paused for some milliseconds.
-- The last acquires of a run have no release, and a semaphore has at most --max-holds: each run has its own.
local id = os.time() .. "-" .. tostring({}):match("0x%x+")
local taken, given, asked = 0, 0, false
function request()
    if not asked then
        -- wrk calls this once before it starts, and does not send the result.
        asked = true
        return wrk.format("GET", "/healthz")
    end
    if taken - given <= 8192 then
        taken = taken + 1
        return wrk.format("POST", "/v1/semaphore/" .. id .. "/acquire?size=1000000000&key=" .. id .. "-" .. taken)
    end
    given = given + 1
    return wrk.format("POST", "/v1/semaphore/" .. id .. "/release?key=" .. id .. "-" .. given)
end
LUA

"$built/examples/bare" 127.0.0.1:0 >"$work/bare" &
beside=$!
started+=("$beside")
until [ -s "$work/bare" ]; do sleep 0.05; done
bare=$(cat "$work/bare")

serve() { # starts a fresh server
    : >"$work/line"
    "$built/locker" serve --http 127.0.0.1:0 --zmq off --max-waits 100000 >"$work/line" 2>"$work/log" &
    server=$!
    started+=("$server")
    until [ -s "$work/line" ]; do sleep 0.05; done
    locker=$(grep -o 'http://[^,]*' "$work/line")
}
serve

measure() { # prints for the server with this pid: requests per second, and per second of its CPU time
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
waiters() { # starts this many waiting calls
    coproc CROWD { python3 benches/server/waiters.py "${locker#http://}" "$1"; }
    read -r waiting <&"${CROWD[0]}"
}
leave() {
    local pid=$CROWD_PID
    eval "exec ${CROWD[1]}>&-"
    wait "$pid" || true
}
resident() { awk '/VmRSS/ { print $2 }' "/proc/$server/status"; }

echo "$(git describe --always --dirty --exclude='*'), $(date -u +%F)"
echo "$(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg); medians of $rounds rounds of $seconds s; 1.00 is the baseline"
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
    # Warm up, so that the memory for the first connections is not counted.
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
