#!/usr/bin/env bash
# Starts a Redis Cluster of three masters and three replicas on 127.0.0.1, for trying out: until Ctrl-C, or while a
# command runs that finds their URL in LOCKER_URL. Everything is in a temporary folder, which is deleted in the end.
#   scripts/try-cluster.sh
#   scripts/try-cluster.sh locker run report -- ./report.sh
# Ports: BASE to BASE+5, and the same plus 10000. BASE is 7200 unless set.
# A failover: redis-cli -p 7203 CLUSTER FAILOVER
set -euo pipefail
. "$(dirname "$0")/redis-servers.sh"
base=${BASE:-7200}
mapfile -t ports < <(seq "$base" $((base + 5)))
free "${ports[@]}"
for port in "${ports[@]}"; do
    server "$port" --cluster-enabled yes --cluster-node-timeout 3000 --cluster-require-full-coverage no
done
for port in "${ports[@]}"; do until_says PONG "$port" PING; done
redis-cli --cluster create "${ports[@]/#/127.0.0.1:}" --cluster-replicas 1 --cluster-yes >"$folder/create" 2>&1 \
    || { cat "$folder/create" >&2; exit 1; }
for port in "${ports[@]}"; do
    until_says "cluster_state:ok" "$port" CLUSTER INFO
    until_says "slave .*slave .*slave " "$port" CLUSTER NODES
done
export LOCKER_URL="redis+cluster://127.0.0.1:$base,127.0.0.1:$((base + 1)),127.0.0.1:$((base + 2))"
run "redis-cli -p $((base + 3)) CLUSTER FAILOVER" "$@"
