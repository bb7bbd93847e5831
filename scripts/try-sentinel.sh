#!/usr/bin/env bash
# Starts a Redis master, two replicas and three sentinels on 127.0.0.1, for trying out: until Ctrl-C, or while a command
# runs that finds their URL in LOCKER_URL. Everything is in a temporary folder, which is deleted in the end.
#   scripts/try-sentinel.sh
#   scripts/try-sentinel.sh locker run report -- ./report.sh
# Ports: BASE to BASE+2 for the servers, BASE+10 to BASE+12 for the sentinels. BASE is 7100 unless set.
# A failover: redis-cli -p 7110 SENTINEL FAILOVER main
set -euo pipefail
. "$(dirname "$0")/redis-servers.sh"
base=${BASE:-7100}
sentinels=($((base + 10)) $((base + 11)) $((base + 12)))
replicas=($((base + 1)) $((base + 2)))
free "$base" "${replicas[@]}" "${sentinels[@]}"
lagging=(--min-replicas-to-write 1 --min-replicas-max-lag 3)
server "$base" "${lagging[@]}"
until_says PONG "$base" PING
for port in "${replicas[@]}"; do server "$port" "${lagging[@]}" --replicaof 127.0.0.1 "$base"; done
until_says "min_slaves_good_slaves:2" "$base" INFO replication
for port in "${sentinels[@]}"; do
    mkdir "$folder/$port"
    cat >"$folder/$port/sentinel.conf" <<END
port $port
bind 127.0.0.1
sentinel monitor main 127.0.0.1 $base 2
sentinel down-after-milliseconds main 2000
sentinel failover-timeout main 10000
END
    (cd "$folder/$port" && exec redis-server sentinel.conf --sentinel >log 2>&1) &
    processes+=($!)
done
for port in "${sentinels[@]}"; do
    until_says "num-slaves 2 num-other-sentinels 2" "$port" SENTINEL MASTER main
done
export LOCKER_URL="redis+sentinel://127.0.0.1:${sentinels[0]},127.0.0.1:${sentinels[1]},127.0.0.1:${sentinels[2]}/main"
run "redis-cli -p ${sentinels[0]} SENTINEL FAILOVER main" "$@"
