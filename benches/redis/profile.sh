#!/usr/bin/env bash
# Where the time of an uncontended acquire and release on Redis goes: the processor time of the callers and of the
# server per pair, by part of the program, at 1, 16 and 64 tasks. Needs `perf`.
#
#   benches/redis/profile.sh [tasks ..]
#
# A sample counts for the innermost function, by its name: what the compiler has put into another function counts there,
# and what the kernel does counts for the kernel, whoever has called it.
set -euo pipefail
cd "$(dirname "$0")/../.."
command -v perf >/dev/null || { echo "there is no perf" >&2; exit 1; }
[ $# -gt 0 ] || set -- 1 16 64
program=$(cargo bench --bench redis --all-features --no-run 2>&1 | sed -n 's/.*Executable.*(\(.*\))$/\1/p')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for tasks in "$@"; do
    LOCKER_BENCH=profile LOCKER_BENCH_TASKS=$tasks perf record -q -F 2000 -o "$work/data" "$program" --bench \
        2>/dev/null >"$work/said"
    cat "$work/said"
    pairs=$(awk '/pairs in/ { print $1 }' "$work/said")
    perf script -i "$work/data" -F comm,period,ip,sym 2>/dev/null | awk -v pairs="$pairs" '
        {
            server = $1 == "redis-server"
            kernel = $3 ~ /^ffff/
            name = $0
            sub(/^ *[^ ]+ +[0-9]+ +[0-9a-f]+ */, "", name)
            if (kernel && name ~ /^_*(tcp|ip|inet|sk|sock|skb|net|dev|nf|lock_sock|release_sock|process_backlog)/) part = "kernel: network"
            else if (kernel) part = "kernel: all else"
            else if (server) part = "the program"
            else if (name ~ /locker_/) part = "locker"
            else if (name ~ /tokio|mio::|futures/) part = "tokio, mio"
            else if (name ~ /redis::|combine::|bytes::/) part = "the crate redis"
            else if (name ~ /malloc|free|realloc|calloc|unlink_chunk|mem(move|set|cmp|cpy)|_int_/) part = "memory"
            else part = "all else"
            used[(server ? "server, " : "callers, ") part] += $2
        }
        END { for (part in used) printf "  %6.2f us  %s\n", used[part] / pairs / 1000, part }' | sort -k3,3 -k1,1rn
done
